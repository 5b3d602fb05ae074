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

"""The engine with fakes of Nova, Placement and the metrics source, on a real store."""

import dataclasses
import datetime
import functools
import json
import types
from unittest import mock

import fixtures
from oslo_config import cfg
import pytest
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.cli import plan_text
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.conf import opts
from kronos_nova.conf import scope_mode
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.engine import lease_keeper
from kronos_nova.rebalancer.engine import placement_check
from kronos_nova.rebalancer.engine import scope_planner
from kronos_nova.rebalancer.executors import contract_agreement
from kronos_nova.rebalancer.monitoring import samples
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.planning import move_notices
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.report import stored_section
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import replay
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.sources import base
from tests.fixtures import stores
from tests.scenarios import loader
from tests.unit.rebalancer.store import cases

A0, B0 = loader.uuid_of('a0'), loader.uuid_of('b0')


class FakeCollector:
    def __init__(self, cluster):
        self.cluster = cluster
        self.calls = 0
        self.meanwhile = lambda: None

    def collect_cluster(self, now):
        self.calls += 1
        if isinstance(self.cluster, Exception):
            raise self.cluster
        self.meanwhile()
        return dataclasses.replace(self.cluster, taken_at=now, scope_hosts=frozenset())


class FakeSource(base.MetricsSource):
    def __init__(self, clock, hosts, usages):
        self._clock, self._hosts, self._usages = clock, hosts, usages

    def fetch(self, policy, *, profile=True):
        healthy = model.SourceHealth.HEALTHY
        return model.PolicySamples(
            policy.name, model.QueryResult('cpu', healthy, self._hosts),
            profile=model.QueryResult('vm', healthy, self._usages), taken_at=self._clock())

    def health(self):
        return model.SourceHealth.HEALTHY, ''


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def world(tmp_path):
    """A host with load and an idle one, and all that an engine needs."""
    return World(tmp_path)


class World:
    def __init__(self, tmp_path):
        self.clock = Clock()
        self.path = tmp_path / 'policies.yaml'
        self.path.write_text(yaml.safe_dump({'policies': [{
            'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', 'vm_profile_query': 'vm',
            'vm_profile_label_type': 'nova_instance_uuid', 'max_migrations_per_cycle': 1}]}))
        self.conf = cfg.ConfigOpts()
        opts.register(self.conf)
        self.conf([], default_config_files=[])
        self.conf.set_override('policies_file', str(self.path), 'engine')
        self.conf.set_override('dry_run', False, 'engine')
        self.database = tmp_path / 'kronos.sqlite'
        self.store = stores.in_file(self.database, self.clock)
        path = loader.HERE / 'spread_waits_until_scores_show_the_last_move.yaml'
        cluster = loader.load(path).request.cluster
        self.collector = FakeCollector(cluster)
        self.source = FakeSource(self.clock, {'a': 0.9, 'b': 0.1}, {A0: 0.4, B0: 0.05})
        self.casts = []

    def went_on(self):
        """Make the store say that the scope was planned a moment ago."""
        self.store.leases.find_planned_at = lambda scope: self.clock()

    def engine(self, owner='one', **kwargs):
        return engine.Engine(self.conf, collector=self.collector, source=self.source,
                             store=self.store, cast=self.casts.append, owner=owner,
                             clock=self.clock, **kwargs)


def test_a_plan_becomes_tasks_and_casts(world):
    row, = world.engine().run_cycle()
    assert [m['instance_uuid'] for m in row['moves']] == [A0]
    assert [t.instance_uuid for t in world.casts] == [A0]
    assert [f.instance_uuid for f in world.store.tasks.list_in_flight_moves()] == [A0]
    assert world.store.history.read_history(model.UNASSIGNED, world.clock()).cooling == {A0: 900.0}


def approving(world, **options):
    world.conf.set_override('mode', 'approve', 'engine')
    world.conf.set_override('approval_seconds', 600, 'engine')
    for name, value in options.items():
        world.conf.set_override(name, value, 'engine')


def test_a_plan_that_needs_approval_blocks_later_plans_until_decided(world, caplog):
    approving(world)
    engine = world.engine()
    row, = engine.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    assert [m['instance_uuid'] for m in row['moves']] == [A0] and world.casts == []
    assert f'plan {waiting.plan_id} waits for approval of 1 move' in caplog.text
    assert waiting.until == world.clock() + 600
    world.clock.now += 599
    assert engine.run_cycle()[0]['reason'] == str(waiting)
    (task,) = world.store.approvals.approve_plan(
        waiting.plan_id, world.clock(), plan_decisions.OperatorDecision('me'), begin_within={},
        cooldown=600, instance_cooldown=900,
        approve_task=cases.count_one_approval).tasks
    assert task.instance_uuid == A0
    assert 'approval' not in engine.run_cycle()[0]['reason']
    assert world.store.tasks.claim_task('w', None, world.clock(), per_scope=9, total=9,
                                        claim_seconds=60).task.task_id == task.task_id


def test_lease_of_an_engine_has_the_contracts_that_an_executor_compares(world, tmp_path, caplog):
    path = tmp_path / 'contracts.yaml'
    path.write_text('default: {disruption: live}')
    world.conf.set_override('file', str(path), 'contracts')
    ours = contracts_conf.digest_settings(world.conf)
    world.engine().run_cycle()
    agreement = contract_agreement.ContractAgreement(ours)
    assert agreement.compare_settings(world.store.leases.list_engine_settings(None)) == set()
    path.write_text('default: {disruption: never}')
    agreement = contract_agreement.ContractAgreement(contracts_conf.digest_settings(world.conf))
    assert agreement.compare_settings(world.store.leases.list_engine_settings(None)) == {
        model.UNASSIGNED}
    assert f'Engines of {model.UNASSIGNED} have other options of [contracts]' in caplog.text


def test_an_engine_signs_its_tasks_and_how_many_must_approve_them(world, tmp_path):
    key_repository.create_keys(str(tmp_path / 'keys'))
    world.conf.set_override('key_repository', str(tmp_path / 'keys'), 'signing')
    approving(world, min_approvals=2)
    world.engine().run_cycle()
    (row,) = world.store.tasks.list_tasks_in_states((model.TaskState.PENDING,))
    keys = key_repository.KeyRepository(str(tmp_path / 'keys'))
    verifier = task_authorization.TaskVerifier(keys)
    with pytest.raises(exception.TaskNotAuthorized, match='0 of 2 people'):
        verifier.check_task(row.task, world.clock())
    task = row.task
    for person in ('keystone:ada', 'local:root'):
        task = dataclasses.replace(task, authorization=task_authorization.TaskSigner(
            keys).approve_task(task, person, world.clock(), world.clock() + 60).format_text())
    verifier.check_task(task, world.clock())


def test_an_engine_whose_keys_are_gone_stores_no_plan_and_says_why(world, tmp_path, caplog):
    world.conf.set_override('key_repository', str(tmp_path / 'none'), 'signing')
    world.engine().run_cycle()
    assert f'{tmp_path}/none: [signing] key_repository: No such file' in caplog.text
    assert world.store.plans.list_plans() == [] and world.casts == []


def test_waiting_plans_leave_the_measured_imbalance_as_it_is(world):
    approving(world)
    tally = tallies.DaemonTally()
    engine = world.engine(tally=tally)
    engine.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())

    def shown():
        world.clock.now += 60
        engine.run_cycle()
        metrics = {name: value for name, key, value in samples.list_tally_samples(
            tally.copy_tally(), 'nova', host_scores=False) if key in (
                (model.UNASSIGNED,), (model.UNASSIGNED, 'cpu'))}
        (report,) = world.store.statistics.read_census().scopes[model.UNASSIGNED].cycle.policies
        return metrics, report

    metrics, report = shown()
    assert metrics['kronos_imbalance_ratio'] == pytest.approx(0.8)
    assert metrics['kronos_combined_imbalance'] == pytest.approx(0.8)
    assert metrics['kronos_planned_imbalance_ratio'] == pytest.approx(0.0)
    assert metrics['kronos_planned_combined_imbalance'] == pytest.approx(0.0)
    assert report.measured_imbalance == pytest.approx(0.8)
    assert plan_text.format_measured_policies([report], nested=False) == (
        'cpu: measured 0.8000 (threshold 0.1500), planned 0.0000')
    world.store.approvals.reject_plan(waiting.plan_id, world.clock(),
                                      plan_decisions.OperatorDecision('me'), 900)
    metrics, report = shown()
    assert metrics['kronos_planned_imbalance_ratio'] == pytest.approx(0.8)
    assert plan_text.format_measured_policies([report], nested=False) == (
        'cpu: measured 0.8000 (threshold 0.1500)')
    plans = world.store.plans.list_plans(9, model.UNASSIGNED)
    gone = stored_section.list_dropped_plans(
        world.store.tasks.list_tasks_of_plans([row.plan_id for row in plans]))
    assert gone == {waiting.plan_id}
    points = stored_section.build_points(plans, {}, dropped=gone)
    assert len(points) > 1 and all(p.before == pytest.approx(0.8) for p in points)
    assert all(p.after is None for p, row in zip(points, plans, strict=True)
               if row.plan_id == waiting.plan_id)


def test_imbalance_beside_an_untrusted_policy_is_not_computed(world):
    cpu, = yaml.safe_load(world.path.read_text())['policies']
    world.path.write_text(yaml.safe_dump({'policies': [
        {**cpu, 'weight': 0.5}, {**cpu, 'name': 'memory', 'weight': 0.5}]}))
    lost = model.QueryResult('cpu', model.SourceHealth.UNREACHABLE, error='no route to host')
    fetch = world.source.fetch
    world.source.fetch = lambda policy, **kw: fetch(policy, **kw) if policy.name == 'memory' else (
        model.PolicySamples('cpu', lost, profile=lost, taken_at=world.clock()))
    row, = world.engine().run_cycle()
    cpu, other = row['policies']
    assert other['imbalance_measured'] is None and other['imbalance_before'] is None
    assert other['skipped'] and other['reason'] == (
        'not computed: cpu is not trusted, and a host counts only where every policy has its '
        'score')
    assert cpu['reason'] != other['reason']


def test_an_unapproved_plan_lapses_and_the_scope_is_planned_again(world, caplog):
    approving(world, instance_cooldown=0, cooldown=0)
    engine = world.engine()
    engine.run_cycle()
    (first,) = world.store.approvals.list_waiting_plans(world.clock())
    world.clock.now += 600
    engine.run_cycle()  # what ended in a cycle still counts at both ends in that one
    row, = engine.run_cycle()
    (second,) = world.store.approvals.list_waiting_plans(world.clock())
    assert [m['instance_uuid'] for m in row['moves']] == [A0]
    assert first.plan_id != second.plan_id and 'no operator approved it in time' in caplog.text
    (task,) = world.store.tasks.list_plan_tasks(first.plan_id)
    assert str(task.task.state) == 'cancelled'


def test_a_waiting_plan_blocks_its_scope_after_a_change_of_mode(world):
    approving(world)
    engine = world.engine()
    engine.run_cycle()
    world.conf.set_override('mode', 'auto', 'engine')
    assert 'waits for approval' in engine.run_cycle()[0]['reason'] and world.casts == []


