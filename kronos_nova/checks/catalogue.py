# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""The checks of ``kronos-test-config``, in order; one module for each."""

from collections.abc import Collection
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.checks import base
from kronos_nova.checks import broker
from kronos_nova.checks import campaigns
from kronos_nova.checks import database
from kronos_nova.checks import hooks
from kronos_nova.checks import keystone
from kronos_nova.checks import migfra
from kronos_nova.checks import mqtt
from kronos_nova.checks import nova
from kronos_nova.checks import options
from kronos_nova.checks import placement
from kronos_nova.checks import policies
from kronos_nova.checks import queries
from kronos_nova.checks import repin
from kronos_nova.checks import scheduler
from kronos_nova.checks import scores
from kronos_nova.checks import signing
from kronos_nova.conf import secret_mask

LOG = logging.getLogger(__name__)

#: Names and functions, in the order of the checks.
CHECKS: tuple[tuple[str, base.Check], ...] = (
    ('options', options.check), ('policies', policies.check), ('scheduler', scheduler.check),
    ('source', scores.check), ('keystone', keystone.check), ('placement', placement.check),
    ('nova', nova.check), ('queries', queries.check), ('broker', broker.check),
    ('database', database.check), ('signing', signing.check), ('mqtt', mqtt.check),
    ('migfra', migfra.check), ('hooks', hooks.check), ('campaigns', campaigns.check),
    ('repin', repin.check))


def run(conf: Any) -> Iterator[base.CheckItem]:
    """Run every check and yield its items, without secrets. An error becomes an item."""
    context = base.CheckContext(conf)
    secret_mask.install_mask(conf)
    try:
        yield from run_checks(context, [name for name, _check in CHECKS])
    finally:
        context.close()


def run_checks(context: base.CheckContext, names: Collection[str]) -> Iterator[base.CheckItem]:
    """Run the named checks and yield their items. The context keeps the connections they open."""
    for name, check in CHECKS:
        if name in names:
            yield from map(base.mask_item, _run_guarded_check(name, check, context))


def _run_guarded_check(name: str, check: base.Check,
                       context: base.CheckContext) -> Iterator[base.CheckItem]:
    try:
        yield from check(context)
    except exception.KronosException as e:
        yield base.report_failure(name, str(e), 'See the message.')
    except cfg.ConfigSourceValueError as e:
        LOG.debug('Check %s: %s', name, e)
        yield base.report_failure(name,
                                  'an option that it needs has a value which the option does not '
                                'admit', 'Correct what stands under options.')
    except Exception as e:  # a library may raise anything
        LOG.debug('Check %s', name, exc_info=True)
        yield base.report_failure(name, f'unexpected error {type(e).__name__}: {e}',
                                  'Run with --debug for its origin, and report it.')
