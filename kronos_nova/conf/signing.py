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

"""Options of group [signing]."""

from oslo_config import cfg

GROUP = cfg.OptGroup('signing', title='Signatures of tasks')

OPTS: list[cfg.Opt] = [
    cfg.StrOpt('key_repository', default='',
               help='Directory of the keys with which engines, kronos-api, kronos-migfra and the '
                    'commands of operators sign tasks and approvals. Executors need only its '
                    'public keys, and ask Nova for nothing that has no valid signature. '
                    'Empty: tasks are not signed, and executors carry out every queued row.'),
    cfg.IntOpt('max_active_keys', default=3, min=3, max=100,
               help='Number of keys that kronos-manage signing-key rotate keeps: the next one, '
                    'the one that signs, and older ones whose signatures are still valid.'),
]
