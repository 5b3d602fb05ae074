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

"""``kronos drain check`` and ``start``: estimates, conclusions and refusals."""

import argparse
import contextlib
import dataclasses
import json
from pathlib import Path
import shlex

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.cli import drain
from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drain_deadlines
from kronos_nova.rebalancer.operations import drain_lists
from kronos_nova.rebalancer.operations import drain_starts
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import shutdown_verdicts
from tests import commands
from tests.unit.rebalancer.clients import served
from tests.unit.rebalancer.operations import test_drains

UUID = '6d1f8a3e-7a55-4d0e-9b0a-2f6c3a1c9e44'
EXAMPLE = Path(__file__).resolve().parents[3] / 'doc/examples/replay'


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    opts.register(found)
    found([], default_config_files=[])
    for name, value in {'stagger_seconds': 0, 'max_concurrent_migrations': 8,
                        'max_concurrent_migrations_total': 8, 'max_concurrent_per_source': 8,
                        'max_concurrent_per_destination': 8}.items():
        found.set_override(name, value, 'executor')
    found.set_override('evacuate_disabled_hosts', True, 'engine')
    return found


def plan_of(*moves):
    return model.Plan(model.UNASSIGNED, tuple(
        model.Move(uuid, 'a', to_host, model.Phase.EVACUATE) for uuid, to_host in moves))


def estimated(conf, migrated, *moves, sizes=(1000, 1000), **fields):
    request = test_drains.cloud(*sizes)
    for uuid, change in fields.items():
        request.cluster.instances[uuid] = dataclasses.replace(
            request.cluster.instances[uuid], **change)
    request = dataclasses.replace(request, history=measured(migrated))
    check = drains.DrainCheck(plan_of(*moves), (), {})
    return estimate(conf, drain_checks.DrainAnswer(check, len(sizes)), request)


def estimate(conf, given, request):
    return drain_checks._add_estimate(conf, given, request, 'a')


def measured(migrated):
    """Others' (MiB, GiB of disks, seconds)."""
    return model.MoveHistory(measured=tuple(model.MeasuredAttempt('other', *one)
                                            for one in migrated))


def test_the_rate_is_the_median_of_the_measured_migrations(conf):
    found = estimated(conf, [(1000, 0, 10.0), (1000, 0, 20.0), (100000, 0, 1.0)], ('i0', 'b'))
    assert (found.bandwidth, found.measured) == (100.0, 3)
    assert found.seconds == pytest.approx(10.0)


def test_without_a_recorded_migration_there_are_no_estimates(conf):
    found = estimated(conf, [], ('i0', 'b'))
    assert (found.seconds, found.bandwidth, found.measured) == (None, None, 0)


def test_disks_count_where_they_are_copied_and_nowhere_else(conf):
    migrated = [(1024, 9, 100.0)]
    disks = {'i0': {'disk_gb': 1, 'local_disk_gb': 1}}
    shared = estimated(conf, migrated, ('i0', 'b'), sizes=(1024,), **disks)
    assert shared.bandwidth == pytest.approx(10.24)
    assert shared.seconds == pytest.approx(100.0)
    conf.set_override('instance_storage', 'local', 'engine')
    local = estimated(conf, migrated, ('i0', 'b'), sizes=(1024,), **disks)
    assert local.bandwidth == pytest.approx(102.4), 'memory and disks, in as long'
    own = test_drains.cloud(1024)
    request = dataclasses.replace(
        own, options=model.PlanningOptions(instance_storage='local'), history=measured(migrated),
        cluster=dataclasses.replace(own.cluster, instances={'i0': dataclasses.replace(
                own.cluster.instances['i0'], **disks['i0'])}))
    check = drains.DrainCheck(plan_of(('i0', 'b')), (), {})
    found = estimate(conf, drain_checks.DrainAnswer(check, 1), request)
    assert found.seconds == pytest.approx(20.0), '1 GiB of memory and 1 of disk'


@pytest.mark.parametrize(('limit', 'moves', 'seconds'), [
    ('max_concurrent_per_source', [('i0', 'b'), ('i1', 'c')], 20.0),
    ('max_concurrent_per_destination', [('i0', 'b'), ('i1', 'b')], 20.0),
    ('max_concurrent_per_destination', [('i0', 'b'), ('i1', 'c')], 10.0),
    ('max_concurrent_migrations', [('i0', 'b'), ('i1', 'c')], 20.0),
    ('max_concurrent_migrations_total', [('i0', 'b'), ('i1', 'c')], 20.0)])
