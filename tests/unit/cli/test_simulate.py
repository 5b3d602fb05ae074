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

"""``kronos simulate`` as a person or a program runs it, on the shipped example."""

import contextlib
import json
import os
from pathlib import Path
import pty
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

TOP = Path(__file__).resolve().parents[3]
EXAMPLE = TOP / 'doc/examples/simulate'
#: Half a day of the example's two.
PART = ('--config-file', 'kronos.conf', '--trace', 'trace.npz', '--to', '2026-11-02T12:00:00Z')
#: Any use of the network ends the program, before its own code runs.
OFFLINE = '''
import socket, sys
def refuse(*args, **kwargs):
    raise SystemExit('a socket was opened')
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
from kronos_nova.cli import app
sys.exit(app.main(['simulate', *sys.argv[1:]]))
'''


def run(*arguments, program=OFFLINE, seed='0', cwd=EXAMPLE, **kwargs):
    return subprocess.run(
        [sys.executable, '-c', program, *map(str, arguments)], cwd=cwd, capture_output=True,
        text=True, check=False, timeout=300,
        env={**os.environ, 'PYTHONHASHSEED': seed, 'PYTHONPATH': str(TOP)}, **kwargs)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """(result, directory) of one run that writes all it can."""
    directory = tmp_path_factory.mktemp('simulated')
    done = run(*PART, '--policies', 'calm.yaml', '--policies', 'eager.yaml',
               '--report', directory / 'report.json', '--plot', directory / 'plot.svg',
               '-f', 'json')
    assert done.returncode == 0, done.stderr
    return done, directory


def test_the_comparison_alone_is_on_standard_output(whole):
    done, _directory = whole
    rows = json.loads(done.stdout)
    assert all(list(row) == ['Measure', 'history', 'calm.yaml', 'eager.yaml'] for row in rows)
    assert 'kronos simulate: ' not in done.stderr and '\r' not in done.stderr


def test_rows_say_what_the_report_says(whole):
    done, directory = whole
    rows = {row.pop('Measure'): list(row.values()) for row in json.loads(done.stdout)}
    found = json.loads((directory / 'report.json').read_text())['candidates']
    assert rows['moves a day'] == [c['moves_per_day'] for c in found]
    assert rows['overload, host-minutes'] == [c['overload_host_minutes'] for c in found]
    assert rows['energy, kWh'] == [c['energy_kwh'] for c in found]
    for measure in ('cpu', 'memory'):
        for which in ('mean', 'p95', 'max'):
            assert rows[f'imbalance {measure}, {which}'] == [
                c['imbalance']['_unassigned_'][measure][which] for c in found]


def test_candidates_differ_as_their_files_do(whole):
    _done, directory = whole
    history, calm, eager = json.loads((directory / 'report.json').read_text())['candidates']
    assert history['moves'] == 0 < calm['moves'] < eager['moves']
    assert eager['overload_host_minutes'] < history['overload_host_minutes']


@pytest.mark.turns(4)
def test_two_runs_are_the_same(whole, tmp_path):
    _done, directory = whole
    again = run(*PART, '--policies', 'calm.yaml', '--policies', 'eager.yaml',
                '--report', tmp_path / 'report.json', '--plot', tmp_path / 'plot.svg', seed='7')
    assert again.returncode == 0, again.stderr
    for name in ('report.json', 'plot.svg'):
        assert (tmp_path / name).read_bytes() == (directory / name).read_bytes()
    # That was a table.
    assert again.stdout.startswith('+---') and '| moves a day ' in again.stdout


def test_the_plot_shows_every_candidate(whole):
    _done, directory = whole
    text = (directory / 'plot.svg').read_text()
    ElementTree.fromstring(text)
    for name in ('history', 'calm.yaml', 'eager.yaml', 'imbalance cpu', 'moves so far'):
        assert f'<!-- {name} -->' in text


@pytest.mark.turns(4)
def test_a_plot_without_matplotlib_names_the_extra_before_anything_runs(tmp_path):
    program = "import sys; sys.modules['matplotlib'] = None\n" + OFFLINE
    done = run(*PART, '--plot', tmp_path / 'x.svg', '--trace', 'none.npz', program=program)
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr == ('kronos simulate --plot needs the packages of the extra "plot" '
                           '(missing: matplotlib). Install with: pip install '
                           '"kronos-nova[plot]"\n')


@pytest.mark.turns(4)
def test_a_file_of_the_same_name_is_shown_by_its_path(tmp_path):
    (tmp_path / 'calm.yaml').write_bytes((EXAMPLE / 'eager.yaml').read_bytes())
    done = run(*PART, '--from', '2026-11-02T11:00:00Z', '-f', 'csv', '--policies', 'calm.yaml',
               '--policies', tmp_path / 'calm.yaml')
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == (
        f'"Measure","history","calm.yaml","{tmp_path / "calm.yaml"}"')


@pytest.mark.turns(4)
def test_the_default_candidate_is_the_configured_policy_file(tmp_path):
    (tmp_path / 'kronos.conf').write_text(
        f'[engine]\npolicies_file = {EXAMPLE / "eager.yaml"}\n')
    done = run('--config-file', tmp_path / 'kronos.conf', '--trace', 'trace.npz', '--from', '-1h',
               '--step', '20m', '-f', 'json')
    assert done.returncode == 0, done.stderr
    assert 'eager.yaml' in json.loads(done.stdout)[0]


