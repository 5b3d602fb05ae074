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

"""Requests to Nova that come late, or whose answers are lost; engines that stand still before one.

A host that a request may still change neither begins again nor is left out of the fraction.
"""

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import beginning_drains
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.store import audits
from tests.unit.rebalancer.engine import campaign_bench

STATES = model.CampaignState


def make_bench(hosts='a', together=1, sizes=(1024,), fraction=0.5, **options):
    bench = campaign_bench.Bench({**dict.fromkeys(hosts, list(sizes)), 'x': [1024], 'spare': []},
                                 **options)
    bench.options.update(max_drain_fraction=fraction)
    bench.start(hosts, together=together)
    return bench


def list_disabled(bench):
    return [host for host, service in bench.services.items() if not service.enabled]


def find_rival(bench):
    """Return what refuses a drain of host x."""
    request = bench.build_request()
    return beginning_drains.find_beginning_drain(
        bench.store, request.cluster, bench.now,
        beginning_drains.count_rival_seconds(bench.conf), host='x')


def disable_late(bench, host='a'):
    """Let a request that an engine has sent before arrive."""
    bench.set_service(host, status='disabled', disabled_reason=bench.campaign.reason)


def make_late_host(bench):
    """Let the host be to come, and disabled by a late request."""
    bench.refused.add('a')
    bench.run_cycle(20.0)
    bench.refused.clear()
    assert bench.states()['a'] == 'to-come'
    disable_late(bench)


def freeze_once(bench, where, act):
    """Let an engine stand still at host a while ``act`` runs, with another engine if it likes."""
    first = bench.conductor, bench.owner

    def freeze(host):
        if host == 'a':
            setattr(bench, where, lambda host: None)
            bench.at_work = False
            act()
            bench.conductor, bench.owner = first

    setattr(bench, where, freeze)


# Enabling.


def test_an_engine_that_stood_still_before_it_enables_a_host_finds_another_engine_at_work():
    bench = make_bench(sizes=())
    make_late_host(bench)

    def take_over():
        bench.renew_engine()
        for _cycle in range(12):
            bench.run_cycle()
            if bench.states() == {'a': 'held'}:
                break

    freeze_once(bench, 'after_read', take_over)
    bench.run_cycle(20.0)
    assert bench.states() == {'a': 'held'} and list_disabled(bench) == ['a']
    assert ('campaign.host_held', 'a') in bench.events
    bench.run_cycles(2)
    assert bench.campaign.state is STATES.RUNNING


@pytest.mark.parametrize('late', range(20, 120, 20))
def test_a_host_does_not_begin_again_before_a_lost_request_to_enable_it_has_come(late):
    bench = make_bench()
    make_late_host(bench)
    bench.silent.add('a')
    bench.run_cycle(20.0)
    asked = bench.now
    bench.silent.clear()
    while bench.now < asked + late:
        bench.run_cycle(20.0)
        assert bench.states() == {'a': 'to-come'} and list_disabled(bench) == []
    assert late == 20 or bench.campaign.waits == (
        'an earlier request for host a may still reach Nova')
    bench.set_service('a', status='enabled', disabled_reason=None)
    for _cycle in range(8):
        bench.run_cycle(20.0)
    assert bench.campaign.state is STATES.RUNNING
    assert bench.states()['a'] in ('emptying', 'held') and list_disabled(bench) == ['a']


def test_a_campaign_that_waits_for_a_late_request_names_the_host_of_the_request():
    bench = make_bench(hosts='ba')
    bench.set_service('b', state='down')
    make_late_host(bench)
    for _cycle in range(3):
        bench.run_cycle(20.0)
    assert bench.campaign.waits == 'an earlier request for host a may still reach Nova'


@pytest.mark.parametrize('trouble', ['unauthorised', 'unreadable', 'no keys'])
def test_a_host_to_come_that_a_late_request_disabled_is_enabled_for_a_campaign_in_trouble(trouble):
    bench = make_bench()
    make_late_host(bench)
    let_engines_refuse(bench, trouble)
    bench.run_cycle(20.0)
    assert list_disabled(bench) == []


class Refusal:
    """What accepts no signature."""

    def __init__(self, error):
        self._error = error

    def find_problem(self, campaign, now):
        if self._error is not None:
            raise self._error
        return 'its signature has ended'


def let_engines_refuse(bench, trouble):
    if trouble == 'unreadable':
        with bench.store.engine.begin() as connection:
            connection.exec_driver_sql('UPDATE campaign SET windows = ?', ('never',))
    else:
        error = None if trouble == 'unauthorised' else exception.SigningKeyError(
            path='keys', field='key', problem='it is not there', remedy='Make it')
        bench.conductor._verifier._authorization = Refusal(error)