def test_migrations_wait_for_each_other_as_executors_have_them(conf, limit, moves, seconds):
    migrated = [(1000, 0, 10.0)]
    assert estimated(conf, migrated, *moves).seconds == pytest.approx(10.0), 'all at once'
    conf.set_override(limit, 1, 'executor')
    assert estimated(conf, migrated, *moves).seconds == pytest.approx(seconds)


def test_they_begin_one_after_the_other_as_executors_have_them(conf):
    conf.set_override('stagger_seconds', 7, 'executor')
    assert estimated(conf, [(1000, 0, 10.0)], ('i0', 'b'), ('i1', 'c')).seconds == (
        pytest.approx(17.0))


def test_an_instance_with_a_high_dirty_rate_takes_longer_and_is_named(conf):
    request = test_drains.cloud(1000, 1000)
    name = request.policies.enabled_policies[0].name
    scores = {name: dataclasses.replace(
        request.scores.policies[name], dirty_rates={'i0': 50.0 * 2**20, 'i1': 300.0 * 2**20})}
    request = dataclasses.replace(request, scores=model.ClusterScores(scores),
                                  history=measured([(1000, 0, 10.0)] * 8))
    found = [estimate(conf, drain_checks.DrainAnswer(
        drains.DrainCheck(plan_of(move), (), {}), 2), request) for move in
        (('i0', 'b'), ('i1', 'b'))]
    assert [one.seconds for one in found] == pytest.approx([20.0, 100.0])
    assert [dict(one.risky) for one in found] == [{}, {'i1': 0.8}]
    rows = list(drain._render_rows(found[1], 'a'))
    assert ('instance i1', 'may not converge') in [row[:2] for row in rows]
    assert '80%' in next(row[2] for row in rows if row[1] == 'may not converge')
    rows = drain._render_rows(dataclasses.replace(
        found[1], wait_obstacles={'i1': 'plans of its scope wait for approval'}), 'a')
    assert next(row[2] for row in rows if row[1] == 'may not converge').endswith(
        '; it waits for no quieter hour: plans of its scope wait for approval')
    offline = estimate(conf, drain_checks.DrainAnswer(
        dataclasses.replace(found[1].check, methods={'i1': model.MoveMethod.OFFLINE}), 2), request)
    assert offline.risky == {} and offline.seconds is not None, 'no guest writes'


def answer(*, blocked=(), obstacles=(), moves=(('i0', 'b'),), reason=None, here=1, coming=0,
           wait=0.0):
    plan = dataclasses.replace(plan_of(*moves), reason=reason)
    check = drains.DrainCheck(plan, tuple(blocked), {}, tuple(obstacles), wait)
    return drain_checks.DrainAnswer(check, here, coming)


LATER = blocked_instances.BlockedInstance('i0', 'it is migrating', later=True)
STAYS = blocked_instances.BlockedInstance('i1', 'it is locked')
WAITS = blocked_instances.BlockedInstance('i2', 'its contract', later=True, movable_from=0.0)


@pytest.mark.parametrize(('found', 'verdict'), [
    (answer(), 'possible'), (answer(here=0, moves=()), 'empty'),
    (answer(blocked=[LATER]), 'possible'), (answer(blocked=[LATER, STAYS], here=2), 'blocked'),
    (answer(obstacles=['it is paused']), 'waits'),
    (answer(blocked=[STAYS], obstacles=['it is paused']), 'blocked'),
    (answer(moves=(), reason='an outage'), 'waits'),
    (answer(here=0, moves=(), coming=1), 'waits'), (answer(coming=1), 'possible'),
    (answer(here=0, moves=(), obstacles=['an outage']), 'waits'),
    (answer(blocked=[WAITS], wait=4 * 3600), 'possible'),
    (answer(blocked=[WAITS], wait=4 * 3600 + 1), 'waits')])
