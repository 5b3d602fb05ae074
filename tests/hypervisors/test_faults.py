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

"""Faults in a migration: every task ends, and the guest runs once.

A daemon dies at a point of the migration, the guest writes memory faster than the link
carries it, or the source never returns.
"""

import dataclasses
import json
import time

import pytest

from tools.cloud import mariadb

pytestmark = pytest.mark.long

SOURCE, DESTINATION = 'compute-01', 'compute-02'
#: Point of the migration at which the daemon dies: a status of Nova's record, or the time after
#: the guest has gone to its destination and before Nova writes so. Nova's record of a live
#: migration says "running" then.
SWITCHED = 'switched'
LIVE = ('queued', 'preparing', 'running', SWITCHED)
#: "finished" awaits the confirmation of a cold migration.
COLD = ('migrating', 'finished')
#: Process of the sandbox that dies, and the points where its death matters.
DEATHS = {
    'kronos-executor': (*LIVE, *COLD),
    'kronos-engine': ('running',),
    'rabbitmq': ('preparing', 'running'),
    'mariadb': ('preparing', 'running'),
    'nova-conductor': ('preparing', 'running'),
    f'nova-compute-{SOURCE}': (*LIVE, 'finished'),
    f'nova-compute-{DESTINATION}': ('preparing', 'running', SWITCHED, 'finished'),
    f'libvirtd-{SOURCE}': ('running',),
    f'libvirtd-{DESTINATION}': ('running',),
}
#: Seconds after which a daemon is started again.
AWAY_SECONDS = 3
#: Deadline of a migration, in seconds: Nova may never end one whose daemon died.
DEADLINE = 120
#: A task ends within so many seconds, or an operator ends it.
TASK_SECONDS = 900
#: Seconds after which the operator of these tests ends it.
SETTLE_SECONDS = 2 * DEADLINE


@dataclasses.dataclass(frozen=True)
class Death:
    """A daemon that dies as soon as a migration comes to a point."""

    daemon: str
    point: str

    def __str__(self):
        return f'{self.daemon}-{self.point}'


def wait_for_status(lab, uuid, statuses, seconds=120):
    """Return the status of the server's migration, as soon as it is one of ``statuses``.

    A short one may pass unseen; the next one is then found, and after the last one the test is
    skipped: it has killed nothing.
    """
    with mariadb.connect(lab.run) as connection, connection.cursor() as cursor:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            cursor.execute(
                'SELECT status FROM nova.migrations WHERE instance_uuid = %s', (uuid,))
            for [status] in cursor.fetchall():
                if status in statuses:
                    return status
                if status in ('completed', 'confirmed'):
                    pytest.skip(f'the migration was {status} before a look saw its point')
                assert status not in ('error', 'failed')
            time.sleep(0.003)
    raise TimeoutError(f'no migration of {uuid} within {seconds} s')


def wait_for_point(lab, guest, point):
    """Return as soon as the guest's migration is at a point, or at a later one.

    After the switch-over the destination's nova-compute stands still: without its answer, Nova
    cannot end the migration.
    """
    if point == SWITCHED:
        wait_for_status(lab, guest.uuid, ('running',))
        lab.run.freeze(f'nova-compute-{DESTINATION}')
        lab.wait(lambda: list_running(lab, guest) == [DESTINATION],
                 'the guest runs at its destination alone')
        assert guest.find_host() == SOURCE
    else:
        order = COLD if point in COLD else LIVE
        wait_for_status(lab, guest.uuid, order[order.index(point):])


def settle(lab, seconds=SETTLE_SECONDS, has_source=True):
    """Wait until every task ended; return whether they did so without an operator.

    Nova never ends a migration whose request, or whose next step, was lost with a daemon. Then an
    operator restarts the source's nova-compute, which resets the instance's task state
    (nova.compute.manager, _reset_live_migration), and resolves the task.

    :param seconds: how long the operator waits.
    :param has_source: the source is up.
    """
    try:
        lab.wait(lambda: not lab.list_open_tasks(), 'every task ended', seconds)
    except TimeoutError:
        if has_source:
            restart(lab, f'nova-compute-{SOURCE}')
            lab.wait_for_services()
        for task in lab.list_open_tasks():
            lab.ask('task', 'resolve', task['Task'], '--as', 'failed', '--reason',
                    'Nova has left its migration')
        assert not lab.list_open_tasks()
        return False
    return True


def restart(lab, daemon):
    """Kill a daemon and start it again a moment later."""
    lab.run.kill(daemon)
    time.sleep(AWAY_SECONDS)
    lab.run.restart(daemon)


def list_running(lab, guest):
    return [host for host, state in guest.list_domain_states().items()
            if state in ('running', 'paused')]


CASES = [Death(daemon, point) for daemon, points in DEATHS.items() for point in points]


@pytest.mark.timeout(TASK_SECONDS + 600)
@pytest.mark.parametrize('death', CASES, ids=str)
def test_task_ends_and_guest_runs_once_after_a_daemon_died(empty_lab, death):
    empty_lab.configure({'executor': {'migration_timeout': DEADLINE, 'seconds_per_gib': 0}})
    guest = empty_lab.boot('guest', SOURCE)
    if death.point in COLD:
        empty_lab.stop_guest(guest)
    else:
        guest.rewrite_memory(64, 30)
    empty_lab.start('kronos-executor')
    empty_lab.ask('drain', 'start', SOURCE, '--reason', 'a new kernel')
    # Not before: it would spread the busy guest.
    empty_lab.start('kronos-engine')
    try:
        wait_for_point(empty_lab, guest, death.point)
        restart(empty_lab, death.daemon)
    finally:
        empty_lab.run.thaw(f'nova-compute-{DESTINATION}')
    ended = settle(empty_lab)
    empty_lab.wait_for_services()
    assert_one_place(empty_lab, guest, death, ended)


