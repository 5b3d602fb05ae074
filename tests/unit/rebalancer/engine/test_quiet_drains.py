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

"""Cycles of an engine whose drain waits for a quieter hour of an instance."""

import dataclasses
import threading
import time

from oslo_config import cfg
import pytest
import yaml

from kronos_nova import model
from kronos_nova.cmd import record
from kronos_nova.conf import policies as policy_files
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import cloud_views
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import move_verdicts
from kronos_nova.rebalancer.operations import plan_comparisons
from kronos_nova.rebalancer.operations import report_pages
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.snapshots import replay
from kronos_nova.sources import ranges
from tests.unit.rebalancer.engine import test_engine
from tests.unit.rebalancer.operations import test_write_rates
from tests.unit.rebalancer.planning import test_quiet_hours
from tests.unit.rebalancer.store import cases

A0, MIB, LOUD = test_engine.A0, test_quiet_hours.MIB, test_quiet_hours.LOUD
HOURS = 3600.0


class LoudSource(test_engine.FakeSource):
    """An instance writes much memory, but in one hour of the day; it writes ``rate`` now."""

    def __init__(self, clock, quiet_hour, uuid=A0):
        super().__init__(clock, {'a': 0.9, 'b': 0.1}, {uuid: 0.4})
        self.quiet_hour, self.uuid, self.rate = quiet_hour, uuid, LOUD
        self.history = test_write_rates.HistorySource()

    def fetch(self, policy, *, profile=True):
        return dataclasses.replace(super().fetch(policy), dirty_rate=model.QueryResult(
            'dirty', model.SourceHealth.HEALTHY, {self.uuid: self.rate}))

    def query_range(self, query, label, mark, window, progress=ranges.ignore_progress):
        self.history.series = {self.uuid: [
            MIB if (window.start + HOURS * n - self.quiet_hour) % 86400 == 0 else LOUD
            for n in range(24)]}
        return self.history.query_range(query, label, mark, window, progress)


@pytest.fixture
def drained(tmp_path, monkeypatch):
    """A world with a drained host, the instance of which is quiet in the third hour from now."""
    world = test_engine.World(tmp_path)
    document = yaml.safe_load(world.path.read_text())
    document['policies'][0]['vm_dirty_rate_query'] = 'dirty'
    world.path.write_text(yaml.safe_dump(document))
    for name, value in {'evacuate_disabled_hosts': True, 'drain_quiet_wait': 12 * 3600,
                        'snapshot_dir': str(tmp_path / 'snapshots')}.items():
        world.conf.set_override(name, value, 'engine')
    world.begin = world.clock()
    world.quiet_hour = quiet_hours.begin_hour(world.clock()) + 3 * HOURS
    world.source = LoudSource(world.clock, world.quiet_hour)
    test_write_rates.let_open(monkeypatch, lambda: world.source)
    cluster = world.collector.cluster
    world.collector.cluster = dataclasses.replace(cluster, services={
        **cluster.services, 'a': dataclasses.replace(
            cluster.services['a'], status='disabled', disabled_reason='repair')})
    read_history = world.store.history.read_history
    world.store.history.read_history = lambda *args, **more: dataclasses.replace(
        read_history(*args, **more), measured=test_quiet_hours.MEASURED)
    world.went_on()
    return world


def run_at(world, engine, at):
    """Run a cycle; return the instances of its tasks and its report.

    The answer to its question comes before the next cycle.
    """
    world.clock.now, world.casts[:] = at, []
    row, = engine.run_cycle()
    engine._scopes.write_rates.wait_for_answers()
    return [task.instance_uuid for task in world.casts], row


def test_a_drain_waits_until_its_quiet_hour_begins_and_no_longer(drained):
    engine, until = drained.engine(kept_alive=True), drained.quiet_hour
    for at in (drained.begin, drained.begin + 60, drained.begin + 1800, until - 1):
        moved, row = run_at(drained, engine, at)
        assert moved == [] and row['draining'] == ['a']
        assert row['warnings'][0].startswith('the drain of host a waits, because instance')
        assert '(quieter-hour)' in row['warnings'][0]
    assert len(drained.source.history.asked) == 3, 'once in each hour'
    drained.source.rate = 2 * LOUD
    moved, row = run_at(drained, engine, until)
    assert moved == [A0] and row['warnings'] == []