def test_conclusion_follows_from_the_check(found, verdict):
    rows = list(drain._render_rows(found, 'a'))
    assert rows[-1][:2] == ('conclusion', verdict)
    assert [row[1] for row in rows if row[0] == 'instance i0' and 'migrating' in row[2]] == (
        ['later'] if LATER in found.check.blocked else [])
    assert [row[1] for row in rows if row[0] == 'instance i1'] == (
        ['stays'] if STAYS in found.check.blocked else [])
    assert [row[2] for row in rows if row[0] == 'engines'] == list(found.check.obstacles)


@pytest.mark.parametrize(('found', 'said'), [
    (answer(here=0, moves=(), coming=1), 'host a has no instances, but 1 is on its way to it'),
    (answer(here=0, moves=(), coming=2, obstacles=['an outage']),
     'host a has no instances, but an outage; 2 are on their way to it'),
    (answer(coming=2), 'all 1 instance can leave host a; 2 are on their way to it'),
    (answer(blocked=[STAYS], coming=1), '0 of 1 instances can leave host a, 1 stay; 1 is on its '
                                        'way to it')])
def test_those_that_are_on_their_way_are_counted(found, said):
    assert list(drain._render_rows(found, 'a'))[-1][2] == said


@pytest.mark.parametrize('found', [
    answer(), answer(here=0, moves=()), answer(here=0, moves=(), coming=1), answer(coming=1),
    answer(blocked=[LATER]), answer(blocked=[STAYS]), answer(obstacles=['it is paused']),
    answer(here=0, moves=(), obstacles=['an outage']), answer(moves=(), reason='an outage')])
def test_start_refuses_what_check_ends_with_1_for_and_nothing_else(found):
    verdict = list(drain._render_rows(found, 'a'))[-1][1]
    if verdict in ('blocked', 'waits'):
        refused(found, model.Service('h1'))
    else:
        drain_starts._refuse_without_force('h1', found, model.Service('h1'),
                                           model.PlanningOptions())


def test_a_plan_that_waits_holds_no_host_that_is_empty_and_stays_so():
    cluster, found = test_drains.cloud(1024).cluster, answer().check
    coming = dataclasses.replace(cluster, flights=(model.InFlightMove('i0', 'a', 'b'),))
    for host, cloud, held in (('a', cluster, True), ('b', cluster, False), ('b', coming, True)):
        for plan in ('a plan waits', None):
            assert drain_checks._add_waiting_plan(found, cloud, host, plan).obstacles == (
                ('a plan waits',) if held and plan else ())


def check_on_example(tmp_path, old, new, *arguments):
    (tmp_path / 'kronos.conf').write_text((EXAMPLE / 'kronos.conf').read_text().replace(
        'policies.yaml', str(EXAMPLE / 'policies.yaml')).replace(old, new))
    done = commands.main(
        'kronos_nova.cli.app', 'drain', 'check', *arguments, '--config-file',
        tmp_path / 'kronos.conf', '--snapshot', 'snapshot', '-f', 'json', cwd=EXAMPLE)
    assert 'Traceback' not in done.stderr and done.stdout, done.stderr
    return done.returncode, [tuple(row.values()) for row in json.loads(done.stdout)]


def test_a_host_that_engines_would_not_empty_is_exit_status_1(tmp_path):
    status, rows = check_on_example(tmp_path, 'evacuate_disabled_hosts = true', '', 'compute-12')
    assert (status, rows[-1][1]) == (1, 'waits')
    assert ('engines', 'refuse', 'evacuate_disabled_hosts is not set: engines leave disabled '
                                 'hosts alone') in rows


def test_a_host_disabled_for_an_unmatched_reason_gives_exit_status_1(tmp_path):
    """compute-12 is disabled in the example."""
    status, rows = check_on_example(
        tmp_path, 'evacuate_disabled_hosts = true',
        'evacuate_disabled_hosts = true\ndrain_reason_regex = ^CHG-', 'compute-12')
    assert (status, rows[-1][1]) == (1, 'waits')
    (said,) = (detail for what, _verdict, detail in rows if what == 'engines')
    assert said.startswith('host compute-12 is disabled already and not drained: its '
                           'disabled_reason ')
    assert "does not match drain_reason_regex '^CHG-'" in said


def refused(found, service, **options):
    with pytest.raises(exception.ConfigError) as caught:
        drain_starts._refuse_without_force('h1', found, service, model.PlanningOptions(
            evacuate_disabled_hosts=True, **options))
    return str(caught.value)


