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

"""``kronos what-if``, ``why-nothing`` and ``drain check`` on the example's snapshot, run as an
operator runs them."""

from collections import Counter
import json
from pathlib import Path
import shutil
import types

import pytest
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import plan_comparisons
from tests import commands
from tests.unit import clouds

pytestmark = pytest.mark.turns(2)

EXAMPLE = Path(__file__).resolve().parents[3] / 'doc/examples/replay'


def ask(*arguments):
    return commands.main('kronos_nova.cli.app', *arguments, '--config-file', 'kronos.conf',
                         '--snapshot', 'snapshot', cwd=EXAMPLE)


def rows(*arguments, status=0):
    done = ask(*arguments, '-f', 'json')
    assert done.returncode == status, done.stderr
    return [tuple(row.values()) for row in json.loads(done.stdout)]


def replayed():
    done = commands.main('kronos_nova.cmd.replay', 'snapshot', '--config-file', 'kronos.conf',
                         '--format', 'json', cwd=EXAMPLE)
    assert done.returncode == 0, done.stderr
    return {row['name']: row for row in json.loads(done.stdout)['aggregates']}


def test_today_s_side_is_what_replay_plans():
    found = rows('what-if')
    for name, row in replayed().items():
        of = {what: (today, other) for scope, what, today, other in found if scope == name}
        assert of['moves'] == (str(len(row['moves'])),) * 2, 'nothing was supposed'
        assert of['combined'][0] == (f'{row["combined_before"]:.4f} to '
                                     f'{row["combined_after"]:.4f}')
        for move in row['moves']:
            assert of[f'move {move["instance_uuid"]}'] == (
                f'{move["from_host"]} to {move["to_host"]}, {move["phase"]}, wave '
                f'{move["wave"]}',) * 2
        assert 'reason' not in of


def test_hosts_more_and_a_host_less_change_their_scope_alone():
    found = {(scope, what): (today, other) for scope, what, today, other in rows(
        'what-if', '--add-host', '2=compute-01', '--remove-host', 'compute-03')}
    assert found['fast-storage', 'hosts'] == ('4', '6')
    assert found['_unassigned_', 'hosts'] == ('8', '8')
    moves = [other for (scope, what), (_, other) in found.items()
             if scope == 'fast-storage' and what.startswith('move ') and other]
    assert sum('compute-03 to compute-01+' in move for move in moves) == 13
    assert all('evacuate' in move for move in moves if 'compute-03 to' in move)
    assert found['_unassigned_', 'combined'][0] == found['_unassigned_', 'combined'][1]


def test_a_drain_is_as_the_configuration_has_it(tmp_path):
    def moves(*options):
        return {what: other for scope, what, _today, other in rows('what-if', *options)
                if 'compute-03 to' in other}
    assert not moves()
    assert all('evacuate' in move for move in moves('--drain', 'compute-03').values())
    conf = (EXAMPLE / 'kronos.conf').read_text().replace(
        'evacuate_disabled_hosts = true', 'evacuate_disabled_hosts = false')
    (tmp_path / 'kronos.conf').write_text(conf.replace(
        'policies.yaml', str(EXAMPLE / 'policies.yaml')))
    done = commands.main(
        'kronos_nova.cli.app', 'what-if', '--drain', 'compute-03', '--config-file',
        tmp_path / 'kronos.conf', '--snapshot', 'snapshot', '-f', 'json', cwd=EXAMPLE)
    assert done.returncode == 0, done.stderr
    undrained = [row for row in json.loads(done.stdout) if row['What'] == 'undrained']
    assert any('compute-03 is disabled, not drained' in row['What if'] for row in undrained)


