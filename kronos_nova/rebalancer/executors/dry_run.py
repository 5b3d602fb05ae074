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


"""A driver that logs each move and asks Nova for nothing.

It serves tests and rehearsals of the queue. Operators use ``[engine] dry_run``: then no task
exists at all.
"""

from collections.abc import Callable

from oslo_log import log as logging

from kronos_nova import model
from kronos_nova.rebalancer.executors import base

LOG = logging.getLogger(__name__)


class DryRunExecutor(base.Executor):
    """Driver that completes every task at once and moves nothing."""

    hooked = False

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        return 'dry-run'

    def submit(self, task: model.Task,
               may_send: Callable[[], bool] = lambda: True) -> str | None:
        LOG.info('%s: dry run: would be moved (%s) from %s to %s (%s)', model.format_task(task),
                 task.method, task.from_host, task.to_host, task.phase)
        return None

    def read_progress(self, task: model.Task, marker: str) -> base.MigrationProgress:
        return base.MigrationProgress(base.MigrationStage.COMPLETED, 'dry run')

    def post_flight(self, task: model.Task) -> None:
        """Verify nothing: the driver requested no migration."""
