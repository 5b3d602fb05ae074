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

"""[mqtt]: the broker that kronos-migfra and the hook pscom speak to."""

from oslo_config import cfg

GROUP = cfg.OptGroup('mqtt', title='The MQTT broker')

OPTS: list[cfg.Opt] = [
    cfg.StrOpt('host', default='',
               help='Name or address of the broker; empty: MQTT is not used.'),
    cfg.PortOpt('port', default=1883, help='Its port; with TLS mostly 8883.'),
    cfg.StrOpt('protocol', default='3.1.1', choices=['3.1.1', '5'], help='Version of MQTT.'),
    cfg.StrOpt('username', default='', help='User name at the broker; empty: no login.'),
    cfg.StrOpt('password', default='', secret=True, help='The password of username.'),
    cfg.BoolOpt('tls', default=False,
                help='Speak TLS, and believe the broker only with a certificate for its name.'),
    cfg.StrOpt('ca_file', default='',
               help='File of the authorities that may have signed the broker\'s certificate; '
                    'empty: those of the system.'),
    cfg.StrOpt('cert_file', default='', help='File of our own certificate, where the broker '
                                             'requires one.'),
    cfg.StrOpt('key_file', default='', help='File of its private key.'),
    cfg.IntOpt('keepalive', default=30, min=5, max=3600,
               help='Seconds of silence after which either side asks whether the other is there.'),
    cfg.StrOpt('prefix', default='fast',
               help='What topics begin with: PREFIX/migfra/HOST/task and so on.'),
]
