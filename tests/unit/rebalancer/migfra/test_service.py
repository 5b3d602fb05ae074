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


"""kronos-migfra without a Nova and a broker: what may go wrong between them and the database."""

import logging
import threading

import fixtures
from oslo_config import cfg
import pytest
import sqlalchemy as sa
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.conf import permits
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import request_authorization
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.messaging import mqtt
from kronos_nova.rebalancer.migfra import assembly
from kronos_nova.rebalancer.migfra import inbox
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import outbox
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra import request_repository
from kronos_nova.rebalancer.migfra import request_worker
from kronos_nova.rebalancer.migfra import service
from kronos_nova.rebalancer.migfra import task_reader
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.store import tables
from tests.fixtures import stores
from tests.unit.rebalancer.migfra.test_protocol import ID
from tests.unit.rebalancer.migfra.test_protocol import TASKS
from tests.unit.rebalancer.store import cases

NOW = 1_800_000_000.0


class Broker:
    """Accept messages when the test allows it."""

    def __init__(self, heard):
        self.heard = heard
        self.said = []
        self.topics = []
        self.acknowledged = []

    def publish_message(self, topic, payload, said):
        self.said.append((topic, yaml.safe_load(payload), said))

    def subscribe_topics(self, topics):
        self.topics.append(list(topics))

    def start(self):
        pass

    stop = start

    def deliver(self, text, host='node1', retained=False):
        self.heard(mqtt.ReceivedMessage(f'fast/migfra/{host}/task', text.encode(), retained,
                                        lambda: self.acknowledged.append(text)))


class Handler:
    """Return scripted answers."""

    name = 'all'
    kinds = frozenset(MigfraRequestKind)

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.passes = []

    def begin_pass(self, due):
        self.passes.append([request.request_id for request in due])

    def end_pass(self):
        self.passes.append('end')

    def continue_request(self, request, now):
        self.asked.append(request.request_id)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def release_pass_data(self):
        self.rested = True

    def close(self):
        pass


class Nova:
    """Knows two hosts, or nothing."""

    def __init__(self):
        self.down = False
        self.aggregates_ = {'rack': ('node2', 'node3')}

    def read_services(self):
        if self.down:
            raise api.ApiError('Nova', 'compute services', 'no answer in time')
        return dict.fromkeys(['node1', 'node2', 'node/3'])

    def read_aggregates(self):
        return {name: nova_api.Aggregate(hosts, {}) for name, hosts in self.aggregates_.items()}


#: Without keys every request passes.
UNSIGNED = request_authorization.RequestAuthorization(None)


class World:

    def __init__(self, store, *answers, authorization=UNSIGNED):
        self.now = NOW
        self.authorization = authorization
        self.stepped = 0.0
        self.store = store
        self.conf = cfg.ConfigOpts()
        opts.register(self.conf)
        self.conf([], default_config_files=[])
        self.set('dry_run', False, 'engine')
        self.nova = Nova()
        self.handler = Handler(*answers)
        self.service = self.made('one')

    def set(self, name, value, group='migfra'):
        self.conf.set_override(name, value, group)

    def made(self, worker):
        self.kept = request_repository.MigfraRequestRepository(
            self.store, worker, 60.0, lambda: self.now, authorization=self.authorization)
        self.lane = request_worker.MigfraRequestWorker(self.conf, self.kept, self.handler,
                                                       lambda: self.now, self.ticks)
        hosts = names.ScopesByHost(self.nova, ['rack', '_unassigned_'])

        def connect(heard):
            self.broker = Broker(heard)
            return self.broker

        return service.MigfraService(self.conf, self.kept, hosts, [self.lane], connect,
                                     clock=lambda: self.now, ticks=self.ticks)

    def ticks(self):
        return self.now - self.stepped

    def step_clock(self, seconds):
        """The clock is set; no time passes."""
        self.now += seconds
        self.stepped += seconds

    def run(self, wait=0.0):
        self.service.run_once(wait)


@pytest.fixture
def store(tmp_path):
    found = stores.in_file(tmp_path / 'kronos.sqlite')
    yield found
    found.close()


DONE = request_handler.MigfraRequestResult('result: vm stopped\n', False)