@pytest.mark.parametrize('trouble', ['unauthorised', 'no keys'])
def test_a_host_that_began_holds_no_drain_for_ever_where_its_campaign_is_not_authorized(trouble):
    bench = make_bench()
    bench.silent.add('a')
    bench.run_cycle(20.0)
    bench.silent.clear()
    let_engines_refuse(bench, trouble)
    for _cycle in range(5):
        bench.run_cycle(20.0)
        assert bench.states() == {'a': 'emptying'} and find_rival(bench) is not None
    bench.run_cycle(20.0)
    assert bench.states() == {'a': 'to-come'} and find_rival(bench) is None
    assert list_disabled(bench) == []


# Disabling.


@pytest.mark.parametrize('order', ['abort', 'pause', 'skip'])
def test_an_engine_that_stood_still_before_it_disables_a_host_obeys_the_order_of_a_person(order):
    bench = make_bench()

    def act():
        bench.now += 10.0
        if order == 'skip':
            assert bench.order('a', campaign_orders.SKIP)
        else:
            assert bench.set_state([STATES.RUNNING], {
                'abort': STATES.ABORTING, 'pause': STATES.PAUSED}[order])

    freeze_once(bench, 'after_read', act)
    bench.run_cycle(20.0)
    assert list_disabled(bench) == []


def test_an_engine_that_stood_still_before_it_disables_a_host_finds_the_campaign_over():
    bench = make_bench()

    def act():
        assert bench.set_state([STATES.RUNNING], STATES.ABORTING)
        bench.renew_engine()
        bench.run_cycles(5)
        assert bench.campaign.state is STATES.ABORTED

    freeze_once(bench, 'after_read', act)
    bench.run_cycle(20.0)
    assert list_disabled(bench) == []


@pytest.mark.parametrize('trouble', ['pause', 'drain', 'refused'])
@pytest.mark.parametrize('late', [20, 60, 100, 119])
def test_a_drain_and_a_lost_request_never_pass_the_fraction(trouble, late):
    """The answer of the first request is lost; then the step is held, or Nova refuses."""
    bench = make_bench(fraction=0.4)
    bench.silent.add('a')
    bench.run_cycle(20.0)
    asked = bench.now
    bench.silent.clear()
    if trouble == 'pause':
        bench.set_state([STATES.RUNNING], STATES.PAUSED)
    elif trouble == 'drain':
        bench.store.audit.record_command('bob', audits.DRAIN_STARTED, 'host spare')
    else:
        bench.refused.add('a')
    while bench.now + 20.0 < asked + late:
        bench.run_cycle(20.0)
        assert bench.states() == {'a': 'emptying'} and list_disabled(bench) == []
        assert find_rival(bench) is not None
    bench.now = asked + late
    assert find_rival(bench) is not None
    disable_late(bench)
    bench.run_cycle(1.0)
    request = bench.build_request()
    assert planning_holds.count_drainable_hosts(request.cluster, request.options) == 0
    assert bench.states() == {'a': 'emptying'} and list_disabled(bench) == ['a']


def test_a_host_whose_lost_request_comes_never_is_to_come_two_minutes_later():
    bench = make_bench()
    bench.silent.add('a')
    bench.run_cycle(20.0)
    bench.set_state([STATES.RUNNING], STATES.PAUSED)
    bench.run_cycle(119.0)
    assert bench.states() == {'a': 'emptying'}
    assert bench.campaign.hosts[0].detail == (
        'the campaign is paused; an earlier request may still disable it')
    bench.run_cycle(1.0)
    assert bench.states() == {'a': 'to-come'}
    assert bench.campaign.hosts[0].detail == 'not disabled: the campaign is paused'


def test_a_person_who_disables_a_host_meanwhile_is_named_and_the_host_stays_disabled():
    """The late request replaces the reason of the person: only the row shows it then."""
    bench = make_bench()
    bench.silent.add('a')
    bench.run_cycle(20.0)
    bench.silent.clear()
    bench.set_service('a', status='disabled', disabled_reason='ann: broken DIMM')
    bench.run_cycle(20.0)
    assert bench.campaign.state is STATES.PAUSED
    assert 'ann: broken DIMM' in bench.campaign.held_because
    disable_late(bench)
    for _cycle in range(10):
        bench.run_cycle()
        assert list_disabled(bench) == ['a']
    assert 'ann: broken DIMM' in bench.campaign.held_because and bench.events[-1] == (
        'campaign.paused', None)


