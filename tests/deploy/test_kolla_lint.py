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

"""The style of the role and of the templates, as kolla's own linters see it."""

import json
import re
import shutil

import pytest
import yaml

from tests.deploy import kolla_env

SOURCE = kolla_env.TOP / 'deploy/kolla-ansible'


def test_images_use_operators_registry():
    defaults = yaml.safe_load((SOURCE / 'ansible/roles/kronos/defaults/main.yml').read_text())
    assert {name: defaults[name] for name in defaults if name.endswith('_image')} == {
        f'kronos_{daemon}_image': '{{ kronos_image_url }}kronos-' + daemon
        for daemon in ('engine', 'executor', 'migfra', 'api')}
    # As docker_image_url of kolla-ansible 22 and later, which 20 does not have.
    assert defaults['kronos_image_url'] == (
        "{{ docker_registry ~ '/' if docker_registry else '' }}"
        '{{ docker_namespace }}/{{ docker_image_name_prefix }}')


def test_no_password_has_a_default():
    for path in SOURCE.rglob('*'):
        if path.is_file():
            assert not re.search(r'password: *"?[A-Za-z0-9]', path.read_text()), path


def test_templates_pass_j2lint():
    kolla_env.prepared()
    kolla_env.run('j2lint', '-e', 'j2,conf', '--', SOURCE)
    # kolla's blocks stand on one line each: block, endblock.
    kolla_env.run('j2lint', '-i', 'single-statement-per-line', '--',
                  kolla_env.TOP / 'deploy/kolla/docker')


@pytest.mark.turns(2, 0)
def test_role_passes_production_profile_of_ansible_lint(tmp_path):
    kolla_env.prepared()
    tree = tmp_path / 'ansible'
    shutil.copytree(SOURCE / 'ansible', tree)
    shutil.copytree(SOURCE / 'examples', tmp_path / 'examples')
    (tree / 'gather-facts.yml').symlink_to(kolla_env.ANSIBLE / 'gather-facts.yml')
    output = kolla_env.run(
        'ansible-lint', '--offline', '--nocolor', '--profile', 'production', '--format', 'json',
        '--project-dir', tmp_path, '--exclude', tree / 'gather-facts.yml', '--',
        tree / 'kronos.yml', tree / 'roles/kronos', tree / 'group_vars/all/kronos.yml',
        tmp_path / 'examples/globals.d/kronos.yml', tmp_path / 'examples/passwords.yml',
        ANSIBLE_HOME=str(tmp_path / 'home'),
        ANSIBLE_ROLES_PATH=str(kolla_env.ANSIBLE / 'roles'),
        ANSIBLE_LIBRARY=str(kolla_env.ANSIBLE / 'library'),
        ANSIBLE_ACTION_PLUGINS=str(kolla_env.ANSIBLE / 'action_plugins'),
        ANSIBLE_FILTER_PLUGINS=str(kolla_env.ANSIBLE / 'filter_plugins'))
    assert json.loads(output) == []
