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

"""``kronos policy preset list|show``."""

import json

import pytest

from kronos_nova import policy as policies
from kronos_nova import presets
from kronos_nova.conf import policies as policy_files
from tests import commands


def kronos(*arguments):
    return commands.main('kronos_nova.cli.app', 'policy', 'preset', *arguments)


def test_list_shows_purpose_exporters_and_enabled_policies():
    done = kronos('list', '-f', 'json')
    assert done.returncode == 0, done.stderr
    rows = {row['Name']: row for row in json.loads(done.stdout)}
    assert sorted(rows) == presets.list_presets()
    assert rows['hosts']['Exporters'] == ['node_exporter']
    assert rows['hosts']['For'].startswith('Spread new instances by CPU')
    assert rows['hosts']['Policies'] == [
        'cpu', 'memory', '(steal)', '(disk)', '(network)', '(pressure_cpu)', '(pressure_io)',
        '(pressure_memory)']


@pytest.mark.parametrize('form', ['table', 'csv', 'value', 'yaml'])
def test_list_prints_in_every_form(form):
    done = kronos('list', '-f', form)
    assert done.returncode == 0 and 'spread-ceilometer' in done.stdout, done.stderr
    assert "['" not in done.stdout


@pytest.mark.parametrize('name', presets.list_presets())
def test_the_output_of_show_is_a_complete_policy_file(name, tmp_path):
    done = kronos('show', name)
    assert (done.returncode, done.stderr) == (0, '')
    path = tmp_path / 'policies.yaml'
    path.write_text(done.stdout)
    assert isinstance(policy_files.load_policies(str(path)), policies.PolicySet)
    assert done.stdout == presets.read_preset(name)


@pytest.mark.parametrize('name', ['../__init__', 'no\x1bne'])
def test_error_about_an_unknown_preset_lists_the_known_ones(name):
    done = kronos('show', name)
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr.startswith('kronos policy preset show: ')
    assert 'no preset' in done.stderr and 'spread-inovex' in done.stderr
    assert len(done.stderr.splitlines()) == 1 and '\x1b' not in done.stderr


@pytest.mark.mutant
def test_help_has_an_example():
    text = ' '.join(kronos('show', '--help').stdout.split())
    assert 'kronos policy preset show spread-inovex > ' in text
