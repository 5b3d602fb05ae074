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

import dataclasses
import datetime
import random

import pytest

from kronos_nova import model
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import supposed_clouds
from kronos_nova.rebalancer.planning import move_notices
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


def carry_to(bench, host, state, cycles=20):
    """Run cycles until a host has the state."""
    for _cycle in range(cycles):
        if bench.states()[host] == state:
            return
        bench.run_cycle()
    raise AssertionError((state, bench.campaign))


def test_a_host_is_held_only_when_it_has_been_empty_and_disabled_for_a_minute():
    bench = make_bench()
    bench.start('a')
    bench.run_cycle()
    assert bench.states() == {'a': 'emptying'} and not bench.services['a'].enabled
    bench.held_moves = True
    bench.run_cycles(5)
    assert bench.campaign.hosts[0].detail == '2 to leave'
    bench.held_moves = False
    bench.run_cycles(2)
    assert bench.states() == {'a': 'held'}


def test_a_boot_that_chose_the_host_before_is_waited_for():
    bench = make_bench()
    bench.start('b')
    for _cycle in range(4):
        bench.run_cycle(1.0)
    assert 'boots that chose the host before' in bench.campaign.hosts[0].detail
    bench.run_cycle(1.0)
    bench.instances['late'] = model.Instance('late', 'b', memory_mb=512,
                                             claims={'MEMORY_MB': 512})
    bench.held_moves = True
    bench.run_cycle()
    assert bench.states() == {'b': 'emptying'} and bench.campaign.hosts[0].detail == '1 to leave'


def test_claims_without_an_instance_keep_the_host_and_are_named():
    bench = make_bench()
    bench.start(['spare'])
    bench.orphans['spare'] = 512
    bench.run_cycles(4)
    assert bench.states() == {'spare': 'emptying'}
    assert bench.campaign.hosts[0].detail.endswith('Placement still shows claims of MEMORY_MB')
    bench.orphans.clear()
    carry_to(bench, 'spare', 'held', 2)


def test_nothing_moves_onto_hosts_to_come_until_the_campaign_is_aborted():
    bench = make_bench()
    bench.start('ab')
    assert bench.build_request().history.campaign_hosts == set()
    bench.run_cycle()
    assert bench.build_request().history.campaign_hosts == {'a', 'b'}, 'once a host has begun'
    bench.run_cycle()
    assert bench.build_request().history.campaign_hosts == {'b'}, 'once it is seen as disabled'
    bench.set_state([STATES.RUNNING], STATES.PAUSED)
    assert bench.build_request().history.campaign_hosts == {'b'}
    bench.set_state([STATES.PAUSED], STATES.ABORTING)
    assert bench.build_request().history.campaign_hosts == set()


def test_a_step_without_room_elsewhere_uses_hosts_to_come_and_says_so():
    bench = campaign_bench.Bench({'a': [5000], 'b': [5000], 'c': [5000]})
    bench.start('abc')
    bench.run_cycle()
    assert not bench.campaign.opened and bench.campaign.waits.startswith(
        'no host can be emptied now; a: no host may take it: ')
    bench.instances['a0'] = model.Instance('a0', 'a', memory_mb=2048,
                                           claims={'MEMORY_MB': 2048})
    bench.run_cycle()
    assert bench.campaign.opened and bench.states()['a'] == 'emptying'
    assert bench.campaign.waits == ''
    carry_to(bench, 'a', 'held')


def test_a_host_that_others_enable_pauses_the_campaign_and_resume_disables_it_again():
    bench = make_bench()
    bench.start('ab')
    bench.held_moves = True
    bench.run_cycles(2)
    bench.set_service('a', status='enabled', disabled_reason=None)
    bench.run_cycles(2)
    assert bench.campaign.state is STATES.PAUSED and bench.services['a'].enabled
    assert bench.campaign.held_by == 'kronos-engine'
    assert bench.campaign.held_because.startswith('another user has enabled host a')
    assert ('campaign.paused', None) in bench.events
    bench.set_state([STATES.PAUSED], STATES.RUNNING)
    bench.run_cycle()
    assert bench.services['a'].disabled_reason == bench.campaign.reason


