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

"""[nova]: the login to Keystone, and the endpoints to use."""

from typing import Any

from oslo_config import cfg
from oslo_config import types

#: Seconds per request where [nova] timeout is not set; keystoneauth's own
#: default is to wait for ever.
REQUEST_TIMEOUT = 60
#: Options of keystoneauth's adapters that kronos-nova does not read.
IGNORED = frozenset({'version', 'max_version', 'connect_retry_delay', 'status_code_retry_delay',
                     'retriable_status_codes'})


class EndpointInterface(types.String):
    """An endpoint's interface, also as keystoneauth's older name: ``internalURL``."""

    def __init__(self) -> None:
        super().__init__(choices=['internal', 'public', 'admin'])

    def __call__(self, value: Any) -> Any:
        return super().__call__(str(value).removesuffix('URL'))


GROUP = cfg.OptGroup('nova', title='Nova and Placement API access')

OPTS: list[cfg.Opt] = [
    cfg.StrOpt('endpoint_override',
               help='URL of the compute API, instead of the catalogue\'s.'),
    cfg.StrOpt('placement_endpoint_override',
               help='URL of the Placement API, instead of the catalogue\'s.'),
    cfg.StrOpt('region_name', help='Region whose endpoints are used.'),
    cfg.Opt('interface', type=EndpointInterface(), default='internal',
            help='Which endpoints of the catalogue are used. Kronos 0.2.0 always used the public '
                 'ones.'),
    cfg.ListOpt('valid_interfaces', default=[],
                item_type=EndpointInterface(),
                help='The same as a list, the preferred one first, as keystoneauth calls it. Where '
                     'it is set, interface is not looked at. Kronos 0.2.0 read it without effect.'),
    cfg.StrOpt('service_type',
               help='Type of the compute API in the catalogue, where it is not compute.'),
    cfg.StrOpt('service_name',
               help='Name of the compute API in the catalogue, where it has several of its type.'),
    cfg.StrOpt('min_version', regex=r'2(\.\d+)?',
               help='The oldest version of the compute API that will do, such as 2.1, where the '
                    'catalogue has an endpoint for each. The microversion is agreed on apart from '
                    'it.'),
    cfg.IntOpt('connect_retries', default=0, min=0, max=10,
               help='So often a read is repeated when no connection to Nova or Placement comes '
                    'about, after 0.5, 1, 2... seconds. What changes something is never repeated '
                    'so.'),
    cfg.IntOpt('status_code_retries', default=0, min=0, max=10,
               help='So often a read is repeated that Nova or Placement answers with 503, in the '
                    'same way.'),
    cfg.IntOpt('collect_timeout', default=120, min=5,
               help='Seconds in which everything a planning cycle reads from Nova and Placement '
                    'must have been read. A cycle that takes longer is given up and moves '
                    'nothing. A single request is bounded by timeout (default here: 60).'),
    cfg.IntOpt('full_list_interval', default=900, min=0,
               help='Seconds after which a planning cycle lists all servers and hypervisors again. '
                    'In between it lists the servers that Nova has written since, and remembers '
                    'the others, and the hypervisors while the nova-compute services are the same: '
                    'Nova spends about 5 ms on each that it lists. What Nova does not show as a '
                    'change, such as a tag, is seen after this time; an executor reads it before '
                    'it moves the instance. 0: each cycle lists all.'),
]


def register_auth(conf: cfg.ConfigOpts) -> None:
    """Register keystoneauth's own options; needs the extra ``rebalancer``."""
    # nova-scheduler may lack the extra "rebalancer".
    from keystoneauth1 import loading  # noqa: PLC0415

    loading.register_auth_conf_options(conf, GROUP.name)
    loading.register_session_conf_options(conf, GROUP.name)


def auth_opts() -> list[Any]:
    """Return keystoneauth's options for the sample configuration."""
    # nova-scheduler may lack the extra "rebalancer".
    from keystoneauth1 import loading  # noqa: PLC0415

    plugin: Any = loading.get_plugin_loader('password')
    opts = loading.get_auth_common_conf_options() + loading.get_session_conf_options()
    opts += loading.get_auth_plugin_conf_options(plugin)
    return sorted(opts, key=lambda opt: str(opt.name))