def test_a_pass_ends_while_messages_come_without_a_pause(store, monkeypatch):
    world = World(store)
    stored = []

    def store_and_hear_another(message):
        stored.append(message)
        if len(stored) < 10 * inbox.WAITING:
            world.service._inbox._messages.put(message)

    monkeypatch.setattr(world.service._inbox, '_store_message', store_and_hear_another)
    world.service._inbox._messages.put('a message')
    world.run()
    assert len(stored) == inbox.WAITING, 'claims are renewed and results published in between'
    assert world.service._inbox._messages.qsize() == 1, 'none is lost'


def test_a_message_is_acknowledged_when_it_is_kept(store):
    world = World(store, None)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    assert world.broker.acknowledged == []
    with fixtures.MonkeyPatch('kronos_nova.rebalancer.store.requests.record_request', _broken):
        with pytest.raises(exception.StoreError):
            world.run()
        assert world.broker.acknowledged == []
    world.run()
    assert world.broker.acknowledged == [
        TASKS[MigfraRequestKind.STOP]], 'what was held back is not lost'
    assert world.lane.run_once() == 1


def _broken(*args):
    raise exception.StoreError(problem='is away', remedy='Wait.')


def test_no_message_stops_those_behind_it(store):
    world = World(store, None)
    with fixtures.MonkeyPatch('kronos_nova.rebalancer.migfra.task_reader.parse_task',
                              lambda *args: 1 / 0):
        world.broker.deliver('x')
        world.run()
    (_, found, said), = world.broker.said
    assert found['details'] == ('a defect of kronos-nova (ZeroDivisionError); see its log')
    said(True)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    assert world.broker.acknowledged == ['x', TASKS[MigfraRequestKind.STOP]]


def test_hosts_are_served_under_their_aliases(store):
    world = World(store, DONE)
    world.set('host_aliases', ['n1=node1', 'n2 = node2', 'n9=node9'])
    world.service = world.made('one')
    world.run()
    assert world.broker.topics == [['fast/migfra/n1/task', 'fast/migfra/n2/task']]
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE].replace('node', 'n'), 'n1')
    world.broker.deliver(TASKS[MigfraRequestKind.STOP].replace('node', 'n'), 'n2')
    world.run()
    request, = world.kept.claim_requests(world.lane.worker, frozenset(MigfraRequestKind))
    task = request_handler.parse_task(request)
    assert (request.host, task.host, task.destination) == ('node1', 'node1', 'node2')
    world.lane.run_once()
    world.run()
    assert sorted((topic, said.get('details', '')) for topic, said, _ in world.broker.said) == [
        ('fast/migfra/n1/result', ''),
        ('fast/migfra/n2/result', 'host: the task came on the topic of n2')]


def test_a_host_whose_name_is_the_alias_of_another_is_not_served(store, caplog):
    """Both would have one topic, and a task for one would be done on the other."""
    world = World(store, DONE)
    world.set('host_aliases', ['node2=node1'])
    world.service = world.made('one')
    with caplog.at_level(logging.WARNING):
        world.run()
    assert world.broker.topics == [['fast/migfra/node2/task']]
    assert 'node2' in caplog.text and 'host_aliases' in caplog.text
    world.set('host_aliases', ['node2=node1', 'node1=node2'])
    world.service = world.made('one')
    world.run()
    assert world.broker.topics == [['fast/migfra/node1/task', 'fast/migfra/node2/task']]


@pytest.mark.parametrize('aliases', [['n1'], ['=node1'], ['n1='], ['a/b=node1'], ['a+=node1'],
                                     ['n1=node1', 'n1=node2'], ['n1=node1', 'n2=node1']])
def test_an_alias_that_cannot_be_used_stops_the_start(store, aliases):
    world = World(store, DONE)
    world.set('host_aliases', aliases)
    with pytest.raises(exception.ConfigError, match='host_aliases'):
        world.made('one')


def test_ids_are_unique_for_each_host_and_not_beyond(store):
    world = World(store, DONE)
    text = TASKS[MigfraRequestKind.MIGRATE].replace('host: node1\n', '')
    for host in ('node1', 'node2', 'node1'):
        world.broker.deliver(text.replace('node2', 'node3'), host)
        world.run()
    assert world.lane.run_once() == 2
    assert sorted(world.handler.asked) == [f'node1/{ID}', f'node2/{ID}']
    world.run()
    assert sorted(topic for topic, _, _ in world.broker.said) == [
        'fast/migfra/node1/result', 'fast/migfra/node2/result']