def test_removing_a_host_drains_no_other_and_keeps_running_drains(tmp_path):
    conf = (EXAMPLE / 'kronos.conf').read_text().replace(
        'policies.yaml', str(EXAMPLE / 'policies.yaml')).replace(
        'evacuate_disabled_hosts = true',
        'evacuate_disabled_hosts = true\ndrain_reason_regex = ^maint')
    (tmp_path / 'kronos.conf').write_text(conf)

    def moves(*options):
        done = commands.main(
            'kronos_nova.cli.app', 'what-if', *options, '--scope', '_unassigned_',
            '--config-file', tmp_path / 'kronos.conf', '--snapshot', 'snapshot', '-f', 'json',
            cwd=EXAMPLE)
        assert done.returncode == 0, done.stderr
        return Counter(row['What if'].split()[0] for row in json.loads(done.stdout)
                       if row['What'].startswith('move') and 'evacuate' in row['What if'])

    assert moves() == {'compute-12': 4}
    assert moves('--drain', 'compute-12', '--reason', 'other') == {'compute-12': 4}
    assert moves('--drain', 'compute-06', '--reason', 'other') == {'compute-12': 4}
    both = moves('--drain', 'compute-06')
    assert both['compute-12'] == 4 and both['compute-06'] == 12
    assert moves('--remove-host', 'compute-06') == both