def test_a_plan_awaiting_approval_holds_no_boot(world):
    approving(world)
    told = []
    engine = world.engine(publish=lambda *args: told.append(args[2].flights))
    engine.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    world.store.approvals.approve_plan(waiting.plan_id, world.clock(),
                                       plan_decisions.OperatorDecision('me'),
                                       begin_within={}, cooldown=600, instance_cooldown=900,
        approve_task=cases.count_one_approval)
    engine.run_cycle()
    assert [len(flights) for flights in told] == [0, 1]


def test_an_operators_plan_costs_the_engine_no_lease(world, caplog):
    caplog.set_level('INFO')
    engine = world.engine()
    engine._kept_alive = engine._scopes.kept_alive = True
    world.went_on()
    engine.run_cycle()
    (task,) = world.casts
    world.store.tasks.cancel_task(task.task_id, world.clock(), cancelled_by='me', reason='x',
                                  instance_cooldown=0)
    scope = model.UNASSIGNED
    asked = dataclasses.replace(task, task_id=cases.new_id(), plan_id=cases.new_id())
    world.store.plans.save_requested_plan(
        world.store.plans.read_live_work(), model.Plan(
            scope, (model.Move(A0, 'a', 'b', task.phase),)), [asked],
        plan_id=asked.plan_id, now=world.clock(), instance_cooldown=0,
        decision=plan_decisions.OperatorDecision('me'), verb='retried')
    for _ in range(4):
        world.clock.now += 10
        engine.keep_leases()
    assert world.store.leases.list_leased_scopes() == {scope}
    assert 'an operator has asked for moves' in caplog.text
    assert 'held up' not in caplog.text
    assert engine.run_cycle()[0]['hosts'] is not None


@pytest.mark.parametrize('waits', [False, True])
def test_only_plans_with_moves_are_notified(world, waits):
    if waits:
        approving(world)
    told = []
    engine = world.engine(listeners=[lambda *args: told.append(args)])
    engine.run_cycle()
    (plan,) = world.store.plans.list_plans()
    ((event, scope, payload),) = told
    assert (event, scope) == ('plan.created', model.UNASSIGNED)
    assert (payload['plan_id'], payload['state'], payload['version']) == (
        plan.plan_id, 'pending' if waits else 'queued', '1.0')
    assert [(m['instance_uuid'], m['from_host'], m['to_host'], m['phase'], m['method'])
            for m in payload['moves']] == [(A0, 'a', 'b', 'spread', 'live')]
    assert payload['combined_after'] < payload['combined_before']
    assert '"a0"' not in json.dumps(payload), 'what tenants have named is not told'
    engine.run_cycle()
    assert len(told) == 1


def test_start_end_and_stop_of_a_drain_are_notified(world):
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    told = []
    engine = world.engine(listeners=[lambda *args: told.append(args)])

    def cycle(**service):
        cluster = world.collector.cluster
        world.collector.cluster = dataclasses.replace(cluster, services={
            **cluster.services, 'a': dataclasses.replace(cluster.services['a'], **service)})
        told.clear()
        engine.run_cycle()
        return [(event, p['host'], p['instances']) for event, _scope, p in told
                if event.startswith('drain')]

    here = sum(i.host == 'a' for i in world.collector.cluster.instances.values())
    assert cycle(status='disabled', disabled_reason='a change') == [('drain.started', 'a', here)]
    assert cycle() == [], 'it goes on'
    assert cycle(status='enabled') == [('drain.stopped', 'a', here)]
    assert cycle(status='disabled') == [('drain.started', 'a', here)]
    world.collector.cluster = dataclasses.replace(world.collector.cluster, instances={
        u: dataclasses.replace(i, host='b')
        for u, i in world.collector.cluster.instances.items()})
    assert cycle() == [('drain.completed', 'a', 0)]
    assert cycle() == []


def test_a_deadline_reaches_the_tasks_of_a_drain_and_ends_with_it(world):
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    engine, orders = world.engine(), world.store.drain_orders

    def cycle(status):
        cluster = world.collector.cluster
        world.collector.cluster = dataclasses.replace(
            cluster, taken_at=world.clock(), services={
                **cluster.services, 'a': dataclasses.replace(
                    cluster.services['a'], status=status, disabled_reason='a change')})
        engine.run_cycle()

    deadline = world.clock() + 7200
    order = functools.partial(cases.order_drain, world.store, 'a', deadline)
    order('a change', world.clock())
    cases.order_drain(world.store, 'elsewhere', 1e300, 'no command writes that')
    cycle('disabled')
    assert orders.find_order('elsewhere') is None
    made = [task for task in world.casts if task.phase is model.Phase.EVACUATE]
    assert made and {task.arrive_by for task in made} == {deadline}
    world.clock.now += 301
    cycle('disabled')
    assert cases.map_deadlines(world.store, world.clock()) == {'a': deadline}
    order('a change', world.clock())
    cycle('enabled')
    assert cases.map_deadlines(world.store, world.clock()) == {
        'a': deadline}, 'its host may be disabled in a moment'
    world.clock.now += 301
    cycle('enabled')
    assert cases.map_deadlines(world.store, world.clock()) == {}


@pytest.mark.parametrize('ahead', [-3600.0, 3600.0])
def test_an_engine_with_a_wrong_clock_ends_no_deadline_of_a_drain_that_begins(world, ahead):
    base, engine = world.clock(), world.engine()
    world.store.now = lambda: base  # The database's clock is the truth.
    cases.order_drain(world.store, 'a', base + 7200, 'a change', base)
    world.clock.now = base + ahead
    world.collector.cluster = dataclasses.replace(
        world.collector.cluster, taken_at=world.clock())
    engine.run_cycle()
    assert cases.map_deadlines(world.store, base) == {'a': base + 7200}


def test_a_deadline_outlives_the_longest_request_to_disable_its_host(world):
    world.conf.set_override('timeout', 200, 'nova')
    engine, deadline = world.engine(), world.clock() + 7200
    cases.order_drain(world.store, 'a', deadline, 'a change', world.clock())
    for seconds, kept in (399, {'a': deadline}), (200, {}):
        world.clock.now += seconds
        world.collector.cluster = dataclasses.replace(
            world.collector.cluster, taken_at=world.clock())
        engine.run_cycle()
        assert cases.map_deadlines(world.store, world.clock()) == kept


def test_a_drain_that_waits_for_approval_begins_for_listeners_with_it(world):
    approving(world, evacuate_disabled_hosts=True)
    cluster = world.collector.cluster
    world.collector.cluster = dataclasses.replace(cluster, services={
        **cluster.services, 'a': dataclasses.replace(
            cluster.services['a'], status='disabled', disabled_reason='a change')})
    told = []
    engine = world.engine(listeners=[lambda event, scope, payload: told.append(event)])
    engine.run_cycle()
    engine.run_cycle()  # it waits: nothing else is planned, and nothing is drained yet
    assert told == ['plan.created'] and world.store.plans.list_draining_hosts() == frozenset()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    world.store.approvals.approve_plan(waiting.plan_id, world.clock(),
                                       plan_decisions.OperatorDecision('me'),
                                       begin_within={}, cooldown=600, instance_cooldown=900,
        approve_task=cases.count_one_approval)
    assert world.store.plans.list_draining_hosts() == {'a'}
    engine.run_cycle()
    engine.run_cycle()
    assert told == ['plan.created', 'plan.approved', 'drain.started']


def disable(world, host, reason='a change'):
    cluster = world.collector.cluster
    world.collector.cluster = dataclasses.replace(cluster, services={
        **cluster.services, host: dataclasses.replace(
            cluster.services[host], status='disabled', disabled_reason=reason)})


def wait_for_balance(world):
    """Let a plan for balance wait for approval; return it and the engine."""
    approving(world, evacuate_disabled_hosts=True)
    told = []
    engine = world.engine(listeners=[lambda event, scope, payload: told.append((event, payload))])
    (row,) = engine.run_cycle()
    assert {move['phase'] for move in row['moves']} == {'spread'}
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    return waiting, engine, told


def test_a_drain_supersedes_a_plan_for_balance_that_waits(world, caplog):
    balance, engine, told = wait_for_balance(world)
    disable(world, 'a')
    world.clock.now += 60
    (row,) = engine.run_cycle()
    here = {i.uuid for i in world.collector.cluster.instances.values() if i.host == 'a'}
    assert {move['instance_uuid'] for move in row['moves']} == here
    assert {move['phase'] for move in row['moves']} == {'evacuate'}
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    assert waiting.plan_id != balance.plan_id
    (ended,) = world.store.tasks.list_plan_tasks(balance.plan_id)
    assert (ended.task.state, ended.error_type) == (model.TaskState.CANCELLED, 'MigrationCancelled')
    assert ended.error == 'Superseded: an operator has disabled host a, and the drain goes first'
    (decision,) = world.store.approvals.list_decisions(balance.plan_id)
    assert (decision.verb, decision.decided_by, decision.tasks) == (
        'superseded', 'kronos-engine', 1)
    assert world.store.approvals.find_requesters([balance.plan_id]) == {}
    assert 'cancelled: an operator has disabled host a' in caplog.text
    world.clock.now += 60
    engine.run_cycle()
    assert [event for event, _payload in told] == [
        'plan.created', 'plan.created', 'plan.superseded']


def test_an_engine_that_dies_before_it_stores_the_drain_delays_it_by_no_cooldown(world):
    balance, engine, _told = wait_for_balance(world)
    disable(world, 'a')
    world.clock.now += 60
    with mock.patch.object(world.store.plans, 'save_plan', autospec=True,
                           side_effect=SystemExit), pytest.raises(SystemExit):
        engine.run_cycle()
    (ended,) = world.store.tasks.list_plan_tasks(balance.plan_id)
    assert ended.task.state is model.TaskState.CANCELLED
    world.clock.now += 60
    (row,) = engine.run_cycle()
    assert [(m['instance_uuid'], m['phase']) for m in row['moves']] == [(A0, 'evacuate')]


@pytest.mark.parametrize('reason', ['AUTO: libvirt', 'not for us'])
def test_a_host_that_no_person_drains_supersedes_nothing(world, reason):
    balance, engine, _told = wait_for_balance(world)
    world.conf.set_override('drain_reason_regex', '^AUTO|^a change', 'engine')
    disable(world, 'a', reason)
    assert engine.run_cycle()[0]['reason'] == str(balance)


def test_a_drain_without_a_possible_move_supersedes_nothing(world):
    balance, engine, _told = wait_for_balance(world)
    world.conf.set_override('pinned_instances', [
        i.uuid for i in world.collector.cluster.instances.values()], 'engine')
    disable(world, 'a')
    assert engine.run_cycle()[0]['reason'] == str(balance)
    assert world.store.approvals.list_waiting_plans(world.clock()) == [balance]


def test_a_drain_that_placement_refuses_supersedes_nothing(world):
    balance, engine, _told = wait_for_balance(world)
    engine._scopes.confirming = FakeConfirming(
        {(i.uuid, 'b') for i in world.collector.cluster.instances.values()})
    disable(world, 'a')
    assert engine.run_cycle()[0]['reason'] == str(balance)
    assert world.store.approvals.list_waiting_plans(world.clock()) == [balance]


@pytest.mark.parametrize('hold', ['pause', 'first cycle'])
def test_a_drain_that_is_held_supersedes_nothing(world, hold):
    balance, engine, _told = wait_for_balance(world)
    if hold == 'pause':
        world.store.pauses.pause_scope(None, world.clock(), seconds=None, paused_by='me',
                                       reason='quiet')
    else:
        engine._scopes.kept_alive = True
        world.store.leases.find_planned_at = lambda scope: None
    disable(world, 'a')
    assert not engine.run_cycle()[0]['moves']
    assert world.store.approvals.list_waiting_plans(world.clock()) == [balance]


