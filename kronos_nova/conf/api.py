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

"""Options of group [kronos_api]; Nova has a group [api]."""

from oslo_config import cfg

GROUP = cfg.OptGroup('kronos_api', title='kronos-api')

OPTS: list[cfg.Opt] = [
    cfg.ListOpt('operator_projects', default=[],
                help='IDs of the projects of the people who operate the cloud. There the role '
                     'reader may read plans, tasks and pauses of all projects, and the role '
                     'manager may decide on them. Empty: only the role admin may do either.'),
    cfg.IntOpt('max_limit', default=500, min=1, max=1000,
               help='Largest number of plans or tasks in one answer. A request without a limit '
                    'gets at most 100.'),
    cfg.IntOpt('max_waiting', default=2, min=0,
               help='Requests for events that wait at a time in each process; others are answered '
                    'at once. Each takes a thread of the WSGI server: leave some for other '
                    'requests.'),
    cfg.IntOpt('max_reading_age', default=300, min=1,
               help='Seconds: requests that order moves are refused when the engine has read the '
                    'cloud before. Executors check each move again before they request it. See '
                    '[engine] publish_interval.'),
    cfg.BoolOpt('page', default=True,
                help='Serve the live page at /page/. Its files need no token; all data comes from '
                     'the API, by the token of the reader.'),
    cfg.BoolOpt('page_password_login', default=True,
                help='The live page may pass the name and the password of a reader to Keystone. '
                     'Unset: readers paste a token, as with federated identities.'),
]
