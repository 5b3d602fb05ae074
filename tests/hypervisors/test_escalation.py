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

"""Drains of guests that write memory faster than the link carries it: completed by force."""

import dataclasses
import json
import time

import pytest

from kronos_nova import model
from kronos_nova.text import times
from tools.cloud import config

SOURCE, DESTINATION = 'compute-01', 'compute-02'
MEGABITS = 40
#: Memory that a guest rewrites, in MiB, and MiB a second, at most: the link carries 4.6.
WRITERS = ((64, 60), (48, 16), (56, 8))
ARRIVAL_SECONDS, LONGEST_PAUSE = 150, 60
OPTIONS = {'executor': {
    'drain_escalation': 'force-complete', 'drain_arrival_seconds': ARRIVAL_SECONDS,
    'drain_longest_pause': LONGEST_PAUSE, 'reset_state_after_abort': 'true',
    'migration_timeout': 600, 'seconds_per_gib': 0, 'max_retries': 0}}
#: Seconds for one guest: to boot, to copy until the step, to be measured.
GUEST_SECONDS = 300
ENDS = ('completed', 'failed', 'cancelled')
#: Of two guests, one after the other, with their boots: each has half of the seconds that are left.
DEADLINE_SECONDS = 540
#: Seconds by which a measured blackout may be wrong.
TOLERANCE = 0.5


@dataclasses.dataclass(frozen=True)
class Departure:
    """One guest's drain: seconds of its copying, and of its step.

    ``blackout``: for how long the guest stood still, by its own clock. ``seconds``: from the
    request until the arrival, by Nova's records; ``expected`` before the request. ``left_at``: the
    end of its migration, in epoch seconds.
    """

    writer: tuple[int, int]
    has_left: bool
    same_boot: bool
    copying: float
    answer: str | None
    blackout: float
    seconds: float | None
    expected: float | None
    left_at: float

    @property
    def in_time(self) -> bool:
        return self.has_left and self.copying <= ARRIVAL_SECONDS

    def has_expected(self, seconds: float | None) -> bool:
        """Return whether the expected seconds were within 30 % of the real ones."""
        return (seconds is not None and self.expected is not None
                and abs(self.expected - seconds) <= 0.3 * seconds)


def boot_writers(lab, writers):
    """Boot a guest for each writer on the source; return their first heartbeats and lags."""
    guests = {}
    for number, writer in enumerate(writers):
        guest = lab.boot(f'writer-{number}', SOURCE)
        guests[guest] = (writer, guest.read_heartbeat(), guest.measure_lag())
    return guests


class Writing:
    """Guests that write while their migrations are under way, and rest before and after.

    Processors are emulated: others that write slow a migration down.
    """

    def __init__(self, lab, guests):
        self._lab = lab
        self._waiting = {guest.uuid: (guest, writer) for guest, (writer, *_) in guests.items()}
        self._writing = {}

    def follow_tasks(self):
        """Let guests write or rest by their tasks; return whether all tasks ended."""
        states = {task['instance']: task['state'] for task in self._lab.list_tasks()}
        for uuid, state in states.items():
            if state == 'submitted' and uuid in self._waiting:
                self._writing[uuid], writer = self._waiting.pop(uuid)
                self._writing[uuid].rewrite_memory(*writer)
            elif state in ENDS and uuid in self._writing:
                self._writing.pop(uuid).rewrite_memory(0, 0)
        return not self._waiting and not self._writing


def start_drain(lab, *options):
    """Start an executor and the drain; the engine afterwards, or it would spread the guests."""
    if not lab.is_running('kronos-executor'):
        lab.start('kronos-executor')
    lab.ask('drain', 'start', SOURCE, '--reason', 'a new kernel', *options)
    lab.start('kronos-engine')


def find_task(lab, guest):
    """Return the newest task of a guest as kronos task show shows it."""
    rows = json.loads(lab.ask('task', 'list', '--all', '-f', 'json'))
    [row] = [row for row in rows if row['Instance'] == guest.uuid]
    return json.loads(lab.ask('task', 'show', row['Task'], '-f', 'json'))


def drain_writers(lab, writers, *options):
    """Drain a host of guests that outrun the link; return the end of each.

    :param options: of the command that starts the drain.
    """
    guests = boot_writers(lab, writers)
    lab.hypervisor.limit_link(lab.run, SOURCE, megabits=MEGABITS)
    try:
        start_drain(lab, *options)
        lab.wait(Writing(lab, guests).follow_tasks, 'every task ended',
                 timeout=GUEST_SECONDS * len(guests))
    finally:
        lab.hypervisor.limit_link(lab.run, SOURCE, None)
    departures = []
    for guest, (writer, before, lag) in guests.items():
        task, now, server = find_task(lab, guest), guest.read_heartbeat(), guest.read()
        steps = task['Escalation'] or [dict.fromkeys(('answer', 'seconds', 'expected_seconds'))]
        departure = Departure(
            writer=writer, has_left=guest.find_host() == DESTINATION and server['status'] ==
            'ACTIVE', same_boot=now.boot == before.boot,
            copying=task['Attempts'][-1]['phases'].get('running', 0.0),
            answer=steps[-1]['answer'], blackout=round(guest.measure_lag() - lag, 2),
            seconds=steps[-1]['seconds'], expected=steps[-1]['expected_seconds'],
            left_at=times.parse_time(task['Attempts'][-1]['ended_at'], time.time()))
        print(json.dumps(dataclasses.asdict(departure)), task['Escalation'], flush=True)
        lab.assert_runs_once(guest, guest.find_host())
        departures.append(departure)
    return departures


