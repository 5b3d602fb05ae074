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

"""Drains that go on in another scope, because an aggregate has changed."""

from collections.abc import Sequence

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.rebalancer.strategies import drain_requests


def move_drains(conf: cfg.ConfigOpts, store: store_api.Store, lease: store_rows.ScopeLease | None,
                cluster: model.Cluster, history: model.MoveHistory, named: Sequence[str]) -> None:
    """Hand drains over to the planned scopes that their hosts have gone to, with their begin.

    :param lease: that of the scope; None in a dry run, which stores no drains.
    :param cluster: with its scope set.
    :param named: the planned aggregates.
    """
    gone = history.draining - cluster.scope_hosts
    if lease is None or not gone or not conf.engine.evacuate_disabled_hosts:
        return
    options = engine_conf.build_options(conf)
    targets: dict[str, str] = {}
    scopes = [*(name for name in named if name in cluster.aggregates),
              *([model.UNASSIGNED] if conf.engine.include_unassigned_hosts else ())]
    for scope in scopes:
        if scope != cluster.scope:
            there = cluster.replace_scope(scope, named)
            targets |= dict.fromkeys(gone.intersection(
                drain_requests.drained_hosts(there, options)
                + drain_requests.list_interrupted_hosts(there, options)), scope)
    if targets:
        store.plans.move_drains(lease, targets)
