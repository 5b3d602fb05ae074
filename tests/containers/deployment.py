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

"""An operator's directory, and kolla-ansible that reaches podman, Keystone and MariaDB of the test.

kolla-ansible's modules for containers are real. In place of others stand

* for systemd on D-Bus: ``stand_ins/dbus.py``, and for systemctl: ``stand_ins/systemctl``;
  ``stand_ins/podman`` asks podman's API of the test, and ``stand_ins/sudo`` runs any command,
* for the container kolla_toolbox: ``toolbox.py`` beside this file.

kolla-ansible runs in a mount namespace, where /run and /etc/systemd/system are directories of the
test.
"""

import configparser
import os
from pathlib import Path
import sys
from typing import Any

from tests.containers import cloud as clouds
from tests.deploy import kolla_cloud
from tests.deploy import kolla_env
from tests.fixtures import certificates
from tests.fixtures import free_ports

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
SECTIONS = ('Install', 'Tell kolla-ansible', 'Policies')
#: What kolla-ansible wants to read before it stops or removes something.
CONSENT = '--yes-i-really-really-mean-it'
TOOLBOX = '''

class KollaToolboxWorker:

    def __init__(self, module, client, container_errors):
        self.module, self.params, self.result = module, module.params, {{'changed': True}}

    def main(self):
        status, said, complained = self.module.run_command(
            [{python!r}, '-m', 'tests.containers.toolbox', {sandbox!r}], cwd={top!r},
            data=json.dumps({{'module': self.params['module_name'],
                              'arguments': self.params['module_args']}}))
        if status:
            self.module.fail_json(msg=complained)


def create_container_client(module):
    return None, None


main()
'''
#: A shell in the namespace; kolla-ansible and its arguments follow.
ENTER = '''
mount --bind "$KRONOS_RUN" /run
mount --bind "$KRONOS_UNITS" /etc/systemd/system
exec "$0" "$@"
'''
#: For an action that removes files of /etc/kolla and of /etc, and interfaces of the host.
ENTER_TO_DESTROY = '''
ip link set lo up
cp -a /etc "$KRONOS_ETC"
mkdir "$KRONOS_ETC/kolla"
mount --bind "$KRONOS_ETC" /etc
mount --bind "$KRONOS_NODE" /etc/kolla
''' + ENTER


