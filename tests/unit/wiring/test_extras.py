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

"""A command without its packages says which extra to install."""

from pathlib import Path
import subprocess
import sys

import pytest

from kronos_nova.wiring import extras

TOP = Path(__file__).resolve().parents[3]
# Makes a distribution look uninstalled: its import fails as if it were absent.
BLOCK = '''
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == {module!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Absent())
'''


def _run_without(module: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, '-c', BLOCK.format(module=module) + code], cwd=TOP,
                          capture_output=True, text=True, check=False)


def test_missing_package_of_an_extra_is_one_line_and_exit_status_1():
    done = _run_without('cliff', 'from kronos_nova.cli import app; sys.exit(app.main([]))')
    assert done.returncode == 1
    assert done.stdout == ''
    assert done.stderr == (
        'kronos needs the packages of the extra "rebalancer" (missing: cliff). '
        'Install with: pip install "kronos-nova[rebalancer]"\n')


@pytest.mark.parametrize(('command', 'module'), [
    ('engine', 'keystoneauth1'), ('executor', 'keystoneauth1'), ('record', 'keystoneauth1'),
    ('replay', 'numpy'), ('status', 'keystoneauth1'), ('test_config', 'keystoneauth1')])
def test_each_command_names_its_extra(command, module):
    done = _run_without(
        module,
        f'from kronos_nova.cmd import {command}; sys.exit({command}.main(["--help"]))')
    name = f'kronos-{command.replace("_", "-")}'
    assert done.returncode == 1
    assert done.stderr == (
        f'{name} needs the packages of the extra "rebalancer" (missing: {module}). '
        'Install with: pip install "kronos-nova[rebalancer]"\n')


def test_missing_module_of_ours_is_not_blamed_on_the_operator():
    with pytest.raises(ModuleNotFoundError), extras.needs_extra('kronos-engine'):
        raise ModuleNotFoundError("No module named 'kronos_nova.gone'", name='kronos_nova.gone')


def test_missing_standard_module_is_not_blamed_on_the_operator():
    with pytest.raises(ModuleNotFoundError), extras.needs_extra('kronos-engine'):
        raise ModuleNotFoundError("No module named 'sqlite3'", name='sqlite3')


def test_other_import_errors_pass_through():
    with pytest.raises(ImportError, match='cannot import name'), \
            extras.needs_extra('kronos-engine'):
        raise ImportError("cannot import name 'x'")
