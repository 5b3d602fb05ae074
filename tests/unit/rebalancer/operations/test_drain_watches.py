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

"""``kronos drain watch``: it bears with what passes, ends when it is over, and says what holds."""

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import api as client_api
from kronos_nova.rebalancer.clients import hidden_servers
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_watches
from tests.fixtures import stores
from tests.unit.rebalancer.clients import served
from tests.unit.rebalancer.store import cases

GONE = client_api.ApiError('Nova', 'compute services', 'HTTP 503', 503)
NO_DATABASE = exception.StoreError(problem='does not answer', remedy='Start it.')
ROW = drain_watches.WatchRow('vm', '', 'waits', None, '')
HERE = drain_watches.DrainState([ROW], 1)
EMPTY = drain_watches.DrainState([], 0)


class Watch:
    """The loop on looks and a clock of ours; ``said`` with its times."""

    def __init__(self, *looks, timeout=86400.0, interval=10.0):
        self.looks, self.now = list(looks), 1000.0
        self.times = drain_watches.WatchTimes(interval, timeout, since=60.0)
        self.said, self.told, self.waited = [], [], []

    def look(self, since):
        assert since == 940.0
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, Exception):
            raise found
        return found

    def wait(self, seconds):
        self.waited.append(seconds)
        self.now += seconds

    def run(self):
        return drain_watches.watch_until_end(
            'h1', self.times, self.look, self.told.append, self.said.append, self.wait,
            lambda: self.now)


def look(**fields):
    return drain_watches.DrainState(**{'rows': [ROW], 'remaining': 1, **fields})


def test_it_looks_until_the_host_is_empty_and_nothing_is_under_way():
    watch = Watch(HERE, look(rows=[], remaining=0, busy=True), EMPTY)
    assert watch.run() == (None, [])
    assert watch.waited == [10.0, 10.0] and len(watch.told) == 3 and not watch.said


def test_after_the_timeout_it_is_not_empty_yet():
    watch = Watch(HERE, timeout=25.0)
    assert watch.run() == ('is not empty yet.', [ROW])
    assert watch.now == 1025.0


@pytest.mark.parametrize('error', [GONE, NO_DATABASE])
def test_the_first_look_must_succeed(error):
    watch = Watch(error, EMPTY)
    with pytest.raises(exception.ConfigError, match='command line: h1: .*(503|does not answer)'):
        watch.run()
    assert not watch.waited


def test_temporary_failures_of_a_watch_are_reported_once():
    watch = Watch(HERE, *[GONE] * 12, NO_DATABASE, HERE, GONE, EMPTY)
    assert watch.run() == (None, [])
    assert [text.split(':')[0] for text in watch.said] == [
        'Cannot look', 'It can be looked at again.', 'Cannot look', 'It can be looked at again.']
    assert 'Nova: compute services: HTTP 503. It is tried again for 300 s.' in watch.said[0]


def test_readings_that_fail_too_long_end_the_watch_with_the_cause():
    watch = Watch(HERE, GONE)
    with pytest.raises(exception.ConfigError, match='no look has succeeded for 300 s: .*HTTP 503'):
        watch.run()
    assert watch.now == pytest.approx(1310.0)


def test_only_failures_without_a_break_count():
    watch = Watch(*[HERE, *[GONE] * 20] * 5, EMPTY)
    assert watch.run()[0] is None


def test_failed_readings_are_repeated_sooner_than_a_long_interval():
    watch = Watch(HERE, GONE, GONE, EMPTY, interval=600.0)
    assert watch.run()[0] is None
    assert watch.waited == [600.0, 30.0, 30.0]


def test_a_host_that_is_not_there_ends_it_at_any_time():
    gone = exception.ConfigError(path='command line', field='h1', problem='none', remedy='')
    with pytest.raises(exception.ConfigError, match='none'):
        Watch(HERE, gone, EMPTY).run()


def test_a_host_that_is_enabled_again_ends_it_at_once():
    watch = Watch(HERE, look(enabled=True), EMPTY)
    assert watch.run() == ('is enabled again: the drain is over, 1 instance is left.', [ROW])
    assert len(watch.told) == 2