def test_a_host_that_others_disable_for_another_reason_stays_as_it_is():
    bench = make_bench()
    bench.start('a')
    bench.run_cycles(2)
    bench.set_service('a', disabled_reason='burnt')
    bench.run_cycle()
    assert "disabled for another reason now ('burnt')" in bench.campaign.held_because
    bench.set_state([STATES.PAUSED], STATES.ABORTING)
    assert bench.order('a', campaign_orders.SKIP) or bench.states() == {'a': 'withdrawn'}
    bench.run_cycles(5)
    assert bench.campaign.state is STATES.ABORTED and bench.states() == {'a': 'skipped'}
    assert bench.services['a'].disabled_reason == 'burnt'


@pytest.mark.parametrize('options', [{}, {'command': 'command'}])
def test_no_host_is_handed_over_outside_the_windows_in_a_pause_or_after_an_abort(options):
    bench = make_bench(**options)
    window = maintenance_windows.parse_window('Tue 0:00-0:01')
    bench.start('a', windows=(window,))
    bench.now = window.find_opening(bench.now, datetime.UTC)
    bench.run_cycle(1.0)
    bench.run_cycles(4)
    assert bench.states() == {'a': 'emptying'} and bench.reboots == {} and bench.events == []
    assert bench.campaign.hosts[0].detail.startswith(
        'empty, and not handed over for the work: the next window opens at ')
    bench.set_state([STATES.RUNNING], STATES.PAUSED)
    bench.now = window.find_opening(bench.now, datetime.UTC)
    bench.run_cycle(1.0)
    assert bench.campaign.hosts[0].detail.endswith('work: the campaign is paused')
    bench.set_state([STATES.PAUSED], STATES.ABORTING)
    bench.run_cycles(5)
    assert bench.states() == {'a': 'skipped'} and bench.reboots == {}
    assert bench.services['a'].enabled and bench.events == [('campaign.aborted', None)]


def test_a_held_host_with_an_instance_pauses_the_campaign():
    bench = make_bench()
    bench.start('a')
    carry_to(bench, 'a', 'held')
    bench.instances['new'] = model.Instance('new', 'a', memory_mb=1, claims={'MEMORY_MB': 1})
    bench.held_moves = True
    bench.run_cycle()
    assert bench.campaign.held_because.startswith(
        'host a is held for maintenance and is no longer empty')
    assert bench.campaign.hosts[0].detail == bench.campaign.held_because


def test_a_reminder_waits_while_the_campaign_pauses():
    bench = make_bench()
    bench.start('a')
    carry_to(bench, 'a', 'held')
    bench.set_state([STATES.RUNNING], STATES.PAUSED)
    bench.run_cycles(25)
    assert bench.events == [('campaign.host_held', 'a')]


def test_a_host_that_people_have_is_not_rebooted_by_a_command_as_well():
    bench = make_bench()
    bench.start('a')
    carry_to(bench, 'a', 'held')
    bench.reboot('a')
    bench.conf.set_override('command', 'command', 'campaign')
    bench.renew_engine()
    bench.run_cycles(5)
    assert bench.states() == {'a': 'held'} and bench.reboots == {'a': 1}
    assert bench.order('a', campaign_orders.DONE)
    carry_to(bench, 'a', 'done')


def test_no_command_begins_in_an_outage():
    bench = campaign_bench.Bench({host: [] for host in 'abcdef'}, command='command')
    bench.start('a')
    bench.run_cycles(2)
    for host in 'def':
        bench.set_service(host, state='down')
    bench.run_cycles(4)
    assert bench.reboots == {} and 'nothing moves during an outage' in (
        bench.campaign.hosts[0].detail)
    for host in 'def':
        bench.set_service(host, state='up')
    carry_to(bench, 'a', 'done')


def test_a_host_that_nova_lists_no_more_can_be_left_out():
    bench = make_bench()
    bench.start('ab')
    carry_to(bench, 'a', 'held')
    service = bench.services.pop('a')
    bench.run_cycles(2)
    assert bench.campaign.held_because.startswith('Nova shows no nova-compute of host a')
    assert bench.order('a', campaign_orders.SKIP)
    bench.set_state([STATES.PAUSED], STATES.RUNNING)
    bench.run_cycles(2)
    assert bench.states()['a'] == 'skipped' and bench.states()['b'] == 'emptying'
    assert service.disabled_reason == bench.campaign.reason


