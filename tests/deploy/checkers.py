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

"""Programs that judge our files, in an environment beside that of the tests.

Zuul requires the libraries of every cloud and broker that it supports; to read a configuration
it imports only a few. So ``checkers-requirements.txt`` pins these few, and pip installs them
without their dependencies (about 110 MB, once). ``python -m tests.deploy.checkers PROGRAM
ARGUMENT...`` runs one program.
"""

import fcntl
import functools
import hashlib
import os
from pathlib import Path
import shutil
import subprocess
import sys
import venv

TOP = Path(__file__).resolve().parents[2]
PINS = Path(__file__).with_name('checkers-requirements.txt')
HOME = TOP / '.pythons/checkers'


def program(name: str) -> str:
    """The path of a program of that environment, which is made if need be."""
    return str(home() / 'bin' / name)


@functools.cache
def home() -> Path:
    """Its directory. A stamp is written last: one that was interrupted is made again."""
    stamp = HOME / 'kronos-nova.stamp'
    wanted = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()
    HOME.parent.mkdir(exist_ok=True)
    with (HOME.parent / 'checkers.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(HOME, ignore_errors=True)
            venv.create(HOME, with_pip=True, symlinks=True)
            for arguments in (['setuptools==80.9.0', 'wheel==0.48.0'],
                              ['--no-deps', '--no-build-isolation', '-r', str(PINS)]):
                done = subprocess.run([HOME / 'bin/pip', 'install', '-q', *arguments],
                                      capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
            stamp.write_text(wanted)
    return HOME


if __name__ == '__main__':
    os.execv(program(sys.argv[1]), sys.argv[1:])
