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

"""The page "Deploy with kolla-ansible", and its commands typed as it has one type them."""

from pathlib import Path
import re

from tests.deploy import kolla_env

PAGE = kolla_env.TOP / 'doc/source/install/kolla.rst'
#: Programs are told that /etc/kolla is a directory of the test, and that there is no Docker.
BEFORE = '''
set -eu
cd {top}
kolla-genpwd() {{ command kolla-genpwd --passwords {config}/passwords.yml "$@"; }}
kolla-ansible() {{
    local action=$1
    shift
    command kolla-ansible "$action" --configdir {config} "$@"
}}
kolla-build() {{ command kolla-build --template-only --work-dir {top} "$@"; }}
'''


def sections() -> dict[str, list[str]]:
    """Section -> its commands, in order; one that goes on has more than one line."""
    commands_by_title: dict[str, list[str]] = {}
    title, before, goes_on = '', '', False
    for line in PAGE.read_text().splitlines():
        typed = re.match(r'\s+(?:\(\w+\) )?\$ (.*)', line)
        if goes_on:
            commands_by_title[title][-1] += f'\n{line.strip()}'
        elif typed:
            commands_by_title.setdefault(title, []).append(typed.group(1))
        elif before and re.fullmatch(r'={3,}', line):
            title = before
        goes_on = (typed is not None or goes_on) and line.endswith('\\')
        before = line
    return commands_by_title


def commands(section: str, which: str = '') -> list[str]:
    """Those of a section whose beginning is such, a regular expression."""
    return [command for command in sections()[section] if re.match(which, command)]


def attempt(typed: list[str], top: Path, config: Path, **variables: str) -> tuple[int, str]:
    """Exit status and output of commands of the page, in one shell.

    :param top: where they are typed.
    :param config: what stands for /etc/kolla.
    """
    script = BEFORE.format(top=top, config=config) + '\n'.join(
        command.replace('/etc/kolla', str(config)) for command in typed)
    return kolla_env.attempt('bash', '-c', script, **variables)
