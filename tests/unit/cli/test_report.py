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

"""``kronos report``, run as an operator runs it: of a snapshot and of a stored plan."""

import json
from pathlib import Path
import re
import shutil

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.report import page
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import tables
from tests import commands
from tests.fixtures import stores
from tests.unit.rebalancer.report import parsed
from tests.unit.rebalancer.store import cases

pytestmark = pytest.mark.turns(2)

EXAMPLE = Path(__file__).resolve().parents[3] / 'doc/examples/replay'
#: Moved to compute-04 by the example's plan.
MOVED = 'ee2a96c5-0647-54d5-8ea1-0df4c1d44587'
NOW = cases.NOW


def ask(*arguments):
    done = commands.main('kronos_nova.cli.app', 'report', '--config-file', 'kronos.conf',
                         *arguments, cwd=EXAMPLE)
    assert 'Traceback' not in done.stdout + done.stderr
    return done


def of_snapshot(*arguments):
    done = ask('--snapshot', 'snapshot', '-o', '-', *arguments)
    assert done.returncode == 0, done.stderr
    return parsed.parse(done.stdout)


def test_a_snapshot_is_planned_as_a_replay_plans_it_scope_by_scope():
    found = of_snapshot()
    assert found.wrong == []
    assert 'Scope fast-storage' in found.text and 'Scope _unassigned_' in found.text
    assert '4 instances of 2 hosts move to 4 hosts, in 3 waves.' in found.text
    assert MOVED in found.text and 'compute-12: disabled (maintenance: memory mo' in found.text
    assert 'A snapshot holds one time only' in found.text
    assert 'As of 2026-11-01 00:00:00 UTC' in found.text


def test_one_scope_can_be_asked_for():
    found = of_snapshot('--scope', '_unassigned_')
    assert 'Scope _unassigned_' in found.text and 'fast-storage' not in found.text


def test_a_missing_scope_is_reported_beside_the_others(tmp_path):
    snapshot = tmp_path / 'snapshot'
    shutil.copytree(EXAMPLE / 'snapshot', snapshot)
    meta = json.loads((snapshot / 'meta.json').read_text())
    meta['aggregates'].append('ghost')
    (snapshot / 'meta.json').write_text(json.dumps(meta))
    conf = tmp_path / 'kronos.conf'
    conf.write_text(f'[engine]\npolicies_file = {EXAMPLE / "policies.yaml"}\n'
                    'aggregates = ghost,fast-storage\n')
    done = commands.main('kronos_nova.cli.app', 'report', '--config-file', conf, '--snapshot',
                         snapshot, '-o', '-')
    assert done.returncode == 0, done.stderr
    text = parsed.parse(done.stdout).text
    assert 'Scope ghost No plan: the cloud has no aggregate ghost' in text
    assert 'Scope fast-storage 4 instances of 2 hosts' in text


@pytest.mark.parametrize(('arguments', 'said'), [
    (('--snapshot', 'snapshot', '--scope', 'slow'), '--scope: slow is not planned. Planned are: '
                                                    '_unassigned_, fast-storage.'),
    (('--snapshot', 'nowhere'), 'nowhere'),
    (('--plan', 'x', '--scope', 'blue'), '--scope: it does not go with --plan')])
def test_a_missing_object_gives_one_line_and_no_file(arguments, said, tmp_path):
    done = ask(*arguments, '-o', tmp_path / 'report.html')
    assert done.returncode == 1 and done.stdout == ''
    assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_plan_and_snapshot_do_not_go_together():
    done = ask('--plan', 'x', '--snapshot', 'snapshot', '-o', '-')
    assert done.returncode == 2 and 'not allowed with argument' in done.stderr


@pytest.mark.mutant
def test_help_has_an_example():
    done = commands.main('kronos_nova.cli.app', 'report', '--help')
    assert 'kronos report -o report.html\n' in done.stdout