def test_a_resume_with_a_failed_host_pauses_again_with_the_reason():
    bench = make_bench(command='command')
    bench.exit_status['command', 'a'] = 1
    bench.start('ab')
    carry_to(bench, 'a', 'failed')
    bench.run_cycles(3)
    assert bench.campaign.hosts[0].detail == 'exit status 1'
    bench.set_state([STATES.PAUSED], STATES.RUNNING)
    bench.run_cycle()
    assert bench.campaign.state is STATES.PAUSED
    assert bench.campaign.held_because.startswith('host a is failed: exit status 1; see the host')


def test_a_host_whose_owner_wants_notice_begins_when_no_other_can():
    """Owners get notices of drains, which begin with the host."""
    bench = make_bench()
    notify = model.Contract(model.ContractSource.FLAVOR, notify=model.NoticePeriod(86400))
    for uuid in ('a0', 'b0'):
        bench.instances[uuid] = dataclasses.replace(bench.instances[uuid], contracts=(notify,))
    bench.start('abc')
    bench.run_cycle()
    assert bench.states() == {'a': 'to-come', 'b': 'to-come', 'c': 'emptying'}
    carry_to(bench, 'c', 'held')
    bench.reboot_and_say_done('c')
    carry_to(bench, 'a', 'emptying')
    assert bench.states()['b'] == 'to-come' and not bench.campaign.opened
    (wanted,) = move_notices.list_drain_notices(bench.build_request())
    assert wanted.instance_uuid == 'a0'


def test_hosts_of_moves_that_were_just_planned_begin_in_a_later_cycle():
    bench = make_bench()
    bench.start('ab')
    bench.other_moves = (model.Move('a0', 'a', 'spare', model.Phase.SPREAD),)
    bench.run_cycle()
    assert bench.states() == {'a': 'to-come', 'b': 'emptying'}
    carry_to(bench, 'b', 'held')
    bench.reboot_and_say_done('b')
    bench.run_cycles(4)
    assert bench.states() == {'a': 'to-come', 'b': 'done'}
    assert bench.campaign.waits == 'the moves of the last plan come first'
    bench.other_moves = ()
    carry_to(bench, 'a', 'emptying', 2)


def test_a_search_that_was_cut_off_takes_fewer_hosts_and_others_first(monkeypatch):
    bench = make_bench()
    asked = []

    def find_step(_cloud, candidates, _to_come, together, _is_over):
        asked.append((list(candidates), together))
        bench.seconds += 20.0
    monkeypatch.setattr(campaign_forecasts, 'find_step', find_step)
    bench.start('abc', together=2)
    bench.run_cycles(3)
    assert asked == [(['a', 'b', 'c'], 2), (['b', 'c', 'a'], 1), (['c', 'a', 'b'], 1)]
    assert bench.campaign.waits.startswith('the search for the next hosts was cut off after 10 s')


def test_a_host_that_is_left_out_is_watched_until_no_request_can_come_late():
    bench = make_bench()
    bench.start('a')
    bench.run_cycles(2)
    assert bench.order('a', campaign_orders.SKIP)
    for _cycle in range(3):
        bench.run_cycle(39.0)
        assert bench.states() == {'a': 'withdrawn'} and bench.services['a'].enabled
    assert bench.campaign.hosts[0].detail == 'it is enabled; a late request may still disable it'
    bench.run_cycle(4.0)
    assert bench.states() == {'a': 'skipped'}


def test_an_engine_takes_the_end_of_its_own_run_for_no_other():
    """It may have run the command before, lost the scope, and got it back."""
    bench = make_bench(command='command')
    bench.start('a')
    carry_to(bench, 'a', 'working')
    (ended,) = bench.running.items()
    bench.renew_engine()
    bench.running = dict([ended])
    bench.run_cycle()
    assert bench.states() == {'a': 'in-doubt'} and bench.reboots == {'a': 1}