def test_a_task_that_a_release_before_has_kept_is_not_done_again(store):
    world = World(store, DONE)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    store.run_transaction(lambda c: c.execute(sa.update(tables.request).values(request_id=ID)))
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    assert world.lane.run_once() == 1 and world.handler.asked == [ID]
    world.broker.deliver(TASKS[MigfraRequestKind.STOP].replace('vm-2', 'vm-3'))
    world.run()
    found = next(found for _, found, _ in world.broker.said if 'id' in found)
    assert found['details'] == 'id: another task had it; each needs one of its own'
    assert [(one['vm-name'], one['status']) for one in found['list']] == [
        ('vm-1', 'error'), ('vm-3', 'error')]


def test_a_key_fits_the_database_however_long_host_and_id_are():
    assert request_handler.make_key('node1', 7) == 'node1/7'
    keys = {request_handler.make_key('h' * 255, 'i' * n) for n in (1, 63, 64, 255)}
    assert len(keys) == 4 and all(len(key) <= 255 for key in keys)


def test_a_message_without_id_is_one_task_for_all_services_for_a_while(store):
    world = World(store, DONE)
    world.set('dialect', 'fast-lib')
    text = TASKS[MigfraRequestKind.STOP].replace(f'id: {ID}\n', '')
    first = world.broker
    first.deliver(text)
    world.run()
    world.now += 20
    second = world.made('two')
    world.broker.deliver(text)
    second.run_once(0.0)
    assert world.lane.run_once() == 1, 'both have heard the same task'
    world.now += 180
    world.broker.deliver(text)
    second.run_once(0.0)
    assert world.lane.run_once() == 1, 'a new one'
    assert len(set(world.handler.asked)) == 2


def test_results_that_are_refused_keep_no_others_back(store):
    world = World(store, DONE)
    for n in range(request_repository.AT_ONCE + 5):
        world.broker.deliver(TASKS[MigfraRequestKind.STOP].replace(ID, f'r{n:03}'))
    world.run()
    while world.lane.run_once():
        pass
    for _ in range(3):
        world.run()
        for _, _, said in world.broker.said[-request_repository.AT_ONCE:]:
            said(False)
    assert len({found['result'] for _, found, _ in world.broker.said}) == 1
    assert len(world.broker.said) == request_repository.AT_ONCE + 5


def test_a_plan_that_the_checker_refuses_is_no_reason_to_look_again(store):
    world = World(store, exception.PlanRefused(scope='s', problem='a defect'))
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE])
    world.run()
    world.lane.run_once()
    world.run()
    (_, found, _), = world.broker.said
    assert 'was refused and not stored: a defect' in found['details']


def test_a_refusal_is_published_before_the_acknowledgement(store):
    world = World(store, None)
    world.broker.deliver('task: quit\n')
    world.run()
    (topic, found, said), = world.broker.said
    assert (topic, found['status']) == ('fast/migfra/node1/result', 'error')
    assert world.broker.acknowledged == []
    said(False)
    assert world.broker.acknowledged == [], 'it comes again with the next connection'
    said(True)
    assert world.broker.acknowledged == ['task: quit\n']


def test_a_result_is_published_until_the_broker_accepts_it(store):
    world = World(store, DONE)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    world.lane.run_once()
    world.run()
    world.run()
    assert [found['result'] for _, found, _ in world.broker.said] == ['vm stopped']
    world.broker.said.pop()[2](False)
    world.run()
    assert world.broker.said == [], 'who may not say it, may not in a moment either'
    world.now += 31
    world.run()
    world.broker.said.pop()[2](True)
    world.run()
    world.now += 3600
    world.run()
    assert world.broker.said == []


def test_a_repeated_request_publishes_a_result_in_delivery_twice(store):
    world = World(store, DONE)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    world.lane.run_once()
    world.run()
    _, _, said = world.broker.said.pop()
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    said(True)
    world.run()
    world.run()
    assert len(world.broker.said) == 1


def test_another_process_publishes_overdue_results(store):
    world = World(store, DONE)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    world.lane.run_once()
    second = world.made('two')
    second.run_once(0.0)
    assert world.broker.said == [], 'the first one does'
    world.now += 61
    second.run_once(0.0)
    assert len(world.broker.said) == 1


def test_the_hosts_of_all_scopes_are_heard_and_no_others(store):
    world = World(store, None)
    world.run()
    assert world.broker.topics == [['fast/migfra/node1/task', 'fast/migfra/node2/task']]
    world.nova.down = True
    world.now += 61
    world.run()
    world.nova.down = False
    world.nova.aggregates_['other'] = ('node1',)
    world.now += 61
    world.run()
    assert world.broker.topics[1:] == [['fast/migfra/node2/task']]