def disabled(reason):
    return model.Service('h1', status='disabled', disabled_reason=reason)


def test_a_disabled_host_is_refused_with_its_reason_and_the_engines_rule():
    said = refused(answer(), disabled('disk broken'))
    assert "it is disabled already, for the reason 'disk broken'" in said
    assert 'engines empty it' in said
    assert 'With force this reason takes the place of that one' in said
    said = refused(answer(), disabled('disk\x1b[31m'), drain_reason_regex='^change')
    assert 'engines leave it alone' in said and '\x1b' not in said
    assert 'without a reason' in refused(answer(), disabled(None))


@pytest.mark.parametrize(('found', 'said'), [
    (answer(blocked=[LATER, STAYS]), '1 instance would stay, the first i1: it is locked'),
    (answer(obstacles=['one', 'two']), 'h1: one; two'),
    (answer(moves=(), reason='an outage'), 'h1: an outage')])
def test_obstacles_found_by_the_check_refuse_a_drain(found, said):
    text = refused(found, model.Service('h1'))
    assert said in text and 'With force the host is disabled all the same' in text


def test_instances_that_leave_later_do_not_refuse_a_drain():
    drain_starts._refuse_without_force('h1', answer(blocked=[LATER]), model.Service('h1'),
                                    model.PlanningOptions())


def disabled_by(service, force=False):
    """Whether it was disabled now, how often Nova was asked to write, and the audit rows."""
    rows = []
    with served.serving({'GET /os-services': [{'services': [service]}],
                         f'PUT /os-services/{UUID}': [{'service': service}]}) as nova:
        changed = drain_starts._disable_host(
            compute_service.ComputeService(nova.connection, 'h1'), 'change 7', force, answer(),
            model.PlanningOptions(evacuate_disabled_hosts=True), lambda *row: rows.append(row))
        return changed, nova.number('PUT'), rows


def test_a_host_disabled_for_the_same_reason_is_reported_without_a_write():
    service = {**served.service('h1', 'disabled', 'change 7'), 'id': UUID}
    assert disabled_by(service) == disabled_by(service, force=True) == (False, 0, [])
    text = drain._format_start_message('h1', drain_starts.StartedDrain(answer(here=3), False))
    assert text.startswith('Host h1 was disabled already for this reason, and nothing was '
                           'written; 3 instances are to leave it. kronos drain watch')


def test_disabling_a_host_is_reported():
    assert disabled_by({**served.service('h1'), 'id': UUID}) == (
        True, 1, [('drain started', 'change 7')])
    quiet = dataclasses.replace(WAITS, waits_for_quiet_hour=True)
    for waiting, what, reasons in (([WAITS], '1 instance waits', 'contracts'),
                          ([quiet], '1 instance waits', 'quieter hours'),
                          ([WAITS, quiet], '2 instances wait', 'contracts and quieter hours')):
        assert (f' {what} until 1970-01-01T00:00:00+00:00 at most, as {reasons} say. kronos '
                'drain watch') in drain._format_start_message(
                    'h1', drain_starts.StartedDrain(answer(here=3, blocked=waiting), True))
    assert drain._format_start_message(
        'h1', drain_starts.StartedDrain(answer(here=3), True)).startswith(
        'Host h1 is disabled; 3 instances are to leave it.')


def test_start_says_how_many_instances_are_shut_down():
    verdicts = [shutdown_verdicts.ShutdownVerdict(*fields) for fields in (
        ('i0', True), ('i1', False), ('i2', False, 'its hours are closed', 'wait', True),
        ('i3', True, 'it says live', 'a change'), ('i4', True, 'no notice yet', 'wait', True))]
    texts = [drain._format_start_message('h1', drain_starts.StartedDrain(dataclasses.replace(
        answer(here=3), shutdowns=tuple(some)), True)) for some in (
            verdicts, verdicts[:1], verdicts[1:2], verdicts[3:4])]
    assert (' 1 instance is shut down, moved cold and started again. 1 instance is shut down once '
            'nothing holds it. 2 instances are shut down if the live migration of each is late. '
            'kronos drain watch') in texts[0]
    assert '1 instance is shut down, moved' in texts[1] and 'late' not in texts[1]
    assert '1 instance is shut down if the live migration is late.' in texts[2]
    assert 'shut down' not in texts[3]


