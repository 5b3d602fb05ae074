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

"""The examples of the Python API run, and its reference has every name."""

from pathlib import Path
import re
import subprocess
import sys
import textwrap

import pytest

from kronos_nova.rebalancer import operations
from tests.fixtures import stores

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/reference/operations.rst').read_text()
EXAMPLE = TOP / 'doc/examples/replay'
READS, WRITES = (textwrap.dedent(text) for text in re.findall(
    r'^\.\. code-block:: python\n\n((?:   .*\n|\n)+)', PAGE, re.MULTILINE))


def run(program, cwd):
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', program], capture_output=True,
                          text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_snapshot_example_runs():
    *hosts, drain, one, other = run(READS, EXAMPLE)
    assert len(hosts) == 12 and '_unassigned_ compute-12' in ' '.join(hosts)
    assert re.fullmatch(r'[1-9]\d* moves empty compute-03', drain)
    assert re.fullmatch(r'\S+ \d+ \d+', one) and re.fullmatch(r'\S+ \d+ \d+', other)


def test_decision_example_runs(tmp_path):
    url = f'sqlite:///{tmp_path}/kronos.sqlite'
    (tmp_path / 'kronos.conf').write_text(
        f'[database]\nconnection = {url}\n[engine]\naggregates = ssd\n')
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    _unassigned, shown = run('from kronos_nova.rebalancer import operations\n' + WRITES, tmp_path)
    assert shown.startswith('ssd None ') and 'alice' in shown and 'network upgrade' in shown
    assert store.pauses.list_pauses(store.now()) == []
    store.close()


@pytest.mark.parametrize('name', operations.__all__)
def test_reference_has_every_name(name):
    assert re.search(rf'^\.\. auto\w+:: kronos_nova\.rebalancer\.operations\.{name}$', PAGE,
                     re.MULTILINE)