def test_an_approval_before_the_drain_is_stored_wins(world):
    balance, engine, _told = wait_for_balance(world)
    disable(world, 'a')
    supersede = world.store.approvals.supersede_tasks

    def approve_first(*args, **kwargs):
        world.store.approvals.approve_plan(
            balance.plan_id, world.clock(), plan_decisions.OperatorDecision('me'),
            begin_within={}, cooldown=0, instance_cooldown=900,
            approve_task=cases.count_one_approval)
        return supersede(*args, **kwargs)

    world.store.approvals.supersede_tasks = approve_first
    engine.run_cycle()
    (row,) = world.store.tasks.list_plan_tasks(balance.plan_id)
    assert row.task.state is model.TaskState.QUEUED
    assert len(world.store.plans.list_plans()) == 1


def test_decisions_about_plans_are_notified_once_with_the_operator(world):
    approving(world)
    told = []
    engine = world.engine(listeners=[lambda event, scope, payload: told.append((event, payload))])
    engine.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    said = plan_decisions.OperatorDecision('me@here', 'after a look')
    world.store.approvals.approve_plan(waiting.plan_id, world.clock(), said, begin_within={},
                                       cooldown=600,
                                       instance_cooldown=900,
        approve_task=cases.count_one_approval)
    engine.run_cycle()
    engine.run_cycle()
    assert [event for event, _ in told] == ['plan.created', 'plan.approved']
    payload = told[1][1]
    assert (payload['plan_id'], payload['tasks'], payload['decided_by'], payload['reason'],
            payload['aggregate'], payload['version']) == (
        waiting.plan_id, 1, 'me@here', 'after a look', model.UNASSIGNED, '1.0')


def test_the_next_engine_notifies_a_decision_once(world):
    """The decision comes while no engine plans, or between two cycles: one notification."""
    approving(world)
    told = []

    def another(name):
        return world.engine(name, listeners=[
            lambda event, scope, payload: told.append((name, event))])

    def give_way(engine):
        for scope in tuple(engine._leases.leases):
            engine._leases.give_back_lease(scope)
        world.clock.now += 30

    one, two = another('one'), another('two')
    one.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    give_way(one)
    said = plan_decisions.OperatorDecision('me@here')
    world.store.approvals.approve_plan(waiting.plan_id, world.clock(), said, begin_within={},
                                       cooldown=600,
                                       instance_cooldown=900,
        approve_task=cases.count_one_approval)
    two.run_cycle()
    give_way(two)
    one.run_cycle()
    give_way(one)
    world.store.approvals.cancel_plan(waiting.plan_id, world.clock(), said, 900)
    another('three').run_cycle()
    assert told == [('one', 'plan.created'), ('two', 'plan.approved'),
                    ('three', 'plan.cancelled')]


def test_why_cycles_fail_is_kept_until_one_comes_to_a_plan(world):
    engine = world.engine()
    engine.run_cycle()
    cluster, world.collector.cluster = world.collector.cluster, exception.CollectError(
        what='servers', service='Nova', problem='HTTP 503')
    world.clock.now += 60
    engine.run_cycle()
    kept = world.store.statistics.read_census().scopes[model.UNASSIGNED].cycle
    assert 'HTTP 503' in kept.error and kept.failed_at == world.clock()
    assert kept.at == world.clock() - 60 and kept.policies
    world.collector.cluster = cluster
    world.clock.now += 60
    engine.run_cycle()
    assert world.store.statistics.read_census().scopes[model.UNASSIGNED].cycle.error is None


def test_an_old_decision_is_not_notified(world):
    approving(world)
    told = []
    engine = world.engine(listeners=[lambda event, scope, payload: told.append(event)])
    engine.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    world.store.approvals.reject_plan(waiting.plan_id, world.clock(),
                                      plan_decisions.OperatorDecision('me'), 900)
    world.clock.now += 90000
    engine.run_cycle()
    assert 'plan.rejected' not in told


def test_a_database_that_fails_in_telling_fails_no_cycle(world, monkeypatch, caplog):
    approving(world)
    told = []
    engine = world.engine(listeners=[lambda event, scope, payload: told.append(event)])
    engine.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    world.clock.now = waiting.until + 1

    def broken(lease):
        raise exception.StoreError(problem='is gone', remedy='Start it.')

    with monkeypatch.context() as patch:
        patch.setattr(world.store.approvals, 'pop_unannounced_decisions', broken)
        assert engine.run_cycle()[0]['hosts'] is not None
    assert 'no operator approved it in time' in caplog.text and 'in the next cycle' in caplog.text


def test_a_lapsed_plan_is_notified(world):
    approving(world)
    told = []
    engine = world.engine(listeners=[lambda event, scope, payload: told.append((event, payload))])
    engine.run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    world.clock.now = waiting.until + 1
    engine.run_cycle()
    lapsed = [payload for event, payload in told if event == 'plan.lapsed']
    assert [(p['plan_id'], p['tasks'], p['decided_by']) for p in lapsed] == [
        (waiting.plan_id, 1, '')]


@pytest.mark.parametrize(('mode', 'scopes', 'waits'), [
    ('auto', [], False), ('approve', [], True),
    ('auto', [f'{model.UNASSIGNED}:approve'], True),
    ('approve', [f'{model.UNASSIGNED}:auto'], False),
    ('auto', [f'{model.UNASSIGNED}:auto', f'{model.UNASSIGNED}:approve'], True)])
def test_each_scope_may_have_a_mode_of_its_own(world, mode, scopes, waits):
    types = scope_mode.ScopeModeType()
    approving(world, mode=mode, scope_mode=[types(text) for text in scopes])
    world.engine().run_cycle()
    assert bool(world.store.approvals.list_waiting_plans(world.clock())) is waits is not bool(
        world.casts)


def test_a_dry_run_waits_for_no_approval(world):
    approving(world)
    world.engine().run_cycle()
    world.conf.set_override('dry_run', True, 'engine')
    assert 'approval' not in (world.engine('other').run_cycle()[0]['reason'] or '')


@pytest.mark.parametrize(('step', 'said'), [(3600.0, '3600 s ahead of'), (-40.0, '40 s behind')])
def test_an_engine_whose_clock_has_stepped_moves_nothing(world, step, said):
    """By such a clock cooldowns would be over too soon, or never."""
    world.engine().run_cycle()
    assert len(world.casts) == 1
    engine = world.engine()
    engine._scopes.clock = lambda: world.clock() + step
    row, = engine.run_cycle()
    assert row['moves'] == [] and said in row['reason']
    assert len(world.casts) == 1
    engine._scopes.clock = lambda: world.clock() + 20.0
    assert 'the clock' not in str(engine.run_cycle()[0]['reason'])


def test_an_engine_with_a_fast_clock_ends_no_plan_awaiting_approval(world):
    approving(world)
    world.engine().run_cycle()
    (waiting,) = world.store.approvals.list_waiting_plans(world.clock())
    other = world.engine()
    other._clock = lambda: world.clock() + 86400 * 365
    other.run_cycle()
    assert [w.plan_id
            for w in world.store.approvals.list_waiting_plans(world.clock())] == [waiting.plan_id]
    assert world.store.plans.find_plan(waiting.plan_id) is not None


def test_plans_that_ended_long_ago_are_forgotten(world):
    world.conf.set_override('keep_days', 2, 'engine')
    world.conf.set_override('breaker_worse_plans', 0, 'engine')
    engine = world.engine()
    engine.run_cycle()
    task, = world.casts
    row = world.store.tasks.claim_task('w', None, world.clock(), per_scope=9, total=9,
                                       claim_seconds=60)
    result = model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                              task.from_host, task.to_host, success=True)
    world.store.tasks.finish_task(row.task, result, model.TaskState.COMPLETED, world.clock(),
                                  worker='w',
                                  instance_cooldown=0.0)
    for days, known in ((1.9, True), (0.2, False)):
        world.clock.now += days * 86400
        engine.run_cycle()
        assert (world.store.plans.find_plan(task.plan_id) is not None) == known


def test_plans_that_cannot_be_forgotten_stop_no_cycle(world, monkeypatch):
    def away(older_than, **kwargs):
        raise exception.StoreError(problem='is away', remedy='Wait.')
    monkeypatch.setattr(world.store.history, 'purge_records', away)
    row, = world.engine().run_cycle()
    assert row['moves']


def test_collecting_longer_than_the_lease_loses_no_plan(world):
    def slow():
        world.clock.now += 119

    world.collector.meanwhile = slow
    row, = world.engine().run_cycle()
    assert row['moves'], row
    assert world.store.tasks.list_in_flight_moves()


def test_defect_18_only_one_of_two_engines_plans_and_the_other_takes_over(world):
    assert world.engine('one').run_cycle()[0]['moves']
    row, = world.engine('two').run_cycle()
    assert 'Another engine plans scope' in row['reason'] and world.collector.calls == 1
    world.clock.now += 121
    row, = world.engine('two').run_cycle()
    assert row['hosts'] == 2


def test_a_lease_that_is_kept_alive_passes_on_30_s_after_its_owner_s_death(world):
    one, two = (world.engine(name, kept_alive=True) for name in ('one', 'two'))
    world.went_on()
    assert one.run_cycle()[0]['moves']
    for _ in range(20):
        world.clock.now += 25
        one.keep_leases()
    assert not two.run_cycle()[0]['hosts'] and not two.keep_leases()
    world.clock.now += lease_keeper.LEASE_SECONDS - 1
    assert not two.keep_leases()
    world.clock.now += 2
    assert two.keep_leases(), 'the scope is free, and the engine that waits is told'
    assert two.run_cycle()[0]['hosts'] == 2
    assert not two.keep_leases(), 'there is nothing left to wait for'


def test_an_engine_that_was_frozen_beyond_its_lease_writes_nothing(world, caplog):
    """No other engine has taken the scope, but the readings are old."""
    world.went_on()
    one = world.engine(kept_alive=True)

    def freeze():
        world.clock.now += lease_keeper.LEASE_SECONDS + 1
        one.keep_leases()

    run = engine.planning_pipeline.plan_scope

    def frozen(*args, **kwargs):
        found = run(*args, **kwargs)
        freeze()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.planning_pipeline, 'plan_scope', frozen)
        row, = one.run_cycle()
    assert 'Nothing was written' in row['reason'] and not world.casts
    assert 'held up' in caplog.text
    assert one.run_cycle()[0]['moves'], 'it leases the scope anew'


def test_a_cycle_that_hangs_loses_its_leases(world):
    """Its process lives and its other thread still runs."""
    world.went_on()
    hands = Clock()
    one = world.engine(kept_alive=True, monotonic=hands)

    def hang():
        for _ in range(int(engine.HUNG_SECONDS / 10) + 5):
            world.clock.now += 10
            hands.now += 10
            one.keep_leases()
    two = world.engine('two', kept_alive=True)
    world.collector.meanwhile = lambda: (hang(), setattr(
        world.collector, 'meanwhile', lambda: None), two.run_cycle())
    one.run_safe_cycle()
    assert [f.instance_uuid for f in world.store.tasks.list_in_flight_moves()] == [A0]
    assert world.store.plans.list_plans()[0].epoch == 2