def test_no_host_is_refused_before_the_hosts_are_known(store):
    hosts = names.ScopesByHost(Nova(), ['_unassigned_'])
    with pytest.raises(api.ApiError, match='not known yet'):
        hosts.find_scope('node1')
    hosts.refresh_hosts()
    assert (hosts.find_scope('node1'), hosts.find_scope('node2')) == ('_unassigned_', None)


@pytest.mark.parametrize('error', [
    api.ApiError('Nova', 'servers', 'no answer in time'),
    exception.StoreError(problem='is away', remedy='Wait.'),
    exception.CollectError(what='servers', service='Nova', problem='no answer in time')])
def test_a_failing_request_is_retried_until_it_is_given_up(store, error):
    world = World(store, error)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    for asked, seconds in ((1, 0), (1, 4), (2, 2), (2, 9), (3, 2), (4, 21), (5, 41), (6, 81),
                           (7, 121), (8, 121)):
        world.now += seconds
        assert world.lane.run_once() == 1
        assert len(world.handler.asked) == asked, 'it is waited for, longer each time'
    world.now += 86401
    world.lane.run_once()
    world.run()
    (_, found, _), = world.broker.said
    assert found['details'].startswith('given up after 86400 s: ')
    assert str(error).split('.')[0] in found['details']


def planned(world, *answers):
    """A request with a plan of three tasks, one of which is in Nova and one judged."""
    world.handler.answers = [None]
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE])
    world.run()
    world.lane.run_once()
    plan_id, tasks, _ = cases.save(world.store, 3, now=NOW)
    request, = world.kept.claim_requests(world.lane.worker, frozenset(MigfraRequestKind))
    world.store.run_transaction(lambda c: world.kept.record_plan(c, request, {}, plan_id))
    submitted = cases.claim(world.store, now=NOW, per_scope=9).task.task_id
    assert world.store.tasks.update_state(
        submitted, 'w', [TaskState.CLAIMED], TaskState.SUBMITTING, NOW)
    judged = cases.claim(world.store, now=NOW, per_scope=9).task.task_id
    waits, = {t.task_id for t in tasks} - {submitted, judged}
    world.handler.answers = list(answers)
    return plan_id, submitted, {judged, waits}


def states(world, plan_id):
    return {row.task.task_id: str(row.task.state)
            for row in world.store.tasks.list_plan_tasks(plan_id)}


@pytest.mark.parametrize('answer', [
    None, exception.CollectError(what='servers', service='Nova', problem='no answer in time')])
def test_giving_up_cancels_queued_tasks_and_keeps_submitted_ones(store, answer):
    world = World(store)
    plan_id, submitted, others = planned(world, answer)
    world.lane.run_once()
    assert 'cancelled' not in states(world, plan_id).values(), 'it is not late yet'
    world.now += 86401
    world.lane.run_once()
    assert states(world, plan_id) == {submitted: 'submitting', **dict.fromkeys(
        others, 'cancelled')}
    world.run()
    (_, found, _), = world.broker.said
    assert found['status'] == 'error' and found['details'].startswith('given up after 86400 s')
    said, = world.store.approvals.list_decisions(plan_id)
    assert (said.verb, said.decided_by, said.tasks) == ('cancelled', 'migfra', 2)
    assert said.reason == f'request {ID} was given up'


def test_a_request_that_ends_by_a_defect_cancels_its_queued_tasks(store):
    world = World(store)
    plan_id, submitted, others = planned(world, RuntimeError('x'))
    for _ in range(request_worker.TRIES):
        world.lane.run_once()
    assert states(world, plan_id) == {submitted: 'submitting', **dict.fromkeys(
        others, 'cancelled')}


def test_a_request_that_its_handler_ended_cancels_no_task(store):
    world = World(store)
    plan_id, _, _ = planned(world,
                            request_handler.MigfraRequestResult('result: vm migrated\n', True))
    world.now += 86401
    world.lane.run_once()
    assert 'cancelled' not in states(world, plan_id).values()