class Deployment(kolla_cloud.Cloud):
    """``act`` executes an action of kolla-ansible with our playbook."""

    def __init__(self, top: Path, cloud: clouds.Cloud, address: Path) -> None:
        super().__init__(top)
        self._cloud = cloud
        self._address = address
        self.units = top / 'units'
        self.units.mkdir()
        self.ports = {name: free_ports.reserve_port() for name in (*clouds.DAEMONS, clouds.API)}

    def prepare(self, **settings: Any) -> None:
        """Write the operator's directory by the commands of the page."""
        ports = self._cloud.run.ports
        self.write({
            'kolla_container_engine': 'podman', 'kolla_internal_vip_address': '127.0.0.1',
            'docker_registry': 'localhost', 'docker_namespace': 'kolla',
            'enable_haproxy': False, 'enable_proxysql': False,
            'keystone_internal_port': ports['keystone'], 'database_port': ports['mariadb'],
            'rpc_transport_url': f'rabbit://guest:guest@127.0.0.1:{ports["rabbitmq"]}//',
            'kronos_cache_servers': f'127.0.0.1:{ports["memcached"]}',
            'kronos_prometheus_url': self._cloud.run.url('prometheus'),
            'enable_kronos_migfra': True, 'kronos_mqtt_host': '127.0.0.1',
            'kronos_mqtt_port': self._cloud.broker.port, 'kronos_mqtt_tls': False,
            'kronos_mqtt_username': '', 'kronos_migfra_allow': ['migrate-vm:*:*'],
            'enable_kronos_api': True, 'kronos_enable_tls_backend': True,
            **{f'kronos_{name.partition("-")[2]}_port': port
               for name, port in self.ports.items()},
            'default_container_healthcheck_interval': 5, **settings}, SECTIONS)
        policies = self.config / 'config/kronos/policies/policies.yaml'
        policies.write_text(self._cloud.run.layout.policies.read_text())
        certificates.write_certificate(self.config / 'certificates')
        self._write_options(self.config / 'config/kronos.conf')
        self._stub_toolbox()

    def _write_options(self, path: Path) -> None:
        """Write what the sandbox' own kronos.conf has for cycles of seconds."""
        sandbox_conf = configparser.RawConfigParser(default_section='')
        sandbox_conf.read(self._cloud.run.layout.kronos_conf)
        kept = configparser.RawConfigParser()
        for section, options in (
                ('engine', ('hypervisor_types', 'evaluation_interval', 'cooldown',
                            'instance_cooldown', 'settle_seconds')),
                ('executor', tuple(sandbox_conf['executor'])),
                ('prometheus', ('staleness_threshold',))):
            kept[section] = {name: sandbox_conf[section][name] for name in options}
        with path.open('w') as file:
            kept.write(file)

    def _stub_toolbox(self) -> None:
        """Lay playbooks beside those of kolla-ansible, with one other module."""
        tree = self.top / 'playbooks'
        (tree / 'library').mkdir(parents=True)
        for path in kolla_env.ANSIBLE.iterdir():
            if path.name not in ('library', 'kronos.yml'):
                (tree / path.name).symlink_to(path)
        for path in (kolla_env.ANSIBLE / 'library').glob('*.py'):
            (tree / 'library' / path.name).write_bytes(path.read_bytes())
        # A link to it would lead to the modules beside the file that is meant.
        (tree / 'kronos.yml').write_bytes((kolla_env.ANSIBLE / 'kronos.yml').read_bytes())
        module = tree / 'library/kolla_toolbox.py'
        text, main, _ = module.read_text().partition('\n\nif __name__ == ')
        assert main
        module.write_text(text + TOOLBOX.format(
            python=sys.executable, sandbox=str(self._cloud.run.layout.root), top=str(TOP)))

    def act(self, action: str, *arguments: str) -> str:
        """Execute an action; it has to succeed. Return what Ansible prints."""
        status, output = self.attempt(action, self.top / 'playbooks/kronos.yml', *arguments)
        assert status == 0, output[-8000:]
        return output

    def attempt(self, action: str, playbook: Path, *arguments: str) -> tuple[int, str]:
        return self._enter(['--mount'], ENTER, action, playbook, *arguments)

    def destroy_cloud(self) -> None:
        """Execute kolla-ansible's own destroy, which has to succeed; interfaces stay untouched."""
        status, output = self._enter(
            ['--mount', '--net'], ENTER_TO_DESTROY, 'destroy', kolla_env.ANSIBLE / 'destroy.yml',
            CONSENT)
        assert status == 0, output[-8000:]

    def _enter(self, namespaces: list[str], shell: str, action: str, playbook: Path,
               *arguments: str) -> tuple[int, str]:
        return kolla_env.attempt(
            'unshare', *namespaces, '--propagation', 'private', 'bash', '-euc', shell,
            'kolla-ansible', action, '--configdir', self.config, '-i', self.top / 'multinode',
            '-i', self.config / 'kronos.ini', '-p', playbook, *arguments, **self._variables())

    def _variables(self) -> dict[str, str]:
        return {**super()._variables(), 'PYTHONPATH': str(HERE / 'stand_ins'),
                'PATH': f'{HERE / "stand_ins"}:{os.environ["PATH"]}',
                'KRONOS_RUN': str(self._address.parents[1]), 'KRONOS_UNITS': str(self.units),
                'KRONOS_ETC': str(self.top / 'etc'), 'KRONOS_NODE': str(self.node)}