def test_a_wait_is_in_the_log_once_for_each_time(drained, caplog):
    caplog.set_level('INFO')
    engine = drained.engine(kept_alive=True)
    for after, rate in ((0, LOUD), (60, LOUD), (120, 1.1 * LOUD), (180, 1.2 * LOUD)):
        drained.source.rate = rate
        assert run_at(drained, engine, drained.begin + after)[0] == []
    waits = [r for r in caplog.records if '(quieter-hour)' in r.getMessage()]
    assert ['for its rates' in r.getMessage() for r in waits] == [True, False]
    assert {r.levelname for r in waits} == {'INFO'}


def test_another_engine_counts_the_wait_from_the_begin_of_the_drain(drained):
    drained.conf.set_override('drain_quiet_wait', 4 * 3600, 'engine')
    drained.source.quiet_hour += HOURS  # the begin of the drain is 2800 s after the full hour
    assert run_at(drained, drained.engine(kept_alive=True), drained.begin)[0] == []
    drained.source.quiet_hour += HOURS
    other, later = drained.engine(kept_alive=True), drained.begin + 1.5 * HOURS
    assert run_at(drained, other, later)[0] == [], 'its first cycle asks'
    assert run_at(drained, other, later + 60)[0] == [A0]


@pytest.mark.parametrize('change', ['off', 'deadline', 'silent', 'quiet'])
def test_a_drain_waits_for_no_hour_without_need_or_knowledge(drained, change, caplog):
    if change == 'off':
        drained.conf.set_override('drain_quiet_wait', 0, 'engine')
    elif change == 'deadline':
        cases.order_drain(drained.store, 'a', drained.quiet_hour, 'repair', drained.clock())
    elif change == 'silent':
        drained.source.history.error = 'the server is busy'
    else:
        drained.source.rate = MIB
    engine = drained.engine(kept_alive=True)
    moved, row = run_at(drained, engine, drained.begin)
    asked = len(drained.source.history.asked)
    assert asked == (change in ('deadline', 'silent'))
    if asked:
        assert moved == [] and 'at most for its rates of the last day' in row['warnings'][0]
        if change == 'silent':
            assert run_at(drained, engine, drained.begin + 299)[0] == []
        moved, row = run_at(drained, engine, drained.begin + (
            300 if change == 'silent' else 60))
    assert moved == [A0]
    assert ('the server is busy' in caplog.text) == (change == 'silent')


@pytest.mark.parametrize(('case', 'moved'), [
    ('quiet hour', []), ('no quiet hour', [A0]), ('error', [A0]), ('late', [A0])])
def test_an_engine_of_one_cycle_waits_for_its_answer_and_for_no_second_one(drained, monkeypatch,
                                                                           case, moved):
    if case == 'no quiet hour':
        drained.source.quiet_hour = -1.0
    elif case == 'error':
        drained.source.history.error = 'the server is busy'
    elif case == 'late':
        monkeypatch.setattr(write_rates, 'ANSWER_SECONDS', 0.1)
        monkeypatch.setattr(drained.source, 'query_range', lambda *args: time.sleep(1))
    row, = drained.engine(kept_alive=False).run_cycle()
    assert [task.instance_uuid for task in drained.casts] == moved
    assert ('at most a day before' in str(row['warnings'])) == (case == 'quiet hour')