def test_a_process_that_lost_its_request_cancels_no_task(store):
    world = World(store)
    plan_id, _, _ = planned(world, None)
    request, = world.kept.claim_requests(world.lane.worker, frozenset(MigfraRequestKind))
    other = request_repository.MigfraRequestRepository(
        store, 'two', 60.0, lambda: NOW + 61, authorization=UNSIGNED)
    assert other.claim_requests('two/all', frozenset(MigfraRequestKind))
    with pytest.raises(exception.StoreError, match='another process'):
        world.kept.give_up_request(request, DONE, 900.0)
    assert 'cancelled' not in states(world, plan_id).values()


def test_giving_up_cancels_a_plan_that_the_claim_did_not_have(store):
    world = World(store, None)
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE])
    world.run()
    request, = world.kept.claim_requests(world.lane.worker, frozenset(MigfraRequestKind))
    plan_id, tasks, _ = cases.save(store, 1, now=NOW)
    store.run_transaction(lambda c: world.kept.record_plan(c, request, {}, plan_id))
    assert request.plan_id is None
    assert world.kept.give_up_request(request, DONE, 900.0) == 1
    assert states(world, plan_id) == {tasks[0].task_id: 'cancelled'}


def test_a_defect_is_retried_three_times_and_reported_without_its_text(store):
    world = World(store, ZeroDivisionError('secret=1'))
    log = fixtures.FakeLogger(level=logging.ERROR)
    with log:
        world.broker.deliver(TASKS[MigfraRequestKind.STOP])
        world.run()
        assert [world.lane.run_once() for _ in range(4)] == [1, 1, 1, 0]
        world.run()
    (_, found, _), = world.broker.said
    assert found['details'] == ('a defect of kronos-nova (ZeroDivisionError); see its log')
    assert 'failed for a reason that is a defect of ours' in log.output


@pytest.mark.parametrize('column, value, problem', [
    ('document', '{"task":', 'its document raises JSONDecodeError'),
    ('document', '{"task": "quit vm"}', 'its document raises KeyError'),
    ('document', '{"task": "stop vm", "id": "bad"}', 'its document raises ValidationError'),
    ('document', 'RESUME', 'its document is of resume vm'),
    ('progress', '{"items"', 'its progress is no JSON object'),
    ('progress', '[1]', 'its progress is no JSON object')])
def test_a_damaged_request_ends_alone_and_the_rest_go_on(store, column, value, problem):
    world = World(store, DONE)
    for name in ('bad', 'good'):
        world.broker.deliver(TASKS[MigfraRequestKind.STOP].replace(ID, name))
        world.run()
        world.now += 1
    if value == 'RESUME':
        value = request_handler.format_document(task_reader.parse_task(
            TASKS[MigfraRequestKind.RESUME].encode(), 'node1'))
    store.run_transaction(lambda c: c.execute(sa.update(tables.request).where(
        tables.request.c.request_id == 'node1/bad').values({column: value})))
    world.lane.run_once()
    assert world.handler.asked == ['node1/good']
    assert world.lane.run_once() == 0, 'neither of them is open'
    world.run()
    found = {said['id'] if isinstance(said, dict) and 'id' in said else 'good': said
             for _, said, _ in world.broker.said}
    assert found['good'] == {'result': 'vm stopped'}
    assert (found['bad']['result'], found['bad']['status']) == ('vm stopped', 'error')
    assert f'the stored request cannot be read ({problem})' in found['bad']['details']


def test_a_damaged_request_with_a_plan_begins_no_more_moves(store):
    world = World(store)
    plan_id, submitted, others = planned(world, None)
    store.run_transaction(lambda c: c.execute(sa.update(tables.request).values(document='{')))
    world.lane.run_once()
    assert states(world, plan_id) == {submitted: 'submitting', **dict.fromkeys(
        others, 'cancelled')}


def test_an_end_that_cannot_be_written_keeps_no_others_back(store):
    world = World(store, DONE)
    for name in ('bad', 'good'):
        world.broker.deliver(TASKS[MigfraRequestKind.STOP].replace(ID, name))
        world.run()
        world.now += 1
    end = world.kept.end_request

    def fail(request, ended):
        if request.request_id == 'node1/bad':
            raise exception.StoreError(problem='says that another process has taken over '
                                       'request bad', remedy='Leave it alone.')
        end(request, ended)

    world.kept.end_request = fail
    with pytest.raises(exception.StoreError, match='request bad'):
        world.lane.run_once()
    world.run()
    assert [found for _, found, _ in world.broker.said] == [{'result': 'vm stopped'}]


