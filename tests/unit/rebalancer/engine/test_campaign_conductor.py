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

"""Campaigns carried out: hosts are emptied, handed over once, and enabled again."""

import random

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import drains
from tests.unit.rebalancer.engine import campaign_bench

STATES = model.CampaignState


def make_bench(**options):
    return campaign_bench.Bench(
        {'a': [2048, 2048], 'b': [2048], 'c': [1024], 'spare': []}, **options)


def test_an_operator_is_handed_each_host_once_and_empty():
    bench = make_bench()
    bench.start('abc')
    held = []
    for _cycle in range(60):
        bench.run_cycle()
        for host, state in bench.states().items():
            if state == 'held':
                held.append(host)
                bench.reboot_and_say_done(host)
    assert bench.campaign.state is STATES.DONE, bench.campaign
    assert held == ['a', 'b', 'c'] and bench.reboots == {'a': 1, 'b': 1, 'c': 1}
    assert all(service.enabled for service in bench.services.values())
    assert set(bench.migrations.values()) == {1}, 'no instance moved onto a host to come'
    assert bench.events == [('campaign.host_held', 'a'), ('campaign.host_held', 'b'),
                            ('campaign.host_held', 'c'), ('campaign.done', None)]


def test_a_command_does_the_work_and_a_check_lets_the_host_back():
    bench = make_bench(command='command', check_command='check')
    bench.start('ab', together=2)
    bench.exit_status['check', 'b'] = 1
    bench.run_cycles(12)
    assert bench.states() == {'a': 'done', 'b': 'returning'}
    assert bench.campaign.hosts[1].detail == 'the check failed: exit status 1'
    bench.exit_status.clear()
    bench.run_cycles(4)
    assert bench.campaign.state is STATES.DONE and bench.reboots == {'a': 1, 'b': 1}


def test_a_host_that_a_late_request_disables_is_enabled_again():
    bench = make_bench(command='command')
    bench.start('a')
    bench.run_cycles(12)
    assert bench.campaign.state is STATES.DONE
    bench.set_service('a', status='disabled', disabled_reason=bench.campaign.reason)
    bench.set_service('b', status='disabled', disabled_reason=bench.campaign.reason)  # by a user
    bench.run_cycle()
    assert bench.services['a'].enabled and not bench.services['b'].enabled


def test_a_host_of_a_live_campaign_that_is_over_is_enabled_again():
    bench = make_bench()
    bench.start('ab')
    bench.run_cycles(2)
    assert bench.order('b', campaign_orders.SKIP)
    bench.set_service('b', status='disabled', disabled_reason=bench.campaign.reason)
    bench.run_cycle()
    assert bench.services['b'].enabled and not bench.services['a'].enabled


def test_an_engine_that_stood_still_does_not_run_a_command_of_another_turn(monkeypatch):
    bench = make_bench(command='command')
    bench.start('a')
    begin = bench.store.campaigns.begin_work

    def begin_and_stand_still(*args):
        begin(*args)
        monkeypatch.undo()
        lease = bench.store.leases.acquire_lease(campaign_bench.SCOPE, bench.owner, 60.0, '')
        (host,) = bench.campaign.hosts
        assert bench.store.campaigns.change_host(
            lease, bench.campaign.campaign_id, host, state='in-doubt', worker=None)
        assert bench.order('a', campaign_orders.REPEAT)
        return True
    monkeypatch.setattr(bench.store.campaigns, 'begin_work', begin_and_stand_still)
    bench.run_cycles(3)
    assert bench.states() == {'a': 'held'} and not bench.reboots
    bench.run_cycles(6)
    assert bench.campaign.state is STATES.DONE and bench.reboots == {'a': 1}


@pytest.mark.parametrize('reason', ['broken disk', None])
def test_a_host_that_a_user_disables_meanwhile_is_left_alone(reason):
    def disable_once():
        bench.dies = lambda: None
        bench.set_service('a', status='disabled', disabled_reason=reason)
    bench = make_bench()
    bench.start('a')
    bench.dies = disable_once  # Called after the engine has read the cloud.
    bench.run_cycle()
    assert bench.services['a'].disabled_reason == reason
    bench.run_cycle()
    assert bench.campaign.state is STATES.PAUSED
    assert 'disabled for another reason now' in bench.campaign.held_because
    assert 'kronos campaign' in bench.campaign.held_because