def test_a_paused_scope_is_looked_at_and_says_why_nothing_moves(world):
    world.store.pauses.pause_scope(None, world.clock(), seconds=None, paused_by='me',
                                   reason='a storm')
    one = world.engine()
    row, = one.run_cycle()
    assert not row['moves'] and not world.casts and row['hosts'] == 2
    assert row['reason'] == 'everything was paused by me: a storm (kronos resume ends it)'
    world.store.pauses.resume_scope(None, world.clock())
    assert one.run_cycle()[0]['moves']


def test_the_first_cycle_after_a_start_only_looks(world):
    one = world.engine(kept_alive=True)
    row, = one.run_cycle()
    assert not row['moves'] and row['hosts'] == 2 and 'first cycle after a start' in row['reason']
    world.clock.now += 60
    assert one.run_cycle()[0]['moves'] and world.casts


@pytest.mark.parametrize(('silence', 'moves'), [
    (590, True), (610, False), (-590, True), (-610, False)])
def test_an_engine_goes_on_at_once_where_another_one_has_just_planned(world, silence, moves):
    """After a failover nothing waits; after an outage of all engines a cycle does."""
    one = world.engine('one', kept_alive=True)
    world.source._hosts = {'a': 0.5, 'b': 0.5}
    one.run_cycle()
    one.close()
    world.source._hosts = {'a': 0.9, 'b': 0.1}
    world.clock.now += silence
    two = world.engine('two', kept_alive=True)
    two._store = one._store
    assert bool(two.run_cycle()[0]['moves']) == moves


def test_once_and_dry_run_do_not_wait_for_a_second_cycle(world):
    world.conf.set_override('dry_run', True, 'engine')
    assert world.engine(kept_alive=True).run_cycle()[0]['moves']
    world.conf.set_override('dry_run', False, 'engine')
    assert world.engine().run_cycle()[0]['moves']


def test_in_a_freeze_window_nothing_is_planned(world):
    """The world's clock says Mon 12 Jan 1970, 13:46:40 UTC."""
    world.conf.set_override('freeze_windows', ['0 8 * * mon-fri 6h'], 'engine')
    one = world.engine()
    row, = one.run_cycle()
    assert not row['moves'] and row['hosts'] == 2
    assert row['reason'] == ('freeze window "0 8 * * mon-fri 6h" lasts until '
                             '1970-01-12T14:00+00:00')
    world.clock.now += 800
    assert one.run_cycle()[0]['moves']


def carried_out(world, state=model.TaskState.COMPLETED, error_type=None):
    """The one task of the last plan ends; its metrics settle."""
    task = world.casts[-1]
    row = world.store.tasks.claim_task('w', None, world.clock(), per_scope=9, total=9,
                                       claim_seconds=60)
    result = model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                              task.from_host, task.to_host, success=error_type is None,
                              error_type=error_type)
    world.store.tasks.finish_task(row.task, result, state, world.clock(), worker='w',
                                  instance_cooldown=0.0)
    world.clock.now += 3600


@pytest.mark.parametrize(('retries', 'level', 'said'), [
    (0, 'DEBUG', '; retry 1 of 3 follows'), (2, 'DEBUG', '; retry 3 of 3 follows'),
    (3, 'INFO', ': no room')])
def test_a_failure_that_is_tried_again_is_for_debugging_alone(world, caplog, retries, level, said):
    one = world.engine()
    one.run_cycle()
    task = world.casts[-1]
    result = model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                              task.from_host, task.to_host, success=False, retry_count=retries,
                              error_type='MigrationFailed', error='no room')
    with caplog.at_level('DEBUG'):
        caplog.clear()
        one.log_result('migration.failed', result)
    record, = [r for r in caplog.records if r.message.startswith(
        f'{model.format_task(task)}: the move from a to b failed: MigrationFailed: no room')]
    assert record.levelname == level and record.message.endswith(said)


def test_how_often_a_task_is_tried_again_is_the_tasks_own_affair(world):
    one = world.engine()
    one.run_cycle()
    task = world.casts[-1]
    world.conf.set_override('max_retries', 7, 'executor')
    result = model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                              task.from_host, task.to_host, success=False)
    assert one._max_retries(result) == task.max_retries == 3
    assert one._max_retries(dataclasses.replace(result, task_id='gone')) == 7


def quick(world):
    for name in ('cooldown', 'instance_cooldown', 'settle_seconds'):
        world.conf.set_override(name, 0, 'engine')


def test_three_plans_that_made_it_worse_pause_the_scope(world, caplog):
    """Each promises less; each time the hot host is hotter than before."""
    quick(world)
    one = world.engine()
    for load in (0.80, 0.84, 0.88, 0.92):
        world.source._hosts = {'a': load, 'b': 1.0 - load}
        row, = one.run_cycle()
        if load < 0.92:
            assert row['moves'], row
            carried_out(world)
    assert not row['moves'] and len(world.casts) == 3
    assert 'paused by the circuit breaker: 3 plans in a row' in row['reason']
    assert [r.levelname for r in caplog.records if 'was paused by the circuit breaker' in r.message
            and r.levelname != 'INFO'] == ['ERROR']
    assert not one.run_cycle()[0]['moves']
    world.store.pauses.resume_scope(model.UNASSIGNED, world.clock())
    assert one.run_cycle()[0]['moves'], 'what came before is not held against it again'


def pack_up_to(world, ceiling):
    policy, = yaml.safe_load(world.path.read_text())['policies']
    world.path.write_text(yaml.safe_dump({'policies': [{
        **policy, 'mode': 'pack', 'capacity_query': 'fill', 'capacity_threshold': ceiling}]}))
    fetch = world.source.fetch
    world.source.fetch = lambda policy, **kw: dataclasses.replace(
        found := fetch(policy, **kw), capacity=found.imbalance)


def test_three_pack_plans_that_overfilled_hosts_pause_the_scope(world, caplog):
    """Each predicts less overload; each time the full host is fuller than before."""
    quick(world)
    pack_up_to(world, 0.3)
    world.source._usages = {A0: 0.04, B0: 0.01}
    tally = tallies.DaemonTally()
    one = world.engine(tally=tally)
    with caplog.at_level('INFO'):
        for full, other in ((0.5, 0.25), (0.6, 0.15), (0.7, 0.05), (0.75, 0.0)):
            world.source._hosts = {'a': full, 'b': other}
            row, = one.run_cycle()
            if full < 0.75:
                assert [m['phase'] for m in row['moves']] == ['pack'], row
                carried_out(world)
    assert not row['moves'] and len(world.casts) == 3
    assert ('paused by the circuit breaker: 3 plans in a row left more hosts in use or more '
            'overload than they found and foresaw') in row['reason']
    newest = world.store.outcomes.list_outcomes(model.UNASSIGNED, 9)
    assert newest == [], 'what came before is not held against it again'
    assert '2 -> 2 hosts in use (foreseen 1), overload 0.667 -> 1.000 (foreseen ' in caplog.text
    counted = {key: value for name, key, value in samples.list_tally_samples(
        tally.copy_tally(), 'nova', host_scores=False) if name == 'kronos_judged_plans_total'}
    assert counted[model.UNASSIGNED, 'worse'] == 3


def test_pack_plans_are_not_judged_by_the_imbalance_that_they_raise(world):
    """Load that an emptied host gives to another one is what packing is for."""
    quick(world)
    pack_up_to(world, 0.9)
    world.source._usages = {A0: 0.2, B0: 0.1}
    one = world.engine()
    for full, other in ((0.3, 0.1), (0.35, 0.05), (0.38, 0.02), (0.4, 0.0), (0.4, 0.0)):
        world.source._hosts = {'a': full, 'b': other}
        row, = one.run_cycle()
        assert [m['phase'] for m in row['moves']] == ['pack'], row
        carried_out(world)
    assert not world.store.pauses.list_pauses(world.clock())


@pytest.mark.parametrize('why', [None, 'enough'])
def test_a_breaker_stops_pairs_too(world, monkeypatch, why):
    """Of a policy where no single move helps."""
    monkeypatch.setattr(scope_planner.breakers, 'find_trip_reason', lambda *args, **kw: why)
    world.path.write_text(world.path.read_text().replace('cycle: 1', 'cycle: 2'))
    world.source._hosts, world.source._usages = {'a': 0.8, 'b': 0.4}, {A0: 0.5, B0: 0.3}
    world.engine().run_cycle()
    row, = world.store.plans.list_plans()
    assert len(row.plan.moves) == 2 * (why is None)
    assert [{s.first, s.second} for s in row.plan.swaps] == [{A0, B0}] * (why is None)
    assert [s.state for s in world.store.tasks.list_swaps(row.plan_id)] == ['going'] * (why is None)


def test_load_that_rises_everywhere_opens_no_breaker(world):
    """A morning: each imbalance is larger than the last, by what all hosts gained."""
    quick(world)
    one = world.engine()
    for factor in (1.0, 1.15, 1.3, 1.45, 1.6):
        world.source._hosts = {'a': 0.55 * factor, 'b': 0.05 * factor}
        assert one.run_cycle()[0]['moves']
        carried_out(world)
    assert not world.store.pauses.list_pauses(world.clock())


def test_plans_are_not_judged_by_metrics_that_are_not_trusted(world, caplog):
    """The first trusted metrics after the untrusted ones count and are notified."""
    quick(world)
    world.conf.set_override('max_missing_hosts', 0, 'engine')
    one = world.engine()
    assert one.run_cycle()[0]['moves']
    carried_out(world)
    world.source._hosts = {'a': 0.95}
    assert not one.run_cycle()[0]['moves']
    assert world.store.outcomes.list_outcomes(model.UNASSIGNED, 9) == []
    world.source._hosts = {'a': 0.4, 'b': 0.3}
    with caplog.at_level('INFO'):
        one.run_cycle()
    came, = world.store.outcomes.list_outcomes(model.UNASSIGNED, 9)
    assert came.realised == pytest.approx(0.1)
    assert f'plan {came.plan_id} found a combined imbalance of 0.8' in caplog.text


def test_one_plan_that_helped_is_no_row_of_bad_ones(world):
    quick(world)
    one = world.engine()
    for load in (0.80, 0.84, 0.70, 0.75, 0.80, 0.60):
        world.source._hosts = {'a': load, 'b': 0.1}
        assert one.run_cycle()[0]['moves']
        carried_out(world)
    assert not world.store.pauses.list_pauses(world.clock())


@pytest.mark.parametrize(('rate', 'pause'), [(0.5, True), (1.0, False)])
def test_failures_pause_the_scope(world, rate, pause):
    quick(world)
    world.conf.set_override('breaker_failure_rate', rate, 'engine')
    world.conf.set_override('breaker_pause', 7200, 'engine')
    one = world.engine()
    for _ in range(3):
        assert one.run_cycle()[0]['moves']
        carried_out(world, model.TaskState.FAILED, 'MigrationFailed')
        world.clock.now -= 3600 - 60
    row, = one.run_cycle()
    assert bool(row['moves']) != pause
    if pause:
        assert '3 of the last 3 migrations failed' in row['reason']
        world.clock.now += 7201
        assert one.run_cycle()[0]['moves'], 'breaker_pause is over'


