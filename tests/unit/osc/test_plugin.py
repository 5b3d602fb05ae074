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

"""OpenStackClient finds the plug-in, its commands and versions; it loads no other part of ours."""

import configparser
import importlib
import json
import os
from pathlib import Path
import re
import subprocess
import sys

import pytest

from kronos_nova.api import versions
from kronos_nova.osc import client
from kronos_nova.osc import plugin

TOP = Path(__file__).resolve().parents[3]
#: Packages that an operator's machine does not have; some are Nova's, some are extras of ours.
HEAVY = {'alembic', 'croniter', 'flask', 'jinja2', 'keystonemiddleware', 'nova', 'numpy',
         'oslo_cache', 'oslo_db', 'oslo_log', 'oslo_messaging', 'oslo_middleware', 'oslo_policy',
         'oslo_reports', 'oslo_service', 'prometheus_client', 'pydantic', 'sqlalchemy', 'webob',
         'werkzeug'}
ROOMS = {'activity', 'osc', 'plurals', 'text', 'version'}


def run(program, *arguments, **environ):
    return subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', program, *arguments], capture_output=True,
        text=True, check=False, timeout=120, cwd=TOP,
        env={**{name: value for name, value in os.environ.items() if not name.startswith('OS_')},
             'PYTHONPATH': str(TOP), **environ})


def read_entry_points(group):
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    return dict(tuple(part.strip() for part in line.split('='))
                for line in setup['entry_points'][group].strip().splitlines())


def test_commands_load_nothing_of_the_services():
    targets = list(read_entry_points('openstack.rebalance.v1').values())
    done = run('import importlib, json, sys\n'
               'for target in ["kronos_nova.osc.plugin:API_NAME", *sys.argv[1:]]:\n'
               '    module, _, name = target.partition(":")\n'
               '    getattr(importlib.import_module(module), name)\n'
               'print(json.dumps(sorted(sys.modules)))', *targets)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    # openstacksdk takes some packages where it finds them.
    optional = set(json.loads(run(
        'import json, sys, openstack, keystoneauth1.adapter, osc_lib.command.command\n'
        'print(json.dumps(sorted(sys.modules)))').stdout))
    assert {name.partition('.')[0] for name in loaded - optional} & HEAVY == set()
    assert not {'numpy', 'oslo_db', 'sqlalchemy', 'flask', 'pydantic'} & loaded
    assert {name.split('.')[1] for name in loaded if name.startswith('kronos_nova.')} == ROOMS


def test_plugin_alone_loads_one_module_of_ours():
    done = run('import sys; import kronos_nova.osc.plugin; '
               'print(*sorted(name for name in sys.modules if name.startswith("kronos_nova")))')
    assert done.stdout.split() == ['kronos_nova', 'kronos_nova.osc', 'kronos_nova.osc.plugin']


def test_client_knows_the_service_and_its_newest_microversion():
    assert client.SERVICE_TYPE == versions.SERVICE_TYPE == plugin.API_NAME
    assert plugin.DEFAULT_API_VERSION == versions.MICROVERSIONS[-1]


@pytest.mark.parametrize(('option', 'header'), [
    ('1.0', 'rebalance 1.0'), ('1', 'rebalance 1.0'), ('latest', 'rebalance latest'),
    ('1.latest', 'rebalance latest')])
def test_option_sets_the_microversion(openstack, server, option, header):
    openstack.options = ('--os-rebalance-api-version', option)
    openstack.read('plan', 'list')
    assert [request[3] for request in server.requests] == [header]


def test_environment_and_clouds_yaml_set_the_microversion(openstack, server, monkeypatch,
                                                          tmp_path):
    (tmp_path / 'clouds.yaml').write_text(json.dumps({'clouds': {'one': {
        'auth_type': 'none', 'auth': {'endpoint': server.url},
        'rebalance_api_version': '1.latest'}, 'two': {
        'auth_type': 'none', 'auth': {'endpoint': 'http://127.0.0.1:9'},
        'rebalance_endpoint_override': server.url, 'rebalance_api_version': 'newest'}}}))
    monkeypatch.setenv('OS_CLIENT_CONFIG_FILE', str(tmp_path / 'clouds.yaml'))
    openstack.address = ()
    openstack.options = ('--os-cloud', 'one')
    openstack.read('plan', 'list')
    openstack.options = ('--os-cloud', 'two')
    assert openstack.fail('plan', 'list') == (
        "rebalance_api_version: 'newest' is no version of the rebalance API; write 1.0 or 1.latest")
    monkeypatch.setenv('OS_REBALANCE_API_VERSION', '1.0')
    openstack.read('plan', 'list')
    assert [request[3] for request in server.requests] == ['rebalance latest', 'rebalance 1.0']


def test_unknown_microversion_is_refused_by_the_service(openstack):
    openstack.options = ('--os-rebalance-api-version', '1.99')
    line = openstack.fail('plan', 'list')
    assert 'kronos.api.microversion_unsupported, HTTP 406' in line and '1.0 to 1.0' in line
    assert line.endswith('; choose another one with --os-rebalance-api-version')


@pytest.mark.parametrize('version', ['2', 'newest', '1.x', ''])
def test_version_of_another_form_is_refused(openstack, server, version):
    openstack.options = ('--os-rebalance-api-version', version)
    status, output, error = openstack.run('plan', 'list')
    assert (status, output, server.requests) == (2, '', [])
    assert error.splitlines()[-1].endswith(
        f"argument --os-rebalance-api-version: '{version}' is no version of the rebalance API; "
        'write 1.0 or latest')


@pytest.mark.parametrize(('name', 'target'),
                         read_entry_points('openstack.rebalance.v1').items())
def test_help_describes_a_command_and_each_argument(openstack, name, target):
    words = name.split('_')
    module, _, attribute = target.partition(':')
    command = getattr(importlib.import_module(module), attribute)(None, None)
    described = {action.dest: action.help for action in
                 command.get_parser(' '.join(words))._actions}
    assert all(described.values()) and command.get_description()
    status, output, _error = openstack.run(*words[1:], '--help')
    # The program's name is that of the process: pytest, or a worker of it.
    assert status == 0 and re.match(rf'usage: \S+ {" ".join(words)} ', ' '.join(output.split()))
    assert 'This command is provided by the kronos-nova plugin.' in output


def test_shell_completes_the_commands():
    done = run('from openstackclient import shell; import sys; sys.exit(shell.main(sys.argv[1:]))',
               'complete')
    assert done.returncode == 0, done.stderr
    things = 'campaign drain event host instance pause plan policy quarantine scope task what why'
    assert f"cmds_rebalance='{things}'" in done.stdout
    assert "cmds_rebalance_plan='approve cancel list reject retry revert show'" in done.stdout
    assert '--watch' in done.stdout
