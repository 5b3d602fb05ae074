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

"""``kronos plugin list``."""

from importlib import metadata
import json
import subprocess
import sys

import pytest

from kronos_nova.cli import plugin
from tests import commands


def test_list_shows_every_namespace():
    # In a process of its own: cliff leaves its handler and level with the root logger.
    done = commands.main('kronos_nova.cli.app', 'plugin', 'list', '-f', 'json')
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row['Namespace'] for row in rows} == set(plugin.NAMESPACES)


def test_loading_plug_ins_prints_nothing_on_standard_error():
    # A new interpreter: one that is forked has chosen its backend already.
    done = subprocess.run(
        [sys.executable, '-c', 'from kronos_nova.cli import app; app.main(["plugin", "list"])'],
        capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, '')


@pytest.mark.parametrize(('value', 'expected'), [
    ('json:dumps', 'yes'),
    ('kronos_nova.gone:Gone', "no: No module named 'kronos_nova.gone'"),
])
def test_a_plugin_that_cannot_be_loaded_is_shown_with_its_reason(value, expected):
    entry = metadata.EntryPoint('x', value, 'kronos_nova.filters')
    assert plugin._try_plugin_load(entry) == expected