def test_an_imbalance_that_does_not_last_moves_nothing(world):
    """Two minutes, a minute of calm, and from the beginning again; a restart is no break."""
    world.conf.set_override('sustain_for', 180, 'engine')
    for load, moves in ((0.9, 0), (0.9, 0), (0.1, 0), (0.9, 0), (0.9, 0), (0.9, 0), (0.9, 1)):
        world.source._hosts = {'a': load, 'b': 0.1}
        row, = world.engine().run_cycle()
        assert len(row['moves']) == moves, row
        if load == 0.9 and not moves:
            assert 's (sustain_for)' in row['reason']
        world.clock.now += 60


def test_drains_do_not_wait_for_an_imbalance_to_last(world):
    world.conf.set_override('sustain_for', 180, 'engine')
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    services = dict(world.collector.cluster.services)
    services['a'] = dataclasses.replace(services['a'], status='disabled',
                                        disabled_reason='repair')
    world.collector.cluster = dataclasses.replace(world.collector.cluster, services=services)
    row, = world.engine().run_cycle()
    assert {m['phase'] for m in row['moves']} == {'evacuate'}


def test_while_the_scope_cools_an_imbalance_goes_on(world):
    world.conf.set_override('sustain_for', 60, 'engine')
    world.conf.set_override('cooldown', 120, 'engine')
    world.conf.set_override('instance_cooldown', 0, 'engine')
    world.conf.set_override('settle_seconds', 0, 'engine')
    one = world.engine()
    assert not one.run_cycle()[0]['moves']
    world.clock.now += 60
    assert one.run_cycle()[0]['moves']
    carried_out(world)
    world.clock.now -= 3600 - 60
    assert not one.run_cycle()[0]['moves']
    world.clock.now += 61
    assert one.run_cycle()[0]['moves'], 'it has lasted all the time'


def test_an_engine_that_ends_gives_its_scopes_back(world):
    one = world.engine('one')
    one.run_cycle()
    one.close()
    assert world.engine('two').run_cycle()[0]['hosts'] == 2


def test_an_engine_that_lost_its_scope_while_collecting_writes_nothing(world):
    def overtaken():
        world.collector.meanwhile = lambda: None
        world.clock.now += 121
        assert world.engine('two').run_cycle()[0]['moves']

    world.collector.meanwhile = overtaken
    row, = world.engine('one').run_cycle()
    assert 'Another engine' in row['reason'] and not row['moves']
    assert len(world.store.tasks.list_in_flight_moves()) == 1 and len(world.casts) == 1


def test_engines_with_different_policies_for_one_scope_are_refused(world):
    world.engine('one').run_cycle()
    world.clock.now += world.conf.engine.evaluation_interval + 1
    text = world.path.read_text()
    world.path.write_text(text.replace('max_migrations_per_cycle: 1',
                                       'max_migrations_per_cycle: 2'))
    row, = world.engine('two').run_cycle()
    assert 'polic' in row['reason'] and not row['moves']


def test_engines_of_two_zones_do_not_share_a_scope(world):
    """State of a scope, such as its breaker and drains, is that of one set of hosts."""
    world.conf.set_override('availability_zone', 'east', 'engine')
    world.engine('one').run_cycle()
    world.clock.now += world.conf.engine.evaluation_interval + 1
    world.conf.set_override('availability_zone', 'west', 'engine')
    row, = world.engine('two').run_cycle()
    assert 'another [engine] availability_zone' in row['reason'] and not row['moves']


@pytest.mark.mutant
def test_scores_of_hosts_are_in_the_log_of_a_debugging_engine(world, caplog):
    with caplog.at_level('DEBUG'):
        world.engine().run_cycle()
    lines = [r.getMessage() for r in caplog.records if ' has score ' in r.getMessage()]
    assert [line.partition(', policy ')[2] for line in lines] == [
        'cpu: host a has score 0.9000, min-max 1.0000',
        'cpu: host b has score 0.1000, min-max 0.0000']
    caplog.clear()
    with caplog.at_level('INFO'):
        world.engine('one').run_cycle()
    assert not [r for r in caplog.records if ' has score ' in r.getMessage()]


def test_dry_run_stores_the_plan_and_nothing_else(world):
    world.conf.set_override('dry_run', True, 'engine')
    row, = world.engine().run_cycle()
    assert row['moves'] and not world.casts and world.store.tasks.list_in_flight_moves() == ()
    history = world.store.history.read_history(model.UNASSIGNED, world.clock())
    assert not history.cooling and history.scope_cooling == 0
    assert [p.dry_run for p in world.store.plans.list_plans()] == [True]


def test_a_failed_collection_stops_every_scope_with_a_reason(world):
    world.collector.cluster = exception.CollectError(
        what='server groups', service='Nova', problem='HTTP 500')
    row, = world.engine().run_cycle()
    assert row['hosts'] is None and 'server groups' in row['reason']
    assert world.store.tasks.list_in_flight_moves() == ()


def test_defect_04_server_groups_that_cannot_be_read_stop_drains_too(world):
    """Unknown is not empty: not even what an operator asked for moves."""
    services = {h: dataclasses.replace(s, status='disabled' if h == 'a' else 'enabled')
                for h, s in world.collector.cluster.services.items()}
    known = dataclasses.replace(world.collector.cluster, services=services)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    one = world.engine()
    world.collector.cluster = exception.CollectError(
        what='server groups', service='Nova', problem='HTTP 500')
    row, = one.run_cycle()
    assert row['hosts'] is None and 'server groups' in row['reason'] and not row['moves']
    assert world.store.tasks.list_in_flight_moves() == () and not world.casts
    world.collector.cluster = known
    assert [m['phase'] for m in one.run_cycle()[0]['moves']] == ['evacuate']


def test_defect_18_queue_cooldowns_and_quarantine_survive_a_restart(world):
    """Everything of the first pair is gone but the file of the database."""
    first = world.engine('one')
    assert [m['instance_uuid'] for m in first.run_cycle()[0]['moves']] == [A0]
    queued = world.store.tasks.list_in_flight_moves()
    row = world.store.tasks.claim_task('me', None, world.clock(), per_scope=1, total=1,
                                       claim_seconds=60)
    first.close()

    again = api.Store.from_url(f'sqlite:///{world.database}', clock=world.clock)
    again.upgrade()
    assert again.tasks.list_in_flight_moves() == queued
    assert again.tasks.find_task(row.task.task_id).task == row.task
    history = again.history.read_history(model.UNASSIGNED, world.clock())
    assert history.cooling == {A0: 900.0} and history.scope_cooling == 600.0
    again.tasks.finish_task(row.task, result_of(row.task), model.TaskState.FAILED, world.clock(),
                            worker='me', instance_cooldown=0, quarantine_seconds=3600.0)
    again.close()

    world.store = api.Store.from_url(f'sqlite:///{world.database}', clock=world.clock)
    world.clock.now += 1000
    history = world.store.history.read_history(model.UNASSIGNED, world.clock())
    assert history.quarantined == {A0: 2600.0}
    second = world.engine('two')
    assert not second.run_cycle()[0]['moves']
    world.clock.now += 2601
    assert [m['instance_uuid'] for m in second.run_cycle()[0]['moves']] == [A0]


def test_the_budget_is_used_up_by_moves_under_way(world):
    world.conf.set_override('cooldown', 0, 'engine')
    one = world.engine()
    assert one.run_cycle()[0]['moves']
    row, = one.run_cycle()
    assert not row['moves'] and 'budget is used up' in row['reason']


def test_a_task_uses_its_scopes_budget_after_its_host_changed_scope(world):
    """Found by the simulation: while an aggregate changed, a scope planned beyond it."""
    world.conf.set_override('cooldown', 0, 'engine')
    one = world.engine()
    assert one.run_cycle()[0]['moves']
    cluster = world.collector.cluster
    world.collector.cluster = dataclasses.replace(cluster, aggregates={'rack': ('a',)})
    world.conf.set_override('aggregates', ['rack'], 'engine')
    world.conf.set_override('include_unassigned_hosts', True, 'engine')
    seen = {}
    real = engine.planning_pipeline.plan_scope

    def run(cluster, *args, **kwargs):
        seen[cluster.scope] = kwargs['busy']
        return real(cluster, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.planning_pipeline, 'plan_scope', run)
        one.run_cycle()
    assert seen == {'rack': 1, model.UNASSIGNED: 1}


@pytest.mark.parametrize(('flight', 'counts'), [
    (model.InFlightMove(A0, 'a', 'b', 'task', (), 'rack'), True),
    (model.InFlightMove(A0, 'a', 'b', 'task', (), 'rack', slotless=True), False),
    (model.InFlightMove(A0, 'a', 'b', 'task', (), 'other'), True),
    (model.InFlightMove(A0, 'a', 'b', 'task'), True),
    (model.InFlightMove(A0, 'z', 'b', 'task', (), 'rack'), True),
    (model.InFlightMove(A0, 'z', 'a', 'task', (), 'other'), False),
    (model.InFlightMove(A0, 'z', 'a', 'task'), False),
    (model.InFlightMove(A0, 'a', 'b'), False)])
def test_the_budget_counts_moves_of_the_scope_or_from_its_hosts(flight, counts):
    cluster = model.Cluster(hosts={}, instances={}, services={}, scope='rack',
                            scope_hosts=frozenset({'a'}))
    assert engine.planning_pipeline.count_busy_moves((flight,), cluster) == counts


def test_a_move_that_ends_during_a_reading_counts_for_hosts_and_budget(world):
    """A replay of that cycle has the same information and counts the move alike."""
    world.conf.set_override('cooldown', 0, 'engine')
    one = world.engine()
    assert one.run_cycle()[0]['moves']

    def end():
        row = world.store.tasks.claim_task('me', None, world.clock(), per_scope=1, total=1,
                                           claim_seconds=60)
        world.store.tasks.finish_task(row.task, result_of(row.task), model.TaskState.COMPLETED,
                                      world.clock(), instance_cooldown=0, quarantine_seconds=None,
                                      worker='me')

    world.collector.meanwhile = end
    nova = model.InFlightMove(A0, 'b', 'a')
    world.collector.cluster = dataclasses.replace(world.collector.cluster, flights=(nova,))
    seen = []
    real = engine.planning_pipeline.plan_scope

    def run(cluster, *args, **kwargs):
        seen.append((cluster.flights, kwargs['busy']))
        return real(cluster, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.planning_pipeline, 'plan_scope', run)
        one.run_cycle()
    (flights, busy), = seen
    assert flights[0] == nova
    assert [(f.instance_uuid, f.from_host, f.to_host) for f in flights[1:]] == [(A0, 'a', 'b')]
    assert busy == 1


def result_of(task):
    return model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                            task.from_host, task.to_host, True)


def test_an_aggregate_that_nova_does_not_have_is_named(world):
    world.conf.set_override('aggregates', ['nowhere'], 'engine')
    rows = {r['name']: r for r in world.engine().run_cycle()}
    assert 'no aggregate nowhere' in rows['nowhere']['reason']
    assert rows[model.UNASSIGNED]['moves']


@pytest.mark.parametrize('aggregates, unassigned, text', [
    ([], False, 'nothing to plan'), ([model.UNASSIGNED], True, 'hosts in no aggregate')])
def test_an_engine_without_a_usable_scope_does_not_start(world, aggregates, unassigned, text):
    world.conf.set_override('aggregates', aggregates, 'engine')
    world.conf.set_override('include_unassigned_hosts', unassigned, 'engine')
    with pytest.raises(exception.ConfigError, match=text):
        world.engine()


