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

"""Check lower-constraints.txt: the lower bound of every requirement, exactly.

``--write`` writes it. ``--installed`` compares the installed packages with it,
so that tests in this environment have shown the bounds to work. Nova and the test
tools have bounds of their own and are not in it: see CONTRIBUTING.rst.
"""

import argparse
import configparser
from importlib import metadata
from pathlib import Path
import sys

from packaging import requirements
from packaging import utils

TOP = Path(__file__).resolve().parent.parent
FILE = TOP / 'lower-constraints.txt'
HEAD = '''\
# The oldest versions that requirements.txt and setup.cfg admit, for the tox environment
# lower-constraints. Made by tools/check_lower_constraints.py --write.
'''
#: Nova asks for newer ones of much of this; where it is installed, its bounds hold.
#: libvirt-python and psycopg2 are compiled against libraries of the system.
LEFT_OUT = ('libvirt', 'postgresql', 'scheduler')


def bounds() -> dict[str, str]:
    """Name -> lower bound, of requirements.txt and the extras."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    texts = [(TOP / 'requirements.txt').read_text(), *(
        text for name, text in setup['extras'].items() if name not in LEFT_OUT)]
    found = {}
    for line in (line.partition('#')[0].strip() for text in texts for line in text.splitlines()):
        if line:
            requirement = requirements.Requirement(line)
            (lower,) = (s.version for s in requirement.specifier if s.operator == '>=')
            found[requirement.name] = lower
    return found


def text() -> str:
    """What the file has to be."""
    return HEAD + ''.join(f'{name}=={version}\n' for name, version in sorted(
        bounds().items(), key=lambda item: item[0].lower()))


def differing() -> list[str]:
    """One sentence for each package that is installed in another version."""
    found = []
    for name, version in bounds().items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            found.append(f'{name} is not installed')
            continue
        if utils.canonicalize_version(installed) != utils.canonicalize_version(version):
            found.append(f'{name} {installed} is installed, the bound is {version}')
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--write', action='store_true', help='write the file')
    parser.add_argument('--installed', action='store_true', help='look at what is installed')
    parsed = parser.parse_args()
    if parsed.write:
        FILE.write_text(text())
    problems = [] if FILE.exists() and FILE.read_text() == text() else [
        'lower-constraints.txt is not what the bounds are: run '
        'tools/check_lower_constraints.py --write']
    if parsed.installed:
        problems += differing()
    for problem in problems:
        print(problem)
    return int(bool(problems))


if __name__ == '__main__':
    sys.exit(main())
