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

"""The role: it makes the keys that sign tasks, and gives each container those that it needs."""

from pathlib import Path
import shutil
import stat

import pytest

from kronos_nova import exception
from kronos_nova.cmd import signing_keys
from kronos_nova.conf import signing
from kronos_nova.rebalancer.authorization import key_repository
from tests.deploy import kolla_env
from tests.deploy import kolla_page
from tests.deploy import kolla_stubs
from tests.deploy import rendered_conf

pytestmark = pytest.mark.xdist_group(kolla_stubs.GROUP)

SIGNERS = ('kronos-engine', 'kronos-migfra', 'kronos-api')
EXECUTOR = 'kronos-executor'
INSIDE = '/etc/kronos/signing-keys'
RESTART = 'recreate_or_restart_container kronos_'
ROTATE = ('-e', 'kronos_rotate_signing_keys=true')


@pytest.fixture(scope='module')
def cloud(deployment) -> kolla_stubs.Cloud:
    return deployment.begin()


@pytest.fixture(scope='module')
def deployed(deployment) -> list[kolla_stubs.Asked]:
    return deployment.asked


def find_started(asked, name):
    (started,) = [one for one in asked if str(one) == f'{RESTART}{name.partition("-")[2]}']
    return started


def find_keys(cloud, asked, name):
    """Return the directory of the host that a container has as its keys, by its volumes."""
    path = rendered_conf.daemon(cloud, name).signing.key_repository
    assert path == INSIDE
    volumes = find_started(asked, name).args['volumes']
    directory = rendered_conf.mounted(f'{path}/', volumes)
    assert f'{directory}:{path}/:ro' in volumes
    return Path(directory)


def list_names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_signers_have_all_keys_and_executors_only_public_ones(cloud, deployed):
    directories = {name: find_keys(cloud, deployed, name) for name in (*SIGNERS, EXECUTOR)}
    for name, directory in directories.items():
        assert find_started(deployed, name).mounted[f'{directory}/'] == (
            ['0.pub', '1.pub'] if name == EXECUTOR else ['0.pem', '0.pub', '1.pem', '1.pub'])
    public = directories.pop(EXECUTOR)
    private = {*directories.values()}
    key_id, key = key_repository.KeyRepository(str(private.pop())).get_signing_key()
    verifier = key_repository.KeyRepository(str(public))
    verifier.get_public_key(key_id).verify(key.sign(b'a task'), b'a task')
    with pytest.raises(exception.SigningKeyError):
        verifier.get_signing_key()


def test_only_user_of_images_reads_private_keys(cloud, deployed):
    images = (kolla_env.TOP / 'deploy/kolla/kolla-build.conf').read_text()
    assert 'uid = 42900' in images and 'gid = 42900' in images
    for daemon in rendered_conf.DAEMONS:
        directory = find_keys(cloud, deployed, daemon)
        for path in (directory, *directory.iterdir()):
            found = path.stat()
            assert (found.st_uid, found.st_gid) == (42900, 42900)
            assert stat.S_IMODE(found.st_mode) == (
                0o750 if path == directory else 0o644 if path.suffix == '.pub' else 0o640)


def read_files(cloud):
    """Return the content of what kolla compares to decide about a restart."""
    return {path: path.read_bytes() for daemon in (*rendered_conf.DAEMONS, 'kronos-api')
            for path in (cloud.node / daemon).iterdir()}


@pytest.mark.parametrize('action', [
    'genconfig', pytest.param('reconfigure', marks=pytest.mark.long)])
@pytest.mark.turns(2)
def test_rotated_keys_reach_running_containers_without_restart(cloud, deployed, action):
    assert f'genconfig $kronos {" ".join(ROTATE)}\n' in kolla_page.PAGE.read_text()
    keys = cloud.config / 'config/kronos/signing-keys'
    shutil.rmtree(keys)
    key_repository.create_keys(str(keys))
    for _ in range(2):
        signing_keys.main(['rotate', str(keys)])
    assert list_names(keys) == ['0.pem', '0.pub', '2.pem', '2.pub', '3.pem', '3.pub']
    before = read_files(cloud)
    assert not any(b'signing-keys' in text for path, text in before.items()
                   if path.name == 'config.json'), 'kolla would copy them at a start alone'
    status, output = cloud.act(action, '--diff', *ROTATE)
    assert status == 0 and '3.pem' in output and 'BEGIN PRIVATE KEY' not in output, output
    assert list_names(keys) == ['0.pem', '0.pub', '3.pem', '3.pub', '4.pem', '4.pub']
    for name in (*SIGNERS, EXECUTOR):
        assert {path.name: path.read_bytes() for path in find_keys(
            cloud, deployed, name).iterdir()} == {
                path.name: path.read_bytes() for path in keys.iterdir()
                if name in SIGNERS or path.suffix == '.pub'}
    assert read_files(cloud) == before
    if action == 'reconfigure':
        asked = cloud.log()
        for name in (*SIGNERS, EXECUTOR):
            assert find_started(asked, name).args == find_started(deployed, name).args


@pytest.mark.turns(2)
def test_host_of_executors_alone_gets_no_private_key(cloud, deployed):
    inventory = cloud.config / 'kronos.ini'
    whole = text = inventory.read_text()
    for group in SIGNERS:
        assert f'[{group}:children]\nkronos\n' in whole
        text = text.replace(f'[{group}:children]\nkronos\n',
                            f'[{group}]\ncontroller ansible_connection=local\n')
    inventory.write_text(text)
    try:
        cloud.asked('genconfig', '--limit', 'localhost',
                    '-e', f'kronos_private_keys_directory={cloud.top}/private',
                    '-e', f'kronos_public_keys_directory={cloud.top}/public')
    finally:
        inventory.write_text(whole)
    assert not (cloud.top / 'private').exists()
    names = list_names(cloud.top / 'public')
    assert len(names) >= 2 and all(name.endswith('.pub') for name in names)


@pytest.mark.long
def test_disabled_signing_gives_no_container_keys(cloud):
    asked = cloud.asked('deploy', '-e', 'kronos_enable_signing=false')
    try:
        for name in (*SIGNERS, EXECUTOR):
            volumes = find_started(asked, name).args['volumes']
            assert volumes and not any('signing' in volume or not volume for volume in volumes)
            assert 'signing' not in (cloud.node / name / 'kronos.conf').read_text()
    finally:
        cloud.asked('genconfig')


def test_deployment_host_keeps_as_many_keys_as_a_controller_does():
    (option,) = [option for option in signing.OPTS if option.name == 'max_active_keys']
    assert option.default == signing_keys.KEPT_KEYS


def test_deployment_host_says_why_it_cannot_rotate(tmp_path, capsys):
    assert signing_keys.main(['rotate', str(tmp_path)]) == 1
    assert 'it has no next key' in capsys.readouterr().err
    assert signing_keys.main(['create', str(tmp_path)]) == 0
    assert signing_keys.main(['create', str(tmp_path)]) == 1
    assert 'it has keys already' in capsys.readouterr().err
