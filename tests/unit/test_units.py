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


"""The systemd units and what goes with them: understood, hardened, and in accord
with the daemons."""

import configparser
import os
from pathlib import Path
import re
import shutil
import stat
import subprocess

from oslo_config import cfg
import pytest

from kronos_nova.conf import nova
from kronos_nova.conf import opts
from kronos_nova.wiring import signals
from tests import ci

TOP = Path(__file__).resolve().parents[2]
FOLDER = TOP / 'etc/systemd'
UNITS = sorted(FOLDER.glob('*.service'))
API = 'kronos-api'
#: The exposure that the documentation records, in tenths (systemd 252).
EXPOSURE = 11

#: systemd.unit(5), systemd.service(5), systemd.kill(5) and systemd.exec(5), of 252.
KNOWN = {
    'Unit': {'Description', 'Documentation', 'Wants', 'After', 'StartLimitIntervalSec',
             'StartLimitBurst'},
    'Service': {
        'Type', 'User', 'Group', 'EnvironmentFile', 'ExecStart', 'Restart', 'RestartSec',
        'KillMode', 'KillSignal', 'TimeoutStopSec', 'StateDirectory', 'StateDirectoryMode',
        'LogsDirectory', 'LogsDirectoryMode', 'UMask', 'InaccessiblePaths', 'NoNewPrivileges',
        'CapabilityBoundingSet', 'AmbientCapabilities', 'ProtectSystem', 'ProtectHome',
        'PrivateTmp', 'PrivateDevices', 'PrivateMounts', 'DevicePolicy', 'PrivateUsers',
        'ProtectClock', 'ProtectControlGroups', 'ProtectHostname', 'ProtectKernelLogs',
        'ProtectKernelModules', 'ProtectKernelTunables', 'ProtectProc', 'KeyringMode',
        'RemoveIPC', 'LockPersonality', 'MemoryDenyWriteExecute', 'RestrictAddressFamilies',
        'RestrictNamespaces', 'RestrictRealtime', 'RestrictSUIDSGID', 'SystemCallArchitectures',
        'SystemCallFilter', 'SystemCallErrorNumber'},
    'Install': {'WantedBy'}}


def read(path):
    """{section: [(option, value)]}: an option may come more than once."""
    found = {}
    for line in path.read_text().splitlines():
        if line.startswith('['):
            section = found.setdefault(line.strip('[]'), [])
        elif line and not line.startswith('#'):
            option, sign, value = line.partition('=')
            assert sign, line
            section.append((option, value))
    return found


def scripts():
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    return {line.split('=')[0].strip()
            for line in setup['entry_points']['console_scripts'].splitlines() if line.strip()}


def program(name):
    return ci.program(name, name if name == 'logrotate' else 'systemd')


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize('unit', UNITS, ids=lambda p: p.stem)
def test_a_unit_starts_the_daemon_of_its_name_with_options_of_the_default_file(unit):
    *command, variable = dict(read(unit)['Service'])['ExecStart'].split()
    if unit.stem == API:
        # It has no command of its own: tests/unit/api/test_uwsgi.py starts it by this line.
        assert command == ['uwsgi', '--ini', '/etc/kronos/kronos-api.ini']
        assert (TOP / 'etc/kronos/kronos-api.ini').exists()
    else:
        assert command == [unit.stem] and unit.stem in scripts()
    assert variable == f'${unit.stem.upper().replace("-", "_")}_OPTIONS'
    assert re.search(rf'^{variable[1:]}=', (FOLDER / 'kronos.default').read_text(), re.MULTILINE)


@pytest.mark.parametrize('unit', UNITS, ids=lambda p: p.stem)
def test_every_option_of_a_unit_is_one_that_systemd_knows(unit):
    found = read(unit)
    assert set(found) == set(KNOWN)
    for section, options in found.items():
        assert {option for option, _value in options} <= KNOWN[section]


def test_all_units_are_hardened_alike():
    differ = {'Type', 'ExecStart', 'TimeoutStopSec', 'InaccessiblePaths'}
    one, *others = ([o for o in read(u)['Service'] if o[0] not in differ] for u in UNITS)
    assert [one] * 3 == others
    for unit in UNITS:
        others = {u.stem for u in UNITS} - {unit.stem}
        hidden = dict(read(unit)['Service'])['InaccessiblePaths']
        assert hidden.split() == [f'-/etc/kronos/{o}.conf{d}' for o in sorted(others)
                                  for d in ('', '.d')], 'the credentials of the others'