def assert_one_place(lab, guest, death, ended):
    """Assert that Nova, libvirt and Placement name one place of the guest, soon at least.

    Nova keeps what the migration has allocated where it never ends the migration, and where it
    fails to roll back and leaves the instance in ERROR. An operator has to act then, and knows.

    :param ended: the task ended without an operator.
    """
    if death.point in COLD:
        lab.wait(lambda: guest.read()['OS-EXT-STS:task_state'] is None, 'Nova has ended its work')
        host = guest.find_host()
        assert list_running(lab, guest) == []
        assert guest.list_domain_states() == {host: 'shut off'}
    else:
        lab.wait(lambda: list_running(lab, guest) == [guest.find_host()],
                 'the guest runs where Nova says, and nowhere else')
        host = guest.find_host()
    if guest.read()['status'] == 'ERROR':
        assert guest.uuid in lab.ask('quarantine', 'list')
        print(f'{death}: Nova left the instance in ERROR; allocations on '
              f'{sorted(lab.list_allocations(guest.uuid))}, the guest on {host}')
    elif ended:
        lab.wait(lambda: lab.list_allocations(guest.uuid) == {host},
                 'Placement has one allocation')
    else:
        print(f'{death}: an operator ended the task; allocations on '
              f'{sorted(lab.list_allocations(guest.uuid))}, the guest on {host}')


@pytest.mark.timeout(TASK_SECONDS)
@pytest.mark.parametrize('reset', [False, True])
def test_migration_that_outruns_its_link_is_aborted_and_the_guest_runs_on(empty_lab, reset):
    empty_lab.configure({'executor': {
        'migration_timeout': 60, 'seconds_per_gib': 0, 'max_retries': 0,
        'abort_at_deadline': 'true', 'reset_state_after_abort': str(reset).lower()}})
    guest = empty_lab.boot('guest', SOURCE)
    before = guest.read_heartbeat()
    guest.rewrite_memory(96, 60)
    empty_lab.hypervisor.limit_link(empty_lab.run, SOURCE, megabits=16)
    try:
        empty_lab.start('kronos-executor')
        empty_lab.ask('drain', 'start', SOURCE, '--reason', 'a new kernel')
        empty_lab.start('kronos-engine')
        wait_for_status(empty_lab, guest.uuid, ('running',))
        empty_lab.stop('kronos-engine')
        empty_lab.wait_for_tasks(state='failed', timeout=300)
    finally:
        empty_lab.hypervisor.limit_link(empty_lab.run, SOURCE, None)
    [task] = json.loads(empty_lab.ask('task', 'list', '--all', '-f', 'json'))
    shown = empty_lab.ask('task', 'show', task['Task'])
    assert 'MigrationTimeout' in shown, shown
    assert guest.read()['status'] == ('ACTIVE' if reset else 'ERROR')
    # The operator reads how to make the guest active again where we did not.
    assert reset or f'openstack server set --state active {guest.uuid}' in ' '.join(shown.split())
    empty_lab.assert_runs_once(guest, SOURCE)
    guest.assert_same_boot(before)


@pytest.mark.timeout(2 * TASK_SECONDS)
def test_task_ends_and_guest_is_evacuated_when_its_source_never_returns(empty_lab):
    empty_lab.configure({'executor': {'migration_timeout': DEADLINE, 'seconds_per_gib': 0}})
    guest = empty_lab.boot('guest', SOURCE)
    guest.rewrite_memory(96, 60)
    empty_lab.hypervisor.limit_link(empty_lab.run, SOURCE, megabits=16)
    empty_lab.start('kronos-executor')
    empty_lab.ask('drain', 'start', SOURCE, '--reason', 'a new kernel')
    empty_lab.start('kronos-engine')
    wait_for_status(empty_lab, guest.uuid, ('running',))
    empty_lab.hypervisor.kill_host(empty_lab.run, SOURCE)
    try:
        empty_lab.wait(lambda: not empty_lab.is_service_up(SOURCE), 'Nova sees the host down')
        empty_lab.cloud.call('POST', 'nova', f'/v2.1/servers/{guest.uuid}/action',
                             {'evacuate': {'host': DESTINATION}})
        empty_lab.wait(lambda: guest.find_host() == DESTINATION
                       and guest.read()['OS-EXT-STS:task_state'] is None, 'it is evacuated')
        settle(empty_lab, seconds=TASK_SECONDS, has_source=False)
        # Nova leaves an evacuated server stopped (2.95).
        empty_lab.start_guest(guest)
        assert empty_lab.list_allocations(guest.uuid) >= {DESTINATION}
    finally:
        empty_lab.hypervisor.restart_host(empty_lab.run, SOURCE)
    empty_lab.wait_for_services()
    # nova-compute removes what was evacuated when it starts.
    empty_lab.wait(lambda: empty_lab.list_allocations(guest.uuid) == {DESTINATION},
                   'Placement has one allocation')
    empty_lab.assert_runs_once(guest, DESTINATION)