def assert_departure(departure):
    """Assert what holds for each guest that a step lets leave."""
    assert departure.same_boot and departure.in_time, departure
    assert departure.answer == model.ACCEPTED, departure
    # Nova writes whole seconds, and its seconds begin with the request and end after the guest
    # runs again.
    assert 5 < departure.blackout < departure.seconds + 1 + TOLERANCE, departure
    assert departure.blackout <= LONGEST_PAUSE, departure
    assert 5 < departure.expected <= LONGEST_PAUSE, departure


@pytest.mark.timeout(3 * GUEST_SECONDS)
def test_guests_that_outrun_the_link_are_paused_and_leave_in_time(empty_lab):
    empty_lab.configure(OPTIONS)
    departures = drain_writers(empty_lab, WRITERS[:2])
    for departure in departures:
        assert_departure(departure)
    assert empty_lab.list_residents()[SOURCE] == {}


@pytest.mark.long
@pytest.mark.timeout(20 * GUEST_SECONDS)
def test_19_of_20_guests_that_outrun_the_link_leave_in_time_unharmed(empty_lab):
    """One executor sees all, and learns from the first what handovers take."""
    writers, departures = [WRITERS[n % len(WRITERS)] for n in range(20)], []
    empty_lab.configure(OPTIONS)
    for first in range(0, len(writers), len(WRITERS)):
        departures += drain_writers(empty_lab, writers[first:first + len(WRITERS)])
        empty_lab.stop('kronos-engine')
        empty_lab.clear_guests()
        empty_lab.ask('drain', 'stop', SOURCE)
    assert all(departure.same_boot for departure in departures)
    assert sum(departure.in_time for departure in departures) >= 19
    for name in ('seconds', 'blackout'):
        print(name, sum(d.has_expected(getattr(d, name)) for d in departures), 'as expected')


@pytest.mark.long
@pytest.mark.timeout(3 * GUEST_SECONDS)
def test_guests_leave_before_the_deadline_of_their_drain(empty_lab):
    """Without the deadline the steps would come after half an hour."""
    empty_lab.configure(config.merge(OPTIONS, {'executor': {
        'drain_arrival_seconds': 1800, 'migration_timeout': 3600}}))
    deadline = time.time() + DEADLINE_SECONDS
    departures = drain_writers(empty_lab, WRITERS[:2], '--deadline', times.format_time(deadline))
    for departure in departures:
        assert departure.has_left and departure.same_boot, departure
        assert departure.answer == model.ACCEPTED, departure
        assert departure.left_at < deadline, departure
    assert max(departure.copying for departure in departures) > ARRIVAL_SECONDS


@pytest.fixture
def postcopy_lab(empty_lab):
    """A lab whose compute nodes permit post-copy."""
    file = empty_lab.run.layout.etc / 'nova-compute.conf'
    text = file.read_text()
    file.write_text(f'{text}\n[libvirt]\nlive_migration_permit_post_copy = true\n')
    empty_lab.restart_computes()
    yield empty_lab
    file.write_text(text)
    empty_lab.restart_computes()


@pytest.mark.long
@pytest.mark.timeout(3 * GUEST_SECONDS)
def test_post_copy_is_recorded_and_lets_the_guest_leave_in_time(postcopy_lab):
    """A missing page waits behind a second of other pages here: the guest hardly runs."""
    postcopy_lab.configure(OPTIONS)
    [departure] = drain_writers(postcopy_lab, WRITERS[:1])
    assert departure.same_boot and departure.in_time, departure
    assert departure.answer == model.ACCEPTED_POSTCOPY, departure
    assert departure.blackout < departure.seconds + 1 + TOLERANCE, departure


@pytest.mark.long
@pytest.mark.timeout(3 * GUEST_SECONDS)
def test_paused_guest_runs_on_at_its_source_when_the_network_fails(empty_lab):
    empty_lab.configure(OPTIONS)
    guests = boot_writers(empty_lab, WRITERS[:1])
    [(guest, (writer, before, lag))] = guests.items()
    guest.rewrite_memory(*writer)
    empty_lab.hypervisor.limit_link(empty_lab.run, SOURCE, megabits=MEGABITS)
    try:
        start_drain(empty_lab)
        empty_lab.wait(lambda: guest.list_domain_states()[SOURCE] == 'paused', 'it is paused',
                       timeout=GUEST_SECONDS)
        empty_lab.hypervisor.limit_link(empty_lab.run, SOURCE, megabits=1)
        empty_lab.stop('kronos-engine')
        empty_lab.wait_for_tasks(state='failed', timeout=GUEST_SECONDS)
    finally:
        empty_lab.hypervisor.limit_link(empty_lab.run, SOURCE, None)
    task = find_task(empty_lab, guest)
    assert 'did not arrive in time after its completion by force' in task['Error'], task
    assert guest.read()['status'] == 'ACTIVE' and guest.uuid in empty_lab.ask('quarantine', 'list')
    empty_lab.assert_runs_once(guest, SOURCE)
    guest.assert_same_boot(before)
    print(f'paused for {guest.measure_lag() - lag:.1f} s: {task["Error"]}')