def test_a_broken_policy_file_keeps_the_last_good_policies(world):
    one = world.engine()
    world.path.write_text('policies: []')
    assert one.run_cycle()[0]['moves']
    with pytest.raises(exception.PolicyFileError):
        world.engine()


def test_the_scheduler_receives_all_moves_in_flight(world):
    told = []
    world.engine(publish=lambda *args: told.append(args[2])).run_cycle()
    assert [(f.instance_uuid, f.to_host) for f in told[0].flights] == [(A0, 'b')]


@pytest.mark.parametrize('name, still', [
    ('plans.list_draining_hosts', ['usage']), ('tasks.list_in_flight_moves', ['usage']),
    ('tasks.list_tasks_in_states', ['moves'])])
def test_a_database_that_goes_away_at_the_end_keeps_the_plan(
        world, name, still, monkeypatch, caplog):
    repository, name = name.split('.')
    owner = getattr(world.store, repository)
    asked = getattr(owner, name)

    def away(*args):
        if world.casts:
            raise exception.StoreError(problem='is away', remedy='Wait.')
        return asked(*args)

    monkeypatch.setattr(owner, name, away)
    told = []
    row, = world.engine(publish=lambda *args: told.append('moves'),
                        publish_usage=lambda *args: told.append('usage')).run_cycle()
    assert row['moves'] and told == still
    assert 'nova-scheduler is not told' in caplog.text and 'is away' in caplog.text


def test_an_engine_that_is_stopped_tells_no_usage_that_it_has_not_read(world):
    told = []
    one = world.engine(publish_usage=lambda *args: told.append(args))
    world.collector.meanwhile = one.stop
    assert [row['reason'] for row in one.run_cycle()] == [engine.STOPPED_BEFORE] and told == []


@pytest.mark.parametrize('dry_run', [False, True])
def test_drains_of_all_scopes_are_published_if_one_scope_cannot_be_planned(world, dry_run):
    """Another engine drains c in a scope of its own; a dry run publishes no drains."""
    world.conf.set_override('dry_run', dry_run, 'engine')
    lease = world.store.leases.acquire_lease('blue', 'two', 600, 'hash')
    world.store.plans.save_plan(lease, model.Plan(scope='blue', draining=frozenset({'c'})), [],
                                plan_id='p', now=world.clock(), dry_run=False, cooldown=0,
                                instance_cooldown=0)
    world.conf.set_override('aggregates', ['nowhere'], 'engine')
    told = []
    rows = world.engine(publish=lambda *args: told.append(args[0])).run_cycle()
    assert 'no aggregate nowhere' in rows[0]['reason']
    assert told == ([] if dry_run else [frozenset({'c'})])


@pytest.mark.parametrize('dry_run', [False, True])
def test_usage_is_published_with_moves_once_they_are_stored(world, dry_run):
    world.conf.set_override('dry_run', dry_run, 'engine')
    told = []
    world.engine(publish_usage=lambda *args: told.append(args)).run_cycle()
    (policy, usage, now), = told
    assert (policy.name, now) == ('cpu', world.clock())
    assert [(m.instance_uuid, m.to_host) for m in usage.moves] == (
        [] if dry_run else [(A0, 'b')])


def test_the_end_of_a_cycle_tells_the_zones(world, caplog):
    services = {h: dataclasses.replace(s, zone=f'az-{h}')
                for h, s in world.collector.cluster.services.items()}
    world.collector.cluster = dataclasses.replace(world.collector.cluster, services=services)
    with caplog.at_level('INFO'):
        row, = world.engine().run_cycle()
    assert [(m['from_zone'], m['to_zone']) for m in row['moves']] == [('az-a', 'az-b')]
    decision, = [r.message for r in caplog.records if r.message.startswith(f'Instance {A0}')]
    assert 'zone az-a to az-b' in decision
    assert '1 between zones' in caplog.messages[-1]


@pytest.mark.mutant
def test_a_move_within_a_zone_logs_no_zone(world, caplog):
    with caplog.at_level('INFO'):
        row, = world.engine().run_cycle()
    (move,) = row['moves']
    assert move['from_zone'] == move['to_zone'] != ''
    assert not any('zone' in message for message in caplog.messages)


def test_a_dry_run_takes_no_lease_and_may_use_other_policies(world):
    world.conf.set_override('dry_run', True, 'engine')
    rehearsal = world.engine('rehearsal')
    assert rehearsal.run_cycle()[0]['moves']
    world.conf.set_override('dry_run', False, 'engine')
    live = world.engine('live')
    assert live.run_cycle()[0]['moves']
    world.conf.set_override('dry_run', True, 'engine')
    world.path.write_text(world.path.read_text().replace(
        'max_migrations_per_cycle: 1', 'max_migrations_per_cycle: 2'))
    row, = rehearsal.run_cycle()
    assert row['hosts'] == 2, row
    rehearsal.close()
    assert len(world.store.tasks.list_in_flight_moves()) == 1


def test_plans_without_news_are_not_stored_again_by_two_engines_in_turn(world):
    """One plans for real, the other in a dry run: neither is news to the other."""
    world.source = FakeSource(world.clock, {'a': 0.5, 'b': 0.5}, {A0: 0.4, B0: 0.05})
    engines = world.engine('live'), world.engine('rehearsal')
    for _ in range(3):
        for dry_run, one in zip((False, True), engines, strict=True):
            world.conf.set_override('dry_run', dry_run, 'engine')
            assert not one.run_cycle()[0]['moves']
        world.clock.now += 60
    assert sorted(p.dry_run for p in world.store.plans.list_plans()) == [False, True]


def test_stopped_while_it_collects_an_engine_asks_and_plans_nothing_more(world):
    one = world.engine()
    world.collector.meanwhile = one.stop
    world.source.fetch = None  # would fail
    assert [(row['name'], row['reason'], row['truncated']) for row in one.run_cycle()] == [
        (model.UNASSIGNED, engine.STOPPED_BEFORE, False)]
    assert world.store.plans.list_plans() == [] and not world.casts


def test_stopped_while_it_plans_an_engine_ends_planning_and_keeps_nothing(world, caplog):
    caplog.set_level('INFO')
    tally = tallies.DaemonTally()
    one = world.engine(tally=tally)
    seen = []
    real = engine.planning_pipeline.planner.plan

    def plan(request, **kwargs):
        assert not kwargs['stopping']()
        one.stop()
        assert kwargs['stopping']() and not kwargs['expired']()
        seen.append(real(request, **kwargs))
        return seen[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.planning_pipeline.planner, 'plan', plan)
        row, = one.run_cycle()
    assert seen[0].truncated
    assert seen[0].reason == 'planning was cut off because the engine was stopped; see the warnings'
    assert (row['moves'], row['reason']) == ([], engine.STOPPED_WHILE)
    scope = row['name']
    assert f'Scope {scope}: {engine.STOPPED_WHILE}' in caplog.text
    assert 'planning_deadline' not in caplog.text
    counts = tally.copy_tally().counts
    assert counts['cycles'][scope, 'stopped'] == 1 and counts['truncated_plans'][scope,] == 0
    assert counts['cycles'][scope, 'failed'] == 0
    assert world.store.plans.list_plans() == [] and world.store.tasks.list_in_flight_moves() == ()


class FakeConfirming:
    """Placement refuses the given pairs at the first request."""

    def __init__(self, refuses):
        self.refusals = placement_check.RecentRefusals()
        self._refuses = refuses

    def confirm_outcome(self, outcome, now, replan):
        if not self.refusals.map_refused_hosts(now):
            self.refusals.add_refusals(self._refuses, now)
            return replan()
        return outcome


def test_a_move_refused_by_placement_is_only_in_the_snapshot(world, tmp_path):
    world.conf.set_override('snapshot_dir', str(tmp_path / 'snapshots'), 'engine')
    engine = world.engine(confirming=FakeConfirming([(A0, 'b')]))
    row, = engine.run_cycle()
    assert row['moves'] == [] and world.casts == []
    assert row['rejections']['placement-refused'] > 0
    found = reader.read_snapshot(engine.write_snapshot())
    history = found.build_history(model.UNASSIGNED, cooldown=600, instance_cooldown=900)
    assert history.refused == {A0: frozenset({'b'})}
    world.clock.now += placement_check.REFUSED_SECONDS + 1
    row, = engine.run_cycle()
    assert row['moves'] == [], 'it is asked for again, and refused again'


def test_snapshot_without_a_scope_to_plan_is_an_error_in_the_log(world, tmp_path):
    """An operator who edits policies and sends SIGUSR1 does not end the engine."""
    world.conf.set_override('snapshot_dir', str(tmp_path / 'snapshots'), 'engine')
    engine = world.engine()
    world.conf.set_override('include_unassigned_hosts', False, 'engine')
    world.conf.set_override('aggregates', [], 'engine')
    with fixtures.FakeLogger() as log:
        assert engine.write_snapshot() is None
    assert 'No snapshot is written: ' in log.output


def test_an_instance_refused_everywhere_is_held_and_in_the_snapshot(world, tmp_path):
    world.conf.set_override('snapshot_dir', str(tmp_path / 'snapshots'), 'engine')
    engine = world.engine(confirming=FakeConfirming(
        [(A0, f'elsewhere{n}') for n in range(placement_check.STRIKES)]))
    row, = engine.run_cycle()
    assert row['moves'] == []
    assert [no['rule'] for no in row['held']] == ['placement-refuses-everywhere']
    path = engine.write_snapshot()
    history = reader.read_snapshot(path).build_history(model.UNASSIGNED, cooldown=600,
                                                       instance_cooldown=900)
    assert history.refused_everywhere == {A0}
    replayed, = replay.replay_snapshot(world.conf, path, lambda: 0.0)
    assert (replayed['moves'], replayed['held']) == ([], row['held'])


def test_replay_of_a_snapshot_repeats_the_refusals_of_placement(world, tmp_path):
    world.conf.set_override('snapshot_dir', str(tmp_path / 'snapshots'), 'engine')
    engine = world.engine(confirming=FakeConfirming([(A0, 'b')]))
    live, = engine.run_cycle()
    replayed, = replay.replay_snapshot(world.conf, engine.write_snapshot(), lambda: 0.0)
    assert (replayed['moves'], replayed['rejections']) == (live['moves'], live['rejections'])


def test_a_host_in_two_aggregates_joins_the_first_and_is_logged_once(world, caplog):
    """Else two plans would give away the same room."""
    world.collector.cluster = dataclasses.replace(
        world.collector.cluster, aggregates={'blue': ('a', 'b'), 'green': ('b',)})
    world.conf.set_override('aggregates', ['green', 'blue'], 'engine')
    world.conf.set_override('include_unassigned_hosts', False, 'engine')
    one = world.engine()
    with caplog.at_level('WARNING'):
        rows = one.run_cycle()
        one.run_cycle()
    assert {r['name']: r['hosts'] for r in rows} == {'green': 1, 'blue': 1}
    assert not any(r['moves'] for r in rows), 'a and b are in different scopes'
    said = [m for m in caplog.messages if 'several aggregates' in m]
    assert said == ['Host b is in several aggregates that are planned, green, blue: it belongs to '
                    'scope green, the first one in [engine] aggregates']


def shared(world, aggregates):
    """Host b is in two aggregates, of which the policy file is for the second."""
    world.collector.cluster = dataclasses.replace(
        world.collector.cluster, aggregates={'blue': ('a', 'b'), 'green': ('b',)})
    world.conf.set_override('aggregates', ['green', 'blue'], 'engine')
    world.conf.set_override('include_unassigned_hosts', False, 'engine')
    write_aggregates(world, aggregates)


