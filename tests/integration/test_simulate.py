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

"""kronos simulate on a real Prometheus that is filled with a day of history."""

import json
import os
from pathlib import Path
import subprocess
import sys
import time

import pytest

from kronos_nova import model
from kronos_nova.conf import policies
from kronos_nova.rebalancer.snapshots import writer
from tests import ci
from tests.fixtures import prometheus_server
from tests.unit.rebalancer.backtest import made

TOP = Path(__file__).resolve().parents[2]
STEP = 300
HOURS = 12
#: b leaves h1 for h2 in the middle of history; c comes late; gone is a stranger.
HOMES = {'a': 'h1', 'b': 'h2', 'c': 'h1', 'd': 'h3'}
POLICIES = '''
policies:
  - name: cpu
    weight: 1
    threshold: {threshold}
    imbalance_query: kronos_test_load
    vm_profile_query: kronos_test_used
    vm_profile_label: uuid
    vm_profile_label_type: nova_instance_uuid
    vm_profile_unit: absolute
    host_capacity_query: kronos_test_cores
    max_migrations_per_cycle: 2
'''


def used(uuid, k, count):
    if uuid == 'c' and k < count // 4:
        return None
    return {'a': 4.0, 'b': 3.0, 'c': 2.0, 'd': 1.0}[uuid]


def home(uuid, k, count):
    return 'h1' if uuid == 'b' and k < count // 2 else HOMES[uuid]


def metrics(start, count):
    """OpenMetrics text: one sample per 60 s, so that look-back sees no gap."""
    out = {'kronos_test_load': [], 'kronos_test_used': [], 'kronos_test_cores': []}
    for minute in range(count * STEP // 60):
        at, k = start + minute * 60, minute * 60 // STEP
        loads = dict.fromkeys(('h1', 'h2', 'h3'), 0.05)
        for uuid in HOMES:
            value = used(uuid, k, count)
            if value is not None:
                where = home(uuid, k, count)
                loads[where] += value / 10
                out['kronos_test_used'].append(f'{{uuid="{uuid}",host="{where}"}} {value} {at}')
        out['kronos_test_used'].append(f'{{uuid="gone",host="h3"}} 0.5 {at}')
        for host, load in loads.items():
            out['kronos_test_load'].append(f'{{host="{host}"}} {load:.4f} {at}')
            out['kronos_test_cores'].append(f'{{host="{host}"}} 10 {at}')
    text = ''
    for name, samples in out.items():
        text += f'# TYPE {name} gauge\n'
        for line in sorted(samples, key=lambda s: s.partition(' ')[0]):
            text += f'{name}{line}\n'
    return text + '# EOF\n'


@pytest.fixture(scope='module')
def filled(tmp_path_factory):
    """(url, first time, number of times) of a Prometheus with a past."""
    promtool = ci.program('promtool', 'prometheus')
    directory = tmp_path_factory.mktemp('prometheus')
    count = HOURS * 3600 // STEP
    start = int(time.time()) // STEP * STEP - 86400
    (directory / 'metrics').write_text(metrics(start, count))
    subprocess.run([promtool, 'tsdb', 'create-blocks-from', 'openmetrics',
                    str(directory / 'metrics'), str(directory / 'data')],
                   check=True, capture_output=True, timeout=180)
    with prometheus_server.running(directory, []) as url:
        yield url, start, count


@pytest.fixture
def home_of(filled, tmp_path):
    """A directory with a configuration, two candidates and a snapshot."""
    url, start, count = filled
    (tmp_path / 'kronos.conf').write_text(
        f'[prometheus]\nurl = {url}\nmax_retries = 0\ntimeout = 60\n')
    (tmp_path / 'calm.yaml').write_text(POLICIES.format(threshold=0.9))
    (tmp_path / 'eager.yaml').write_text(POLICIES.format(threshold=0.1))
    unasked = model.QueryResult('', model.SourceHealth.UNREACHABLE, error='x')
    cloud = made.cluster(HOMES, taken_at=start + count * STEP)
    writer.write_snapshot(str(tmp_path), writer.SnapshotContent(
        now=cloud.taken_at, scopes=(model.UNASSIGNED,), cluster=cloud, histories={},
        policies=policies.load_policies(str(tmp_path / 'calm.yaml')),
        samples={'cpu': model.PolicySamples('cpu', unasked)}), prefix='snapshot')
    next(tmp_path.glob('snapshot-*')).rename(tmp_path / 'snapshot')
    return tmp_path


def simulate(directory, *arguments):
    return subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cli import app; '
                               'sys.exit(app.main(sys.argv[1:]))',
         'simulate', '--config-file', 'kronos.conf', *map(str, arguments)],
        cwd=directory, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, 'PYTHONPATH': str(TOP)})


