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

"""``kronos-status upgrade check``, run as an operator runs it."""

import os
from pathlib import Path
import sqlite3
import subprocess
import sys

import pytest

TOP = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(tmp_path):
    """Runs the check on a configuration; (exit status, report on one line)."""
    def run(policies_file=TOP / 'etc/kronos/policies.yaml', extra=''):
        conf = tmp_path / 'kronos.conf'
        conf.write_text(f'''
[engine]
policies_file = {policies_file}
[database]
connection = sqlite:///{tmp_path}/kronos.sqlite
{extra}
''')
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             'import sys; from kronos_nova.cmd import status; sys.exit(status.main())',
             '--config-file', str(conf), 'upgrade', 'check'],
            cwd=TOP, capture_output=True, text=True, check=False,
            env={**os.environ, 'COLUMNS': '400'})
        assert 'Traceback' not in done.stdout + done.stderr
        lines = (line.strip('| \n') for line in done.stdout.splitlines())
        return done.returncode, ' '.join(lines)

    return run


def test_current_configuration_on_an_empty_database_is_ready(run):
    status, report = run()
    assert status == 0, report
    assert report.count('Result: Success') == 3


def test_the_check_does_not_make_the_database_it_would_belong_to_root(run, tmp_path):
    status, report = run()
    assert status == 0
    assert not (tmp_path / 'kronos.sqlite').exists()
    assert 'is made by the first daemon' in report


def test_policy_file_that_does_not_load_is_a_failure_with_its_reason(run, tmp_path):
    bad = tmp_path / 'policies.yaml'
    bad.write_text('policies: []\n')
    status, report = run(policies_file=bad)
    assert status == 2
    assert 'Check: Policies Result: Failure' in report
    assert 'the list is empty' in report


@pytest.mark.parametrize(('mode', 'multiplier', 'expected'), [
    ('spread', 1, 0), ('spread', -1, 1), ('pack', 1, 1), ('nonsense', 1, 2)])
def test_a_nova_conf_s_policy_file_is_held_against_its_multiplier(
        run, tmp_path, mode, multiplier, expected):
    path = tmp_path / 'nova.yaml'
    path.write_text('policies: [{name: p, weight: 1, imbalance_query: q, capacity_query: q, '
                    f'mode: {mode}}}]\n')
    status, report = run(extra=f'[kronos]\npolicies_file = {path}\n[filter_scheduler]\n'
                               f'kronos_weight_multiplier = {multiplier}\n')
    assert status == expected, report
    assert ('says mode' in report) == (expected == 1)


def test_deprecated_broker_options_are_a_warning(run):
    status, report = run(extra='[messaging]\nhost = rabbit.example.org\n')
    assert status == 1
    assert 'Check: Broker options Result: Warning' in report
    assert 'transport_url' in report


def test_unknown_schema_revision_is_a_warning(run, tmp_path):
    with sqlite3.connect(tmp_path / 'kronos.sqlite') as connection:
        connection.execute('CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)')
        connection.execute("INSERT INTO alembic_version VALUES ('0ther')")
    connection.close()
    status, report = run()
    assert status == 1
    assert 'at revision 0ther' in report


def test_unreachable_database_is_a_failure(run, tmp_path):
    (tmp_path / 'kronos.sqlite').mkdir()
    status, report = run()
    assert status == 2
    assert 'Check: Database schema Result: Failure' in report
