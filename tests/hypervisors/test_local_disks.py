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

"""Migrations between two hosts of libvirt, each with disks of its own."""

import pytest

BUSY, IDLE = 'compute-01', 'compute-02'
DISK_MIB = 8

pytestmark = pytest.mark.parametrize('lab', ['local'], indirect=True)


def test_drain_copies_the_disks_of_running_and_stopped_guests(daemons):
    running, stopped = daemons.boot('running', BUSY), daemons.boot('stopped', BUSY)
    sums = {guest: guest.write_disk(DISK_MIB) for guest in (running, stopped)}
    before = running.read_heartbeat()
    daemons.stop_guest(stopped)
    daemons.ask('drain', 'start', BUSY, '--reason', 'a new kernel')
    daemons.ask('drain', 'watch', BUSY, '--timeout', '150')
    running.assert_same_boot(before)
    daemons.assert_runs_once(running, IDLE)
    assert stopped.find_host() == IDLE
    daemons.start_guest(stopped)
    daemons.assert_runs_once(stopped, IDLE)
    assert {guest: guest.sum_disk(DISK_MIB) for guest in (running, stopped)} == sums
    assert daemons.list_residents()[BUSY] == {}
