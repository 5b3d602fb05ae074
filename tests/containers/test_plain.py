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

"""The image for clouds without kolla, by the commands of its page, against the sandbox."""

from pathlib import Path
import re
import shutil
import time

import pytest

from tests.containers import cloud as clouds
from tests.fixtures import free_ports
from tests.integration import servers

#: A fixture that builds images counts for the first test that asks for it.
pytestmark = [pytest.mark.long, pytest.mark.timeout(45 * 60)]
TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / 'doc/source/install/containers.rst'
SCRIPT = TOP / 'deploy/containers/run.sh'
IMAGE = 'localhost/kronos-nova'
DOCUMENTED_PORTS = {'kronos-engine': '9585', 'kronos-executor': '9586', 'kronos-migfra': '9587'}


def read_commands(section: str) -> list[str]:
    """The commands of a section of the page; one that goes on is joined."""
    text = re.search(rf'^{section}\n=+\n(.*?)(?=^\S[^\n]*\n=+\n|\Z)', PAGE.read_text(),
                     re.MULTILINE | re.DOTALL).group(1)
    return re.findall(r'^ +# (.*)$', re.sub(r' *\\\n +', ' ', text), re.MULTILINE)


class Installation:
    """The page's commands, with directories and ports of the test in place of its own."""

    def __init__(self, podman, cloud, place, transport_url):
        self.podman = podman
        self.etc, self.state = place / 'etc', place / 'state'
        self.ports = {name: free_ports.reserve_port() for name in DOCUMENTED_PORTS}
        self.api_port = free_ports.reserve_port()
        self.script = place / 'run.sh'
        self.script.write_text(self.adapt(SCRIPT.read_text()))
        self.script.chmod(0o755)
        self.sources = place / 'sources'
        self.sources.mkdir()
        (self.sources / 'kronos.conf').write_text(cloud.configure(
            '/etc/kronos/policies.yaml', self.ports, 'kronos_plain', transport_url))
        shutil.copy(cloud.run.layout.policies, self.sources / 'policies.yaml')
        ini = (TOP / 'etc/kronos/kronos-api.ini').read_text()
        assert '127.0.0.1:9588' in ini
        (self.sources / 'etc/kronos').mkdir(parents=True)
        (self.sources / 'etc/kronos/kronos-api.ini').write_text(
            ini.replace('127.0.0.1:9588', f'127.0.0.1:{self.api_port}'))

    def adapt(self, text):
        text = re.sub(r'(-v|--volume) /etc/kronos:', rf'\1 {self.etc}:', text)
        text = re.sub(r'(-v|--volume) /var/lib/kronos:', rf'\1 {self.state}:', text)
        for name, port in DOCUMENTED_PORTS.items():
            text = text.replace(f'{name}) port={port}', f'{name}) port={self.ports[name]}')
        text = text.replace('port=9588', f'port={self.api_port}')
        text = re.sub(r' /etc/kronos/$', f' {self.etc}/', text, flags=re.MULTILINE)
        return text.replace('deploy/containers/run.sh', str(self.script))

    def ask_kronos(self, *words):
        return self.type_commands([f'deploy/containers/run.sh kronos {" ".join(words)}'])

    def type_commands(self, commands, which=''):
        """Type those that a regular expression finds; they have to succeed."""
        chosen = [self.adapt(command) for command in commands if re.search(which, command)]
        assert chosen
        return self.podman.run('bash', '-euc', '\n'.join(chosen), cwd=self.sources, minutes=10)


@pytest.fixture(scope='module')
def image(podman, make_base, measure):
    """The image, built by the page's command on a base of this machine."""
    began = time.monotonic()
    base = make_base('bookworm')
    debootstrapped = time.monotonic()
    (command,) = read_commands('Build the image')
    podman.run('bash', '-euc', f'{command} --build-arg BASE={base}', cwd=TOP,
               minutes=15)
    measure(f'debian bookworm by debootstrap: {debootstrapped - began:.0f} s, '
            f'{podman.read_size(base) / 1e6:.0f} MB')
    measure(f'{IMAGE}: built in {time.monotonic() - debootstrapped:.0f} s, '
            f'{podman.read_size(IMAGE) / 1e6:.0f} MB with its base')
    return IMAGE


