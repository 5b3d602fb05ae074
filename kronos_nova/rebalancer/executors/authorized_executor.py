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

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.executors import base


class AuthorizedExecutor(base.Executor):
    """Driver that verifies each task before every request that changes something in the cloud.

    It reads the progress of every task: that moves nothing.

    :param driver: the driver that asks.
    """

    def __init__(self, driver: base.Executor,
                 verifier: task_authorization.TaskVerifier) -> None:
        self._driver, self._verifier = driver, verifier
        self.hooked = driver.hooked

    def _check_task(self, task: model.Task, now: float | None = None) -> None:
        """Check that the task is authorized.

        :raises TaskNotAuthorized: it is not.
        :raises HeldUp: the keys cannot be read; the task waits.
        """
        try:
            self._verifier.check_task(task, now)
        except exception.SigningKeyError as e:
            raise exception.HeldUp(
                instance_uuid=task.instance_uuid,
                problem=f'its signature cannot be verified: {str(e).rstrip(".")}') from None

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        self._check_task(task, known.now)
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

    def reset_state(self, task: model.Task) -> bool:
        self._check_begun_task(task)
        return self._driver.reset_state(task)

    def read_phase_seconds(self, task: model.Task, reference: str) -> Mapping[str, float]:
        return self._driver.read_phase_seconds(task, reference)

    def post_flight(self, task: model.Task) -> None:
        self._driver.post_flight(task)

    def _check_begun_task(self, task: model.Task) -> None:
        """Check a task that has begun: the worker looks at it again.

        :raises NovaClientError: it is not authorized.
        """
        try:
            self._check_task(task)
        except (exception.TaskNotAuthorized, exception.HeldUp) as e:
            raise exception.NovaClientError(
                instance_uuid=task.instance_uuid, problem=e.kwargs['problem']) from None