def write_aggregates(world, aggregates):
    written = yaml.safe_load(world.path.read_text())
    world.path.write_text(yaml.safe_dump(written | {'aggregates': aggregates}))


def test_a_host_joins_no_scope_that_this_engine_does_not_plan(world, tmp_path, caplog):
    shared(world, ['blue'])
    world.conf.set_override('snapshot_dir', str(tmp_path / 'snapshots'), 'engine')
    one = world.engine()
    path = one.write_snapshot()
    row, = one.run_cycle()
    assert (row['name'], row['hosts']) == ('blue', 2)
    assert [m['to_host'] for m in row['moves']] == ['b']
    assert not any('several aggregates' in m for m in caplog.messages)
    replayed, = replay.replay_snapshot(world.conf, path, lambda: 0.0)
    assert (replayed['hosts'], replayed['moves']) == (row['hosts'], row['moves'])


def test_a_host_belongs_to_the_scope_that_another_engine_has_policies_for(world):
    shared(world, ['blue'])
    assert world.store.leases.acquire_lease('green', 'other', 60, 'hash') is not None
    one = world.engine()
    row, = one.run_cycle()
    assert (row['name'], row['hosts'], row['moves']) == ('blue', 1, [])
    world.clock.now += 61
    row, = one.run_cycle()
    assert row['hosts'] == 2, 'the other engine is gone'


def test_a_scope_that_policies_are_for_no_longer_is_given_back(world):
    shared(world, ['green', 'blue'])
    one = world.engine()
    assert {r['name']: r['hosts'] for r in one.run_cycle()} == {'green': 1, 'blue': 1}
    assert world.store.leases.list_leased_scopes() == {'green', 'blue'}
    write_aggregates(world, ['blue'])
    row, = one.run_cycle()
    assert (row['name'], row['hosts']) == ('blue', 2)
    assert world.store.leases.list_leased_scopes() == {'blue'}


def test_a_disabled_host_that_stays_undrained_is_logged_once(world, caplog):
    services = {h: dataclasses.replace(s, status='disabled' if h == 'a' else 'enabled',
                                       disabled_reason='AUTO: libvirt' if h == 'a' else None)
                for h, s in world.collector.cluster.services.items()}
    world.collector.cluster = dataclasses.replace(world.collector.cluster, services=services)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    one = world.engine()
    with caplog.at_level('INFO'):
        first, = one.run_cycle()
        again, = one.run_cycle()
    text, = first['undrained']
    assert text.startswith('host a is disabled, not drained, because no operator ordered it')
    assert again['undrained'] == [text]
    assert caplog.messages.count(f'Scope {model.UNASSIGNED}: {text}') == 1
    stored = world.store.plans.list_plans()[0].plan
    assert [no.detail for no in stored.undrained] == [text]


def test_the_tally_counts_each_cycle_with_any_result(world):
    tally = tallies.DaemonTally()
    built = world.engine(tally=tally)
    built.run_safe_cycle()
    found = tally.copy_tally()
    scope, = found.scopes
    assert found.counts['cycles'][scope, 'moves'] == 1
    assert found.counts['planned_moves'][scope, 'spread', 'live', 'false'] == 1
    assert found.planned_at == {scope: world.clock.now}
    assert found.readings[scope].scores == {'cpu': {'a': 0.9, 'b': 0.1}}
    world.collector.cluster = exception.CollectError('Nova is away')
    built.run_safe_cycle()
    world.collector.cluster = ZeroDivisionError()
    built.run_safe_cycle()
    found = tally.copy_tally()
    assert not found.readings and found.counts['cycles'][scope, 'failed'] == 2
    failures = found.counts['cycle_failures']
    assert {key: n for key, n in failures.items() if n} == {
        (scope, 'kronos.collect'): 1, (scope, 'defect'): 1}


def test_the_tally_drops_a_scope_that_another_engine_took(world):
    tally = tallies.DaemonTally()
    built = world.engine(tally=tally)
    built.run_safe_cycle()
    scope, = tally.copy_tally().planned_at
    world.clock.now += 1000
    world.engine('two').run_cycle()
    built.run_safe_cycle()
    found = tally.copy_tally()
    assert not found.readings and found.counts['cycles'][scope, 'failed'] == 0
    assert scope in found.planned_at, 'when this one has planned it stays true'


def test_a_lease_that_a_cycle_acquired_again_is_not_lost(world, monkeypatch):
    tally = tallies.DaemonTally()
    built = world.engine(kept_alive=True, tally=tally)
    built.run_safe_cycle()

    def late(lease, seconds):
        built.run_safe_cycle()
        return False

    monkeypatch.setattr(world.store.leases, 'renew_lease', late)
    built.keep_leases()
    assert tally.copy_tally().readings


@pytest.mark.parametrize('evacuates, reason, undrained', [
    (True, 'maintenance', 1), (True, 'AUTO: libvirt', 0), (False, 'maintenance', 0)])
def test_a_drain_that_was_ordered_and_is_blocked_is_counted(world, evacuates, reason, undrained):
    services = {h: dataclasses.replace(s, status='disabled' if h == 'a' else 'enabled',
                                       disabled_reason=reason if h == 'a' else None)
                for h, s in world.collector.cluster.services.items()}
    instances = {uuid: dataclasses.replace(i, locked=True)
                 for uuid, i in world.collector.cluster.instances.items()}
    world.collector.cluster = dataclasses.replace(
        world.collector.cluster, services=services, instances=instances)
    world.conf.set_override('evacuate_disabled_hosts', evacuates, 'engine')
    tally = tallies.DaemonTally()
    row, = world.engine(tally=tally).run_cycle()
    seen, = tally.copy_tally().readings.values()
    assert (row['moves'], seen.undrained) == ([], undrained)


def test_planned_moves_of_a_dry_run_are_counted_as_dry_run(world):
    world.conf.set_override('dry_run', True, 'engine')
    tally = tallies.DaemonTally()
    world.engine(tally=tally).run_cycle()
    counts = tally.copy_tally().counts['planned_moves']
    assert sum(counts.values()) == 1 and {key[3] for key in counts} == {'true'}


def state_contracts(world, stated, *uuids):
    cluster = world.collector.cluster
    world.collector.cluster = dataclasses.replace(cluster, instances={
        u: dataclasses.replace(i, contracts=(stated,) if u in uuids else ())
        for u, i in cluster.instances.items()})


def add_instance(world, name):
    """Add an instance like a0, without a contract; return its UUID."""
    cluster, uuid = world.collector.cluster, loader.uuid_of(name)
    world.collector.cluster = dataclasses.replace(cluster, instances={
        **cluster.instances, uuid: dataclasses.replace(
            cluster.instances[A0], uuid=uuid, contracts=())})
    return uuid


def notify_engine(world):
    told = []
    world.conf.set_override('dry_run', False, 'engine')
    engine = world.engine(listeners=[lambda event, scope, payload: told.append((event, payload))])
    return engine, told


NOTIFY = model.Contract(model.ContractSource.FLAVOR, notify=model.NoticePeriod(3600))


def test_a_move_for_balance_is_announced_and_made_when_its_time_has_come(world):
    engine, told = notify_engine(world)
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    (row,) = engine.run_cycle()
    assert row['moves'] == []
    ((event, payload),) = told
    assert (event, payload['instance_uuid'], payload['from_host'], payload['reason']) == (
        'move.announced', A0, 'a', 'balance')
    start = world.clock.now + 3600
    assert payload['movable_from'] == '1970-01-12T14:46:40+00:00'
    (given,) = world.store.notices.read_notices(world.clock.now).values()
    assert (given.instance_uuid, given.movable_from, given.valid_until) == (
        A0, start, start + 86400)
    told.clear()
    world.clock.now = start - 1
    (row,) = engine.run_cycle()
    assert row['moves'] == told == [], 'one notice is enough'
    world.clock.now = start
    (row,) = engine.run_cycle()
    assert [move['instance_uuid'] for move in row['moves']] == [A0]
    assert [event for event, _payload in told] == ['plan.created']


def test_nothing_is_announced_while_another_instance_can_move(world):
    engine, told = notify_engine(world)
    state_contracts(world, NOTIFY, A0)
    other = add_instance(world, 'a1')
    world.source._usages = {A0: 0.4, B0: 0.05, other: 0.3}
    (row,) = engine.run_cycle()
    assert [move['instance_uuid'] for move in row['moves']] == [other]
    assert [event for event, _payload in told] == ['plan.created']
    assert world.store.notices.read_notices(world.clock.now) == {}


def test_a_notice_that_has_lapsed_is_given_again(world):
    engine, told = notify_engine(world)
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    engine.run_cycle()
    world.clock.now += 3600 + 86400
    (row,) = engine.run_cycle()
    assert row['moves'] == [] and [event for event, _payload in told] == ['move.announced'] * 2


@pytest.mark.parametrize('option', ['never', 'allow'])
def test_a_drain_announces_all_its_moves_at_once_and_its_notices_last(world, option):
    engine, told = notify_engine(world)
    world.conf.set_override('drain_offline', option, 'engine')
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    add_instance(world, 'a1')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    here = {u for u, i in world.collector.cluster.instances.items() if i.host == 'a'}
    assert len(here) > 1
    disable(world, 'a')
    began = world.clock.now
    engine.run_cycle()
    # Then they are locked: the drain waits for more than its notices.
    lock_instances(world)
    announced = {p['instance_uuid']: (p['reason'], p['may_shut_down'])
                 for e, p in told if e == 'move.announced'}
    assert announced == dict.fromkeys(here, ('drain', option == 'allow'))
    for hours in range(0, 60, 6):
        world.clock.now = began + hours * 3600
        engine.run_cycle()
    given = world.store.notices.read_notices(world.clock.now)
    assert given.keys() == here and {n.noticed_at for n in given.values()} == {began}
    assert len([e for e, _p in told if e == 'move.announced']) == len(here)


def lock_instances(world):
    cluster = world.collector.cluster
    world.collector.cluster = dataclasses.replace(cluster, instances={
        u: dataclasses.replace(i, locked=True) for u, i in cluster.instances.items()})


def test_an_instance_that_another_rule_keeps_on_its_host_gets_no_notice_of_a_drain(world):
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    lock_instances(world)
    disable(world, 'a')
    engine.run_cycle()
    assert 'move.announced' not in [event for event, _payload in told]


def read_slowly(world, seconds):
    collect = world.collector.collect_cluster

    def collect_slowly(now):
        cluster = collect(now)
        world.clock.now += seconds
        return cluster

    world.collector.collect_cluster = collect_slowly


def test_a_notice_counts_from_its_storage_not_from_the_reading_of_the_cloud(world):
    engine, told = notify_engine(world)
    state_contracts(world, dataclasses.replace(NOTIFY, notify=model.NoticePeriod(60)),
                    *world.collector.cluster.instances)
    read_slowly(world, 90)
    engine.run_cycle()
    (given,) = world.store.notices.read_notices(world.clock.now).values()
    assert given.noticed_at >= world.clock.now and given.movable_from >= world.clock.now + 60
    assert [payload['movable_from'] for _event, payload in told] == [
        datetime.datetime.fromtimestamp(given.movable_from, datetime.UTC).isoformat()]