@pytest.fixture(scope='module')
def broker(place):
    """A RabbitMQ of its own: kolla's queues have the same names and other properties."""
    directory = place / 'rabbitmq'
    directory.mkdir()
    with servers.rabbitmq(directory) as made:
        yield made


@pytest.fixture(scope='module')
def installation(image, podman, cloud, broker, place):
    """The page's directories and files, and a database with the schema."""
    directory = place / 'plain'
    directory.mkdir()
    made = Installation(podman, cloud, directory, broker.url)
    # The user of the containers is not the owner of what lies around the page's directories.
    for path in (directory, place):
        path.chmod(0o711)
    configure = read_commands('Configure')
    install = '\n'.join(command for command in configure if command.startswith('install'))
    made.podman.run('bash', '-euc', install.replace('/etc/kronos', str(made.etc)).replace(
        '/var/lib/kronos', str(made.state)), cwd=made.sources)
    made.type_commands(configure, r'signing-key create')
    made.type_commands(configure, r'db sync')
    return made


def test_image_has_neither_compiler_nor_pip(podman, image):
    names = (*clouds.DAEMONS, 'kronos', 'kronos-manage', 'kronos-test-config')
    said = podman.call('run', '--rm', image, 'sh', '-c',
                       'id -un; id -u; for name in gcc pip git ' + ' '.join(names) +
                       '; do command -v $name; done')
    assert said.split() == ['kronos', '42900', *(f'/opt/kronos/bin/{name}' for name in names)]


def test_configuration_passes_all_checks(installation):
    said = installation.type_commands(read_commands('Configure'), r'kronos-test-config')
    assert 'policies' in said


def test_daemons_move_instance_in_containers(installation, cloud, podman, measure):
    run = read_commands('Run')
    installation.type_commands(run, r'run\.sh kronos-(engine|executor)$')
    installation.type_commands(['deploy/containers/run.sh kronos-migfra'])
    for name in clouds.DAEMONS:
        measure(f'{name} of {IMAGE}: healthy after {podman.wait_healthy(name):.1f} s')
    for name in clouds.DAEMONS:
        described = podman.inspect(name)
        assert described['HostConfig']['ReadonlyRootfs']
        assert not described['EffectiveCaps']
        assert podman.call('exec', name, 'id', '-u').strip() == '42900'
        status, said = podman.attempt('podman', 'exec', name, 'touch', '/opt/kronos/file')
        assert status and 'Read-only file system' in said
    uuids = cloud.make_imbalance()
    cloud.wait_tasks(installation.ask_kronos, uuids)
    assert '_unassigned_' in installation.type_commands(run, r'kronos status')
    stopped = time.monotonic()
    installation.type_commands([
        f'{command.replace(" kronos-api", "")} kronos-migfra' for command in run
        if command.startswith('podman stop')])
    measure(f'{IMAGE}: three daemons stopped in {time.monotonic() - stopped:.1f} s')
    for name in clouds.DAEMONS:
        assert podman.inspect(name)['State']['ExitCode'] == 0
    installation.type_commands([
        f'{command.replace(" kronos-api", "")} kronos-migfra' for command in run
        if command.startswith('podman rm')])
    cloud.delete(uuids)


def test_api_answers_in_container(installation, cloud, podman, measure):
    installation.type_commands(read_commands('Run'), r'kronos-api(\.ini .*)?$')
    measure(f'kronos-api of {IMAGE}: healthy after {podman.wait_healthy("kronos-api"):.1f} s')
    described = podman.inspect('kronos-api')
    assert described['HostConfig']['ReadonlyRootfs'] and not described['EffectiveCaps']
    status, document = cloud.ask_api(f'http://127.0.0.1:{installation.api_port}/v1/plans')
    assert status == 200, podman.call('logs', 'kronos-api')
    assert isinstance(document['plans'], list)
    podman.call('stop', 'kronos-api')
    assert podman.inspect('kronos-api')['State']['ExitCode'] == 0
    podman.call('rm', 'kronos-api')
