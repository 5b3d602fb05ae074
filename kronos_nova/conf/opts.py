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

"""All groups of kronos.conf in one place."""

from oslo_config import cfg

from kronos_nova import conf as groups
from kronos_nova.conf import database
from kronos_nova.conf import engine
from kronos_nova.conf import executor
from kronos_nova.conf import messaging
from kronos_nova.conf import nova
from kronos_nova.conf import prometheus

_MODULES = (engine, prometheus, executor, messaging, nova)


def register(conf: cfg.ConfigOpts) -> None:
    """Register every option of the daemons and tools on ``conf``."""
    for module in _MODULES:
        groups.register(conf, module.GROUP, module.OPTS)
    nova.register_auth(conf)
    database.register(conf)


def register_planning(conf: cfg.ConfigOpts) -> None:
    """Only what planning offline reads; needs no extra."""
    for module in (engine, prometheus):
        conf.register_group(module.GROUP)
        conf.register_opts(module.OPTS, group=module.GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For oslo-config-generator: what goes into kronos.conf."""
    groups = [(module.GROUP.name, list(module.OPTS)) for module in _MODULES]
    groups.append((nova.GROUP.name, nova.auth_opts()))
    groups.append(('database', database.opts()))
    return groups