def test_a_host_that_no_engine_drains_ends_the_watch_at_once():
    why, _rows = Watch(look(enabled=True, emptied=False), EMPTY).run()
    assert why.startswith('is enabled, and no engine empties it: 1 instance is on it')
    assert Watch(look(rows=[], remaining=0, enabled=True, emptied=False)).run() == (None, [])


def test_a_host_that_pack_empties_is_enabled_and_watched_all_the_same():
    assert Watch(look(enabled=True), look(enabled=True), EMPTY).run()[0] is None


def test_the_cause_of_a_hold_is_reported_once_per_change():
    watch = Watch(HERE, look(holds='a pause'), look(holds='a pause'), look(holds='a plan'),
                  look(holds='a plan'), HERE, HERE, EMPTY)
    assert watch.run()[0] is None
    assert watch.said == ['Nothing begins now: a pause', 'Nothing begins now: a plan',
                          'Nothing holds it any longer.']


# One look.


@pytest.fixture
def store(tmp_path):
    found = stores.in_file(tmp_path / 'kronos.sqlite')
    yield found
    found.close()


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    opts.register(found)
    found([], default_config_files=[])
    found.set_override('aggregates', ['red', 'blue', 'green'], 'engine')
    found.set_override('evacuate_disabled_hosts', True, 'engine')
    found.set_override('dry_run', False, 'engine')
    return found


def aggregates(**hosts):
    return [{'aggregates': [{'id': n, 'name': name, 'hosts': found, 'metadata': {}}
                            for n, (name, found) in enumerate(hosts.items())]}]


def hypervisor(host, ironic):
    return {'id': cases.new_id(), 'hypervisor_hostname': host, 'state': 'up', 'status': 'enabled',
            'hypervisor_type': 'ironic' if host in ironic else 'QEMU', 'servers': [],
            'service': {'host': host, 'id': cases.new_id(), 'disabled_reason': None}}


def seen(conf, store, *services, left=('vm',), scopes=('blue', '_unassigned_'), host='h1',
         in_aggregates=None, leased=('blue', '_unassigned_'), ironic=()):
    """A look at h1, a host of blue unless told, that an engine plans."""
    for scope in leased:
        store.leases.acquire_lease(scope, 'engine', 30, 'hash')
    with served.serving({
            'GET /os-services': [{'services': list(found)} for found in services],
            'GET /servers/detail': [{'servers': [{'id': uuid} for uuid in left]}],
            'GET /os-hypervisors/detail': [{'hypervisors': [
                hypervisor(one['host'], ironic) for one in services[-1]]}],
            'GET /resource_providers': [{'resource_providers': []}],
            'GET /os-aggregates': aggregates(**(in_aggregates or {'blue': ['h1']}))}) as nova:
        return drain_watches.read_host_progress(conf, list(scopes), store, nova.connection, host,
                                                0.0,
                                      hypervisors=nova_api.NovaApi(
                                          nova.connection).read_hypervisors)


DISABLED = served.service('h1', 'disabled', 'change 7')


def test_a_look_has_who_is_there_and_nothing_holds(conf, store):
    found = seen(conf, store, [DISABLED])
    assert (found.remaining, found.busy, found.enabled, found.holds) == (1, False, False, '')
    assert [(row.instance_uuid, row.state) for row in found.rows] == [('vm', 'waits')]