def test_a_refusal_has_one_line_for_any_quoted_text(store):
    world = World(store, request_handler.MigfraRequestRefusal('a\nb\x07'))
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE])
    world.run()
    world.lane.run_once()
    world.run()
    (_, found, _), = world.broker.said
    assert (found['result'], found['details']) == ('vm migrated', 'a b')
    assert (found['vm-name'], found['process-id']) == ('vm-1', None)


@pytest.mark.parametrize('option, value', [('dry_run', True), ('executor', 'dry_run')])
def test_nothing_is_done_in_a_dry_run(store, option, value):
    world = World(store, DONE)
    world.set(option, value, 'engine')
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    world.lane.run_once()
    world.run()
    assert world.handler.asked == []
    (_, found, _), = world.broker.said
    assert 'dry_run' in found['details'] and found['status'] == 'error'


def test_a_slow_pass_keeps_its_requests_and_a_hanging_pass_does_not(store):
    world = World(store, None)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    began, go_on = threading.Event(), threading.Event()

    def slow(request, now):
        began.set()
        go_on.wait(30)

    world.handler.continue_request = slow
    lane, one = world.lane, world.service
    thread = threading.Thread(target=lane.run_once)
    thread.start()
    try:
        assert began.wait(30)
        for _ in range(8):
            world.now += 20
            one.run_once(0.0)
        other = request_repository.MigfraRequestRepository(
            store, 'two', 60.0, lambda: world.now, authorization=UNSIGNED)
        assert other.claim_requests('two/all', frozenset(MigfraRequestKind)) == []
        world.now += request_worker.HUNG_SECONDS
        one.run_once(0.0)
        assert [r.request_id
                for r in other.claim_requests('two/all',
                                              frozenset(MigfraRequestKind))] == [f'node1/{ID}']
    finally:
        go_on.set()
        thread.join()


@pytest.mark.parametrize('seconds', [-86400 * 365, 86400 * 365])
def test_a_step_of_the_clock_changes_no_wait(store, seconds):
    world = World(store, exception.StoreError(problem='is away', remedy='Wait.'))
    world.set('give_up_seconds', 86400 * 1000)
    looked, beaten = [], []
    world.nova.read_services = lambda: looked.append(world.now) or {'node1': None}
    world.lane.renew_request_claims = lambda: beaten.append(world.now)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    world.lane.run_once()
    assert (len(looked), len(beaten), len(world.handler.asked)) == (1, 1, 1)
    world.step_clock(seconds)
    for passed, counts in ((0, (1, 1, 1)), (4, (1, 1, 1)), (2, (1, 1, 2)), (10, (1, 2, 3)),
                           (45, (2, 3, 4))):
        world.now += passed
        world.run()
        world.lane.run_once()
        assert (len(looked), len(beaten), len(world.handler.asked)) == counts, passed


@pytest.mark.parametrize('seconds', [-86400, 86400])
def test_a_pass_during_which_the_clock_is_set_does_not_hang(store, seconds):
    world = World(store, None)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    beaten = []

    def look(request, now):
        world.step_clock(seconds)
        world.kept.record_heartbeat = beaten.append
        world.lane.renew_request_claims()
        world.now += request_worker.HUNG_SECONDS
        world.lane.renew_request_claims()

    world.handler.continue_request = look
    world.step_clock(-seconds / 2)
    world.lane.run_once()
    assert beaten == [world.lane.worker]


@pytest.mark.parametrize('seconds', [-86400, 86400])
def test_a_refused_result_is_published_again_after_any_clock_step(store, seconds):
    world = World(store, DONE)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    world.lane.run_once()
    world.run()
    world.broker.said[-1][2](False)
    world.run()
    world.step_clock(seconds)
    world.run()
    assert len(world.broker.said) == 1
    world.now += outbox.REFUSED_SECONDS + 1
    world.run()
    assert len(world.broker.said) == 2


def test_while_we_are_behind_the_broker_waits(store):
    world = World(store, None)
    messages = [TASKS[MigfraRequestKind.STOP].replace(ID, f'r{n}')
                for n in range(inbox.WAITING + 1)]
    thread = threading.Thread(target=lambda: [world.broker.deliver(m) for m in messages])
    thread.start()
    thread.join(1.0)
    assert thread.is_alive()
    world.run(1.0)
    thread.join(30)
    assert not thread.is_alive()
    world.run()
    assert world.broker.acknowledged == messages


