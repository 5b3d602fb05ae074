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

"""An operator's directory for kolla-ansible, as the documentation has one made, and
what ``kolla-ansible genconfig`` writes from it; no container is involved.

TLS is on everywhere, ProxySQL is in front of the database: the fullest files.
"""

import dataclasses
import json
from pathlib import Path
import shutil
import socket
from typing import Any

import yaml

from tests.deploy import kolla_env

KRONOS = kolla_env.SHARE / 'kronos-nova'
EXAMPLES = KRONOS / 'kolla-ansible'
ETC = KRONOS / 'etc'
OUR_PASSWORDS = ('kronos_database_password', 'kronos_engine_keystone_password',
                 'kronos_executor_keystone_password', 'kronos_prometheus_password')
POLICIES = '# {{ no Jinja }}\npolicies:\n- {name: cpu, weight: 1.0, imbalance_query: cpu}\n'

#: What else is rendered with our files in it: Nova, and the users of Prometheus.
PLAYBOOK = '''---
- name: Kronos
  ansible.builtin.import_playbook: kronos.yml

- name: Nova
  hosts: nova-scheduler
  gather_facts: false
  roles:
    - role: nova
  post_tasks:
    - name: Tell the volumes of nova-scheduler
      ansible.builtin.copy:
        content: "{{ nova_services['nova-scheduler'].volumes | to_json }}"
        dest: "{{ node_config_directory }}/nova-scheduler-volumes.json"
        mode: "0600"

- name: Users of Prometheus, and our containers
  hosts: prometheus
  gather_facts: false
  vars_files:
    - roles/prometheus/defaults/main.yml
    - roles/kronos/defaults/main.yml
  tasks:
    - name: Users of Prometheus
      ansible.builtin.template:
        src: roles/prometheus/templates/prometheus-web.yml.j2
        dest: "{{ node_config_directory }}/web.yml"
        mode: "0600"
    - name: Find rules as the role does
      ansible.builtin.find:
        path: "{{ node_custom_config }}/prometheus/"
        pattern: "*.rules"
      register: prometheus_alert_rules
    - name: Configure Prometheus as the role does, by where the daemons listen
      merge_yaml:
        sources:
          - "{{ playbook_dir }}/roles/prometheus/templates/prometheus.yml.j2"
          - "{{ node_custom_config }}/prometheus/prometheus.yml.d/kronos.yml"
        dest: "{{ node_config_directory }}/{{ item.file }}"
        mode: "0600"
        extend_lists: true
      vars:
        kronos_monitoring_address: "{{ item.address }}"
      loop:
        - {file: prometheus.yml, address: "{{ kolla_internal_vip_address }}"}
        - {file: prometheus-alone.yml, address: "127.0.0.1"}
    - name: Containers
      ansible.builtin.copy:
        content: "{{ kronos_services | to_json }}"
        dest: "{{ node_config_directory }}/kronos-services.json"
        mode: "0600"
'''


@dataclasses.dataclass
class Cloud:
    """``config``: the operator's directory; ``node``: /etc/kolla of the host."""

    top: Path

    @property
    def config(self) -> Path:
        return self.top / 'config'

    @property
    def node(self) -> Path:
        return self.top / 'node'

    @property
    def passwords(self) -> dict[str, Any]:
        return yaml.safe_load((self.config / 'passwords.yml').read_text())

    def json(self, name: str) -> Any:
        return json.loads((self.node / name).read_text())

    def write(self) -> None:
        """What an operator writes, by the documentation."""
        custom = self.config / 'config'
        shutil.copytree(EXAMPLES / 'config', custom)
        shutil.copytree(EXAMPLES / 'globals.d', self.config / 'globals.d')
        shutil.copy(ETC / 'nova-policy.yaml', custom / 'nova/policy.yaml')
        shutil.copy(KRONOS / 'prometheus/kronos.rules', custom / 'prometheus')
        (custom / 'grafana/dashboards').mkdir(parents=True)
        shutil.copy(KRONOS / 'grafana/kronos.json', custom / 'grafana/dashboards')
        (custom / 'kronos/policies').mkdir(parents=True)
        (custom / 'kronos/policies/policies.yaml').write_text(POLICIES)
        authorities = self.config / 'certificates/ca'
        authorities.mkdir(parents=True)
        (authorities / 'root.crt').write_text('a certificate')
        self._write_passwords()
        (self.config / 'globals.yml').write_text(yaml.safe_dump({
            'kolla_base_distro': 'debian', 'network_interface': 'lo',
            'kolla_internal_vip_address': '192.0.2.10', 'kolla_external_fqdn': 'cloud.example.org',
            'node_config_directory': str(self.node),
            'kolla_enable_tls_internal': True, 'kolla_copy_ca_into_containers': True,
            'rabbitmq_enable_tls': True, 'openstack_cacert': '/etc/ssl/certs/ca-certificates.crt',
            'kronos_engine_port': free_port(), 'kronos_executor_port': free_port(),
            # Cheaper than all facts of the host, and without a collection from elsewhere.
            'kolla_ansible_setup_gather_subset': '!all,network',
            'openstack_service_workers': 2, 'openstack_service_rpc_workers': 2,
            'kolla_same_external_internal_vip': True,
            'ansible_python_interpreter': str(kolla_env.HOME / 'bin/python')}))
        # ProxySQL is there already.
        for folder in ('users', 'rules'):
            (self.node / 'proxysql' / folder).mkdir(parents=True)

    def _write_passwords(self) -> None:
        """Ours by kolla-genpwd; of the others it would take long over RSA keys."""
        file = self.config / 'passwords.yml'
        shutil.copy(EXAMPLES / 'passwords.yml', file)
        kolla_env.run('kolla-genpwd', '-p', file)
        template = kolla_env.SHARE / 'kolla-ansible/etc_examples/kolla/passwords.yml'
        others = dict.fromkeys(yaml.safe_load(template.read_text()), 'abcdefghijklmnopqrstuv')
        file.write_text(yaml.safe_dump(others | self.passwords))

    def genconfig(self, playbook: Path) -> str:
        """What Ansible prints."""
        status, output = self.attempt('genconfig', playbook)
        assert status == 0, output
        return output

    def attempt(self, action: str, playbook: Path, *arguments: str) -> tuple[int, str]:
        """Exit status and output of an action of kolla-ansible."""
        return kolla_env.attempt(
            'kolla-ansible', action, '--configdir', self.config,
            '-i', kolla_env.ANSIBLE / 'inventory/all-in-one', '-i', EXAMPLES / 'inventory/kronos',
            '-p', playbook, *arguments, ANSIBLE_PIPELINING='1', ANSIBLE_NOCOLOR='1',
            ANSIBLE_HOME=str(self.top / 'ansible'))

    def everything(self) -> Path:
        """A playbook of all that is looked at, beside those of kolla-ansible."""
        tree = self.top / 'playbooks'
        tree.mkdir()
        for path in kolla_env.ANSIBLE.iterdir():
            (tree / path.name).symlink_to(path)
        (tree / 'everything.yml').write_text(PLAYBOOK)
        return tree / 'everything.yml'


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return int(listener.getsockname()[1])