@pytest.mark.parametrize(('fails', 'expected'), [
    (True, [('drain started', 0)]), (False, [('drain started', 0), ('drain failed', 1)])])
def test_an_audit_row_is_there_before_the_host_is_disabled(fails, expected):
    written = []
    host = {**served.service('h1'), 'id': UUID}
    forbidden = 403, {'forbidden': {'message': 'no'}}

    def record(command, reason):
        written.append((command, nova.number('PUT')))
        if fails:
            raise exception.StoreError(problem='is read-only', remedy='See to it.')

    with served.serving({'GET /os-services': [{'services': [host]}],
                         f'PUT /os-services/{UUID}': [forbidden]}) as nova, \
            pytest.raises(exception.KronosException):
        drain_starts._disable_host(
            compute_service.ComputeService(nova.connection, 'h1'), 'change 7', False, answer(),
            model.PlanningOptions(evacuate_disabled_hosts=True), record)
    assert written == expected and nova.number('PUT') == len(expected) - 1


@pytest.mark.parametrize(('options', 'said'), [
    ({'dry_run': True}, '[engine] dry_run: it is set'),
    ({'evacuate_disabled_hosts': False}, '[engine] evacuate_disabled_hosts: it is not set'),
    ({'drain_reason_regex': '^CHG'}, "'change 7' does not match drain_reason_regex '^CHG'")])
def test_a_drain_that_engines_would_not_begin_is_refused(options, said):
    found = model.PlanningOptions(**{'evacuate_disabled_hosts': True, 'dry_run': False, **options})
    with pytest.raises(exception.ConfigError) as caught:
        drain_starts.require_draining_engines(found, 'change 7')
    assert said in str(caught.value)


def test_a_reason_as_nova_gives_itself_is_refused():
    with pytest.raises(exception.ConfigError, match='reason: .*no operator ordered it'):
        drain_starts.require_draining_engines(
            model.PlanningOptions(evacuate_disabled_hosts=True, dry_run=False), 'AUTO: mine')


@pytest.mark.parametrize('reason', ['change 7', "the owner's wish; rm -rf $HOME `x`", '--help'])
def test_the_command_that_is_left_to_be_typed_is_whole_and_quoted(reason):
    for changed in (True, False):
        text = drain_starts._format_manual_steps('h 1', reason, changed=changed)
        command = text[text.index('openstack compute service set'):]
        assert shlex.split(command) == [
            'openstack', 'compute', 'service', 'set', '--disable', '--disable-reason', reason,
            'h 1', 'nova-compute']
        assert text.startswith('Nothing is changed.') is not changed


def test_instances_beyond_the_deadline_are_named_and_end_the_check_with_1(conf):
    request = dataclasses.replace(test_drains.cloud(1000, 1000), now=1000.0,
                                  history=measured([(1000, 0, 10.0)]))
    conf.set_override('max_concurrent_per_source', 1, 'executor')
    check = drains.DrainCheck(plan_of(('i0', 'b'), ('i1', 'c')), (), {})
    in_time, late = (estimate(conf, drain_checks.DrainAnswer(check, 2, deadline=deadline), request)
                     for deadline in (1020.0, 1019.0))
    assert [list(drain._render_rows(one, 'a'))[-1][1] for one in (in_time, late)] == [
        'possible', 'late']
    rows = list(drain._render_rows(late, 'a'))
    assert [row for row in rows if row[1] == 'late'] == [
        ('instance i1', 'late', 'it is expected to leave at 1970-01-01T00:17:00+00:00, by '
                                'measured migrations'),
        ('conclusion', 'late', 'all 2 instances can leave host a, but 1 instance is not expected '
                               'to leave by 1970-01-01T00:16:59+00:00')]
    texts = [drain._format_start_message('h1', drain_starts.StartedDrain(one, True))
             for one in (in_time, late)]
    assert (' Its deadline is 1970-01-01T00:17:00+00:00. Executors with drain_escalation give each '
            'live migration 20 s to arrive, less than drain_arrival_seconds. kronos') in texts[0]
    assert ('deadline', 'shortens') in [row[:2] for row in rows]
    texts = [drain._format_start_message('h1', drain_starts.StartedDrain(
        answer(here=3), False, deadline_change=change)) for change in ('', 'The drain keeps it.')]
    assert ' 3 instances are to leave it. kronos' in texts[0]
    assert ' 3 instances are to leave it. The drain keeps it. kronos' in texts[1]


