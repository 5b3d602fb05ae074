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

"""The environment that kolla and kolla-ansible run in, with kronos-nova in it.

They need Python 3.12, and versions of their own of much that Nova needs, too: so
they are installed into ``.deploy-venv`` of the checkout (160 MB, once). ``KRONOS_KOLLA=22``
or ``20`` names an older kolla-ansible, in ``.pythons/kolla-SERIES``.
"""

import fcntl
import functools
import hashlib
import importlib.util
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

from tests import ci
from tests.fixtures import checkout

TOP = Path(__file__).resolve().parents[2]
NEWEST = '23'
SERIES = os.environ.get('KRONOS_KOLLA', NEWEST)
HOME = TOP / ('.deploy-venv' if SERIES == NEWEST else f'.pythons/kolla-{SERIES}')
PINS = TOP / ('tools/deploy-constraints.txt' if SERIES == NEWEST
              else f'tools/kolla-{SERIES}-constraints.txt')
PYTHON = '3.12'
SHARE = HOME / 'share'
#: kolla-ansible's own playbooks and roles, and ours beside them.
ANSIBLE = SHARE / 'kolla-ansible/ansible'


def missing(what: str) -> None:
    """Skip the test, or fail it in CI, which has everything."""
    ci.missing(what)


def run(*command: str | Path, **variables: str) -> str:
    """What a program of the environment prints; it has to succeed."""
    status, output = attempt(*command, **variables)
    assert status == 0, f'{command}\n{output}'
    return output


def attempt(*command: str | Path, **variables: str) -> tuple[int, str]:
    """Exit status and output of a program; of one that fails, both outputs."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')}
    environment.update(variables)
    environment['PATH'] = f'{HOME}/bin{os.pathsep}{environment["PATH"]}'
    done = subprocess.run([str(part) for part in command], env=environment, cwd=HOME,
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + (done.stderr if done.returncode else '')


def prepared() -> Path:
    """The environment's directory, made if need be; skips without Python 3.12."""
    python = _python()
    if python is None:
        missing(f'Python {PYTHON}')
    return _made(str(python))


def find_base_image() -> Path:
    """Return kolla's files for its base image; until kolla 22 they are in ``share``."""
    packages = HOME / f'lib/python{PYTHON}/site-packages'
    folders = [top / 'kolla/docker/base' for top in (packages, SHARE)]
    return next(path for path in folders if path.exists())


def _python() -> str | None:
    """As tools/run_tests.py finds other Pythons."""
    spec = importlib.util.spec_from_file_location('run_tests', TOP / 'tools/run_tests.py')
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules['run_tests'] = module
    try:
        spec.loader.exec_module(module)
        return module.find_python(PYTHON)
    finally:
        del sys.modules['run_tests']


@functools.cache
def _made(python: str) -> Path:
    """Create the environment; its stamp comes last, so an interrupted one is created again."""
    stamp = HOME / 'kronos-nova.stamp'
    wanted = hashlib.sha256(PINS.read_bytes() + str(HOME).encode() + python.encode()).hexdigest()
    with (TOP / '.bootstrap.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(HOME, ignore_errors=True)
            HOME.parent.mkdir(exist_ok=True)
            subprocess.run([python, '-m', 'venv', str(HOME)], check=True)
            _pip('--no-deps', '--no-compile', '-r', str(PINS))
            stamp.write_text(wanted)
        _install_ours()
    return HOME


def _install_ours() -> None:
    """As an operator does, whose role then lies where kolla-ansible looks for it."""
    stamp = HOME / 'ours.stamp'
    wanted = _fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    wheels = HOME / 'wheels'
    shutil.rmtree(wheels, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        copy = checkout.copy_checkout(Path(directory, 'kronos-nova'))
        done = subprocess.run(
            [sys.executable, '-m', 'pip', 'wheel', '-q', '--disable-pip-version-check',
             '--no-deps', '--no-build-isolation', '-w', str(wheels), str(copy)],
            capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _pip('--no-deps', '--no-compile', '--force-reinstall', *map(str, wheels.glob('*.whl')))
    stamp.write_text(wanted)


def _fingerprint() -> str:
    """Return the hash of our installed files that the tests read or run: data files and their
    lists, and what the role runs.
    """
    digest = hashlib.sha256()
    folders = (TOP / 'deploy', TOP / 'etc', TOP / 'kronos_nova/cmd',
               TOP / 'kronos_nova/rebalancer/authorization')
    for path in sorted(path for folder in folders for path in folder.rglob('*')):
        if path.is_file() and '__pycache__' not in path.parts:
            digest.update(f'{path.relative_to(TOP)} {path.stat().st_size} '.encode())
            digest.update(path.read_bytes())
    digest.update((TOP / 'setup.cfg').read_bytes())
    return digest.hexdigest()


def _pip(*arguments: str) -> None:
    run('python', '-m', 'pip', 'install', '-q', '--disable-pip-version-check', *arguments)
