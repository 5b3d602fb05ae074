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

"""Write and check the hash-pinned requirements of the container images.

``--write`` resolves the extras of the images with uv, at the versions of constraints.txt, and
lists the hash of every file that the package index offers (``tox -e image-requirements``).
Without it the file is compared with constraints.txt; this needs no network.
"""

import argparse
from pathlib import Path
import re
import subprocess
import sys

TOP = Path(__file__).resolve().parent.parent
FILE = TOP / 'deploy/kolla/docker/kronos/kronos-base/requirements.txt'
#: What the images install; the Dockerfile names the same.
EXTRAS = ('rebalancer', 'api', 'mysql', 'mqtt')
HEAD = '''\
# The packages of the kronos images, each with the hashes of its files: pip refuses any
# other file. Made by `tox -e image-requirements`; tools/test lint compares the versions
# with constraints.txt.
'''


def read_pins(text: str) -> dict[str, str]:
    """Map canonical names to versions in a requirements or constraints file."""
    return {re.sub(r'[-_.]+', '-', name).lower(): version
            for name, version in re.findall(r'^([\w.-]+)==([^\s;]+)', text, re.MULTILINE)}


def find_problems(text: str, constraints: str) -> list[str]:
    """Name each package whose version differs from constraints.txt or that has no hash."""
    wanted = read_pins(constraints)
    problems = [
        f'{name}: {version} here, {wanted.get(name, "no version")} in constraints.txt'
        for name, version in read_pins(text).items() if wanted.get(name) != version]
    entries = re.split(r'\n(?=\S)', text[text.index('\n\n') + 2:] if '\n\n' in text else text)
    return problems + [f'{entry.split()[0]}: no hash' for entry in entries
                       if not entry.startswith('#') and '--hash=sha256:' not in entry]


def resolve() -> str:
    """Resolve the extras with uv; raise CalledProcessError when it cannot."""
    extras = [word for extra in EXTRAS for word in ('--extra', extra)]
    done = subprocess.run(
        ['uv', 'pip', 'compile', '--quiet', '--universal', '--generate-hashes', '--no-header',
         '--no-annotate', '--python-version', '3.11', '-c', 'constraints.txt', *extras,
         'setup.cfg'], cwd=TOP, check=True, capture_output=True, text=True)
    return f'{HEAD}\n{done.stdout}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--write', action='store_true', help='resolve and write the file')
    if parser.parse_args().write:
        FILE.write_text(resolve())
    problems = find_problems(FILE.read_text(), (TOP / 'constraints.txt').read_text())
    for problem in problems:
        print(f'{FILE.relative_to(TOP)}: {problem}. Run `tox -e image-requirements`.')
    return int(bool(problems))


if __name__ == '__main__':
    sys.exit(main())