def test_a_request_for_a_host_does_not_count_as_its_announcement():
    bench = make_bench(sizes=(), command='command')
    bench.hidden.append('booted')
    bench.run_cycles(4)
    assert bench.states() == {'a': 'held'} and bench.reboots == {}
    bench.hidden.clear()
    bench.run_cycle()
    assert bench.reboots == {'a': 1} and ('campaign.host_held', 'a') not in bench.events


# Steps of several hosts.


def count_changes(bench, act=lambda host: None):
    asked = []

    def change(host):
        asked.append(host)
        act(host)

    bench.before_change = change
    return asked


@pytest.mark.parametrize('after', [STATES.ABORTING, STATES.PAUSED])
def test_no_further_host_of_a_step_is_disabled_after_an_order_of_a_person(after):
    bench = make_bench('ab', together=2, sizes=())
    asked = count_changes(bench, lambda host: bench.set_state([STATES.RUNNING], after))
    bench.run_cycle(20.0)
    assert asked == ['a'] and list_disabled(bench) == ['a']


def test_a_host_of_a_step_that_is_left_out_meanwhile_is_not_disabled():
    bench = make_bench('ab', together=2, sizes=())
    asked = count_changes(bench, lambda host: bench.order('b', campaign_orders.SKIP))
    bench.run_cycle(20.0)
    assert asked == ['a'] and bench.states() == {'a': 'emptying', 'b': 'withdrawn'}


def test_a_step_ends_for_a_cycle_with_its_first_request_that_has_no_answer():
    bench = make_bench('ab', together=2, sizes=())
    bench.silent.add('a')
    asked = count_changes(bench)
    for _cycle in range(2):
        bench.run_cycle(20.0)
    assert asked == ['a', 'a'] and list_disabled(bench) == []
    bench.silent.clear()
    bench.run_cycle(20.0)
    assert list_disabled(bench) == ['a', 'b']


def test_a_step_whose_engine_lost_the_scope_meanwhile_disables_no_further_host():
    bench = make_bench('ab', together=2, sizes=())

    def lose_scope(host):
        bench.before_change = lambda host: asked.append(host)
        bench.now += 61.0
        assert bench.store.leases.acquire_lease(campaign_bench.SCOPE, 'other', 60.0, '')

    asked = []
    bench.before_change = lose_scope
    bench.run_cycle(20.0)
    assert asked == [] and list_disabled(bench) == ['a']


# Nova refuses for long.


def test_refused_steps_count_on_with_each_new_engine():
    """The scope changes hands, or the engine is restarted, after each step."""
    bench = make_bench('a', sizes=())
    bench.refused.add('a')
    for refusals in (1, 2):
        bench.run_cycle()
        assert bench.campaign.refusals == refusals
        bench.renew_engine()
    bench.run_cycle()
    assert bench.campaign.state is STATES.PAUSED and bench.campaign.refusals == 0
    assert bench.campaign.held_because.startswith('3 steps in a row gave way because of Nova')


def test_refused_steps_begin_again_once_a_host_is_disabled():
    bench = make_bench('ab', sizes=())
    bench.refused.add('a')
    bench.run_cycle()
    assert bench.campaign.refusals == 1
    bench.run_cycles(2)
    assert 'b' in list_disabled(bench) and bench.campaign.refusals == 0


def test_a_step_that_gives_way_to_a_drain_ends_the_row_of_refused_ones():
    bench = make_bench('a', sizes=())
    bench.refused.add('a')
    bench.run_cycle()
    assert bench.campaign.refusals == 1
    bench.store.audit.record_command('bob', audits.DRAIN_STARTED, 'host x')
    bench.run_cycle(1.0)
    assert bench.campaign.refusals == 0


def test_a_host_that_nova_refuses_comes_last_and_pauses_the_campaign_in_the_end():
    bench = make_bench('ab', sizes=())
    bench.refused.add('a')
    asked = count_changes(bench)
    for _cycle in range(30):
        bench.run_cycle()
        if bench.states()['b'] == 'held':
            bench.reboot_and_say_done('b')
    assert bench.states() == {'a': 'to-come', 'b': 'done'}
    assert asked == ['a', 'b', 'b', 'a', 'a', 'a']
    assert bench.campaign.state is STATES.PAUSED and bench.campaign.held_because == (
        '3 steps in a row gave way because of Nova, the last one with host a, which is not '
        'disabled: Nova: the service: HTTP 403; kronos campaign resume tries again, and skip '
        'leaves the host out')
    assert bench.events[-1] == ('campaign.paused', None)
    bench.refused.clear()
    bench.set_state([STATES.PAUSED], STATES.RUNNING)
    bench.run_cycle()
    assert list_disabled(bench) == ['a']