@pytest.mark.parametrize('lost', ['answer', 'sample'])
def test_a_present_rate_that_is_missing_for_some_minutes_ends_no_wait(drained, lost):
    engine, fetch = drained.engine(kept_alive=True), drained.source.fetch
    for after in 0, 60:
        assert run_at(drained, engine, drained.begin + after)[0] == []
    answer = (model.QueryResult('dirty', model.SourceHealth.UNREACHABLE, error='busy')
              if lost == 'answer' else model.QueryResult('dirty', model.SourceHealth.HEALTHY, {}))
    drained.source.fetch = lambda policy: dataclasses.replace(fetch(policy), dirty_rate=answer)
    moved, row = run_at(drained, engine, drained.begin + 359)
    assert moved == [] and '(quieter-hour)' in row['warnings'][0]
    again, = replay.replay_snapshot(drained.conf, engine.write_snapshot(), lambda: 0.0)
    assert again['warnings'] == row['warnings'] and again['moves'] == row['moves'] == []
    assert run_at(drained, engine, drained.begin + 360)[0] == [A0]


def test_a_query_that_fails_later_ends_no_wait(drained):
    engine = drained.engine(kept_alive=True)
    run_at(drained, engine, drained.begin)
    drained.source.history.error = 'the server is busy'
    assert run_at(drained, engine, drained.begin + HOURS)[0] == []
    assert run_at(drained, engine, drained.quiet_hour - 1)[0] == []
    assert run_at(drained, engine, drained.quiet_hour)[0] == [A0]


def test_a_source_that_does_not_answer_holds_up_no_cycle(drained):
    """Its parts come late; the first wait ends after some minutes."""
    released = threading.Event()

    def answer_late(query, label, mark, window, progress=ranges.ignore_progress):
        while not released.wait(0.02):
            progress(0)
        return ranges.RangeResult(query, window, error='late')

    drained.source.query_range = answer_late
    engine = drained.engine(kept_alive=True)
    for after, expected in ((0, []), (299, []), (301, [A0])):
        drained.clock.now, began = drained.begin + after, time.monotonic()
        engine.run_cycle()
        assert time.monotonic() - began < 5
        assert [task.instance_uuid for task in drained.casts] == expected
    question = engine._scopes.write_rates._questions[model.UNASSIGNED]
    assert question.is_alive()
    engine.stop()
    question.join(5)
    assert not question.is_alive(), 'a stop ends it'
    released.set()


def test_a_drain_keeps_its_begin_while_its_nova_compute_is_down(drained):
    engine, cluster = drained.engine(kept_alive=True), drained.collector.cluster

    def find_begins(at, **service):
        drained.collector.cluster = dataclasses.replace(cluster, services={
            **cluster.services, 'a': dataclasses.replace(cluster.services['a'], **service)})
        moved, row = run_at(drained, engine, at)
        assert moved == []
        return drained.store.history.read_history(model.UNASSIGNED, at).drain_begins, row

    assert find_begins(drained.begin)[0] == {'a': drained.begin}
    begins, row = find_begins(drained.begin + 60, state='down')
    assert begins == {'a': drained.begin}
    assert 'its nova-compute is down' in str(row['undrained'])
    assert find_begins(drained.begin + 120)[0] == {'a': drained.begin}
    assert find_begins(drained.begin + 180, state='down', disabled_reason='AUTO: x')[0] == {}


@pytest.mark.parametrize('change', ['into', 'out of', 'unplanned', 'enabled'])
def test_a_drain_keeps_its_begin_when_its_host_goes_to_another_scope(drained, change):
    """The scope blue comes first in a cycle; c, d and e stay in it."""
    drained.conf.set_override('aggregates', ['blue'], 'engine')
    drained.conf.set_override('include_unassigned_hosts', change != 'unplanned', 'engine')
    drained.source._hosts = dict.fromkeys('abcde', 0.1)
    engine, cluster = drained.engine(kept_alive=True), drained.collector.cluster
    spare, b = ('c', 'd', 'e'), cluster.hosts['b']
    hosts = {**cluster.hosts, **{name: dataclasses.replace(
        b, name=name, uuid=name, hypervisor_hostname=name) for name in spare}}
    services = {**cluster.services, **{name: dataclasses.replace(
        cluster.services['b'], host=name) for name in spare}}

    def find_begins(at, hosts_of_blue):
        drained.clock.now = at
        drained.collector.cluster = dataclasses.replace(
            cluster, hosts=hosts, services=services, aggregates={'blue': hosts_of_blue})
        engine.run_cycle()
        engine._scopes.write_rates.wait_for_answers()
        return {scope: drained.store.history.read_history(scope, at).drain_begins
                for scope in ('blue', model.UNASSIGNED)}

    leaves = change in ('out of', 'unplanned')
    first, second = ((*spare,), ('a', *spare))[::-1 if leaves else 1]
    old, new = ('blue', model.UNASSIGNED)[::1 if leaves else -1]
    assert find_begins(drained.begin, first) == {old: {'a': drained.begin}, new: {}}
    if change == 'enabled':
        services['a'] = dataclasses.replace(services['a'], status='enabled')
    begins = find_begins(drained.begin + 60, second)
    stays = {} if change in ('unplanned', 'enabled') else {'a': drained.begin}
    assert begins == {old: {}, new: stays}
    assert find_begins(drained.begin + 120, second) == begins
    assert drained.casts == [] or not stays