@pytest.fixture
def held(tmp_path):
    """The example's cloud, where everything waits that can, and a configuration that drains
    nothing."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    path = tmp_path / 'snapshot/cooldowns.json'
    history = json.loads(path.read_text())
    instances = json.loads((tmp_path / 'snapshot/nova/instances.json').read_text())
    uuids = [i['uuid'] for here in instances.values() for i in here]
    path.write_text(json.dumps({
        **history, 'instance_cooldowns': dict.fromkeys(uuids, 500.0),
        'aggregate_cooldowns': {'fast-storage': 300.0, '_unassigned_': 300.0},
        'paused': {'fast-storage': 'paused by somebody'},
        'waiting': {'_unassigned_': 'the imbalance has to last'}}))
    conf = tmp_path / 'kronos.conf'
    conf.write_text(conf.read_text().replace(
        'evacuate_disabled_hosts = true',
        'evacuate_disabled_hosts = false\nmax_drain_fraction = 0.01\n'
        'cooldown = 300\ninstance_cooldown = 500'))

    def ask(*arguments):
        done = commands.main('kronos_nova.cli.app', *arguments, '--config-file', 'kronos.conf',
                             '--snapshot', 'snapshot', '-f', 'json', cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [tuple(row.values()) for row in json.loads(done.stdout)]

    return ask


def test_cooldowns_and_pauses_hold_neither_side_of_what_if(held):
    found = {(scope, what): rest for scope, what, *rest in held('what-if')}
    assert {scope for (scope, what), (today, _) in found.items()
            if what.startswith('move ') and 'spread' in today} == {'fast-storage', '_unassigned_'}
    assert found['fast-storage', 'waits'][0].startswith('paused by somebody')
    assert 'cools down' in found['_unassigned_', 'waits'][0]
    for scope in ('fast-storage', '_unassigned_'):
        today, other = found[scope, 'moves']
        assert today == other and int(today) > 0
    assert [what for scope, what, *_ in held('why-nothing') if what.startswith('move')] == []
    conclusions = {scope: detail for scope, what, detail in held('why-nothing')
                   if what == 'conclusion'}
    assert conclusions['fast-storage'] == 'nothing: paused by somebody'


def test_removed_hosts_are_emptied_when_drains_are_disabled(held):
    found = held('what-if', '--remove-host', 'compute-03', '--remove-host', 'compute-04',
                 '--add-host', '4=compute-01')
    moves = [other for _, what, _, other in found if what.startswith('move ') and other]
    gone = Counter(move.split()[0] for move in moves if 'evacuate' in move)
    assert set(gone) == {'compute-03', 'compute-04'} and sum(gone.values()) > 20
    drained = held('what-if', '--drain', 'compute-03')
    assert not any('evacuate' in row[3] for row in drained if row[1].startswith('move '))


def test_balance_has_its_usual_number_of_moves_beside_a_drain(tmp_path):
    policies = yaml.safe_load((EXAMPLE / 'policies.yaml').read_text())
    for policy in policies['policies']:
        policy['max_migrations_per_cycle'] = 1
    path = tmp_path / 'slow.yaml'
    path.write_text(yaml.safe_dump(policies))
    usual = policy_files.load_policies(str(path)).move_budget

    def balancing(*options):
        return sum('spread' in other for scope, what, _, other in rows(
            'what-if', '--scope', 'fast-storage', '--policy', str(path), *options)
            if what.startswith('move '))

    assert balancing() == usual
    assert balancing('--remove-host', 'compute-03', '--add-host', '4=compute-01') == usual


def test_a_plan_that_the_checker_refuses_is_not_shown(monkeypatch):
    conf = types.SimpleNamespace(engine=types.SimpleNamespace(planning_deadline=30))
    request = clouds.request(clouds.Knobs(7))
    monkeypatch.setattr(checker, 'check', lambda *args: (
        model.Rejection('claims', 'host h1 is full'),))
    with pytest.raises(exception.PlanRefused, match='claims: host h1 is full'):
        plan_comparisons._plan_side(conf, request)
    with pytest.raises(exception.PlanRefused, match='claims: host h1 is full'):
        drains.plan_drain(request, 'h1')


def test_a_policy_file_that_is_for_other_scopes_says_so(tmp_path):
    policies = yaml.safe_load((EXAMPLE / 'policies.yaml').read_text())
    path = tmp_path / 'fast.yaml'
    path.write_text(yaml.safe_dump({'aggregates': ['fast-storage'], **policies}))
    found = {(scope, what): other for scope, what, _today, other in rows(
        'what-if', '--policy', str(path))}
    assert found['_unassigned_', 'policies'] == 'the file is not for this scope'
    assert ('_unassigned_', 'hosts') not in found and found['fast-storage', 'hosts'] == '4'


def test_other_policies_use_the_same_snapshot(tmp_path):
    policies = yaml.safe_load((EXAMPLE / 'policies.yaml').read_text())
    for policy in policies['policies']:
        policy['threshold'] = 0.9
    path = tmp_path / 'lazy.yaml'
    path.write_text(yaml.safe_dump(policies))
    found = {(scope, what): (today, other) for scope, what, today, other in rows(
        'what-if', '--policy', str(path), '--scope', 'fast-storage')}
    assert {scope for scope, _ in found} == {'fast-storage'}
    assert found['fast-storage', 'moves'] == ('4', '0')
    assert found['fast-storage', 'reason'][1]


def test_more_load_makes_a_larger_imbalance():
    found = {(scope, what): (today, other) for scope, what, today, other in rows(
        'what-if', '--multiplier', '1.5')}
    today, other = (float(text.split()[0]) for text in found['fast-storage', 'combined'])
    assert other == pytest.approx(1.5 * today, abs=1e-3)


@pytest.mark.parametrize(('arguments', 'status', 'said'), [
    (('what-if', '--add-host', '2=compute-013'), 1, 'Is compute-03 meant?'),
    (('what-if', '--drain', 'nowhere'), 1, 'nowhere: no such compute host. kronos host '
                                           'list has the names of all hosts'),
    (('what-if', '--add-host', 'compute-01'), 2, 'write how many'),
    (('what-if', '--add-host', '0=compute-01'), 2, 'write how many'),
    (('what-if', '--multiplier', '-1'), 2, 'is no number above 0'),
    (('what-if', '--multiplier', 'nan'), 2, 'is no number above 0'),
    (('what-if', '--policy', 'nowhere.yaml'), 1, 'nowhere.yaml'),
    (('why-nothing', '--scope', 'slow'), 1, 'slow is not planned. Planned are: _unassigned_, '
                                            'fast-storage'),
    (('drain', 'check', 'compute-013'), 1, 'Is compute-03 meant?'),
    (('drain', 'check', 'nowhere'), 1, 'kronos host list has the names of all hosts')])
def test_a_missing_object_or_an_invalid_number_gives_a_clear_error(arguments, status, said):
    done = ask(*arguments)
    assert (done.returncode, done.stdout) == (status, '')
    assert said in done.stderr and 'Traceback' not in done.stderr


def test_why_nothing_shows_the_next_moves_and_the_rejections():
    planned = replayed()
    found = rows('why-nothing')
    for name, row in planned.items():
        of = [(what, detail) for scope, what, detail in found if scope == name]
        assert of[-1] == ('conclusion', f'the next cycle would make {len(row["moves"])} moves')
        assert {(f'rule {rule}', f'refused {n} move{"s" * (n != 1)}')
                for rule, n in row['rejections'].items()} <= set(of)
        cpu = next(detail for what, detail in of if what == 'policy cpu')
        assert cpu.endswith('threshold 0.1500: above it')


def test_why_nothing_says_what_holds_a_scope(tmp_path):
    (tmp_path / 'kronos.conf').write_text((EXAMPLE / 'kronos.conf').read_text().replace(
        'policies.yaml', str(EXAMPLE / 'policies.yaml')) + '\n[prometheus]\n'
        'staleness_threshold = 1\n')
    done = commands.main(
        'kronos_nova.cli.app', 'why-nothing', '--config-file', tmp_path / 'kronos.conf',
        '--snapshot', 'snapshot', '--scope', 'fast-storage', '-f', 'json', cwd=EXAMPLE)
    assert done.returncode == 0, done.stderr
    found = [(row['What'], row['Detail']) for row in json.loads(done.stdout)]
    (waits,) = (detail for what, detail in found if what == 'waits')
    assert waits.startswith('metrics are not trusted')
    assert found[-1][0] == 'conclusion' and found[-1][1].startswith('nothing: metrics are not')


def test_a_blocked_drain_names_staying_instances_and_missing_resources():
    found = rows('drain', 'check', 'compute-03', status=1)
    of = {what: (verdict, detail) for what, verdict, detail in found}
    staying = [detail for what, (verdict, detail) in of.items() if verdict == 'stays']
    assert len(staying) == 5 and all('no host may take it' in detail for detail in staying)
    assert of['class MEMORY_MB'] == ('missing', '34816')
    assert 'class VCPU' not in of, 'of that there is enough'
    assert of['time'] == ('not known', 'no migration is on record')
    assert found[-1] == ('conclusion', 'blocked', '8 of 13 instances can leave host compute-03, '
                                                  '5 stay')


def test_a_drain_is_checked_in_the_engines_mode_by_default(tmp_path):
    conf = (EXAMPLE / 'kronos.conf').read_text().replace(
        'policies.yaml', str(EXAMPLE / 'policies.yaml')).replace(
        'evacuate_disabled_hosts = true', 'evacuate_disabled_hosts = true\ndrain_mode = compact')
    (tmp_path / 'kronos.conf').write_text(conf)

    def hosts(*options):
        done = commands.main(
            'kronos_nova.cli.app', 'drain', 'check', 'compute-12', *options, '--config-file',
            tmp_path / 'kronos.conf', '--snapshot', 'snapshot', '-f', 'json', cwd=EXAMPLE)
        assert done.returncode == 0, done.stderr
        return Counter(row['Detail'].split(' to ')[1].split(',')[0]
                       for row in json.loads(done.stdout) if row['Verdict'] == 'moves')

    assert len(hosts()) < len(hosts('--mode', 'scatter'))
    assert max(hosts('--mode', 'scatter').values()) == 1
    assert hosts() == hosts('--mode', 'compact')


@pytest.mark.parametrize('mode', ['auto', 'compact', 'scatter'])
def test_a_drain_that_is_possible_has_everybody_in_waves(mode):
    found = rows('drain', 'check', 'compute-12', '--mode', mode)
    assert found[-1][1] == 'possible', found[-1]
    leaving = [detail for _what, verdict, detail in found if verdict == 'moves']
    assert found[-1][2] == f'all {len(leaving)} instances can leave host compute-12'
    assert all('compute-12 to' in detail and 'wave' in detail for detail in leaving)
