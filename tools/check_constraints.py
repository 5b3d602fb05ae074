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

"""Check constraints.txt: complete, exact, and what this environment really has.

Every requirement of every list has one pin that satisfies it; each pin is a
plain ``name==version``; the lists are sorted; and the installed packages, with
which the other tests ran, have the pinned versions: unless this environment was made with
other constraints, as Zuul makes it, which it says in ``TOX_CONSTRAINTS_FILE``.
"""

import configparser
from importlib import metadata
import os
from pathlib import Path
import re
import sys

from packaging import requirements
from packaging import utils

TOP = Path(__file__).resolve().parent.parent
LISTS = ('requirements.txt', 'test-requirements.txt', 'doc/requirements.txt')
PIN = re.compile(r'([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+]+)')


def lines(text: str) -> list[str]:
    """The text's lines without comments, environment markers and blank lines."""
    stripped = (line.split(' #')[0].strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith('#')]


def pins(text: str, problems: list[str]) -> dict[str, str]:
    """Canonical name -> version of a constraints file."""
    found: dict[str, str] = {}
    listed = lines(text)
    if listed != sorted(listed, key=str.lower):
        problems.append('constraints.txt is not sorted')
    for line in listed:
        match = PIN.fullmatch(line)
        if match is None:
            problems.append(f'constraints.txt: {line!r} is no plain name==version')
            continue
        name = utils.canonicalize_name(match[1])
        if name in found:
            problems.append(f'constraints.txt: {name} is pinned twice')
        found[name] = match[2]
    return found


def required() -> list[tuple[str, requirements.Requirement]]:
    """(where, requirement) of every requirements list and extra."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    texts = {f'setup.cfg [extras] {name}': value for name, value in setup['extras'].items()}
    texts |= {name: (TOP / name).read_text() for name in LISTS}
    return [(where, requirements.Requirement(line))
            for where, text in texts.items() for line in lines(text)]


def check() -> list[str]:
    """Every problem, one sentence each."""
    problems: list[str] = []
    pinned = pins((TOP / 'constraints.txt').read_text(), problems)
    for where, requirement in required():
        version = pinned.get(utils.canonicalize_name(requirement.name))
        if version is None:
            problems.append(f'{where}: {requirement.name} has no pin in constraints.txt')
        elif not requirement.specifier.contains(version, prereleases=True):
            problems.append(f'{where}: {requirement} excludes the pin {version}')
    if installed_by_them(os.environ.get('TOX_CONSTRAINTS_FILE', '')):
        problems += differing(pinned)
    return sorted(set(problems))


def installed_by_them(other: str) -> bool:
    """Whether constraints.txt made this environment.

    :param other: the file that tox was given in its place, as a path or a URL; or nothing.
    """
    return not other or Path(other).resolve() == TOP / 'constraints.txt'


def differing(pinned: dict[str, str]) -> list[str]:
    """One sentence for each package that is installed otherwise than pinned."""
    problems = []
    for distribution in metadata.distributions():
        name = utils.canonicalize_name(distribution.name)
        if name in ('kronos-nova', 'pip'):
            continue
        if name not in pinned:
            problems.append(f'{name} {distribution.version} is installed and not pinned')
        elif distribution.version != pinned[name]:
            problems.append(f'{name} {distribution.version} is installed, pinned: {pinned[name]}')
    return problems


if __name__ == '__main__':
    found = check()
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)
