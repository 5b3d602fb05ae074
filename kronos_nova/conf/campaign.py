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

"""[campaign]: the work at empty hosts, and the way back of the hosts."""

from oslo_config import cfg

GROUP = cfg.OptGroup('campaign', title='Campaigns that empty hosts one after the other')

OPTS: list[cfg.Opt] = [
    cfg.StrOpt('command', default='',
               help='Path of a program that does the work at an empty host, such as a reboot, and '
                    'ends when it is done: exit status 0. The engine runs it with the name of the '
                    'host as its argument, without a shell, and once: when the engine dies '
                    'meanwhile, or the program fails, the campaign pauses. Empty: an operator does '
                    'the work and says so (kronos campaign done).'),
    cfg.IntOpt('command_timeout', default=3600, min=1,
               help='Seconds after which the engine kills the program; that is a failure.'),
    cfg.StrOpt('check_command', default='',
               help='Path of a program that checks a host before it is enabled again: exit status '
                    '0. The engine runs it with the name of the host as its argument once '
                    'nova-compute has reported to Nova since the work, and again each cycle '
                    'until it succeeds. Empty: the report is enough.'),
    cfg.IntOpt('check_timeout', default=60, min=1,
               help='Seconds after which the engine kills the check; that is a failure.'),
    cfg.IntOpt('return_timeout', default=1800, min=60,
               help='Seconds after the work within which a host must come back; after that the '
                    'campaign pauses. The host is enabled when it comes back later.'),
]