def test_an_order_of_the_deadline_ends_a_wait(drained):
    engine = drained.engine(kept_alive=True)
    run_at(drained, engine, drained.begin)
    assert run_at(drained, engine, drained.begin + 30)[0] == []
    cases.order_drain(drained.store, 'a', drained.begin + 1800, 'repair', drained.begin)
    assert run_at(drained, engine, drained.begin + 60)[0] == [A0]


def test_a_recorded_cycle_waits_as_well_when_it_is_replayed(drained):
    engine, answers = drained.engine(kept_alive=True), threading.Event()
    query_range = drained.source.query_range
    drained.source.query_range = lambda *args: (
        answers.wait(9), query_range(*args))[1]
    for after in (0, 60):
        drained.clock.now = drained.begin + after
        row, = engine.run_cycle()  # first without an answer, then with it
        again, = replay.replay_snapshot(drained.conf, engine.write_snapshot(), lambda: 0.0)
        answers.set()
        engine._scopes.write_rates.wait_for_answers()
        assert ('for its rates of the last day' in row['warnings'][0]) == (after == 0)
        assert again['warnings'] == row['warnings'] and again['moves'] == row['moves'] == []


def test_records_of_the_cloud_have_the_rates_as_well(drained):
    run_at(drained, drained.engine(kept_alive=True), drained.begin)
    recording = write_rates.add_recorded_rates(
        drained.conf, drained.source, drained.store, recorder.read_recording(
            drained.collector, drained.source, drained.store,
            policy_files.load_policies(str(drained.path)), (model.UNASSIGNED, 'missing'),
            drained.clock))
    assert list(recording.histories[model.UNASSIGNED].hourly_write_rates) == [A0]
    assert recording.histories['missing'].hourly_write_rates == {}
    unknown = dataclasses.replace(recording, cluster='Nova does not answer')
    assert write_rates.add_recorded_rates(
        drained.conf, drained.source, drained.store, unknown) is unknown


@pytest.mark.parametrize(('window', 'reason', 'waits'), [
    ('13:00-16:30', 'repair', True), ('13:00-15:30', 'repair', False),
    ('13:00-15:30', 'another', True)])
def test_a_host_of_a_campaign_waits_for_no_hour_beyond_its_window(drained, monkeypatch, window,
                                                                  reason, waits):
    """The quiet hour begins at 16:00."""
    campaign = model.Campaign(
        'c', model.UNASSIGNED, reason, 1, drained.begin, 'me',
        windows=(maintenance_windows.parse_window(window),),
        hosts=(model.CampaignHost('a', 0, model.CampaignHostState.EMPTYING),))
    monkeypatch.setattr(drained.store.campaigns, 'find_live_campaign', lambda scope: campaign)
    engine = drained.engine(kept_alive=True)
    assert run_at(drained, engine, drained.begin)[0] == []
    assert run_at(drained, engine, drained.begin + 60)[0] == ([] if waits else [A0])
    engine.write_snapshot()
    recorded, = (drained.path.parent / 'snapshots').iterdir()
    history = reader.read_snapshot(str(recorded)).build_history(
        model.UNASSIGNED, cooldown=900, instance_cooldown=900)
    assert ('a' in history.window_ends) == (reason == 'repair')


