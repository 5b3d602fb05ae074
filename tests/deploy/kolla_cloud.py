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

"""An operator's directory for kolla-ansible, made by the commands of the documentation, and
what ``kolla-ansible genconfig`` writes from it; no container is involved.

Two kinds: with TLS everywhere, which has the fullest files, and with the defaults of kolla-ansible.
In both ProxySQL is in front of the database.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import yaml

from tests.deploy import kolla_env
from tests.deploy import kolla_page
from tests.fixtures import free_ports

KRONOS = kolla_env.SHARE / 'kronos-nova'
ETC = KRONOS / 'etc'
OUR_PASSWORDS = ('kronos_database_password', 'kronos_engine_keystone_password',
                 'kronos_executor_keystone_password', 'kronos_prometheus_password',
                 'kronos_channel_key', 'kronos_migfra_keystone_password', 'kronos_mqtt_password',
                 'kronos_api_keystone_password')
POLICIES = '# {{ no Jinja }}\npolicies:\n- {name: cpu, weight: 1.0, imbalance_query: cpu}\n'
#: What is typed of the page, in the order of its sections: what copies, and what makes
#: passwords. The rest needs a cloud, a registry or somebody who looks.
SECTIONS = ('Install', 'Build the images', 'Tell kolla-ansible', 'Rights', 'Policies',
            'Metrics, alerts, dashboard')
TYPED = r'\w+=|ls |mkdir -p /etc/|cp |tail |kolla-genpwd$' + (
    '|ln -sf ' if kolla_env.SERIES == '20' else '')

TLS = {'kolla_enable_tls_internal': True, 'kolla_copy_ca_into_containers': True,
       'rabbitmq_enable_tls': True, 'openstack_cacert': '/etc/ssl/certs/ca-certificates.crt'}
#: With kronos-migfra, which is off by itself.
MIGFRA = {'enable_kronos_migfra': True, 'kronos_mqtt_host': 'broker.example.org',
          'kronos_migfra_allow': ['migrate-vm,evacuate-node:*:rack-1', 'start-vm:*:*']}
#: With kronos-api, which is off by itself, too.
API = {'enable_kronos_api': True, 'kronos_api_operator_projects': ['4f1c9a7e', '8b2d0c5e']}

#: What else is rendered with our files in it, in both kinds: Nova.
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
'''

#: The users of Prometheus, and what our containers would be.
PROMETHEUS = '''
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

#: Where the other files go that the page has one copy.
PLACEMENT_AND_GRAFANA = '''
- name: Placement
  hosts: placement-api
  gather_facts: false
  roles:
    - role: placement

- name: Grafana
  hosts: grafana
  gather_facts: false
  roles:
    - role: grafana
'''


@dataclasses.dataclass
class Cloud:
    """``config``: the operator's directory; ``node``: /etc/kolla of the host.

    ``typed``: the commands of the page that were.
    """

    top: Path
    typed: list[str] = dataclasses.field(default_factory=list)

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

    def write(self, settings: dict[str, Any], sections: tuple[str, ...] = SECTIONS) -> None:
        """What an operator has, and then writes by these sections of the documentation."""
        self.config.mkdir()
        (self.top / 'multinode').symlink_to(kolla_env.ANSIBLE / 'inventory/all-in-one')
        self._write_passwords()
        (self.config / 'globals.yml').write_text(yaml.safe_dump({
            'kolla_base_distro': 'debian', 'network_interface': 'lo',
            'kolla_internal_vip_address': '192.0.2.10', 'kolla_external_fqdn': 'cloud.example.org',
            'node_config_directory': str(self.node),
            **{f'kronos_{name}_port': free_ports.reserve_port()
               for name in ('engine', 'executor', 'migfra', 'api')},
            # Cheaper than all facts of the host, and without a collection from elsewhere.
            'kolla_ansible_setup_gather_subset': '!all,network',
            'openstack_service_workers': 2, 'openstack_service_rpc_workers': 2,
            'kolla_same_external_internal_vip': True,
            'ansible_python_interpreter': str(kolla_env.HOME / 'bin/python'), **settings}))
        # ProxySQL and HAProxy are there already.
        for folder in ('proxysql/users', 'proxysql/rules', 'haproxy/services.d'):
            (self.node / folder).mkdir(parents=True)
        self._stub_collection()
        self.type([command for section in sections
                   for command in kolla_page.commands(section, TYPED)])

    def _stub_collection(self) -> None:
        """Write the module of ansible.posix, which no package index has, for a skipped task."""
        modules = self.top / 'ansible/collections/ansible_collections/ansible/posix/plugins/modules'
        modules.mkdir(parents=True)
        (modules / 'firewalld.py').write_text(
            "#!/usr/bin/python\nraise SystemExit('the firewall of a test is not changed')\n")

    def _write_passwords(self) -> None:
        """All but ours: it would take long over RSA keys."""
        template = kolla_env.SHARE / 'kolla-ansible/etc_examples/kolla/passwords.yml'
        secret = 'abcdefghijklmnopqrstuv'
        (self.config / 'passwords.yml').write_text(yaml.safe_dump({
            name: dict.fromkeys(value, secret) if isinstance(value, dict) else secret
            for name, value in yaml.safe_load(template.read_text()).items()}))

    def type(self, commands: list[str]) -> str:
        """What commands of the page print, typed in one shell."""
        status, output = kolla_page.attempt(commands, self.top, self.config, **self._variables())
        assert status == 0, f'{kolla_page.PAGE}\n{output}'
        self.typed += commands
        return output

    def genconfig(self, playbook: Path) -> str:
        """What Ansible prints."""
        status, output = self.attempt('genconfig', playbook)
        assert status == 0, output
        return output

    def attempt(self, action: str, playbook: Path, *arguments: str) -> tuple[int, str]:
        """Exit status and output of an action of kolla-ansible."""
        return kolla_env.attempt(
            'kolla-ansible', action, '--configdir', self.config, '-i', self.top / 'multinode',
            '-i', self.config / 'kronos.ini', '-p', playbook, *arguments, **self._variables())

    def _variables(self) -> dict[str, str]:
        return {'ANSIBLE_PIPELINING': '1', 'ANSIBLE_NOCOLOR': '1',
                'ANSIBLE_HOME': str(self.top / 'ansible')}

    def playbook(self, *plays: str) -> Path:
        """A playbook of all that is looked at, beside those of kolla-ansible."""
        tree = self.top / 'playbooks'
        tree.mkdir()
        for path in kolla_env.ANSIBLE.iterdir():
            (tree / path.name).symlink_to(path)
        (tree / 'everything.yml').write_text(''.join((PLAYBOOK, *plays)))
        return tree / 'everything.yml'
