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


"""Options of group [monitoring]."""

from oslo_config import cfg

GROUP = cfg.OptGroup('monitoring', title='Health and metrics over HTTP')

OPTS: list[cfg.Opt] = [
    cfg.HostAddressOpt('listen_address', default='127.0.0.1',
                       help='Address on which a daemon reports its health, as /healthz and '
                            '/readyz, and its work, as /metrics for Prometheus. It has no login '
                            'and no TLS: other hosts should come through a proxy.'),
    cfg.PortOpt('engine_port', default=0,
                help='Port of kronos-engine; 0: it does not listen.'),
    cfg.PortOpt('executor_port', default=0,
                help='Port of kronos-executor; 0: it does not listen. Several executors of one '
                     'host each need a configuration file of their own for this.'),
    cfg.PortOpt('migfra_port', default=0,
                help='Port of kronos-migfra; 0: it does not listen.'),
    cfg.BoolOpt('host_scores', default=True,
                help='Whether /metrics of the engine has a series for each host under each '
                     'policy (kronos_host_score_ratio). Without them it has a few dozen for '
                     'each scope, however many hosts there are.'),
]