@pytest.mark.turns(4)
def test_a_terminal_sees_progress():
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, '-c', OFFLINE, *PART, '--policies', 'calm.yaml', '--from',
         '2026-11-02T10:00:00Z', '-f', 'json'], cwd=EXAMPLE, stdout=subprocess.PIPE,
        stderr=theirs, text=True, env={**os.environ, 'PYTHONPATH': str(TOP)})
    out, _none = done.communicate(timeout=300)
    os.close(theirs)
    shown = b''
    with contextlib.suppress(OSError):
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert done.returncode == 0
    json.loads(out)
    assert b'100% calm.yaml' in shown and shown.endswith(b'\r')


WRONG = {
    'no trace': (['--trace', 'none.npz'], 'none.npz: it cannot be read (No such file'),
    'a trace that is none': (['--trace', 'calm.yaml'], 'calm.yaml: it is no .npz file'),
    'no time': (['--from', 'yesterday'], "--from: 'yesterday' is no time"),
    'backwards': (['--from', '2026-11-02T05:00:00Z', '--to', '2026-11-02T04:00:00Z'],
                  '--to: 2026-11-02T04:00:00+00:00 is not after --from'),
    'outside': (['--from', '2025-01-01', '--to', '2025-01-02'], 'fewer than two times there'),
    'no multiple': (['--step', '7m'], '--step: 420 s is no multiple'),
    'no step': (['--step', 'often'], "--step: 'often' is no duration"),
    'no ceiling': (['--ceiling', '80'], "--ceiling: '80' is no number from 0 to 1"),
    'no bandwidth': (['--bandwidth', '0'], "--bandwidth: '0' is no number"),
    'no lag': (['--lag', 'x'], "--lag: 'x' is no duration"),
    'no curve': (['--power', '5'], "--power: '5' is neither IDLE:MAX nor 11"),
    'no such policy': (['--power-policy', 'disk'], '--power-policy: no policy is named disk'),
    'no such plot': (['--plot', 'x.gif'], 'x.gif ends in none of .svg, .png, .pdf'),
    'no report': (['--report', '/nonexistent/x', '--from', '-1h'],
                  '/nonexistent/x: it cannot be written (No such file'),
    'no file': (['--policies', 'none.yaml'], 'none.yaml: file: it cannot be read'),
    'twice': (['--policies', 'calm.yaml', '--policies', 'calm.yaml', '--policies', 'calm.yaml'],
              'calm.yaml is given twice'),
    'two clouds': (['--snapshot', 'x'], '--snapshot: it does not go with --trace'),
    'other query': (['--policies', 'other.yaml'],
                    'vm_profile_query of policy cpu: the trace has no answer to this query'),
    'no configuration': (['--config-file', 'none.conf'], 'none.conf'),
}
LIVE = {
    'no first time': ([], '--from: the first time is missing'),
    'future': (['--from', '-1d', '--to', '2120-01-01'], '--to: it lies in the future'),
    'too fine': (['--from', '-1000d', '--step', '1m'], 'more than 50000'),
    'too long': (['--from', '-1h', '--step', '2h'], 'longer than the time'),
    'no whole step': (['--from', '-1h', '--step', '0.5s'], 'no whole number of seconds'),
    'no prometheus': (['--from', '-1h'], '[prometheus] url: Prometheus at http://127.0.0.1:1 '),
}
#: All of them in one process: starting one costs more than they do.
EACH = '''
import contextlib, io, json, sys
from kronos_nova.cli import app
out = {}
for name, arguments in json.load(sys.stdin).items():
    errors, result = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(result):
        try:
            status = app.main(['simulate', *arguments])
        except SystemExit as e:
            status = e.code
    out[name] = status, result.getvalue(), errors.getvalue()
json.dump(out, sys.stdout)
'''


@pytest.fixture(scope='module')
def refusals(tmp_path_factory):
    directory = tmp_path_factory.mktemp('wrong')
    for path in EXAMPLE.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    (directory / 'other.yaml').write_text(
        (EXAMPLE / 'calm.yaml').read_text().replace('[5m]', '[7m]'))
    (directory / 'live.conf').write_text(
        '[prometheus]\nurl = http://127.0.0.1:1\nmax_retries = 0\n'
        '[engine]\npolicies_file = calm.yaml\n')
    base = ['--config-file', 'kronos.conf', '--trace', 'trace.npz']
    calls = {name: [*base, *([] if '--policies' in a else ['--policies', 'calm.yaml']), *a]
             for name, (a, _told) in WRONG.items()}
    calls |= {name: ['--config-file', 'live.conf', '--snapshot', 'x', *a]
              for name, (a, _told) in LIVE.items()}
    done = run(program=EACH, cwd=directory, input=json.dumps(calls))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize('name', [*WRONG, *LIVE])
def test_unusable_input_gives_one_clear_line(refusals, name):
    status, out, errors = refusals[name]
    assert status == 1 and out == ''
    (line,) = errors.splitlines()
    assert line.startswith('kronos simulate: ')
    assert {**WRONG, **LIVE}[name][1] in line


@pytest.mark.mutant
def test_help_tells_every_option():
    done = run('--help')
    assert done.returncode == 0
    for option in ('--policies', '--from', '--to', '--step', '--record', '--trace', '--plot'):
        assert option in done.stdout