@pytest.fixture
def session(drained):
    """A session that reads the cloud of the world."""
    with cloud_state.Session(configure=lambda conf, files: None) as session:
        session.conf, session.store = drained.conf, drained.store
        session.collector, session.metrics_source = drained.collector, drained.source
        session.policies = policy_files.load_policies(str(drained.path))
        yield session


def test_only_commands_that_judge_a_drain_ask_for_past_rates(drained, session):
    """The clock of a session is real: the quiet hour is the third from now there."""
    drained.source.quiet_hour = quiet_hours.begin_hour(time.time()) + 3 * HOURS
    asked = drained.source.history.asked
    cloud_views.list_hosts(session)
    answer = move_verdicts.judge_move(session, A0, 'b', model.Phase.SPREAD)
    assert 'quieter-hour' not in dict(answer.changes) and asked == []
    answer = move_verdicts.judge_move(session, A0, 'b', model.Phase.EVACUATE)
    assert 'quieter-hour' in dict(answer.changes) and len(asked) == 1
    scope, = plan_comparisons.plan_scopes_today(session)
    assert scope.today.plan.moves == () and len(asked) == 2
    compared, = plan_comparisons.compare_plans(session, plan_comparisons.Supposition())
    assert len(asked) == 2 and [m.instance_uuid for m in compared.today.plan.moves] == [A0]
    report = report_pages.render_report(session)
    assert 'quieter-hour' in report and len(asked) == 3


def test_without_the_option_no_cycle_and_no_command_looks_for_risky_instances(drained, session,
                                                                              monkeypatch):
    drained.conf.set_override('drain_quiet_wait', 0, 'engine')
    for owner, name in ((write_rates, 'drain_requests'), (write_rates, 'RateQuestions'),
                        (quiet_hours, '_judge_waits'), (quiet_hours, 'list_risky_instances')):
        monkeypatch.setattr(owner, name, None)
    assert run_at(drained, drained.engine(kept_alive=True), drained.begin)[0] == [A0]
    assert plan_comparisons.plan_scopes_today(session)
    assert move_verdicts.judge_move(session, A0, 'b', model.Phase.EVACUATE).verdicts
    assert drain_checks.check_drain(session, 'a').wait_obstacles == {}


def test_an_answer_on_a_move_says_why_the_instance_waits_for_no_quieter_hour(drained, session):
    drained.source.quiet_hour = -1.0

    def find_note(phase):
        verdict, = (v for v in move_verdicts.judge_move(session, A0, 'b', phase).verdicts
                    if v.rule == 'quieter-hour')
        assert verdict.passed
        return verdict.detail

    assert find_note(model.Phase.SPREAD) == ''
    assert find_note(model.Phase.EVACUATE) == 'in no hour of the last day it wrote little enough'
    drained.conf.set_override('drain_quiet_wait', 0, 'engine')
    session.forget_cloud()
    assert find_note(model.Phase.EVACUATE) == ''


def test_kronos_record_records_the_rates(drained, tmp_path, monkeypatch, capsys):
    drained.source.quiet_hour = quiet_hours.begin_hour(time.time()) + 3 * HOURS
    drained.conf.register_opt(cfg.StrOpt('output_dir', default=str(tmp_path / 'recorded')))
    for owner, name, value in ((record.connection, 'make_connection', None),
                               (record.collectors, 'CloudCollector', drained.collector),
                               (record.plugins, 'load_plugin', lambda conf: drained.source),
                               (record, '_open_store', drained.store)):
        monkeypatch.setattr(owner, name, lambda *args, value=value: value)
    assert record._run(drained.conf) == 0
    recorded = reader.read_snapshot(capsys.readouterr().out.strip())
    history = recorded.build_history(model.UNASSIGNED, cooldown=900, instance_cooldown=900)
    assert list(history.hourly_write_rates) == [A0]
    assert len(drained.source.history.asked) == 1
