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

"""A drain that a person starts beside a step of a campaign: together they keep the fraction."""

import dataclasses
import datetime
import random

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import beginning_drains
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.store import audits
from tests.unit.rebalancer.engine import campaign_bench

STATES = model.CampaignState
#: Steps of the engine in four cycles, and draws for each kind of run.
STEPS, DRAWN = 70, 30
EMPTYING, TO_COME = model.CampaignHostState.EMPTYING, model.CampaignHostState.TO_COME


class Person:
    """A person who starts the drain of a host, as start_drain does, at some steps of the engine.

    :param steps: those at which the person reads the cloud, writes the audit row, looks for other
        drains, and disables the host; in order, and maybe the same.
    """

    def __init__(self, *steps, host='x', most=1):
        self.host, self.bench, self._most = host, None, most
        self._left = list(zip(steps, (self._read_cloud, self._write_row, self._look, self._disable),
                              strict=True))
        self.step, self._is_busy, self.has_drained = 0, False, False
        self.wrote_at, self.took_too_long = 0.0, False

    def follow_engine(self):
        """Act at the chosen steps; called at each transaction and each request of the engine."""
        if self._is_busy:
            return
        self._act(self.step)
        self.step += 1
        assert len(list_disabled(self.bench)) <= self._most

    def finish(self):
        """Take the steps that are left, after all of the engine."""
        self._act(float('inf'))

    def _act(self, step):
        self._is_busy = True
        while self._left and self._left[0][0] <= step:
            self._left.pop(0)[1]()
        self._is_busy = False

    def _read_cloud(self):
        self.read_at, self.request = self.bench.now, self.bench.build_request()

    def _write_row(self):
        self.wrote_at = self.bench.now
        self.bench.store.audit.record_command('bob', audits.DRAIN_STARTED, f'host {self.host}')

    def _look(self):
        cluster, options = self.request.cluster, self.request.options
        self.rival = beginning_drains.find_beginning_drain(
            self.bench.store, cluster, self.read_at,
            beginning_drains.count_rival_seconds(self.bench.conf), host=self.host)
        self.is_refused = self.rival is not None or (
            planning_holds.count_drainable_hosts(cluster, options) < 1)
        if self.is_refused:
            self.bench.store.audit.record_command(
                'bob', audits.DRAIN_FAILED, f'host {self.host}', str(self.rival or ''))

    def _disable(self):
        self.took_too_long = self.bench.now - self.wrote_at > (
            beginning_drains.count_rival_seconds(self.bench.conf))
        if not self.is_refused and not self.took_too_long:
            self.bench.set_service(self.host, status='disabled', disabled_reason='mine')
            self.has_drained = True


def run_beside(*steps, sizes=(1024,), trouble='', cycles=1, seconds=61.0):
    """Run cycles beside a person; one host may be disabled at a time.

    :param trouble: see TROUBLES.
    """
    person = Person(*steps)
    bench = campaign_bench.Bench({'a': list(sizes), 'x': [1024], 'spare': []},
                                 dies=person.follow_engine)
    bench.options.update(max_drain_fraction=0.4, max_down_fraction=0.9)
    person.bench = bench
    bench.start('a')
    bench.refused.update('a' * (trouble == 'refused'))
    bench.silent.update('a' * (trouble == 'late'))
    for cycle in range(cycles):
        bench.run_cycle(seconds)
        if cycle == 1:
            bench.refused.clear()
        if cycle == 0 and trouble == 'late' and bench.states() == {'a': 'emptying'}:
            bench.set_service('a', status='disabled', disabled_reason=bench.campaign.reason)
            bench.silent.clear()
        if cycle == 1 and trouble == 'skipped':
            bench.order('a', campaign_orders.SKIP)
        if cycle == 2 and trouble == 'reboots':
            bench.set_service('a', state='down')
        assert len(list_disabled(bench)) <= 1
    person.finish()
    return bench, person


#: What befalls the host of the campaign: Nova refuses to disable it twice, the first request comes
#: late, an operator leaves it out, it reboots.
TROUBLES = ('', 'refused', 'late', 'skipped', 'reboots')


def list_disabled(bench):
    return [host for host, service in bench.services.items() if not service.enabled]