@pytest.mark.parametrize('waiting', ['queued', 'approval', 'paused'])
def test_the_notices_of_a_drain_last_while_it_waits(world, waiting):
    engine, told = notify_engine(world)
    if waiting == 'approval':
        approving(world, approval_seconds=86400)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    world.conf.set_override('notice_valid_for', 3600, 'contracts')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    disable(world, 'a')
    engine.run_cycle()
    (given,) = world.store.notices.read_notices(world.clock.now).values()
    if waiting == 'paused':
        world.store.pauses.pause_scope(None, world.clock.now, seconds=None, paused_by='ann',
                                       reason='why')
    for _cycle in range(40):
        world.clock.now += 300
        engine.run_cycle()
    (last,) = world.store.notices.read_notices(world.clock.now).values()
    assert last.noticed_at == given.noticed_at
    assert [event for event, _payload in told].count('move.announced') == 1


def test_a_drain_takes_a_notice_for_balance_over(world):
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    world.conf.set_override('notice_valid_for', 3600, 'contracts')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    engine.run_cycle()
    (given,) = world.store.notices.read_notices(world.clock.now).values()
    disable(world, 'a')
    lock_instances(world)
    for _cycle in range(30):
        world.clock.now += 300
        engine.run_cycle()
    (last,) = world.store.notices.read_notices(world.clock.now).values()
    assert (last.reason, last.noticed_at) == (model.NoticeReason.DRAIN, given.noticed_at)
    assert [event for event, _payload in told].count('move.announced') == 1


def test_a_move_that_has_to_last_as_an_imbalance_is_announced_after_that(world):
    engine, told = notify_engine(world)
    world.conf.set_override('sustain_for', 3600, 'engine')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    seconds = 0
    while not told and seconds < 7200:
        engine.run_cycle()
        seconds += 300
        world.clock.now += 300
    assert 3600 <= seconds - 300 < 5400


def test_a_breaker_that_trips_announces_no_move(world, monkeypatch):
    engine, told = notify_engine(world)
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    monkeypatch.setattr(world.store.outcomes, 'count_failures', lambda *args: (9, 9))
    (row,) = engine.run_cycle()
    assert 'paused' in row['reason'] and told == []


def test_moves_that_placement_refuses_are_not_announced(world):
    class Refusing:
        def __init__(self):
            self.refusals = types.SimpleNamespace(update_history=lambda history, now: history)
            self.calls = []

        def confirm_outcome(self, outcome, now, replan):
            self.calls.append([move.instance_uuid for move in outcome.plan.moves])
            return dataclasses.replace(outcome, plan=dataclasses.replace(outcome.plan, moves=()))

    engine, told = notify_engine(world)
    engine._scopes.confirming = Refusing()
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    engine.run_cycle()
    assert engine._scopes.confirming.calls == [[], [A0]] and told == []


def test_few_notices_for_balance_wait_at_a_time(world):
    engine, told = notify_engine(world)
    names = [add_instance(world, f'a{n}') for n in range(1, 9)]
    state_contracts(world, dataclasses.replace(NOTIFY, notify=model.NoticePeriod(86400)),
                    *world.collector.cluster.instances)
    for cycle in range(60):
        world.source._usages = {A0: 0.02 + cycle % 7 / 40, B0: 0.05, **{
            uuid: 0.02 + (cycle + n) % 5 / 30 for n, uuid in enumerate(names)}}
        engine.run_cycle()
        world.clock.now += 300
    assert [event for event, _payload in told] == ['move.announced']


def test_a_scope_is_not_planned_twice_in_each_cycle(world, monkeypatch):
    engine, _told = notify_engine(world)
    state_contracts(world, NOTIFY, B0)  # the other one is free to move, and its host is quiet
    world.source._usages = {A0: 0.05, B0: 0.05}
    world.source._hosts = {'a': 0.1, 'b': 0.1}
    calls = []
    plan_scope = planning_pipeline.plan_scope
    monkeypatch.setattr(planning_pipeline, 'plan_scope',
                        lambda *args, **more: calls.append(1) or plan_scope(*args, **more))
    counts = []
    for _cycle in range(5):
        calls.clear()
        engine.run_cycle()
        counts.append(len(calls))
        world.clock.now += 300
    assert counts == [2, 1, 2, 1, 2]


def test_a_supposed_plan_that_fails_costs_no_cycle(world, monkeypatch, caplog):
    engine, told = notify_engine(world)
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)

    def refuse(*_args):
        raise exception.PlanRefused(scope='blue', problem='why')

    monkeypatch.setattr(move_notices, 'list_balance_notices', refuse)
    (row,) = engine.run_cycle()
    assert row['reason'] is not None and told == []
    assert 'get their notices in a later cycle' in caplog.text


def list_announced(told):
    return [(payload['instance_uuid'], payload['reason']) for event, payload in told
            if event == 'move.announced']


def refuse_supposed_plan(_world, monkeypatch):
    def refuse(*_args):
        raise exception.PlanRefused(scope='blue', problem='why')

    monkeypatch.setattr(move_notices, 'list_balance_notices', refuse)


def break_planner(_world, monkeypatch):
    def fail(*_args, **_more):
        raise ZeroDivisionError('a defect')

    monkeypatch.setattr(planner, 'plan', fail)


def refuse_plan(_world, monkeypatch):
    monkeypatch.setattr(checker, 'check', lambda *_args: [model.Rejection('rule', 'why')])


def break_metrics(world, _monkeypatch):
    world.source._hosts = {}


@pytest.mark.parametrize('obstacle', [refuse_supposed_plan, break_planner, refuse_plan,
                                      break_metrics])
def test_the_notices_of_a_drain_do_not_wait_for_a_plan(world, monkeypatch, obstacle):
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    disable(world, 'a')
    obstacle(world, monkeypatch)
    for _cycle in range(2):
        engine.run_safe_cycle()
    assert list_announced(told) == [(A0, 'drain')]
    assert world.store.notices.read_notices(world.clock.now).keys() == {A0}


def test_the_error_of_a_plan_outlives_a_defect_of_the_notices(world, monkeypatch, caplog):
    engine, _told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    disable(world, 'a')
    refuse_plan(world, monkeypatch)

    def fail(*_args):
        raise ZeroDivisionError
    monkeypatch.setattr(move_notices, 'list_drain_notices', fail)
    troubles = engine.run_safe_cycle()
    assert list(troubles) == [model.UNASSIGNED] and 'why' in troubles[model.UNASSIGNED]
    assert 'the notices of its drains failed as well' in caplog.text


def test_the_notices_of_a_drain_last_while_no_plan_can_be_made(world, monkeypatch):
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    world.conf.set_override('notice_valid_for', 3600, 'contracts')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    disable(world, 'a')
    refuse_plan(world, monkeypatch)
    began = world.clock.now
    for _cycle in range(4):
        engine.run_safe_cycle()
        world.clock.now += 3000
    (given,) = world.store.notices.read_notices(world.clock.now).values()
    assert given.noticed_at == began and len(told) == 1


def test_an_engine_that_stops_while_a_plan_fails_gives_no_notice(world, monkeypatch):
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    disable(world, 'a')

    def stop(*_args):
        engine.stop()
        return [model.Rejection('rule', 'why')]

    monkeypatch.setattr(checker, 'check', stop)
    engine.run_safe_cycle()
    assert told == [] and world.store.notices.read_notices(world.clock.now) == {}


def test_a_drain_gives_notice_while_a_plan_for_balance_waits_for_approval(world):
    approving(world, approval_seconds=86400)
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    (row,) = engine.run_cycle()
    assert [move['instance_uuid'] for move in row['moves']] == [A0]
    state_contracts(world, NOTIFY, B0)
    disable(world, 'b')
    told.clear()
    engine.run_cycle()
    assert list_announced(told) == [(B0, 'drain')]


def test_notices_without_a_listener_are_logged_and_announced_to_a_later_one(world, caplog):
    world.conf.set_override('dry_run', False, 'engine')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    world.engine().run_cycle()
    assert 'No listener gets these notices' in caplog.text
    engine, told = notify_engine(world)
    engine.run_cycle()
    assert [event for event, _payload in told] == ['move.announced']


def test_a_notice_that_a_listener_cannot_take_is_announced_later(world):
    told, full = [], [True]
    world.conf.set_override('dry_run', False, 'engine')
    engine = world.engine(listeners=[lambda event, scope, payload: (
        False if full[0] else told.append(payload['instance_uuid']))])
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    engine.run_cycle()
    full[0] = False
    engine.run_cycle()
    engine.run_cycle()
    assert told == [A0]


@pytest.mark.parametrize('silent', [0, 1])
def test_a_listener_that_takes_no_notice_holds_up_no_other(world, silent):
    told, full = [[], []], [True]

    def listen(number):
        def take(event, scope, payload):
            if number == silent and full[0]:
                return False
            if event == 'move.announced':
                told[number].append(payload['instance_uuid'])
            return True
        return take

    world.conf.set_override('dry_run', False, 'engine')
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    world.conf.set_override('notice_valid_for', 3600, 'contracts')
    engine = world.engine(listeners=[listen(0), listen(1)])
    names = sorted([A0, *(add_instance(world, f'a{n}') for n in range(1, 4))])
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    disable(world, 'a')
    for _cycle in range(4):  # the notices are extended meanwhile
        engine.run_cycle()
        lock_instances(world)
        world.clock.now += 3000
    assert all(n.valid_until > n.movable_from + 3600 for n in world.store.notices.read_notices(
        world.clock.now).values())
    assert told[silent] == [] and sorted(told[not silent]) == names
    full[0] = False
    for _cycle in range(2):
        engine.run_cycle()
    assert sorted(told[silent]) == sorted(told[not silent]) == names


def test_a_listener_gets_later_notices_while_another_one_takes_none(world):
    told = []
    world.conf.set_override('dry_run', False, 'engine')
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    engine = world.engine(listeners=[
        lambda event, scope, payload: False,
        lambda event, scope, payload: told.append((event, payload))])
    names = [A0, *(add_instance(world, f'a{n}') for n in range(1, 60))]
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    disable(world, 'a')
    for _cycle in range(2):
        engine.run_cycle()
    assert sorted(list_announced(told)) == sorted((uuid, 'drain') for uuid in names)


def test_an_instance_that_a_contract_forbids_to_move_is_not_announced(world):
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    state_contracts(world, dataclasses.replace(NOTIFY, disruption=model.Disruption.NEVER),
                    *world.collector.cluster.instances)
    disable(world, 'a')
    engine.run_cycle()
    assert 'move.announced' not in [event for event, _payload in told]


def test_a_tenant_within_the_cap_delays_no_drain_and_gets_no_notice(world):
    engine, told = notify_engine(world)
    world.conf.set_override('evacuate_disabled_hosts', True, 'engine')
    world.conf.set_override('strongest_for_tenants', 'drain-only', 'contracts')
    state_contracts(world, dataclasses.replace(NOTIFY, source=model.ContractSource.METADATA),
                    *world.collector.cluster.instances)
    disable(world, 'a')
    (row,) = engine.run_cycle()
    assert row['moves'] and 'move.announced' not in [event for event, _payload in told]


def test_a_dry_run_gives_no_notice(world):
    engine, told = notify_engine(world)
    world.conf.set_override('dry_run', True, 'engine')
    state_contracts(world, NOTIFY, *world.collector.cluster.instances)
    engine.run_cycle()
    assert told == [] and world.store.notices.read_notices(world.clock.now) == {}
