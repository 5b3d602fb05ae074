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

"""Each remnant that a migration can leave in Nova 32 to 34: the task ends or can be ended."""

import itertools
from typing import Any

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import cold
from kronos_nova.rebalancer.executors import retry
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.executors import novas

#: None: no record.
LIVE = ('accepted', 'queued', 'preparing', 'pre-migrating', 'running', 'running (post-copy)',
        'post-migrating', 'completed', 'failed', 'error', 'cancelled', 'a status of tomorrow', None)
COLD = ('accepted', 'pre-migrating', 'migrating', 'post-migrating', 'finished', 'confirming',
        'confirmed', 'reverting', 'reverted', 'error', 'cancelled', 'a status of tomorrow', None)
TASK_STATES = (None, 'migrating', *sorted(cold.RESIZING), 'rebuilding', 'powering-off',
               'image_snapshot')
VM_STATES = ('ACTIVE', 'PAUSED', 'SHUTOFF', 'SUSPENDED', 'ERROR', 'RESIZE', 'VERIFY_RESIZE',
             'SOFT_DELETED', 'SHELVED_OFFLOADED')
HOSTS = ('host1', 'host2', 'host3', None)
#: From the last change of Nova to the end of a task (seconds).
PROMISE = 900.0
#: Such a server has a migration under way, for all that Nova says.
UNDER_WAY = {model.MoveMethod.LIVE: {'migrating'}, model.MoveMethod.COLD: set(cold.RESIZING)}


def find_promise(found: base.MigrationProgress) -> float | None:
    """After how many seconds a task of this look ends; None: it is watched on."""
    settings = retry.RetrySettings()
    match found.stage:
        case base.MigrationStage.LEFT:
            assert found.ending in (base.MigrationStage.COMPLETED, base.MigrationStage.FAILED,
                                    base.MigrationStage.CANCELLED)
            return found.patience
        case base.MigrationStage.SETTLING | base.MigrationStage.UNTOLD:
            return settings.settling_seconds
        case base.MigrationStage.ABSENT:
            return settings.absent_seconds
    return found.patience if found.stage.is_terminal else None


@pytest.mark.turns(2)
@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize(('task', 'statuses'), [(novas.TASK, LIVE), (novas.COLD, COLD)])
def test_every_remnant_ends_in_time_or_can_be_resolved(
        task: model.Task, statuses: tuple[str | None, ...], host: str | None) -> None:
    make: Any = novas.cold if task.method.is_cold else answers.migration
    for status, task_state, vm_state in itertools.product(statuses, TASK_STATES, VM_STATES):
        case = status, task_state, vm_state
        records = [] if status is None else [make(6, status=status)]
        server = answers.server('vm', host, status=vm_state, **{
            'OS-EXT-STS:task_state': task_state})
        cloud = answers.Answers()
        found = novas.look(cloud, [records], server, task)
        seconds = find_promise(found)
        if seconds is None:
            assert found.version is not None, f'{case}: its slot is not free within an hour'
            assert (task_state in UNDER_WAY[task.method] or status == 'confirming'
                    or vm_state == 'VERIFY_RESIZE'), f'{case}: a task that waits for nothing'
            continue
        assert seconds < PROMISE, case
        if found.stage is base.MigrationStage.COMPLETED:
            try:
                novas.driver(cloud).post_flight(task)
            except exception.NovaClientError as e:
                pytest.fail(f'{case}: it is never verified: {e}')
            except exception.MigrationError:
                assert (host, vm_state) != ('host2', 'ACTIVE'), case
