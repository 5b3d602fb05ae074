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

"""[migfra]: the options of kronos-migfra."""

from oslo_config import cfg

from kronos_nova.conf import networks
from kronos_nova.conf import permits

GROUP = cfg.OptGroup('migfra', title='Requests over MQTT')

OPTS: list[cfg.Opt] = [
    cfg.MultiOpt('allow', item_type=permits.PermitType(),
                 help='What may be asked for: OPERATIONS:PROJECTS:SCOPES, each a list of names '
                      'with commas, or * for all; repeatable. Operations are '
                      f'{", ".join(permits.OPERATIONS)}. Without any every request is refused. '
                      'MQTT does not tell who asks: who may publish is the broker\'s access '
                      'control to say.'),
    cfg.StrOpt('dialect', default='strict', choices=[
        ('strict', 'the protocol as it is documented; any other field is refused'),
        ('fast-lib', 'also what the original fast-lib writes: no id, null for omitted fields, '
                     'names that are numbers, retry_counter, swap-with: NAME; '
                     'concurrent-execution, driver and transport are ignored, with a word in '
                     'the log')],
        help='How messages are read.'),
    cfg.StrOpt('client_id', default='',
               help='Our name with the broker, which keeps messages for it while we are away; '
                    'one for each kronos-migfra. Empty: kronos-migfra- and the name of the '
                    'machine.'),
    cfg.StrOpt('scheduler', default='global',
               help='What results bear as their scheduler: a name, or global.'),
    cfg.BoolOpt('ignore_cooldowns', default=False,
                help='Move an instance that was asked for also when it was moved a moment ago. '
                     'The cooldown of a scope never delays a request.'),
    cfg.ListOpt('pci_aliases', default=[],
                help='What the names in pci_passthrough:alias of flavors stand for, each as '
                     'NAME=VENDOR/DEVICE, such as ib=15b3/1004. A request to start an instance '
                     'with pci-ids is refused unless its flavor has them.'),
    cfg.ListOpt('host_aliases', default=[],
                help='Names of hosts in topics and messages, each as ALIAS=HOST, HOST being the '
                     'name that Nova has, such as node1=node1.example.org. A host with an alias '
                     'is served under the alias alone; each has at most one.'),
    cfg.StrOpt('rdma_extra_spec', default='',
               help='Extra spec of flavors whose instances are on hosts that migrate by RDMA, '
                    'when it is true. A request for rdma-migration is refused for all others: '
                    'Nova has no such wish. Empty: for all.'),
    cfg.BoolOpt('ssh_probe', default=False,
                help='Report a start as successful only when SSH of the instance answers at one of '
                     'its addresses in ssh_probe_networks. Tenants choose the addresses of their '
                     'instances, so the probe goes to no other network. Off: the status ACTIVE '
                     'is enough.'),
    cfg.ListOpt('ssh_probe_networks', item_type=networks.NetworkType(), default=[],
                help='Networks to which ssh_probe may connect, such as 10.20.0.0/16. Name the '
                     'networks of instances alone, never those of hypervisors, controllers or '
                     'storage. ssh_probe requires at least one.'),
    cfg.IntOpt('start_seconds', default=300, min=10, max=86400,
               help='For how long an instance may take to start, stop, pause or unpause, and '
                    'then to answer.'),
    cfg.FloatOpt('look_seconds', default=10.0, min=0.0, max=60.0,
                 help='For so long, and until a move ends, requests to migrate single instances '
                      'share the state of Nova, Placement and the metrics that the first '
                      'one has read. No request is refused before it is read again. 0: each '
                      'request reads.'),
    cfg.IntOpt('give_up_seconds', default=86400, min=60,
               help='After so long a request that could not be looked into (Nova does not answer, '
                    'tasks do not end) is answered with an error. Its tasks that Nova has not been '
                    'asked for are cancelled; others go on.'),
    cfg.FloatOpt('poll_interval', default=2.0, min=0.1, max=60.0,
                 help='Seconds between two looks at a request.'),
    cfg.IntOpt('claim_seconds', default=60, min=10,
               help='Seconds after which the requests of a kronos-migfra that went silent are '
                    'taken over by another.'),
    cfg.IntOpt('hosts_interval', default=60, min=1,
               help='Seconds between two looks at which hosts there are.'),
]