def test_a_host_whose_cell_nova_cannot_reach_waits_and_pauses_nothing():
    bench = make_bench()
    bench.start('a')
    bench.run_cycles(2)
    status = bench.services['a']
    bench.set_service('a', status=model.UNKNOWN)
    bench.run_cycle()
    assert bench.campaign.state is STATES.RUNNING
    assert bench.campaign.hosts[0].detail == 'Nova cannot reach its cell'
    bench.services['a'] = status
    bench.run_cycles(3)
    assert bench.states() == {'a': 'held'}


def test_a_campaign_that_waits_names_an_instance_that_stays_before_one_that_leaves_later(
        monkeypatch):
    bench = make_bench()
    bench.start('a')
    monkeypatch.setattr(campaign_forecasts, 'find_step', lambda *args: None)
    monkeypatch.setattr(campaign_forecasts.SupposedCloud, 'explain_host', lambda self, host: (
        drains.BlockedInstance('i1', 'i1 waits for others to land', later=True),
        drains.BlockedInstance('i2', 'no host may take i2')))
    bench.run_cycle()
    assert bench.campaign.waits == 'no host can be emptied now; a: no host may take i2'


class Killer:
    """Kills the engine at some of its steps, and counts the kills."""

    def __init__(self, rng, often):
        self._rng, self._often = rng, often
        self.kills = 0
        self.is_over = False

    def __call__(self):
        if not self.is_over and self._rng.random() < self._often:
            self.kills += 1
            raise campaign_bench.Death


class People:
    """What operators do at random: pauses, aborts, hosts that they enable, and the work itself."""

    def __init__(self, bench, rng):
        self._bench, self._rng = bench, rng

    def act(self):
        bench, chance = self._bench, self._rng.random
        for host, state in bench.states().items():
            if state == 'held' and chance() < 0.5 and not bench.conf.campaign.command:
                bench.reboot_and_say_done(host)
            if state in ('in-doubt', 'failed') and chance() < 0.5:
                # They look at the host before they decide.
                bench.order(host, campaign_orders.DONE if bench.reboots[host]
                            else campaign_orders.REPEAT)
            if state == 'emptying' and chance() < 0.03:
                bench.set_service(host, status='enabled', disabled_reason=None)
            if state in ('to-come', 'emptying') and chance() < 0.01:
                bench.order(host, campaign_orders.SKIP)
        if chance() < 0.02:
            bench.set_state([STATES.RUNNING], STATES.PAUSED)
        if chance() < 0.5:
            bench.set_state([STATES.PAUSED], STATES.RUNNING)
        if chance() < 0.01:
            bench.set_state([STATES.RUNNING, STATES.PAUSED], STATES.ABORTING)


@pytest.mark.parametrize('seed', range(16))
def test_no_death_of_an_engine_reboots_a_host_twice_or_with_instances(seed):
    rng = random.Random(seed)
    killer = Killer(rng, rng.choice([0.02, 0.05, 0.1]))
    bench = campaign_bench.Bench(
        {'a': [2048] * 3, 'b': [2048], 'c': [1024] * 2, 'd': [], 'spare': [1024]}, killer,
        **({'command': 'command', 'check_command': 'check'} if rng.random() < 0.6 else {}))
    bench.start('abcd', together=rng.choice([1, 2]))
    people = People(bench, rng)
    for cycle in range(400):
        killer.is_over = cycle > 200
        if bench.campaign.state.is_terminal:
            break
        people.act()
        try:
            bench.run_cycle()
        except campaign_bench.Death:
            bench.renew_engine()
    states = bench.states()
    assert bench.campaign.state.is_terminal, (bench.campaign, killer.kills)
    assert all(service.enabled for service in bench.services.values()), bench.services
    assert set(states.values()) <= {'done', 'skipped'}
    for host, state in states.items():
        assert bench.reboots[host] == (state == 'done'), host