def test_a_watch_reads_hypervisors_once(conf, store, tmp_path, monkeypatch):
    store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    conf.set_override('connection', f'sqlite:///{tmp_path}/kronos.sqlite', 'database')
    monkeypatch.setattr(drain_watches.planning_settings, 'list_planned_scopes',
                        lambda conf, policies: ['blue'])
    with served.serving({
            'GET /os-services': [{'services': [DISABLED]}],
            'GET /servers/detail': [{'servers': [{'id': 'vm'}]}, {'servers': [{'id': 'vm'}]},
                                    {'servers': []}],
            'GET /os-hypervisors/detail': [{'hypervisors': [hypervisor('h1', ())]}],
            'GET /resource_providers': [{'resource_providers': []}],
            'GET /os-aggregates': aggregates(blue=['h1'])}) as nova:
        session = cloud_state.Session()
        session.conf, session.policies, session.connection = conf, None, nova.connection
        looks = []
        with session:
            why, rows = drain_watches.watch_drain(
                session, 'h1', looks.append, lambda text: None,
                drain_watches.WatchTimes(interval=0.01, timeout=60.0))
        paths = [path for _method, path, *_rest in nova.asked]
    assert why is None and len(looks) == 3
    assert paths.count('/os-hypervisors/detail') == 1


def test_a_cell_that_is_down_is_no_empty_host(conf, store):
    down = {'binary': 'nova-compute', 'host': 'h1', 'status': 'UNKNOWN'}
    for services in ([down],), ([DISABLED], [down]):
        with pytest.raises(client_api.ApiError, match='its cell does not answer'):
            seen(conf, store, *services, left=())


def test_host_that_is_empty_in_nova_s_list_alone_is_no_empty_host(conf, store, monkeypatch):
    looked_up = []

    def refuse(nova, placement, host, providers):
        looked_up.append((host, len(providers)))
        raise hidden_servers.make_hidden_error('vm', host)

    monkeypatch.setattr(hidden_servers, 'refuse_hidden_servers', refuse)
    assert seen(conf, store, [DISABLED]).remaining == 1 and not looked_up
    with pytest.raises(client_api.ApiError, match='its list lacks server vm, which is on h1'):
        seen(conf, store, [DISABLED], left=())
    assert looked_up == [('h1', 1)]


def test_a_host_that_nova_does_not_know_is_no_empty_host(conf, store):
    with pytest.raises(exception.ConfigError, match='compute-10: no .* compute-01 meant'):
        seen(conf, store, [served.service('compute-01')], host='compute-10')


@pytest.mark.parametrize('scope', ['blue', None])
def test_a_hold_by_a_pause_names_operator_reason_and_end(conf, store, scope):
    store.pauses.pause_scope(scope, store.now(), seconds=3600, paused_by='me', reason='a storm')
    found = seen(conf, store, [DISABLED])
    assert 'was paused by me until 2' in found.holds and 'a storm' in found.holds


def test_the_pause_of_another_scope_does_not_hold(conf, store):
    store.pauses.pause_scope('red', store.now(), seconds=None, paused_by='me', reason='a storm')
    both = {'red': ['h1'], 'blue': ['h1']}
    assert seen(conf, store, [DISABLED], in_aggregates=both).holds == ''
    assert 'a storm' in seen(
        conf, store, [DISABLED], in_aggregates=both, scopes=('red', 'blue')).holds, (
        'the first that is planned has it')
    store.leases.acquire_lease('red', 'another engine', 30, 'hash')
    assert 'a storm' in seen(conf, store, [DISABLED], in_aggregates=both).holds, (
        'planned by another engine')


def test_a_host_without_an_aggregate_is_held_by_the_unassigned_pause(conf, store):
    store.pauses.pause_scope(
        '_unassigned_', store.now(), seconds=None, paused_by='me', reason='a storm')
    assert 'a storm' in seen(conf, store, [DISABLED], in_aggregates={'blue': []}).holds


def test_a_hold_by_a_waiting_plan_names_its_uuid_and_the_commands(conf, store):
    now = store.now()
    plan_id, _tasks, _plan = cases.save(store, [lambda p, s: cases.make_task(
        p, s, state=model.TaskState.PENDING, created_at=now, deadline=now + 3600,
        phase=model.Phase.EVACUATE)], now=now)
    found = seen(conf, store, [DISABLED])
    assert f'plan {plan_id} waits for approval' in found.holds
    assert 'kronos plan approve, or reject' in found.holds
    assert found.busy, 'its task is from h1'


