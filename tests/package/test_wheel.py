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

"""The wheel and the sdist: contents, entry points, installation."""

import configparser
import email
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

from tests.fixtures import checkout

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def built(tmp_path_factory) -> Path:
    """A directory with one sdist, and one wheel that was built from that sdist."""
    output = tmp_path_factory.mktemp('dist')
    done = subprocess.run(
        [sys.executable, '-m', 'build', '--no-isolation', '--outdir', str(output),
         str(copy_with_egg_info(tmp_path_factory.mktemp('used')))],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return output


def copy_with_egg_info(parent: Path) -> Path:
    """Copy the checkout with what an earlier build or installation has left in it."""
    home = checkout.copy_checkout(parent / 'kronos-nova')
    for left in TOP.glob('*.egg-info'):
        shutil.copytree(left, home / left.name)
    return home


@pytest.fixture(scope='module')
def wheel(built) -> Path:
    (found,) = built.glob('kronos_nova-*.whl')
    return found


def _declared() -> dict[str, dict[str, str]]:
    """group -> {name: target}, as setup.cfg has it."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    return {
        group: dict(map(str.strip, line.split('=')) for line in text.strip().splitlines())
        for group, text in setup['entry_points'].items()
    }


def _read(wheel: Path, suffix: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(suffix))
        return archive.read(name).decode()


def test_wheel_holds_the_whole_package_and_no_test(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if name.startswith('kronos_nova/')}
    assert package == checkout.list_tracked('kronos_nova')
    assert {name.split('/')[0] for name in names} - {'kronos_nova'} == {
        name.split('/')[0] for name in names if re.match(r'kronos_nova-[^/]+\.(dist-info|data)/',
                                                         name)}


def test_wheel_installs_the_files_of_etc_and_deploy(wheel):
    marker = '.data/data/share/'
    with zipfile.ZipFile(wheel) as archive:
        installed = {name.split(marker)[1] for name in archive.namelist() if marker in name}
    assert installed == {
        name.replace(folder, target, 1) for folder, target in (
            ('etc/kronos/', 'kronos-nova/etc/'), ('etc/systemd/', 'kronos-nova/systemd/'),
            ('deploy/grafana/', 'kronos-nova/grafana/'),
            ('deploy/prometheus/', 'kronos-nova/prometheus/'),
            ('deploy/kolla/', 'kronos-nova/kolla/'),
            ('deploy/kolla-ansible/ansible/', 'kolla-ansible/ansible/'),
            ('deploy/kolla-ansible/examples/', 'kronos-nova/kolla-ansible/'))
        for name in checkout.list_tracked(folder)}
    assert {'kronos-nova/etc/kronos.conf.sample', 'kronos-nova/etc/nova-scheduler.conf.sample',
            'kronos-nova/etc/policies.yaml', 'kronos-nova/etc/nova-policy.yaml',
            'kronos-nova/etc/placement-policy.yaml',
            'kronos-nova/systemd/kronos-engine.service',
            'kolla-ansible/ansible/kronos.yml'} <= installed


def test_every_entry_point_is_in_wheel_and_leads_to_file(wheel):
    parser = configparser.ConfigParser(interpolation=None, delimiters=('=',))
    parser.optionxform = str
    parser.read_string(_read(wheel, '.dist-info/entry_points.txt'))
    built = {group: dict(parser[group]) for group in parser.sections()}
    assert built == _declared()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for targets in built.values():
        for target in targets.values():
            module = target.partition(':')[0].replace('.', '/')
            assert {f'{module}.py', f'{module}/__init__.py'} & names, target


def test_metadata_has_extras_and_small_base_requirements(wheel):
    message = email.message_from_string(_read(wheel, '.dist-info/METADATA'))
    assert message['Name'] == 'kronos-nova'
    assert message['Requires-Python'] == '>=3.11'
    assert {'client', 'mysql', 'rebalancer', 'scheduler'} <= set(message.get_all('Provides-Extra'))
    base = {re.match(r'[\w.-]+', line)[0].lower() for line in message.get_all('Requires-Dist')
            if 'extra ==' not in line}
    assert 'pydantic' in base
    assert not base & {'nova', 'numpy', 'openstacksdk', 'oslo.db', 'oslo.messaging', 'sqlalchemy'}


@pytest.fixture(scope='module')
def unpacked(built, tmp_path_factory) -> Path:
    """The tree of the sdist, which is no git repository."""
    (sdist,) = built.glob('kronos?nova-*.tar.gz')
    home = tmp_path_factory.mktemp('sdist')
    with tarfile.open(sdist) as archive:
        archive.extractall(home)
    (found,) = home.iterdir()
    assert not (found / '.git').exists()
    return found


def _files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope='module')
def clone(tmp_path_factory) -> Path:
    """A clean clone with the uncommitted changes; it has no file from a build."""
    home = checkout.copy_checkout(tmp_path_factory.mktemp('clone') / 'kronos-nova')
    assert not {'AUTHORS', 'ChangeLog'} & {path.name for path in home.iterdir()}
    return home


@pytest.mark.parametrize('source', ['unpacked', 'clone'])
def test_wheel_from_sdist_or_clean_clone_is_identical(wheel, source, tmp_path, request):
    """Member by member; only the times within the archive are of the build."""
    done = subprocess.run(
        [sys.executable, '-m', 'build', '--no-isolation', '--wheel', '--outdir', str(tmp_path),
         str(request.getfixturevalue(source))],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**_environment(), 'GIT_CEILING_DIRECTORIES': str(tmp_path.parent)})
    assert done.returncode == 0, done.stdout + done.stderr
    (again,) = tmp_path.glob('*.whl')
    assert again.name == wheel.name
    one, other = _files(wheel), _files(again)
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


def test_version_comes_from_git_or_pkg_info(wheel, unpacked, clone):
    """pbr counts the commits since the tag; an sdist has that in its PKG-INFO."""
    version = email.message_from_string(_read(wheel, '.dist-info/METADATA'))['Version']
    assert email.message_from_string((unpacked / 'PKG-INFO').read_text())['Version'] == version
    assert re.fullmatch(r'\d+\.\d+\.\d+(\.0(a|b|rc)\d+)?(\.dev\d+)?', version)
    environment = {name: value for name, value in _environment().items()
                   if name != 'PBR_VERSION'}
    said = subprocess.run(
        [sys.executable, 'setup.py', '-q', '--version'], cwd=clone, capture_output=True,
        text=True, check=True, env=environment)
    assert said.stdout.split()[-1] == version


def test_sdist_has_all_files_to_build_without_git(built):
    (sdist,) = built.glob('kronos?nova-*.tar.gz')  # setuptools changed the dash
    with tarfile.open(sdist) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    assert {'PKG-INFO', 'setup.cfg', 'setup.py', 'pyproject.toml', 'LICENSE', 'README.rst',
            'requirements.txt', 'constraints.txt', 'tools/test', 'tox.ini'} <= names
    assert checkout.list_tracked('kronos_nova', 'deploy', 'etc', 'tests', 'doc',
                                 'releasenotes') <= names


@pytest.fixture(scope='module')
def bare(wheel, tmp_path_factory) -> Path:
    """The bin directory of an environment with the wheel and its base requirements."""
    home = tmp_path_factory.mktemp('bare')
    venv.create(home, with_pip=True)
    _pip(home, str(wheel))
    return home


def _environment() -> dict[str, str]:
    """Without what would let an installation see this source tree."""
    return {name: value for name, value in os.environ.items()
            if name not in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')}


def _pip(home: Path, *wanted: str) -> None:
    done = subprocess.run(
        [home / 'bin/pip', 'install', '-q', '-c', str(TOP / 'constraints.txt'), *wanted],
        capture_output=True, text=True, check=False, cwd=home, env=_environment())
    assert done.returncode == 0, done.stdout + done.stderr


def _command(home: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([home / 'bin' / name, *arguments], capture_output=True, text=True,
                          check=False, cwd=home, timeout=180, env=_environment())


@pytest.mark.parametrize('name', sorted(_declared()['console_scripts']))
def test_command_without_extra_names_missing_extra(bare, name):
    done = _command(bare, name, '--help')
    assert done.returncode == 1
    assert done.stdout == ''
    assert re.fullmatch(rf'{name} needs the packages of the extra "rebalancer" '
                        r'\(missing: \w+\)\. '
                        r'Install with: pip install "kronos-nova\[rebalancer\]"\n', done.stderr)


def test_scheduler_plugins_import_from_base_installation(bare):
    done = _command(bare, 'python', '-c',
                    'import kronos_nova.scheduler.score_cache, kronos_nova.sources.prometheus, '
                    'kronos_nova.conf.scheduler, kronos_nova.conf.policies, kronos_nova.plugins')
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope='module')
def complete(bare, wheel) -> Path:
    """The same environment with the extra rebalancer."""
    _pip(bare, f'kronos-nova[rebalancer] @ {wheel.as_uri()}')
    return bare


@pytest.mark.parametrize('name', sorted(_declared()['console_scripts']))
def test_command_with_its_extra_shows_its_help(complete, name):
    done = _command(complete, name, '--help')
    assert done.returncode == 0, done.stderr
    assert 'usage:' in done.stdout.lower()
    assert 'Traceback' not in done.stderr


@pytest.fixture(scope='module')
def client(wheel, tmp_path_factory) -> Path:
    """An environment with OpenStackClient and the extra client alone."""
    home = tmp_path_factory.mktemp('client')
    venv.create(home, with_pip=True)
    _pip(home, 'python-openstackclient', f'kronos-nova[client] @ {wheel.as_uri()}')
    return home


def test_client_works_without_packages_of_the_services(client):
    installed = {line.partition('==')[0].lower()
                 for line in _command(client, 'pip', 'freeze', '--all').stdout.splitlines()}
    assert not installed & {'alembic', 'flask', 'keystonemiddleware', 'nova', 'numpy', 'oslo.db',
                            'oslo.messaging', 'oslo.policy', 'sqlalchemy', 'webob', 'werkzeug'}
    done = _command(client, 'openstack', 'complete')
    assert done.returncode == 0, done.stderr
    names = [name.removeprefix('rebalance_').split('_')
             for name in _declared()['openstack.rebalance.v1']]
    for kind in {kind for kind, _verb in names}:
        verbs = ' '.join(sorted(verb for other, verb in names if other == kind))
        assert f"cmds_rebalance_{kind}='{verbs}'" in done.stdout
    # Port 9 (discard) has no server here.
    done = _command(client, 'openstack', '--os-auth-type', 'none', '--os-endpoint',
                    'http://127.0.0.1:9', 'rebalance', 'plan', 'list')
    assert (done.returncode, done.stdout) == (1, '')
    assert re.fullmatch(r'kronos-api does not answer: .*\n', done.stderr)
