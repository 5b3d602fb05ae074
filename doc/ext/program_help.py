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

"""Sphinx directives for the commands that are no subcommand of ``kronos``: their own help.

``program-help:: PROG [SUBCOMMAND ...]`` shows what ``PROG SUBCOMMAND ... --help`` prints, less
the options that every program has; ``common-help:: PROG`` shows these.
"""

import configparser
import functools
import os
from pathlib import Path
import re
import sys

from docutils import nodes
from docutils.parsers import rst

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from tests import commands  # noqa: E402 (nothing has put our checkout into the path before)

#: An option in the help of argparse, and the lines that belong to it.
OPTION = re.compile(r'^  -.*\n(?:    .*\n|\n(?=    ))*', re.MULTILINE)
USAGE = re.compile(r'^usage: .*\n(?: +.*\n)*', re.MULTILINE)
WIDTH = 92


def programs() -> dict[str, str]:
    """Each console script of setup.cfg but ``kronos``, with its module."""
    found = configparser.ConfigParser(interpolation=None)
    found.read(TOP / 'setup.cfg')
    lines = found['entry_points']['console_scripts'].strip().splitlines()
    scripts = dict(re.split(r' *= *', line.removesuffix(':main')) for line in lines)
    return {name: module for name, module in scripts.items() if name != 'kronos'}


@functools.cache
def help_of(prog: str, *subcommand: str) -> str:
    """What the program prints.

    :raises RuntimeError: it fails.
    """
    # Each in a fork: ten interpreters of their own would load the same libraries.
    done = commands.run(
        f'import sys; sys.argv[0] = {prog!r}; from {programs()[prog]} import main; main()',
        *subcommand, '--help', env={**os.environ, 'COLUMNS': str(WIDTH), 'PYTHONPATH': str(TOP)})
    if done.returncode or not done.stdout:
        raise RuntimeError(f'{prog} {" ".join(subcommand)} --help failed: {done.stderr}')
    return done.stdout


@functools.cache
def common() -> tuple[str, ...]:
    """The options that every program has, as its help shows them."""
    first, *others = (OPTION.findall(help_of(prog)) for prog in programs())
    return tuple(option for option in first if all(option in other for other in others))


def own(prog: str, *subcommand: str) -> str:
    """The help without the common options; an action's help has none of them."""
    text = help_of(prog, *subcommand)
    if subcommand:
        return text.strip()
    for option in common():
        text = text.replace(option, '', 1)
    text = re.sub(r'^options:\n(?!  )\n*', '', text, flags=re.MULTILINE)
    usage = USAGE.match(text)[0]
    needed = re.sub(r'\[[^\]]*\]', '', usage.removeprefix(f'usage: {prog}')).split()
    return text.replace(usage, f'usage: {" ".join([prog, "[OPTIONS]", *needed])}\n', 1).strip()


class ProgramHelp(rst.Directive):
    """A program, and with more words one of its actions."""

    required_arguments = 1
    optional_arguments = 9

    def run(self) -> list[nodes.Node]:
        text = own(*self.arguments)
        return [nodes.literal_block(text, text, language='text')]


class CommonHelp(rst.Directive):
    """The options that every program has."""

    def run(self) -> list[nodes.Node]:
        text = ''.join(common()).rstrip()
        return [nodes.literal_block(text, text, language='text')]


def setup(app):
    app.add_directive('program-help', ProgramHelp)
    app.add_directive('common-help', CommonHelp)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