@pytest.mark.parametrize('zone, there', [(None, True), ('az1', True), ('az2', False)])
def test_hosts_of_another_zone_are_not_served(zone, there):
    hosts = names.ScopesByHost(ZonedNova(), ['_unassigned_'], zone)
    assert bool(hosts.refresh_hosts()) is there


class ZonedNova:
    def read_services(self):
        return {'host1': model.Service('host1', zone='az1')}

    def read_aggregates(self):
        return {}


def test_a_stop_does_not_wait_for_a_full_queue(store):
    world = World(store, None)
    for n in range(inbox.WAITING):
        world.broker.deliver(TASKS[MigfraRequestKind.STOP].replace(ID, f'r{n}'))
    world.service.stop()
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    assert world.broker.acknowledged == []


def test_only_named_permits_allow_requests(store):
    hosts = names.ScopesByHost(Nova(), ['rack', '_unassigned_'])
    hosts.refresh_hosts()
    world = World(store, None)
    world.broker.deliver(TASKS[MigfraRequestKind.STOP])
    world.run()
    request, = world.kept.claim_requests('w', frozenset(MigfraRequestKind))
    task = request_handler.parse_task(request)

    def permitted(*allow):
        return request_handler.list_permitted_projects([permits.PermitType()(text)
                                                        for text in allow], hosts,
                                                       request, task)

    for allow in ([], ['start-vm:*:*'], ['stop-vm:*:rack']):
        with pytest.raises(request_handler.MigfraRequestRefusal,
                           match='stop vm is not allowed in scope _unassigned_'):
            permitted(*allow)
    assert permitted('stop-vm:p1:*', 'stop-vm:p2:_unassigned_') == {'p1', 'p2'}
    assert permitted('stop-vm:p1:*', '*:*:*') is None


@pytest.fixture
def authorization(tmp_path):
    key_repository.create_keys(str(tmp_path / 'keys'))
    return request_authorization.RequestAuthorization(
        key_repository.KeyRepository(str(tmp_path / 'keys')))


def change_requests(store, **columns):
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.request).values(**columns))


def read_reply(store):
    with store.engine.connect() as connection:
        return connection.execute(sa.select(tables.request.c.reply)).scalar_one()


def test_a_request_whose_message_was_heard_is_carried_out(store, authorization):
    world = World(store, DONE, authorization=authorization)
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE])
    world.run()
    world.lane.run_once()
    assert read_reply(store) == DONE.reply


@pytest.mark.parametrize(('columns', 'problem'), [
    ({'authorization': None}, 'it has no signature'),
    ({'authorization': 'a.b.c'}, 'its signature is not valid'),
    ({'host': 'h2'}, 'its row differs'), ({'request_id': 'another'}, 'its row differs')])
def test_a_request_that_was_written_or_changed_by_hand_is_refused(store, authorization, columns,
                                                                  problem, caplog):
    world = World(store, DONE, authorization=authorization)
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE])
    world.run()
    change_requests(store, **columns)
    world.lane.run_once()
    assert f'it is not authorized: {problem}' in read_reply(store)
    assert 'Find out who can write to the database' in caplog.text
    assert world.handler.asked == []


def test_a_request_with_another_document_or_of_long_ago_is_refused(store, authorization):
    world = World(store, DONE, authorization=authorization)
    world.broker.deliver(TASKS[MigfraRequestKind.MIGRATE])
    world.run()
    columns = tables.request.c
    with store.engine.connect() as connection:
        *row, document = connection.execute(sa.select(
            columns.authorization, columns.request_id, columns.host, columns.kind,
            columns.document)).one()
    assert authorization.find_problem(*row, document, NOW + 7 * 86400) is None
    assert authorization.find_problem(*row, document, NOW + 7 * 86400 + 301) == (
        'its signature has ended')
    assert 'its row differs' in authorization.find_problem(*row, f'{document} ', NOW)
    assert 'its row differs' in authorization.find_problem(*row[:3], 'stop vm', document, NOW)


def test_a_service_that_cannot_sign_is_not_built(store, tmp_path):
    world = World(store)
    world.set('host', 'broker.example.org', 'mqtt')
    world.set('key_repository', str(tmp_path / 'none'), 'signing')
    with pytest.raises(exception.SigningKeyError, match='none'):
        assembly.build_service(world.conf, dict, None, store, None, 'one', 'machine')