def test_the_signal_and_the_time_to_end_are_the_daemons():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    uwsgi = configparser.ConfigParser(interpolation=None)
    uwsgi.read(TOP / 'etc/kronos/kronos-api.ini')
    needed = {'kronos-api': int(uwsgi['uwsgi']['worker-reload-mercy']),
              'kronos-engine': conf.nova.collect_timeout,
              'kronos-executor': nova.REQUEST_TIMEOUT,
              'kronos-migfra': conf.nova.collect_timeout}
    for unit in UNITS:
        service = dict(read(unit)['Service'])
        assert service['KillSignal'] in {s.name for s in signals.LEAVE}
        assert int(service['TimeoutStopSec']) >= needed[unit.stem] + 30
        # uWSGI speaks sd_notify, and the daemons do not.
        assert service['Type'] == ('notify' if unit.stem == API else 'exec')


def test_the_directories_are_those_of_the_options():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    service = dict(read(UNITS[0])['Service'])
    assert conf.database.connection.startswith(f'sqlite:////var/lib/{service["StateDirectory"]}/')
    assert conf.engine.policies_file.startswith('/etc/kronos/')


@pytest.fixture
def runnable(tmp_path):
    """The units with programs that are there."""
    for unit in UNITS:
        (tmp_path / unit.name).write_text(
            re.sub(r'^ExecStart=\S+', 'ExecStart=/bin/true', unit.read_text(), flags=re.MULTILINE))
    return sorted(tmp_path.glob('*.service'))


def test_systemd_understands_them_without_a_word(runnable):
    done = run(program('systemd-analyze'), 'verify', '--man=no', *map(str, runnable))
    assert (done.returncode, done.stdout + done.stderr) == (0, '')


def test_a_unit_that_is_wrong_is_found(runnable):
    runnable[0].write_text(runnable[0].read_text().replace('[Install]', 'ProtectHomes=yes\n'
                                                           '[Install]'))
    done = run(program('systemd-analyze'), 'verify', '--man=no', str(runnable[0]))
    assert 'ProtectHomes' in done.stderr


@pytest.mark.parametrize('number', range(len(UNITS)))
def test_the_exposure_is_what_the_documentation_says(runnable, number):
    analyze = program('systemd-analyze')
    command = (analyze, 'security', '--offline=true', '--no-pager')
    done = run(*command, f'--threshold={EXPOSURE}', str(runnable[number]))
    assert done.returncode == 0, done.stdout
    page = (TOP / 'doc/source/install/systemd.rst').read_text()
    assert f'{EXPOSURE / 10:.1f}' in page
    runnable[number].write_text(runnable[number].read_text().replace('PrivateUsers=yes', ''))
    assert run(*command, f'--threshold={EXPOSURE}', str(runnable[number])).returncode == 1


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can give files to somebody else')
def test_user_and_directories_are_made(tmp_path):
    """By the real programs, below a root of our own."""
    for folder in ('etc/sysusers.d', 'etc/tmpfiles.d', 'etc/kronos', 'var/lib', 'var/log'):
        (tmp_path / folder).mkdir(parents=True)
    for kind in ('sysusers', 'tmpfiles'):
        shutil.copy(FOLDER / f'kronos.{kind}', tmp_path / f'etc/{kind}.d/kronos.conf')
    secret = tmp_path / 'etc/kronos/kronos.conf'
    secret.write_text('')
    secret.chmod(0o644)
    done = run(program('systemd-sysusers'), f'--root={tmp_path}', 'kronos.conf')
    assert done.returncode == 0, done.stderr
    user = (tmp_path / 'etc/passwd').read_text().split(':')
    assert user[0] == 'kronos' and user[6].strip() == '/usr/sbin/nologin'
    done = run(program('systemd-tmpfiles'), '--create', f'--root={tmp_path}', 'kronos.conf')
    assert done.returncode == 0, done.stderr

    def seen(path):
        found = (tmp_path / path).stat()
        return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid

    uid, gid = int(user[2]), int(user[3])
    assert seen('etc/kronos') == (0o750, 0, gid)
    assert seen('etc/kronos/kronos.conf') == (0o640, 0, gid)
    assert seen('etc/kronos/signing-keys') == (0o750, uid, gid)
    assert seen('var/lib/kronos') == (0o700, uid, gid)
    assert seen('var/log/kronos') == (0o750, uid, gid)


def test_logrotate_understands_its_file(tmp_path):
    text = (FOLDER / 'kronos.logrotate').read_text()
    path = tmp_path / 'kronos'
    path.write_text(text.replace('su kronos kronos', 'su root root').replace(
        '/var/log/kronos', str(tmp_path)))
    path.chmod(0o644)
    (tmp_path / 'kronos-engine.log').write_text('x')
    done = run(program('logrotate'), '--debug', f'--state={tmp_path / "state"}', str(path))
    assert done.returncode == 0, done.stderr
    assert 'error' not in done.stderr and 'kronos-engine.log' in done.stderr


def test_all_units_are_installed_and_documented():
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    assert 'share/kronos-nova/systemd = etc/systemd/*' in setup['files']['data_files']
    page = (TOP / 'doc/source/install/systemd.rst').read_text()
    assert {p.name for p in FOLDER.iterdir()} <= set(re.findall(r'[\w.-]+', page))