def test_a_plan_for_balance_that_waits_is_no_hold(conf, store):
    now = store.now()
    cases.save(store, [lambda p, s: cases.make_task(
        p, s, state=model.TaskState.PENDING, created_at=now, deadline=now + 3600)], now=now)
    assert 'waits for approval' not in seen(conf, store, [DISABLED]).holds


@pytest.mark.parametrize(('options', 'reason', 'said'), [
    ({'drain_reason_regex': '^CHG'}, 'change 7', 'does not match drain_reason_regex'),
    ({}, 'AUTO: libvirt', 'no operator ordered it'),
    ({'evacuate_disabled_hosts': False}, 'change 7', 'evacuate_disabled_hosts is not set'),
    ({'dry_run': True}, 'change 7', '[engine] dry_run is set, and then nothing is moved'),
    ({'freeze_windows': ['0 0 * * * 24h']}, 'change 7', 'freeze')])
def test_a_hold_names_the_rule_by_which_engines_ignore_the_host(conf, store, options, reason, said):
    for name, value in options.items():
        conf.set_override(name, value, 'engine')
    found = seen(conf, store, [served.service('h1', 'disabled', reason)])
    assert said in found.holds


def others(*states):
    return [served.service(f'o{n}', *state) for n, state in enumerate(states)]


@pytest.mark.parametrize(('services', 'said'), [
    (others(('disabled',), ('disabled',), ('enabled',)),
     '3 of 4 hosts are disabled (h1, o0, o1), more than max_drain_fraction (0.3)'),
    (others(('enabled', None, 'down'), ('enabled', None, 'down'), ('enabled',)),
     '2 of 4 hosts are down (o0, o1), more than max_down_fraction (0.3)'),
    (others(('enabled',), ('enabled',), ('enabled',)), '')])
def test_an_outage_of_its_scope_holds_and_no_other(conf, store, services, said):
    of = [found['host'] for found in services]
    here = {'red': ['x'], 'blue': ['h1', *of]}
    found = seen(conf, store, [DISABLED, *services], in_aggregates=here).holds
    assert found.startswith(said) if said else found == ''
    elsewhere = {'red': of, 'blue': ['h1', *(f'n{n}' for n in range(4))]}
    news = [served.service(f'n{n}') for n in range(4)]
    assert seen(conf, store, [DISABLED, *services, *news], in_aggregates=elsewhere).holds == ''


def test_disabled_hosts_of_another_hypervisor_type_are_no_outage(conf, store):
    services = [DISABLED, *others(('disabled',), ('disabled',), ('enabled',))]
    here = {'blue': [found['host'] for found in services]}
    assert 'max_drain_fraction' in seen(conf, store, services, in_aggregates=here).holds
    assert seen(conf, store, services, in_aggregates=here, ironic=('o0', 'o1')).holds == ''


@pytest.mark.parametrize(('plan', 'said'), [
    ({'undrained': (model.Rejection('x', 'host h1 is not drained: the budget is used up'),
                    model.Rejection('x', 'host h10 is not drained: another reason'))},
     'host h1 is not drained: the budget is used up'),
    ({'held': (model.Rejection('no-room', 'instance vm: no host has room'),)},
     'instance vm: no host has room'),
    ({'reason': 'the scope cools down'}, 'the scope cools down')])
def test_newest_plan_says_why_instances_stay(conf, store, plan, said):
    lease = cases.lease_of(store)
    store.plans.save_plan(lease, model.Plan('blue', (), **{'reason': 'r', **plan}), [],
                          plan_id=cases.new_id(), now=store.now(), dry_run=False, cooldown=0,
                          instance_cooldown=0)
    assert seen(conf, store, [DISABLED], leased=('_unassigned_',)).holds in (
        said, f'{said}; no engine plans scope blue: is kronos-engine running?')


