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


"""tools/sandbox without one of its needs: one message, and the script ends.

Each run is the real script in a process of its own. The script finds
the missing part before it installs or starts anything.
"""

import os
from pathlib import Path
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

TOP = Path(__file__).resolve().parents[3]
#: Somebody who is not root and owns nothing.
NOBODY = 65534


def sandbox(*arguments, top=TOP, before=(), user=None, **environment):
    return subprocess.run(
        [*before, str(top / 'tools/sandbox'), *arguments], capture_output=True, text=True,
        check=False, timeout=300, stdin=subprocess.DEVNULL, user=user,
        extra_groups=[] if user is not None else None, cwd='/',
        env={**os.environ, 'KRONOS_VENV': sys.prefix, **environment})


def assert_refused(done, status, *words):
    """One message for people, as the last line; and no traceback."""
    assert done.returncode == status, done
    assert 'Traceback' not in done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last, done.stderr


@pytest.fixture
def place():
    """A directory that everybody may look into; pytest's own is private."""
    path = Path(tempfile.mkdtemp(prefix='kronos-sandbox-'))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def checkout(place):
    """The scripts, wanting a package that no Debian has."""
    shutil.copytree(TOP / 'tools', place / 'tools', ignore=shutil.ignore_patterns('__pycache__'))
    (place / 'bindep.txt').write_text('no-such-package-at-all [platform:dpkg sandbox]\n')
    return place


@pytest.fixture
def bare_path(place):
    """A PATH with no more than the script's first lines need."""
    path = place / 'bin'
    path.mkdir()
    for program in ('bash', 'dirname', 'cat'):
        (path / program).symlink_to(shutil.which(program))
    return str(path)


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can become somebody else')
@pytest.mark.skipif(shutil.which('apt-get') is None, reason='this is not Debian')
def test_a_missing_package_without_root_is_named_with_the_command(checkout):
    assert_refused(
        sandbox('up', top=checkout, user=NOBODY), 1, 'only root can install them',
        'As root: apt-get install --no-install-recommends no-such-package-at-all')


def test_another_system_than_debian_gets_a_list_of_packages(bare_path):
    assert_refused(sandbox('up', PATH=bare_path), 1, 'this is not a Debian system',
                   'bindep.txt')


def test_a_missing_python_is_reported(bare_path, place):
    assert_refused(sandbox('status', PATH=bare_path, KRONOS_VENV=str(place / 'none')), 2,
                   'there is no Python 3', 'apt-get install python3')


@pytest.fixture
def installed(place):
    """A checkout that wants no system package: the next step is reached."""
    shutil.copytree(TOP / 'tools', place / 'tools', ignore=shutil.ignore_patterns('__pycache__'))
    (place / 'kronos_nova').symlink_to(TOP / 'kronos_nova')
    (place / 'bindep.txt').write_text('')
    if shutil.which('apt-get') is None:
        pytest.skip('this is not Debian')
    return place


def test_an_invalid_venv_is_reported(installed):
    assert_refused(sandbox('up', top=installed, KRONOS_VENV=str(installed / 'none')), 1,
                   'has no bin/python', 'Unset it')


def needs_programs():
    from tools.cloud import checks
    from tools.cloud import run
    path = f'{os.environ.get("PATH", "")}:{run.PATH}'
    missing = [p for p in checks.PROGRAMS if shutil.which(p, path=path) is None]
    if missing:
        pytest.skip(f'not installed: {", ".join(missing)}')


@pytest.mark.needs_nova
def test_a_taken_port_is_named_and_nothing_is_left(installed):
    needs_programs()
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = sandbox('--dir', str(installed / 's'), 'up', '--hosts', '1',
                       '--stock-scheduler', '--base-port', str(port), top=installed)
    assert_refused(done, 2, f'port {port}', 'is taken', 'choose another --base-port')
    status = sandbox('--dir', str(installed / 's'), 'status', top=installed)
    assert_refused(status, 4, 'no sandbox is up')


@pytest.mark.needs_nova
def test_low_memory_is_reported_with_both_numbers(installed):
    """In a mount namespace where the kernel says so."""
    needs_programs()
    said = installed / 'meminfo'
    said.write_text(''.join(
        'MemAvailable:     204800 kB\n' if line.startswith('MemAvailable:') else line
        for line in Path('/proc/meminfo').read_text().splitlines(keepends=True)))
    inside = ['unshare', '--mount', 'sh', '-c', f'mount --bind {said} /proc/meminfo && exec "$@"',
              'sh']
    try:
        subprocess.run([*inside, 'true'], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f'no mount namespace of our own here: {e}')
    done = sandbox('--dir', str(installed / 's'), 'up', top=installed, before=inside)
    assert_refused(done, 2, '6 hosts need 1720 MiB of memory and 200 MiB are available',
                   'fewer --hosts')
