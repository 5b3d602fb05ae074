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

"""The executor that asks an operator for each migration, and watches the instance."""

from collections.abc import Callable
from typing import Any, Self

from keystoneauth1 import exceptions as keystone_exceptions
from openstack import exceptions
from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.executors import base

LOG = logging.getLogger(__name__)


class ByHandExecutor(base.Executor):
    """Driver that logs the command to type; the move is complete once Nova shows the new host.

    :param connection: an openstacksdk connection with admin rights.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        return cls(connect())

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        host = self._find_host(task)
        if host != task.from_host:
            raise exception.PreFlightError(instance_uuid=task.instance_uuid,
                                           problem=f'it is on {host}, no more on {task.from_host}')
        return task.from_host

    def submit(self, task: model.Task,
               may_send: Callable[[], bool] = lambda: True) -> str | None:
        LOG.warning('Task %s: please type: openstack server migrate --live-migration --host %s %s',
                    task.task_id, task.to_host, task.instance_uuid)
        return None

    def read_progress(self, task: model.Task, marker: str) -> base.MigrationProgress:
        host = self._find_host(task)
        if host == task.to_host:
            return base.MigrationProgress(base.MigrationStage.COMPLETED,
                                          f'an operator moved it to {host}')
        if host == marker:
            return base.MigrationProgress(base.MigrationStage.WAITING,
                                          'no operator has moved it yet')
        return base.MigrationProgress(base.MigrationStage.FAILED, f'an operator moved it to {host}')

    def post_flight(self, task: model.Task) -> None:
        if self._find_host(task) != task.to_host:
            raise exception.MigrationFailed(instance_uuid=task.instance_uuid,
                                            problem=f'it has left {task.to_host}')

    def _find_host(self, task: model.Task) -> str:
        """Return the host of the instance.

        :raises NovaClientError: Nova could not be read.
        """
        try:
            return str(self._connection.compute.get_server(task.instance_uuid).compute_host)
        except (exceptions.SDKException, keystone_exceptions.ClientException) as e:
            raise exception.NovaClientError(instance_uuid=task.instance_uuid,
                                            problem=f'Nova could not be read: {e}') from None