def test_tasks_of_an_earlier_drain_are_not_listed(conf, store):
    now = store.now()

    def end(uuid, from_host, to_host, at):
        _plan, (task,), _row = cases.save(store, [lambda p, s: cases.make_task(
            p, s, instance_uuid=uuid, from_host=from_host, to_host=to_host)], now=at)
        claimed = cases.claim(store, now=at + 1).task
        store.tasks.finish_task(claimed, model.TaskResult(
            claimed.task_id, claimed.plan_id, 'blue', uuid, from_host, to_host, True,
            completed_at=at + 2), model.TaskState.COMPLETED, at + 2, worker='w',
            instance_cooldown=0)

    first, back, second = (cases.new_id() for _ in range(3))
    end(first, 'h1', 'h2', now - 500)
    assert [row.instance_uuid for row in seen(conf, store, [DISABLED], left=()).rows] == [first]
    end(back, 'h2', 'h1', now - 400)
    end(second, 'h1', 'h2', now - 300)
    assert [row.instance_uuid for row in seen(conf, store, [DISABLED], left=()).rows] == [second]
    store.audit.record_command('me', 'drain started', 'host h10', 'why')
    assert [row.instance_uuid for row in seen(conf, store, [DISABLED], left=()).rows] == [second]
    store.audit.record_command('me', 'drain started', 'host h1', 'why')
    assert seen(conf, store, [DISABLED], left=()).rows == []


def test_hosts_of_an_earlier_scope_do_not_count_for_an_outage(conf, store):
    services = others(('disabled',), ('disabled',), ('enabled',), ('enabled',))
    of = [found['host'] for found in services]
    both = {'red': of[:2], 'blue': ['h1', *of]}
    assert 'disabled' in seen(conf, store, [DISABLED, *services], in_aggregates=both).holds
    store.leases.acquire_lease('red', 'engine', 30, 'hash')
    assert seen(conf, store, [DISABLED, *services], in_aggregates=both).holds == ''


def test_a_hold_says_that_no_engine_plans_the_scope(conf, store):
    found = seen(conf, store, [DISABLED], leased=())
    assert found.holds == 'no engine plans scope blue: is kronos-engine running?'
    conf.set_override('dry_run', True, 'engine')
    found = seen(conf, store, [DISABLED], leased=())
    assert found.holds == '[engine] dry_run is set, and then nothing is moved', (
        'a dry run takes no lease')


def test_an_expired_lease_counts_as_no_lease(conf, store):
    store.leases.acquire_lease('blue', 'engine', -1, 'hash')
    assert 'no engine plans scope blue' in seen(conf, store, [DISABLED], leased=()).holds


@pytest.mark.parametrize(('in_aggregates', 'scopes'), [
    ({'purple': ['h1']}, ('blue', '_unassigned_')), ({'blue': []}, ('blue',))])
def test_a_hold_says_that_the_host_is_in_no_planned_scope(conf, store, in_aggregates, scopes):
    found = seen(conf, store, [DISABLED], in_aggregates=in_aggregates, scopes=scopes,
                 leased=('blue',))
    assert 'host h1 belongs to no scope that is planned' in found.holds


def test_a_host_that_is_being_emptied_is_known(conf, store):
    assert not seen(conf, store, [served.service('h1')]).emptied
    cases.save(store, 1, now=store.now(), draining=['h1'])
    found = seen(conf, store, [served.service('h1')])
    assert found.emptied and found.enabled and found.busy


def test_messages_name_the_deadline_once_and_again_when_it_has_passed():
    watch = Watch(*[look(deadline=1015.0)] * 4, EMPTY)
    assert watch.run() == (None, [])
    assert watch.said == ['The deadline of the drain is 1970-01-01T00:16:55+00:00.',
                          'The drain is late: its deadline was 1970-01-01T00:16:55+00:00.']


@pytest.mark.parametrize(('status', 'reason', 'counts'), [
    ('disabled', 'change 7', True), ('disabled', 'change 8', False), ('enabled', None, False)])
def test_a_deadline_counts_for_the_drain_that_it_was_ordered_for(
        conf, store, status, reason, counts):
    due = float(int(store.now()) + 600)
    cases.order_drain(store, 'h1', due, 'change 7')
    found = seen(conf, store, [served.service('h1', status, reason)])
    assert found.deadline == (due if counts else None)