def test_a_report_replaces_a_report_and_no_other_file(tmp_path):
    arguments = ('--snapshot', 'snapshot', '--scope', 'fast-storage', '-o')
    path, notes = tmp_path / 'report.html', tmp_path / 'notes.html'
    for _ in range(2):
        done = ask(*arguments, path)
        assert (done.returncode, done.stdout) == (0, ''), done.stderr
    assert parsed.parse(path.read_text()).wrong == []
    notes.write_text('my own words')
    done = ask(*arguments, notes)
    assert done.returncode == 1 and '--force' in done.stderr and len(
        done.stderr.splitlines()) == 1
    assert notes.read_text() == 'my own words'


# A stored plan.

@pytest.fixture
def store(tmp_path):
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    yield store
    store.close()


@pytest.fixture
def of_plan(tmp_path):
    conf = tmp_path / 'kronos.conf'
    conf.write_text(f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n')

    def run(*arguments):
        done = commands.main('kronos_nova.cli.app', 'report', '--config-file', conf, '-o', '-',
                             *arguments)
        assert 'Traceback' not in done.stderr
        return done

    return run


def saved(store, now, *, moves=2, before=0.5, after=0.2, dry_run=False, names=('web', 'db'),
          **kw):
    """A stored plan of so many moves; (its id, its tasks)."""
    plan_id = cases.new_id()
    tasks = [cases.make_task(plan_id, instance_name=names[n], from_host='h1', to_host='h2',
                             alternates=('h3',), not_before=now + 30 * n, **kw)
             for n in range(moves)]
    plan = model.Plan(
        'blue', tuple(model.Move(t.instance_uuid, t.from_host, t.to_host, t.phase,
                                 alternates=t.alternates) for t in tasks),
        policies=(model.PolicyReport('cpu', before, after, 0.15),), combined_before=before,
        combined_after=after, rejections={'no-room': 3}, warnings=('beware',),
        reason=None if moves else f'all is well at {now:.0f}')
    store.plans.save_plan(None if dry_run else cases.lease_of(store), plan, [] if dry_run
                          else tasks,
                          plan_id=plan_id, now=now, dry_run=dry_run, cooldown=0,
                          instance_cooldown=0)
    return plan_id, tasks


def test_a_stored_plan_is_shown_with_the_attempts_of_each_move(store, of_plan):
    plan_id, tasks = saved(store, NOW, names=('<script>alert(1)</script>', 'db'))
    done = of_plan('--plan', plan_id)
    assert done.returncode == 0 and 'Tasks: 2 queued.' in parsed.parse(done.stdout).text
    first = cases.claim(store, now=NOW + 40).task
    tried = model.Attempt('h2', NOW + 40, NOW + 60, 'MigrationFailed', 'no CPU')
    came = model.Attempt('h3', NOW + 70, NOW + 190)
    store.tasks.requeue_task(first.task_id, 'w', NOW + 60, not_before=NOW + 60, retry_count=0,
                             attempt=1,
                             attempts=[tried])
    first = next(row for n in (70, 71) if (row := cases.claim(store, now=NOW + n)).task.task_id
                 == first.task_id).task
    store.tasks.finish_task(first, model.TaskResult(
        first.task_id, plan_id, 'blue', first.instance_uuid, 'h1', 'h3', True,
        completed_at=NOW + 190, attempts=(tried, came)), model.TaskState.COMPLETED, NOW + 190,
        worker='w', instance_cooldown=0)
    found = parsed.parse(of_plan('--plan', plan_id).stdout)
    assert found.wrong == [] and not found.of('script')
    assert '<script>alert(1)</script>' in found.text
    assert 'Tasks: 1 c' in found.text and 'completed on h3' in found.text
    assert 'MigrationFailed: no CPU' in found.text
    assert 'no-room 3' in found.text and 'beware' in found.text
    assert 'This plan has no scores of hosts' in found.text
    kinds = [a.get('class') for a in found.of('rect')]
    assert kinds.count('failed') == 1 and kinds.count('done') == 1
    assert first.task_id in found.text and tasks[1].instance_uuid in found.text


def test_a_plan_is_shown_with_other_plans_and_outcomes_of_its_scope(store, of_plan):
    first, tasks = saved(store, NOW - 3600, moves=1)
    claimed = cases.claim(store, now=NOW - 3500)
    cases.end(store, claimed, model.TaskState.COMPLETED, NOW - 3400)
    store.outcomes.record_outcome(cases.lease_of(store), 0.25, NOW - 3000)
    saved(store, NOW - 1800, moves=0, before=0.1, after=0.1)
    saved(store, NOW, before=0.6, after=0.3)
    found = parsed.parse(of_plan('--plan', first).stdout)
    assert 'Afterwards scores showed 0.2500.' in found.text
    assert 'The line shows the imbalance before each of 3 plans' in found.text
    for number in ('0.6000', '0.1000', '0.5000'):
        assert number in found.text
    dots = [a.get('class') for a in found.of('circle')] + [a.get('class') for a in found.of('rect')]
    assert dots.count('realised') == 1


def start_campaign(store, scope, at):
    campaign = model.Campaign(
        cases.new_id(), scope, f'<b>firmware</b> [campaign of {scope} {at}]', 1, at, 'anna@ops',
        migrations=4, seconds=1200.0, hosts=(
            model.CampaignHost('h1' if scope == 'blue' else 'g1', 0,
                               model.CampaignHostState.EMPTYING, since=at),
            model.CampaignHost(f'<i>{scope}</i>', 1, since=at)))
    store.campaigns.create_campaign(campaign, 'firmware')
    return campaign.campaign_id


def end_campaign(store, scope, at):
    campaign = store.campaigns.find_live_campaign(scope)
    running = model.CampaignState.RUNNING
    store.campaigns.order_state(campaign.campaign_id, (running,), model.CampaignState.ABORTING,
                                command='campaign aborted', by='ben', reason='a <b>storm</b>')
    lease = cases.lease_of(store, scope)
    for host in store.campaigns.find_live_campaign(scope).hosts:
        store.campaigns.change_host(lease, campaign.campaign_id, host, state='skipped')
    assert store.campaigns.end_campaign(lease, store.campaigns.find_live_campaign(scope), at)


def test_campaigns_of_the_scope_and_period_are_shown_with_their_progress(store, of_plan):
    earlier = start_campaign(store, 'blue', NOW - 9000)
    end_campaign(store, 'blue', NOW - 7200)
    ended = start_campaign(store, 'blue', NOW - 3600)
    end_campaign(store, 'blue', NOW - 1800)
    live = start_campaign(store, 'blue', NOW - 900)
    other = start_campaign(store, 'green', NOW - 900)
    store.campaigns.record_waits(cases.lease_of(store), live, 'a window opens at <b>X</b>')
    first, _tasks = saved(store, NOW - 3000, moves=1, phase=model.Phase.EVACUATE)
    cases.end(store, cases.claim(store, now=NOW - 600), now=NOW - 500)
    found = parsed.parse(of_plan('--plan', first).stdout)
    assert found.wrong == []
    text = re.sub(' ([;.,:])', r'\1', ' '.join(found.text.split()))
    assert live in text and ended in text and earlier not in text and other not in text
    assert text.index(live) < text.index(ended)
    assert ('0 of 2 hosts of scope blue; running. 1 to-come, 1 emptying. 1 migration so far; the '
            'forecast has 3 more, about 15 minutes. Waits: a window opens at <b>X</b> h1: emptying '
            'since') in text, text[:2000]
    assert 'Next: <i>blue</i>' in text and 'by anna@ops' in text
    assert ('2 of 2 hosts of scope blue; aborted. aborted by ben: a <b>storm</b> 2 skipped. '
            '0 migrations so far.') in text
    assert [(bar['value'], bar['max']) for bar in found.of('progress')] == [('0', '2'), ('2', '2')]


def test_a_report_of_campaigns_needs_no_right_to_write(store, of_plan):
    campaign_id = start_campaign(store, 'blue', NOW - 900)
    plan_id, _tasks = saved(store, NOW, moves=1)
    with store.engine.begin() as connection:
        for table in tables.metadata.tables:
            for verb in ('INSERT', 'UPDATE', 'DELETE'):
                connection.exec_driver_sql(
                    f'CREATE TRIGGER no_{verb}_{table} BEFORE {verb} ON "{table}" BEGIN '
                    "SELECT RAISE(ABORT, 'no right'); END")
    done = of_plan('--plan', plan_id)
    assert done.returncode == 0, done.stderr
    assert campaign_id in done.stdout


def test_decisions_about_a_stored_plan_are_shown(store, of_plan):
    plan_id, _ = saved(store, NOW, state=model.TaskState.PENDING)
    said = plan_decisions.OperatorDecision('anna@ops', 'not <b>today</b>')
    store.approvals.reject_plan(plan_id, NOW + 60, said, instance_cooldown=0)
    found = parsed.parse(of_plan('--plan', plan_id).stdout)
    assert ('Decisions of operators: 2023-11-14T22:14:20+00:00: 2 rejected by anna@ops: not '
            '<b>today</b>') in found.text
    assert 'Tasks: 2 cancelled.' in found.text


def test_a_dry_run_has_planned_times_and_says_that_nothing_was_done(store, of_plan):
    plan_id, _ = saved(store, NOW, dry_run=True)
    found = parsed.parse(of_plan('--plan', plan_id).stdout)
    assert 'It is the plan of a dry run: no move is carried out.' in found.text
    assert 'it has no tasks, so real times are unknown' in found.text


def test_an_unknown_plan_is_reported_and_no_database_is_created(store, of_plan, tmp_path):
    done = of_plan('--plan', 'nobody')
    assert done.returncode == 1 and 'nobody: no such plan. kronos plan list' in done.stderr
    (tmp_path / 'kronos.sqlite').unlink()
    done = of_plan('--plan', 'nobody')
    assert done.returncode == 1 and 'does not exist' in done.stderr
    assert not (tmp_path / 'kronos.sqlite').exists()


def test_stored_plan_has_hosts_that_give_or_take_before_and_after(store, of_plan):
    one, other = cases.make_task('p', from_host='h1', to_host='h2'), cases.make_task(
        'p', from_host='h2', to_host='h3')
    plan = model.Plan('blue', (
        model.Move(one.instance_uuid, 'h1', 'h2', one.phase, gain=0.25, changes=(
            model.ScoreChange('cpu', 0.91, 0.52, 0.13, 0.44),)),
        model.Move(other.instance_uuid, 'h2', 'h3', other.phase, gain=0.125, changes=(
            model.ScoreChange('cpu', 0.44, 0.31, 0.07, 0.26),))),
        policies=(model.PolicyReport('cpu', 0.84, 0.26, 0.15),), combined_before=0.84,
        combined_after=0.26)
    plan_id = cases.new_id()
    store.plans.save_plan(None, plan, [], plan_id=plan_id, now=NOW, dry_run=True, cooldown=0,
                          instance_cooldown=0)
    text = parsed.parse(of_plan('--plan', plan_id).stdout).text
    # As text: host, moves, cpu before and after the whole plan.
    for host, before, after in (('h1', '0.91', '0.52'), ('h2', '0.13', '0.31'),
                                ('h3', '0.07', '0.26')):
        assert re.search(rf'{host} .{{0,40}}{before} . {after}', text), (host, text)
    assert 'A snapshot has all' in text


def test_plan_that_waits_is_read_with_its_moves(store):
    from oslo_config import cfg

    from kronos_nova.conf import opts
    from kronos_nova.rebalancer.operations import report_pages

    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([])
    now = store.now()
    plan_id, tasks = saved(store, now, state=model.TaskState.PENDING)
    waiting, sections = report_pages._read_waiting(conf, store, 'blue')
    assert waiting == {t.instance_uuid: plan_id for t in tasks}
    assert [s.plan_id for s in sections] == [plan_id] and len(sections[0].moves) == 2
    assert 'plan that waits for approval' in parsed.parse(page.render_page(values.WholeReport(
        'x', now, now, '1', tuple(sections)))).text