@pytest.mark.parametrize(('moves', 'waits', 'limits', 'left', 'seconds'), [
    (3, 0, (1, 2, 8), 1200.0, 400.0), (2, 1, (1, 2, 8), 1200.0, 400.0),
    (0, 0, (1, 2, 8), 9.0, None),
    (3, 0, (9, 2, 8), 1000.0, 500.0), (3, 0, (9, 9, 1), 1200.0, 400.0),
    (3, 0, (1, 2, 8), 1800.0, None), (9, 0, (1, 2, 8), 300.0, 60.0)])
def test_deadline_that_shortens_each_migration_says_to_how_many_seconds(
        conf, moves, waits, limits, left, seconds):
    for name, limit in zip(('per_source', 'migrations', 'migrations_total'), limits, strict=True):
        conf.set_override(f'max_concurrent_{name}', limit, 'executor')
    check = drains.DrainCheck(
        plan_of(*[(f'i{number}', 'b') for number in range(moves)]), (WAITS,) * waits, {})
    assert drain_checks._find_shorter_arrival(conf.executor, check, 'a', left) == seconds


def test_late_instances_are_counted_at_the_start():
    late = dataclasses.replace(answer(here=3), deadline=1019.0, late=(
        drain_deadlines.LateInstance('i1', 'x'),))
    texts = [drain._format_start_message('h1', drain_starts.StartedDrain(late, changed))
             for changed in (True, False)]
    assert 'and only its deadline was written' in texts[1]
    assert all(' 1 instance is not expected to leave in time;' in text for text in texts)


@pytest.mark.parametrize('command', ['check', 'start'])
def test_a_text_that_is_no_deadline_is_refused_before_anything_is_read(capsys, command):
    parser = (drain.CheckDrain if command == 'check' else drain.StartDrain)(None, None).get_parser(
        'kronos')
    more = ['--reason', 'x'] if command == 'start' else []
    with pytest.raises(SystemExit):
        parser.parse_args(['h1', *more, '--deadline', 'tonight'])
    assert "argument --deadline: 'tonight' is no deadline; write a duration with its unit" in (
        capsys.readouterr().err)


def list_drains(tmp_path, *arguments, **options):
    """Return what the command prints about the example's cloud with other options of engines."""
    path = tmp_path / 'kronos.conf'
    text = (EXAMPLE / 'kronos.conf').read_text()
    for name, value in options.items():
        text = text.replace(f'{name} = true', f'{name} = {value}')
    path.write_text(text)
    done = commands.main('kronos_nova.cli.app', 'drain', 'list', '--config-file', path,
                         '--snapshot', 'snapshot', *arguments, cwd=EXAMPLE)
    assert (done.returncode, done.stderr) == (0, '')
    return done.stdout


def test_drains_are_listed_with_the_hold_and_its_remedy(tmp_path):
    (drained,) = json.loads(list_drains(tmp_path, '-f', 'json'))
    assert drained == {
        'Host': 'compute-12', 'Scope': '_unassigned_', 'Instances': 4, 'Deadline': None,
        'Held': None, 'Remedy': None, 'Reason': 'maintenance: memory module', 'Late': False,
        'Packed': False}
    (held,) = json.loads(list_drains(tmp_path, '-f', 'json', evacuate_disabled_hosts='false'))
    assert 'evacuate_disabled_hosts' in held['Held'] + held['Remedy'] and held['Remedy']


def test_late_drain_is_named_beside_its_deadline(monkeypatch):
    row = drain_lists.ListedDrain('a\x1b', 'blue', 'x', False, 3, None, None, 0.0, 1e9, True)
    monkeypatch.setattr(drain_lists, 'list_drains', lambda session: [row])
    monkeypatch.setattr(drain.ListDrains, 'open_session',
                        lambda *arguments: contextlib.nullcontext())
    shown = drain.ListDrains(None, None)
    for form, deadline in (('table', '2001-09-09T01:46:40+00:00 (late)'),
                           ('json', '2001-09-09T01:46:40+00:00')):
        (cells,) = shown.render_rows(argparse.Namespace(formatter=form))
        assert cells[:4] == ('a?', 'blue', 3, deadline) and cells[-2] is True
