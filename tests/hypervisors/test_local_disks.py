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


def test_drain_copies_the_disks_of_running_and_stopped_guests(empty_lab):
    running, stopped = empty_lab.boot('running', BUSY), empty_lab.boot('stopped', BUSY)
    sums = {guest: guest.write_disk(DISK_MIB) for guest in (running, stopped)}
    before = running.read_heartbeat()
    empty_lab.stop_guest(stopped)
    empty_lab.ask('drain', 'start', BUSY, '--reason', 'a new kernel')
    # Not before: they would spread the guests.
    empty_lab.start_daemons()
    empty_lab.ask('drain', 'watch', BUSY, '--timeout', '150')
    running.assert_same_boot(before)
    empty_lab.assert_runs_once(running, IDLE)
    assert stopped.find_host() == IDLE
    empty_lab.start_guest(stopped)
    empty_lab.assert_runs_once(stopped, IDLE)
    assert {guest: guest.sum_disk(DISK_MIB) for guest in (running, stopped)} == sums
    assert empty_lab.list_residents()[BUSY] == {}
