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

"""A driver that hands only authorized tasks to the driver that asks Nova."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import time

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import escalation


class AuthorizedExecutor(base.Executor):
    """Driver that verifies each task before every request that changes something in the cloud.

    It reads the progress of every task: that moves nothing.

    :param driver: the driver that asks.
    :param clock: returns epoch seconds; the end of an authorization does not need the database's.
    """

    def __init__(self, driver: base.Executor, verifier: task_authorization.TaskVerifier,
                 clock: Callable[[], float] = time.time) -> None:
        self._driver, self._verifier, self._clock = driver, verifier, clock
        self.hooked = driver.hooked

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        self._check_task(task)
        return self._driver.pre_flight(task, known)

    def log_in(self, task: model.Task) -> None:
        self._driver.log_in(task)

    def submit(self, task: model.Task,
               may_send: Callable[[], bool] = lambda: True) -> str | None:
        self._check_task(task)
        return self._driver.submit(task, may_send)

    def read_progress(self, task: model.Task, marker: str) -> base.MigrationProgress:
        return self._driver.read_progress(task, marker)

    def bind_marker(self, marker: str, reference: str | None) -> str:
        return self._driver.bind_marker(marker, reference)

    def trace_late_request(self, task: model.Task, marker: str,
                           known: Collection[str]) -> model.Task:
        return self._driver.trace_late_request(task, marker, known)

    def confirm(self, task: model.Task, marker: str) -> None:
        self._check_begun_task(task)
        self._driver.confirm(task, marker)

    def abort(self, task: model.Task, marker: str) -> bool:
        self._check_begun_task(task)
        return self._driver.abort(task, marker)

    def read_copy(self, task: model.Task, marker: str) -> escalation.CopySample | None:
        return self._driver.read_copy(task, marker)

    def force_completion(self, task: model.Task, marker: str,
                         may_send: Callable[[], bool]) -> str | None:
        self._check_begun_task(task)
        return self._driver.force_completion(task, marker, may_send)

    def find_shutdown_obstacle(self, task: model.Task, now: float) -> str | None:
        """Ask the driver about an authorized task: a step must not be recorded for another one."""
        self._check_begun_task(task)
        return self._driver.find_shutdown_obstacle(task, now)

    def read_forced_seconds(self, task: model.Task) -> float | None:
        return self._driver.read_forced_seconds(task)

    def reset_state(self, task: model.Task) -> bool:
        self._check_begun_task(task)
        return self._driver.reset_state(task)

    def read_phase_seconds(self, task: model.Task, reference: str) -> Mapping[str, float]:
        return self._driver.read_phase_seconds(task, reference)

    def post_flight(self, task: model.Task) -> None:
        self._driver.post_flight(task)

    def _check_task(self, task: model.Task) -> None:
        """Check that the task may begin.

        :raises TaskNotAuthorized: it may not.
        :raises HeldUp: the keys cannot be read, or lack the one that has signed; the task waits.
        """
        try:
            self._verifier.check_task(task, self._clock())
        except exception.SigningKeyError as e:
            raise exception.HeldUp(instance_uuid=task.instance_uuid, problem=str(e)) from None

    def _check_begun_task(self, task: model.Task) -> None:
        """Check a task that has begun: the worker looks at it again.

        :raises NovaClientError: it is not authorized, or that is not known.
        """
        try:
            self._verifier.check_begun_task(task, self._clock())
        except exception.SigningKeyError as e:
            raise exception.NovaClientError(instance_uuid=task.instance_uuid,
                                            problem=str(e)) from None
        except exception.TaskNotAuthorized as e:
            raise exception.NovaClientError(instance_uuid=task.instance_uuid,
                                            problem=e.kwargs['problem']) from None