def test_a_drain_and_a_step_that_begin_at_once_never_pass_the_fraction_together():
    """At each two steps of the engine's cycle: the row of the drain, and the request to Nova."""
    steps = run_beside(*[99] * 4)[1].step
    assert steps > 8
    ends = set()
    for writes_at in range(steps):
        for acts_at in range(writes_at, steps):
            bench, person = run_beside(writes_at, writes_at, acts_at, acts_at)
            disabled = list_disabled(bench)
            assert len(disabled) <= 1, (writes_at, acts_at, disabled)
            ends.add(tuple(disabled))
            if person.has_drained:
                assert bench.states() == {'a': 'to-come'}
                assert bench.campaign.waits
    assert ends == {('a',), ('x',), ()}


def run_step_of_two(steps, dies_at):
    """Run a step of two hosts beside a person, and a second engine after the death of the first.

    Two hosts may be disabled at a time.

    :param dies_at: the step of the first engine after which it does nothing; None: it lives.
    """
    def follow_engine():
        person.follow_engine()
        if bench.number == 1 and person.step == dies_at:
            raise campaign_bench.Death
    person = Person(*steps, most=2)
    bench = person.bench = campaign_bench.Bench(
        {'a': [1024], 'b': [1024], 'x': [1024], 'spare': [], 'more': []}, dies=follow_engine)
    bench.options.update(max_drain_fraction=0.4)
    bench.start('ab', together=2)
    for seconds in (61.0, 1.0, 1.0):
        try:
            bench.run_cycle(seconds)
        except campaign_bench.Death:
            bench.renew_engine()
            bench.now += 31.0  # the lease of the first is over
    person.finish()
    assert len(list_disabled(bench)) <= 2
    return bench, person