def report(directory, *arguments):
    done = simulate(directory, *arguments, '--report', 'report.json', '-f', 'json')
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    return json.loads((directory / 'report.json').read_text())


def live(filled):
    _url, start, count = filled
    return ('--snapshot', 'snapshot', '--from', start, '--to', start + (count - 1) * STEP,
            '--step', '5m')


def test_simulate_replays_history_of_prometheus(home_of, filled):
    _url, start, count = filled
    found = report(home_of, *live(filled), '--policies', 'calm.yaml', '--policies', 'eager.yaml')
    rows = {row['name']: row for row in found['candidates']}
    assert list(rows) == ['history', 'nothing', 'calm.yaml', 'eager.yaml']
    assert found['window'] == {'from': start, 'to': start + (count - 1) * STEP, 'step': STEP,
                               'times': count}

    was = rows['history']
    assert was['unknown_host_minutes'] == 0
    (moved,) = was['move_list']
    assert (moved['instance_uuid'], moved['from_host'], moved['to_host']) == ('b', 'h1', 'h2')
    assert moved['completed_at'] == start + count // 2 * STEP
    # h1: 0.75, with c 0.95, without b 0.65.
    imbalance = was['over_time']['imbalance'][model.UNASSIGNED]['cpu']
    assert imbalance[0] == pytest.approx(0.70, abs=1e-6)
    assert imbalance[count // 4] == pytest.approx(0.90, abs=1e-6)
    assert imbalance[-1] == pytest.approx(0.50, abs=1e-6)
    assert was['overload_host_minutes'] == (count // 2 - count // 4) * STEP / 60
    # Without its own move, h1 stays as it was; c comes all the same.
    assert rows['nothing']['over_time']['imbalance'][model.UNASSIGNED]['cpu'][-1] \
        == pytest.approx(0.90, abs=1e-6)
    assert rows['calm.yaml']['moves'] == 0
    eager = rows['eager.yaml']
    assert eager['moves'] > 0
    assert eager['overload_host_minutes'] < rows['nothing']['overload_host_minutes']
    assert any('belong to no instance' in text for text in found['warnings'])


@pytest.mark.turns(3)
def test_recorded_trace_gives_same_report_without_prometheus(home_of, filled):
    first = report(home_of, *live(filled), '--policies', 'eager.yaml', '--record', 'trace.npz')
    (home_of / 'kronos.conf').write_text('[prometheus]\nurl = http://127.0.0.1:1\n')
    again = report(home_of, '--trace', 'trace.npz', '--policies', 'eager.yaml')
    assert again == first


@pytest.mark.turns(3)
@pytest.mark.parametrize(('arguments', 'told'), [
    (['--from', '-3h', '--to', '-2h'], 'imbalance_query of policy cpu: no series in this time'),
    (['--from', 'now', '--to', '-2h'], 'is not after --from')])
def test_missing_history_is_one_error_line(home_of, arguments, told):
    done = simulate(home_of, '--snapshot', 'snapshot', '--policies', 'calm.yaml', *arguments)
    assert done.returncode == 1 and done.stdout == ''
    (line,) = done.stderr.splitlines()
    assert line.startswith('kronos simulate: ') and told in line


@pytest.mark.turns(3)
def test_simulate_quotes_parse_error_of_prometheus(home_of, filled):
    text = (home_of / 'calm.yaml').read_text()
    (home_of / 'calm.yaml').write_text(text.replace('kronos_test_load', 'sum by ('))
    done = simulate(home_of, *live(filled), '--policies', 'calm.yaml')
    assert done.returncode == 1 and done.stdout == ''
    assert 'imbalance_query of policy cpu' in done.stderr and 'parse error' in done.stderr
    assert len(done.stderr.splitlines()) == 1
