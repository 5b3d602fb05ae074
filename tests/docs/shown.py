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

"""What the documentation shows to type: commands in blocks and in the text."""

from collections.abc import Iterator
import functools
from pathlib import Path
import re
import shlex

from cliff import commandmanager

TOP = Path(__file__).resolve().parents[2]
PAGES = (*sorted((TOP / 'doc/source').rglob('*.rst')), TOP / 'README.rst',
         TOP / 'CONTRIBUTING.rst')
BLOCK = re.compile(r'^( *)\.\. code-block:: console\n\n((?:\1 +.*\n|\n)+)', re.MULTILINE)
PROGRAMS = ('engine', 'executor', 'manage', 'record', 'replay', 'status', 'test-config')
LITERAL = re.compile(rf'``(kronos(?:-(?:{"|".join(PROGRAMS)}))?(?:\s[^`]*)?)``')


def blocks() -> Iterator[tuple[Path, str]]:
    """(page, command) of each line behind a prompt, with those that continue it."""
    for page in PAGES:
        for _, block in BLOCK.findall(page.read_text()):
            text = re.sub(r'\\\n\s*', '', block)
            # A prompt may name a virtual environment.
            lines = [re.sub(r'^\(\w+\) (?=\$ )', '', line.strip())
                     for line in text.splitlines() if line.strip()]
            prompt = lines[0][:2]
            assert prompt in ('$ ', '# '), f'{page}: {lines[0]}'
            yield from ((page, line[2:]) for line in lines if line.startswith(prompt))


def literals() -> Iterator[tuple[Path, str]]:
    """(page, command) of each command that stands in the text."""
    for page in PAGES:
        yield from ((page, ' '.join(text.split())) for text in LITERAL.findall(page.read_text()))


@functools.cache
def manager() -> commandmanager.CommandManager:
    return commandmanager.CommandManager('kronos_nova.cli')


def names() -> set[str]:
    """All subcommands of ``kronos``."""
    return set(manager().commands)


@functools.cache
def parser(name: str):
    """What takes the arguments of a subcommand."""
    factory, _, _ = manager().find_command(name.split())
    return factory(None, None).get_parser(f'kronos {name}')


@functools.cache
def client_manager() -> commandmanager.CommandManager:
    return commandmanager.CommandManager('openstack.rebalance.v1')


@functools.cache
def client_parser(name: str):
    """What takes the arguments of a command of ``openstack rebalance``."""
    factory, _, _ = client_manager().find_command(name.split())
    return factory(None, None).get_parser(f'openstack {name}')


def split_client(command: str) -> tuple[str, list[str]]:
    """(command of ``openstack rebalance``, its arguments); '' when no such command exists."""
    words = shlex.split(command)
    words = words[words.index('rebalance'):]
    name = ' '.join(words[:3])
    return (name, words[3:]) if name in client_manager().commands else ('', words)


def split(command: str) -> tuple[str, list[str]]:
    """(subcommand, its arguments); '' when no such subcommand exists."""
    words = shlex.split(command)[1:]
    # What a shell does with the output is not ours.
    words = words[:next((n for n, word in enumerate(words) if word in ('>', '|')), None)]
    for length in (3, 2, 1):
        if ' '.join(words[:length]) in names():
            return ' '.join(words[:length]), words[length:]
    return '', words
