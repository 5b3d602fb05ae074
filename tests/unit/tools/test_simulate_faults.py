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

"""A run of many seeds may be ended and gone on with."""

import collections
import json
import subprocess
import sys
import types

import pytest

from tools import simulate_faults

CODE = 'code-a'
COUNTED = ({'crash': 2}, {'fenced': 3}, 0.5, ['seed 7: both moved'])


def command(*arguments):
    return subprocess.run([sys.executable, 'tools/simulate_faults.py', *arguments], text=True,
                          capture_output=True, check=False, timeout=300)


def test_stored_counts_are_read_back(tmp_path):
    path = tmp_path / 'kept'
    assert simulate_faults.kept(path, CODE) == {}
    simulate_faults.keep(path, CODE, (0, 50), COUNTED)
    simulate_faults.keep(path, CODE, (50, 50), ({}, {}, 1.0, []))
    assert simulate_faults.kept(path, CODE) == {(0, 50): COUNTED, (50, 50): ({}, {}, 1.0, [])}


@pytest.mark.parametrize('left', (3, 40, -1))
def test_a_line_that_was_cut_off_is_taken_out_and_run_again(tmp_path, left):
    path = tmp_path / 'kept'
    simulate_faults.keep(path, CODE, (0, 50), COUNTED)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:left])
    assert set(simulate_faults.kept(path, CODE)) == {(0, 50)}
    assert path.read_bytes() == whole


def test_counts_of_other_code_are_not_added_up(tmp_path):
    path = tmp_path / 'kept'
    simulate_faults.keep(path, CODE, (0, 50), COUNTED)
    with pytest.raises(ValueError, match='kept, line 1: that was counted with other code; name'):
        simulate_faults.kept(path, 'code-b')


@pytest.mark.parametrize('text', ('hello', '[]', '{}', '\xff'))
def test_a_file_of_something_else_is_left_alone(tmp_path, text):
    path = tmp_path / 'kept'
    for end in (b'\n', b'\nmore', b''):
        path.write_bytes(before := text.encode('latin-1') + end)
        with pytest.raises(ValueError, match='kept, line 1: not what this program keeps'):
            simulate_faults.kept(path, CODE)
        assert path.read_bytes() == before


def test_a_line_of_something_else_at_the_end_is_left_alone(tmp_path):
    path = tmp_path / 'kept'
    simulate_faults.keep(path, CODE, (0, 50), COUNTED)
    path.write_bytes(before := path.read_bytes() + b'a note')
    with pytest.raises(ValueError, match='kept, line 2: not what this program keeps'):
        simulate_faults.kept(path, CODE)
    assert path.read_bytes() == before


def test_code_has_another_name_after_a_change_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(simulate_faults, 'TOP', tmp_path)
    (tmp_path / 'kronos_nova').mkdir()
    names = {simulate_faults.code()}
    for name, text in (('a', ''), ('a', 'x'), ('b', 'x')):
        (tmp_path / f'kronos_nova/{name}.py').write_text(text)
        names.add(simulate_faults.code())
    assert len(names) == 4


@pytest.mark.turns(3)
def test_a_run_goes_on_where_it_was_ended(tmp_path):
    path = tmp_path / 'kept'
    simulate_faults.keep(path, simulate_faults.code(), (0, 50), COUNTED)
    done = command('--seeds', '52', '--processes', '1', '--keep', str(path))
    # What was counted before is told again, as it is part of the sum.
    assert done.returncode == 1 and 'seed 7: both moved\n' in done.stdout, done.stderr
    assert '52 seeds from 0: 1 broken' in done.stdout
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row['first'], row['count']) for row in lines] == [(0, 50), (50, 2)]


@pytest.mark.turns(3)
def test_results_of_other_code_are_refused_in_one_line(tmp_path):
    path = tmp_path / 'kept'
    simulate_faults.keep(path, CODE, (0, 50), COUNTED)
    done = command('--seeds', '50', '--keep', str(path))
    assert done.returncode == 2 and 'other code' in done.stderr
    assert 'Traceback' not in done.stderr and not done.stdout


@pytest.mark.turns(3)
def test_the_section_of_the_page_is_replaced_by_the_new_counts(tmp_path, monkeypatch):
    path = tmp_path / 'page.rst'
    path.write_text(f'Before\n\n{simulate_faults.COUNTED}\nold: 11,267\n\n'
                    f'{simulate_faults.AFTER}\nlater\n')
    monkeypatch.setattr(simulate_faults, 'PAGE', path)
    args = types.SimpleNamespace(first=100, seeds=50)
    counts = collections.Counter({'crash': 2, 'freeze': 1300, 'fenced did not judge': 4,
                                  'moves': 7})
    simulate_faults.write_page(simulate_faults.describe(
        args, counts, collections.Counter(fenced=3), 0.25, [], ['crash', 'freeze']))
    text = path.read_text()
    assert text.startswith('Before\n') and text.endswith(f'{simulate_faults.AFTER}\nlater\n')
    assert 'old: 11,267' not in text
    assert '(seeds 100 to 149)\nbroke nothing. A seed took 0.25 s' in text
    assert '1,302 faults of 2 kinds struck, each at least 2 times' in text
    for name, times in (('``fenced``', '3'), ('``fenced``', '4'), ('freeze', '1,300'),
                        ('moves', '7')):
        assert f'   * - {name}\n     - {times}\n' in text
