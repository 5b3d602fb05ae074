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

"""Virtual environments with the Novas before the one of constraints.txt.

``python tools/novas.py 32 33`` makes ``.pythons/nova-32`` and ``.pythons/nova-33``, at once,
with the Python it runs on; nothing is done for one that is up to date. The versions
installed there are those of constraints.txt, except for ``tools/nova-SERIES-constraints.txt``.
"""

import concurrent.futures
import hashlib
from pathlib import Path
import re
import shutil
import subprocess
import sys

TOP = Path(__file__).resolve().parent.parent
INPUTS = ('setup.cfg', 'setup.py', 'requirements.txt', 'tools/nova-requirements.txt')


def overlay(series: str) -> Path:
    return TOP / f'tools/nova-{series}-constraints.txt'


def pins(text: str) -> dict[str, str]:
    """Canonical name -> its line, of a constraints file."""
    return {re.sub(r'[-_.]+', '-', line.partition('==')[0]).lower(): line
            for line in text.splitlines() if line and not line.startswith('#')}


def constraints(series: str) -> str:
    """The versions beside this Nova: all of constraints.txt, with some others."""
    merged = pins((TOP / 'constraints.txt').read_text())
    merged |= pins(overlay(series).read_text())
    return '\n'.join(merged.values()) + '\n'


def make(series: str) -> str | None:
    """Make the environment if it is not up to date; None, or what went wrong."""
    directory, wanted = TOP / f'.pythons/nova-{series}', constraints(series)
    digest = hashlib.sha256('\n'.join(
        [str(TOP), sys.version, wanted, *((TOP / name).read_text() for name in INPUTS)]
    ).encode()).hexdigest()
    stamp, python = directory / 'kronos-nova.stamp', directory / 'bin/python'
    if python.exists() and stamp.exists() and stamp.read_text() == digest:
        return None
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(exist_ok=True)
    limits = directory.parent / f'nova-{series}.txt'
    limits.write_text(wanted)
    install = [str(python), '-m', 'pip', 'install', '-q', '--disable-pip-version-check',
               '--no-input', '-c', str(limits)]
    for command in ([sys.executable, '-m', 'venv', str(directory)],
                    [*install, 'setuptools', 'wheel', 'pbr'],
                    [*install, '--no-build-isolation', '-e', '.[api,client,rebalancer,scheduler]',
                     '-r', 'tools/nova-requirements.txt']):
        done = subprocess.run(command, cwd=TOP, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode:
            return f'{" ".join(command)}: exit status {done.returncode}\n{done.stdout}'
    # The last thing, so that one that was interrupted half-way is made again.
    stamp.write_text(digest)
    return None


def main() -> int:
    if not sys.argv[1:] or not all(overlay(series).exists() for series in sys.argv[1:]):
        print('usage: python tools/novas.py SERIES..., each with its '
              'tools/nova-SERIES-constraints.txt', file=sys.stderr)
        return 2
    # pip waits for the network and the disk most of the time.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        problems = [problem for problem in pool.map(make, sys.argv[1:]) if problem]
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == '__main__':
    sys.exit(main())
