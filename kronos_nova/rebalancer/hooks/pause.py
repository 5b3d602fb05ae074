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

"""A hook that pauses an instance while it is live-migrated: a warm migration.

A task brings the hook (kronos-migfra requests it for ``migration-type: warm``). Enabled for all,
it makes every live migration a warm one. An instance that was paused before stays paused.
"""

from collections.abc import Callable
import functools
import threading
import time
from typing import Any, Self

from oslo_config import cfg

from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import power
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import pool

NAME = 'pause'
#: Values of the marker: whether the hook has to unpause the instance.
OURS, THEIRS = 'ours', 'theirs'
#: Seconds between two reads from Nova.
LOOK = 0.5


class PauseHook(base.Hook):
    """Hook that pauses and unpauses an instance.

    :param nova: returns the client of Nova, when it is first needed.
    :param seconds: the longest time that a step waits for Nova.
    """

    gives_up = False

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        return cls(lambda: nova_api.NovaApi(connect()), conf.hooks.deadline)

    def __init__(self, nova: Callable[[], nova_api.NovaApi], seconds: float = 60.0) -> None:
        self._nova = functools.cache(nova)
        self._seconds = seconds
        self._pool = pool.StepPool(NAME)
        self._closing = threading.Event()

    def marker(self, call: base.HookCall) -> str:
        if call.task.method.is_cold:
            return THEIRS
        try:
            status = self._nova().read_server(call.task.instance_uuid).instance.status
        except api.ApiError as e:
            raise base.StepFailed(problem=f'does not know the instance: {e}') from None
        return OURS if status == statuses.ACTIVE else THEIRS

    def before(self, call: base.HookCall) -> base.HookStep:
        if call.marker != OURS:
            return base.FinishedStep()
        return self._make_step(call, power.PAUSE)

    def after(self, call: base.HookCall) -> base.HookStep:
        if call.marker != OURS:
            return base.FinishedStep()
        return self._make_step(call, power.UNPAUSE)

    def remedy(self, call: base.HookCall) -> str:
        return f'Unpause it: openstack server unpause {call.task.instance_uuid}.'

    def close(self) -> None:
        self._closing.set()
        self._pool.close()

    def _make_step(self, call: base.HookCall, action: power.PowerAction) -> base.HookStep:
        until = time.monotonic() + self._seconds
        return self._pool.start_step(call.key, lambda over: self._reach_status(
            call.task.instance_uuid, action, over, until))

    def _reach_status(self, uuid: str, action: power.PowerAction, over: threading.Event,
                      until: float) -> None:
        """Ask Nova for the action until the instance has a final status.

        That is the wanted status, or one that the action does not change.

        :raises StepFailed: the instance does not reach it in time.
        """
        is_requested = False
        while not over.is_set():
            try:
                instance = self._nova().read_server(uuid).instance
                if instance.task_state is None:
                    if instance.status not in action.admitted:
                        return self._check_final_status(instance.status, action)
                    if not is_requested and not over.is_set():
                        is_requested = power.request_action(self._nova(), uuid, action)
                problem = f'it is {instance.status} ({instance.task_state})'
            except api.ApiError as e:
                if e.status == 404 and action is power.UNPAUSE:
                    return None  # it was deleted
                problem = str(e)
            except power.PowerRefused as e:
                raise base.StepFailed(problem=str(e)) from None
            if time.monotonic() >= until or self._closing.wait(LOOK):
                raise base.StepFailed(problem=f'could not {action.name} the instance: {problem}')
        raise base.StepFailed(problem=f'was not waited for when it was to {action.name} the '
                                      'instance')

    @staticmethod
    def _check_final_status(status: str, action: power.PowerAction) -> None:
        """Raise Failed unless a pause has paused the instance: only then it migrates warm.

        An unpause accepts every status: an instance that does not run needs none.
        """
        if action is power.PAUSE and status != action.wanted:
            raise base.StepFailed(problem=f'cannot pause an instance that is {status}')