@pytest.mark.parametrize('draining, begun', [((), 'ab'), (('c',), 'a')])
def test_no_more_hosts_begin_than_max_drain_fraction_leaves(draining, begun):
    bench = make_bench()
    for host in draining:
        bench.set_service(host, status='disabled', disabled_reason='burnt')
    bench.start('ab', together=2)
    bench.run_cycle()
    assert [host for host, state in bench.states().items() if state == 'emptying'] == list(begun)


def test_a_defect_of_a_campaign_does_not_end_the_cycle(monkeypatch, caplog):
    bench = make_bench()
    bench.start('a')
    monkeypatch.setattr(campaign_forecasts, 'find_step', lambda *_args: 1 / 0)
    bench.run_cycle()
    assert 'a defect of ours' in caplog.text and bench.states() == {'a': 'to-come'}


def test_the_engine_asks_nova_once_more_right_before_the_command():
    bench = make_bench(command='command')
    bench.start('b')
    bench.hidden = ['arrived']
    bench.run_cycles(6)
    assert bench.states() == {'b': 'held'} and bench.reboots == {}
    bench.hidden = []
    carry_to(bench, 'b', 'done')
    assert bench.reboots == {'b': 1}


def test_a_command_that_fails_or_whose_engine_dies_is_not_run_again():
    bench = make_bench(command='command')
    bench.exit_status['command', 'a'] = 1
    bench.start('ab')
    carry_to(bench, 'a', 'failed')
    bench.run_cycles(5)
    assert bench.reboots == {'a': 1} and bench.campaign.state is STATES.PAUSED
    assert bench.campaign.held_because == (
        'the command of host a failed: exit status 1; kronos campaign repeat runs it again')
    bench.exit_status.clear()
    assert bench.order('a', campaign_orders.REPEAT)
    bench.set_state([STATES.PAUSED], STATES.RUNNING)
    carry_to(bench, 'b', 'working')
    assert bench.reboots == {'a': 2, 'b': 1}
    bench.renew_engine()
    bench.run_cycles(5)
    assert bench.states()['b'] == 'in-doubt' and bench.reboots['b'] == 1
    assert 'no engine runs it again' in bench.campaign.held_because
    assert bench.order('b', campaign_orders.DONE)
    bench.run_cycles(3)
    assert bench.states()['b'] == 'done' and bench.services['b'].enabled


def test_a_host_that_does_not_come_back_pauses_the_campaign_and_is_enabled_later():
    bench = make_bench(return_timeout=600)
    bench.start('ab')
    carry_to(bench, 'a', 'held')
    bench.set_service('a', state='down')
    bench.reboot_and_say_done('a')
    bench.run_cycles(5)
    assert bench.campaign.state is STATES.RUNNING
    assert bench.campaign.hosts[0].detail == 'its nova-compute is down'
    bench.run_cycles(8)
    assert bench.campaign.state is STATES.PAUSED
    assert bench.campaign.held_because.startswith('host a has not come back since ')
    assert bench.states() == {'a': 'returning', 'b': 'to-come'}
    bench.set_service('a', state='up')
    bench.run_cycles(3)
    assert bench.states() == {'a': 'done', 'b': 'to-come'} and bench.services['a'].enabled


def test_an_abort_enables_hosts_that_are_emptied_and_waits_for_held_ones():
    bench = make_bench()
    bench.start('abc', together=2)
    carry_to(bench, 'b', 'held')
    bench.held_moves = True
    bench.instances['new'] = model.Instance('new', 'a', memory_mb=1, claims={'MEMORY_MB': 1})
    assert bench.set_state([STATES.RUNNING], STATES.ABORTING)
    bench.run_cycles(6)
    assert bench.campaign.state is STATES.ABORTING
    assert bench.states()['b'] == 'held' and not bench.services['b'].enabled
    bench.reboot_and_say_done('b')
    assert bench.states()['a'] in ('withdrawn', 'held')
    if bench.states()['a'] == 'held':
        assert bench.order('a', campaign_orders.SKIP)
    bench.run_cycles(6)
    assert bench.campaign.state is STATES.ABORTED
    assert all(service.enabled for service in bench.services.values())


def test_the_engine_asks_again_after_no_answer_of_nova():
    bench = make_bench()
    bench.start('a')
    bench.silent.add('a')
    bench.run_cycles(3)
    assert bench.campaign.hosts[0].detail == 'Nova: the service: no answer'
    bench.silent.clear()
    carry_to(bench, 'a', 'held')


