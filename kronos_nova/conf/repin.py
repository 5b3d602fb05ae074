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
"""[repin]: the options of pinning vCPUs of running instances through libvirt."""

from oslo_config import cfg

GROUP = cfg.OptGroup('repin', title='Pinning vCPUs of running instances')

OPTS: list[cfg.Opt] = [
    cfg.StrOpt('uri', default='',
               help='Address of a host\'s libvirt, which pins vCPUs, with {host} in the place of '
                    'Nova\'s name of the host: qemu+tls://{host}/system. Empty: repin is '
                    'answered with "unsupported". Users of this URI can do to every instance '
                    'anything that libvirt can: restrict it by TLS certificates.'),
    cfg.FloatOpt('timeout', default=10.0, min=0.1, max=600.0,
                 help='Seconds for one instance, from the connection to the last vCPU.'),
]
