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

"""Boots and migrations on two hosts of libvirt that share disks."""

import json

import pytest

BUSY, IDLE = 'compute-01', 'compute-02'


def test_spread_moves_a_busy_guest_that_runs_on(empty_lab):
    guests = [empty_lab.boot(f'guest-{n}', BUSY) for n in range(3)]
    before = {guest: guest.read_heartbeat() for guest in guests}
    for guest in guests:
        guest.load_processor(30)
    empty_lab.start_daemons()
    empty_lab.wait_for_tasks()
    moved = [guest for guest in guests if guest.find_host() == IDLE]
    assert moved
    for guest in guests:
        guest.assert_same_boot(before[guest])
        empty_lab.assert_runs_once(guest, guest.find_host())
        assert guest.read_heartbeat().cpu == 30


@pytest.mark.parametrize(('busy', 'idle'), [(BUSY, IDLE), (IDLE, BUSY)])
def test_boot_goes_to_the_idle_host(empty_lab, busy, idle):
    empty_lab.boot('busy', busy).load_processor(80)
    empty_lab.wait(lambda: empty_lab.has_cpu_gap(busy, idle), 'Prometheus shows the load')
    assert empty_lab.boot('guest').find_host() == idle


def test_drain_moves_running_guests_live_and_stopped_ones_cold(empty_lab):
    running, stopped = empty_lab.boot('running', BUSY), empty_lab.boot('stopped', BUSY)
    empty_lab.stop_guest(stopped)
    before = running.read_heartbeat()
    empty_lab.start('kronos-executor')
    checked = {row['What']: row['Verdict'] for row in json.loads(
        empty_lab.ask('drain', 'check', BUSY, '-f', 'json'))}
    assert checked['conclusion'] == 'possible', checked
    empty_lab.ask('drain', 'start', BUSY, '--reason', 'a new kernel')
    # Not before: it would spread the guests.
    empty_lab.start('kronos-engine')
    empty_lab.ask('drain', 'watch', BUSY, '--timeout', '150')
    running.assert_same_boot(before)
    empty_lab.assert_runs_once(running, IDLE)
    assert stopped.find_host() == IDLE
    assert empty_lab.list_residents() == {
        BUSY: {}, IDLE: {running.domain: 'running', stopped.domain: 'shut off'}}
    assert stopped.read()['status'] == 'SHUTOFF'
    assert {m['migration_type'] for m in empty_lab.cloud.migrations(stopped.uuid)} == {'migration'}
    assert empty_lab.list_allocations(stopped.uuid) == {IDLE}


def test_pair_changes_places_and_goes_back(empty_lab):
    empty_lab.start('kronos-executor')
    first, second = empty_lab.boot('first', BUSY), empty_lab.boot('second', IDLE)
    before = first.read_heartbeat(), second.read_heartbeat()
    empty_lab.ask('swap', first.uuid, second.uuid, '--reason', 'their racks')
    empty_lab.wait_for_tasks(2)
    empty_lab.assert_runs_once(first, IDLE)
    empty_lab.assert_runs_once(second, BUSY)
    [plan] = json.loads(empty_lab.ask('plan', 'list', '-f', 'json'))
    empty_lab.ask('plan', 'revert', plan['Plan'], '--reason', 'it was the other rack')
    empty_lab.wait_for_tasks(4)
    empty_lab.assert_runs_once(first, BUSY)
    empty_lab.assert_runs_once(second, IDLE)
    first.assert_same_boot(before[0])
    second.assert_same_boot(before[1])


def test_repair_parts_the_members_of_a_server_group(empty_lab):
    group = empty_lab.create_server_group('apart', 'soft-anti-affinity')
    guests = [empty_lab.boot(f'member-{n}', BUSY, hints={'group': group}) for n in range(2)]
    before = {guest: guest.read_heartbeat() for guest in guests}
    empty_lab.change_policy(group, 'anti-affinity')
    empty_lab.configure({'engine': {'enforce_hard_affinity': 'true'}})
    empty_lab.start_daemons()
    empty_lab.wait_for_tasks()
    [task] = json.loads(empty_lab.ask('task', 'list', '--all', '-f', 'json'))
    assert task['Phase'] == 'affinity', task
    assert {guest.find_host() for guest in guests} == {BUSY, IDLE}
    for guest in guests:
        guest.assert_same_boot(before[guest])