def test_a_reminder_of_a_held_host_says_the_same():
    bench = make_bench()
    bench.start('a')
    carry_to(bench, 'a', 'held')
    bench.run_cycles(25)
    held = [payload for event, payload in bench.payloads if event == 'campaign.host_held']
    assert len(held) == 3 and all(payload == held[0] for payload in held)


def test_no_host_begins_while_the_scope_is_paused_or_the_database_says_why():
    bench = make_bench()
    bench.start('a')
    bench.store.pauses.pause_scope(None, bench.now, seconds=None, paused_by='eve', reason='storm')
    bench.run_cycles(2)
    assert bench.states() == {'a': 'to-come'}
    assert bench.campaign.waits.startswith('everything was paused by eve: storm')
    bench.store.pauses.resume_scope(None, bench.now)
    carry_to(bench, 'a', 'emptying', 2)
    assert bench.campaign.waits == ''
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
    monkeypatch.setattr(supposed_clouds.SupposedCloud, 'explain_host', lambda self, host: (
        blocked_instances.BlockedInstance('i1', 'i1 waits for others to land', later=True),
        blocked_instances.BlockedInstance('i2', 'no host may take i2')))
    bench.run_cycle()
    assert bench.campaign.waits == 'no host can be emptied now; a: no host may take i2'


def test_a_campaign_whose_plans_are_cut_off_waits_and_calls_no_instance_staying(monkeypatch):
    bench = make_bench()
    bench.start('a')
    monkeypatch.setattr(campaign_forecasts, 'find_step', lambda *args: None)
    monkeypatch.setattr(supposed_clouds.SupposedCloud, 'explain_host', lambda self, host: (
        blocked_instances.BlockedInstance('i1', 'its hours', later=True),
        blocked_instances.BlockedInstance(
            'i2', 'planning was cut off', later=True, is_cut_off=True)))
    bench.run_cycle()
    assert bench.campaign.waits == 'no plan was found that empties a host; a: planning was cut off'
    assert bench.states() == {'a': 'to-come'}


def test_a_campaign_waits_where_its_step_would_break_the_failover_certificate():
    bench = campaign_bench.Bench({'a': [4096], 'b': [4096], 'c': [4096]})
    bench.options['failover'] = model.FailoverMode.ENFORCE
    bench.start('a')
    bench.run_cycle()
    assert bench.states() == {'a': 'to-come'} and 'breaks-failover' in bench.campaign.waits


@pytest.mark.parametrize('options', [{}, {'check_command': 'check'}])
def test_host_is_enabled_once_its_nova_compute_has_reported_after_the_work(options):
    bench = make_bench(command='command', **options)
    bench.start('ab')
    bench.set_service('a', reported_at=bench.now)
    bench.run_cycles(8)
    assert bench.states() == {'a': 'returning', 'b': 'to-come'}
    assert bench.campaign.hosts[0].detail == (
        'its nova-compute has not reported since the work ended')
    assert not any('check' in key for key in bench.running)
    bench.set_service('a', reported_at=bench.now)
    bench.run_cycles(4)
    assert bench.states()['a'] == 'done'


def test_host_whose_nova_compute_never_reports_again_pauses_the_campaign():
    bench = make_bench(command='command', return_timeout=600)
    bench.start('ab')
    bench.set_service('a', reported_at=bench.now)
    bench.run_cycles(20)
    assert bench.campaign.state is STATES.PAUSED
    assert 'has not reported since the work ended' in bench.campaign.held_because


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


def test_a_campaign_that_ends_while_it_pauses_is_held_by_no_person():
    bench = campaign_bench.Bench({'a': [], 'spare': []})
    bench.start('a')
    bench.run_cycles(4)
    assert bench.states() == {'a': 'held'}
    assert bench.set_state([STATES.RUNNING], STATES.PAUSED)
    bench.reboot_and_say_done('a')
    bench.run_cycles(4)
    campaign = bench.campaign
    assert (campaign.state, campaign.held_by, campaign.held_because) == (STATES.DONE, '', '')
