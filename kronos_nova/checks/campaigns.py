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

"""The check of the programs of campaigns: each can be run. No program is run."""

from collections.abc import Iterator
import os

from kronos_nova.checks import base


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    for option in ('command', 'check_command'):
        path = context.conf.campaign[option]
        if path:
            yield _check_program(option, path)
    if context.conf.campaign.command and not context.conf.signing.key_repository:
        yield base.report_warning(
            'campaign: signatures', 'campaigns are not signed: a row that is written into the '
            'database by hand lets engines run [campaign] command',
            'Make keys with kronos-manage signing-key create, and set [signing] key_repository '
            'on all hosts of daemons.')


def _check_program(option: str, path: str) -> base.CheckItem:
    title = f'campaign: {option}'
    if not os.path.isabs(path):
        return base.report_failure(title, f'{path} is no absolute path',
                                   f'Write the whole path in [campaign] {option}.')
    if not os.path.isfile(path):
        return base.report_failure(title, f'{path} is no file on this machine',
                                   f'Correct [campaign] {option}, or install the program.')
    if not os.access(path, os.X_OK):
        return base.report_failure(title, f'this user may not run {path}',
                                   'Make it executable for the user of kronos-engine.')
    return base.report_ok(title, f'{path} can be run; it was not run')