def test_a_drain_beside_a_step_of_two_hosts_never_passes_the_fraction():
    """An engine looks once for a step, and not for each host: later drains see its rows."""
    steps = run_step_of_two([999] * 4, None)[1].step
    assert steps > 12
    rng, ends = random.Random(5), set()
    for _run in range(120):
        writes_at = rng.randrange(steps // 2)
        acts_at = rng.randrange(writes_at, steps)
        bench, _person = run_step_of_two([writes_at, writes_at, acts_at, acts_at], None)
        ends.add(tuple(list_disabled(bench)))
    assert ends >= {('a', 'b'), ('x',)}


def test_a_drain_beside_two_engines_never_passes_the_fraction():
    """The first one dies at any step of its own, with some hosts disabled."""
    rng, ends = random.Random(26), set()
    for _run in range(120):
        writes_at = rng.randrange(24)
        acts_at = rng.randrange(writes_at, 40)
        bench, _person = run_step_of_two([writes_at, writes_at, acts_at, acts_at],
                                         rng.randrange(1, 24))
        ends.add(tuple(list_disabled(bench)))
    assert ends >= {('a', 'b'), ('x',)}


@pytest.mark.parametrize('trouble', TROUBLES)
@pytest.mark.parametrize('sizes', [(1024,), ()])
def test_a_drain_of_four_steps_beside_four_cycles_never_passes_the_fraction(sizes, trouble):
    """The reading, the row, the look and the request each come at any step of the engine.

    The order takes no longer than a drain counts as one that begins; the reading may be older.
    """
    rng = random.Random(f'{sizes} {trouble}')
    ends, tried = set(), 0
    while tried < DRAWN:
        seconds = rng.choice([20.0, 61.0])
        kind = {'sizes': sizes, 'trouble': trouble, 'cycles': 4, 'seconds': seconds}
        first = rng.randrange(rng.choice([8, STEPS]))
        steps = sorted([first, *(rng.randrange(first, STEPS) for _step in range(3))])
        bench, person = run_beside(*steps, **kind)
        if person.took_too_long:
            continue
        tried += 1
        disabled = list_disabled(bench)
        assert len(disabled) <= 1, (steps, kind, disabled)
        ends.add(tuple(disabled))
    assert ends >= {('a',), ('x',)} or trouble == 'skipped' and ('x',) in ends


def test_a_step_that_gave_way_is_planned_again_once_the_drain_is_over():
    bench, person = run_beside(0, 0, 0, 0)
    assert person.has_drained and bench.states() == {'a': 'to-come'}
    assert 'the drain of x starts at the same time' in bench.campaign.waits
    bench.run_cycle()
    assert bench.campaign.waits.startswith('max_drain_fraction')
    bench.set_service('x', status='enabled', disabled_reason=None)
    bench.run_cycle()
    assert list_disabled(bench) == ['a'] and bench.states() == {'a': 'emptying'}


def make_waiting_bench():
    """Return a bench whose engine has died before it disabled the host that begins."""
    bench = campaign_bench.Bench({'a': [1024], 'x': [1024], 'spare': []})
    bench.options['max_drain_fraction'] = 0.4
    bench.start('a')

    def die(host):
        raise campaign_bench.Death

    bench.after_read = die
    with pytest.raises(campaign_bench.Death):
        bench.run_cycle()
    assert bench.states() == {'a': 'emptying'} and list_disabled(bench) == []
    bench.after_read = lambda host: None
    bench.renew_engine()
    bench.now += 31.0  # its lease is over
    return bench


def test_a_later_engine_disables_a_host_only_while_the_fraction_admits_it():
    bench = make_waiting_bench()
    bench.set_service('x', status='disabled', disabled_reason='mine')
    bench.run_cycle()
    assert list_disabled(bench) == ['x'] and bench.campaign.state is STATES.RUNNING
    assert bench.states() == {'a': 'to-come'}
    assert bench.campaign.hosts[0].detail.startswith('not disabled: max_drain_fraction')
    assert bench.campaign.waits == (
        f'host a is {bench.campaign.hosts[0].detail}; a later cycle plans the step again')
    bench.set_service('x', status='enabled', disabled_reason=None)
    bench.run_cycle()
    assert list_disabled(bench) == ['a'] and bench.campaign.waits == ''
    assert bench.campaign.hosts[0].detail == ''


def test_a_later_engine_waits_for_a_drain_that_begins():
    bench = make_waiting_bench()
    bench.store.audit.record_command('bob', audits.DRAIN_STARTED, 'host x')
    bench.run_cycle(1.0)
    assert list_disabled(bench) == [] and bench.states() == {'a': 'to-come'}
    assert 'the drain of x starts at the same time' in bench.campaign.hosts[0].detail
    bench.store.audit.record_command('bob', audits.DRAIN_FAILED, 'host x')
    bench.run_cycle(1.0)
    assert list_disabled(bench) == ['a']


def find_drain(bench, **more):
    return beginning_drains.find_beginning_drain(
        bench.store, bench.build_request().cluster, bench.now,
        beginning_drains.count_rival_seconds(bench.conf), **more)


def test_a_host_that_nova_refuses_to_disable_is_to_come_again_and_holds_no_drain():
    bench = campaign_bench.Bench({'a': [1024], 'x': [1024], 'spare': []})
    bench.start('a')
    bench.refused.add('a')
    for _cycle in range(2):
        bench.run_cycle()
        assert bench.states() == {'a': 'to-come'} and find_drain(bench, host='x') is None
        assert bench.build_request().history.campaign_hosts == set()
        assert bench.campaign.hosts[0].detail == 'not disabled: Nova: the service: HTTP 403'
        assert bench.campaign.waits == ('host a is not disabled: Nova: the service: HTTP 403; a '
                                        'later cycle plans the step again')
    bench.refused.clear()
    bench.run_cycle()
    assert list_disabled(bench) == ['a'] and bench.states() == {'a': 'emptying'}
    assert bench.campaign.waits == ''


def test_a_host_of_a_step_that_nova_refuses_to_disable_is_to_come_and_the_others_go_on():
    bench = campaign_bench.Bench({'a': [1024], 'b': [1024], 'x': [], 'spare': []})
    bench.start('ab', together=2)
    bench.refused.add('b')
    bench.run_cycles(2)
    assert bench.states() == {'a': 'emptying', 'b': 'to-come'}
    assert bench.campaign.hosts[1].detail == 'not disabled: Nova: the service: HTTP 403'
    assert bench.build_request().history.campaign_hosts == {'b'}


def test_a_host_that_nova_never_disables_leaves_gaps_to_drains_and_takes_nothing_meanwhile():
    """Nova answers none of the requests, so any may still take effect."""
    bench = campaign_bench.Bench({'a': [1024], 'x': [1024], 'spare': []})
    bench.start('a')
    bench.silent.add('a')
    seen = []
    while bench.campaign.state is STATES.RUNNING:
        bench.run_cycle()
        rival, (host,) = find_drain(bench, host='x'), bench.campaign.hosts
        seen.append(host.state)
        assert (rival is None) == (host.state is not EMPTYING)
        assert bench.build_request().history.campaign_hosts == (
            {'a'} if host.state is EMPTYING else set())
        assert 'no answer' in host.detail
        if host.state is not EMPTYING:
            assert host.detail == 'not disabled: Nova: the service: no answer'
            assert host.detail in bench.campaign.waits
    assert seen == 3 * [*[EMPTYING] * 3, TO_COME]
    assert bench.campaign.held_because == (
        '3 steps in a row gave way because of Nova, the last one with host a, which is not '
        'disabled: Nova: the service: no answer; kronos campaign resume tries again, and skip '
        'leaves the host out')


def test_a_host_that_began_and_that_no_engine_asked_nova_for_is_planned_again():
    bench = make_waiting_bench()
    bench.now += 600.0
    bench.run_cycle()
    assert bench.states() == {'a': 'to-come'} and list_disabled(bench) == []
    bench.run_cycle()
    assert list_disabled(bench) == ['a']


@pytest.mark.parametrize('way', ['pause', 'window'])
def test_a_host_that_began_is_not_disabled_while_no_host_may_begin(way):
    window = maintenance_windows.parse_window('Tue 0:00-0:05')
    bench = campaign_bench.Bench({'a': [1024], 'x': [1024], 'spare': []})
    bench.start('a', windows=(window,) if way == 'window' else ())
    bench.now = window.find_opening(bench.now, datetime.UTC)
    bench.silent.add('a')
    bench.run_cycle(1.0)
    assert bench.states() == {'a': 'emptying'}
    bench.silent.clear()
    if way == 'pause':
        bench.set_state([STATES.RUNNING], STATES.PAUSED)
    bench.run_cycle(119.0 if way == 'pause' else 301.0)
    if way == 'pause':
        assert bench.states() == {'a': 'emptying'} and find_drain(bench, host='x') is not None
        bench.run_cycle(1.0)
    assert bench.states() == {'a': 'to-come'} and list_disabled(bench) == []
    assert bench.campaign.hosts[0].detail.startswith(
        'not disabled: the campaign is paused' if way == 'pause' else
        'not disabled: the next window opens at ')


def test_a_host_to_come_that_a_late_request_disables_is_enabled_again():
    bench = campaign_bench.Bench({'a': [1024], 'x': [1024], 'spare': []})
    bench.start('ax')
    bench.refused.add('a')
    bench.run_cycle()
    assert bench.states()['a'] == 'to-come'
    bench.refused.clear()
    bench.set_service('a', status='disabled', disabled_reason=bench.campaign.reason)
    bench.set_service('spare', status='disabled', disabled_reason=bench.campaign.reason)
    bench.set_state([STATES.RUNNING], STATES.PAUSED)
    bench.run_cycle()
    assert list_disabled(bench) == ['spare'] and bench.states()['a'] == 'to-come'


def test_an_order_of_a_person_comes_before_the_return_of_a_host():
    bench = make_waiting_bench()
    lease = bench.store.leases.acquire_lease(campaign_bench.SCOPE, bench.owner, 60.0, '')
    campaign_id = bench.campaign.campaign_id
    assert bench.order('a', campaign_orders.SKIP)
    bench.store.campaigns.return_hosts(lease, campaign_id, ['a'], bench.now)
    assert bench.states() == {'a': 'withdrawn'}


def test_the_reason_of_a_step_that_gave_way_stays_until_it_changes():
    bench = campaign_bench.Bench({'a': [1024], 'x': [1024], 'spare': []})
    bench.options['max_drain_fraction'] = 0.4
    bench.start('a')
    for _cycle in range(3):
        bench.store.audit.record_command('bob', audits.DRAIN_STARTED, 'host x')
        bench.run_cycle(1.0)
        assert bench.states() == {'a': 'to-come'}
        assert 'the drain of x starts at the same time' in bench.campaign.waits
        assert bench.campaign.hosts[0].detail.startswith('not disabled: the drain of x')


@pytest.mark.parametrize(('timeout', 'seconds'), [(None, 120.0), (5, 120.0), (90, 180.0)])
def test_a_drain_counts_while_its_request_may_wait_for_nova(timeout, seconds):
    bench = campaign_bench.Bench({'a': [1024], 'x': [1024], 'spare': []})
    bench.conf.set_override('timeout', timeout, 'nova')
    assert beginning_drains.count_rival_seconds(bench.conf) == seconds
    bench.store.audit.record_command('bob', audits.DRAIN_STARTED, 'host x')
    began, bench.now = bench.now, bench.now + seconds
    assert find_drain(bench, host='a').clause.startswith('the drain of x starts')
    bench.now = began + seconds + 1.0
    assert find_drain(bench, host='a') is None


def test_hosts_that_wait_are_disabled_as_far_as_the_fraction_goes():
    bench = campaign_bench.Bench({'a': [], 'b': [], 'x': [], 'y': []})
    bench.start('ab', together=2)
    bench.run_cycle()
    for host in bench.campaign.hosts:
        bench.set_service(host.host, status='enabled', disabled_reason=None)
    bench.set_service('x', status='disabled', disabled_reason='mine')
    assert list_disabled(bench) == ['x'], 'two of four may be disabled'
    bench.run_cycle()
    assert bench.states()['b'] == 'emptying', 'the first request may still come'
    bench.run_cycle()
    assert list_disabled(bench) == ['a', 'x'] and bench.states() == {'a': 'emptying',
                                                                    'b': 'to-come'}


def test_no_drain_fits_beside_a_campaign_host_that_reboots():
    bench = campaign_bench.Bench({'a': [], 'x': [], 'spare': []})
    bench.options.update(max_drain_fraction=0.4, max_down_fraction=0.9)
    bench.start('a')
    bench.run_cycles(3)
    assert bench.states() == {'a': 'held'}
    for state in ('up', 'down'):
        bench.set_service('a', state=state)
        request = bench.build_request()
        assert planning_holds.count_drainable_hosts(request.cluster, request.options) == 0
        (refusal,) = drains.list_obstacles(request, ['x'])
        assert refusal.startswith('with this host disabled, 2 of 3 hosts are disabled (a, x)')


def test_own_steps_and_hosts_of_other_scopes_are_no_rivals():
    bench = campaign_bench.Bench({'a': [], 'x': [], 'spare': []})
    bench.start('a')
    campaign, lease = bench.campaign, bench.store.leases.acquire_lease(
        campaign_bench.SCOPE, bench.owner, 60.0, '')
    bench.store.campaigns.begin_step(lease, campaign.campaign_id, ['a'], opened=False,
                                     now=bench.now)
    cluster = bench.build_request().cluster

    def find(cluster=cluster, **more):
        return beginning_drains.find_beginning_drain(bench.store, cluster, bench.now, 120.0,
                                                     **more)

    assert find() == find(host='a')
    assert find().clause == f'campaign {campaign.campaign_id} begins with host a at the same time'
    assert find().remedy.endswith('no engine carries it on: the order campaign abort, with --scope '
                                  f'{campaign.scope}, frees this drain two minutes later')
    assert find(campaign_id=campaign.campaign_id) is None
    assert find(dataclasses.replace(cluster, scope_hosts=frozenset('x'))) is None
    bench.set_service('a', status='disabled', disabled_reason=campaign.reason)
    assert find(bench.build_request().cluster) is None


def test_a_row_that_was_written_by_hand_stops_its_campaign_and_is_named(caplog):
    bench = campaign_bench.Bench({'a': [1024], 'spare': []})
    bench.start('a')
    campaign_id = bench.campaign.campaign_id
    with bench.store.engine.begin() as connection:
        connection.exec_driver_sql('UPDATE campaign SET windows = ?', ('never',))
    bench.run_cycles(2)
    assert list_disabled(bench) == []
    assert f"campaign {campaign_id}: it cannot be read: windows: 'never'" in caplog.text
    assert 'Traceback' not in caplog.text
    with pytest.raises(exception.UnreadableRowError):
        bench.store.campaigns.find_campaign(campaign_id)
