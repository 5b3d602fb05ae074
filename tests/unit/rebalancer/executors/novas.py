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

"""A NovaExecutor over answers of Nova and Placement, and its tasks."""

import dataclasses
from typing import Any

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import nova
from tests.unit.rebalancer.clients import answers

TASK = model.Task(task_id='t1', plan_id='p1', aggregate=model.UNASSIGNED, instance_uuid='vm',
                  from_host='host1', to_host='host2', phase=model.Phase.SPREAD)
MARKER = '{"migration_id": 5, "time": 0.0}'
GONE = answers.Response({'itemNotFound': {'message': 'gone', 'code': 404}}, 404)
COLD = dataclasses.replace(TASK, phase=model.Phase.EVACUATE, method=model.MoveMethod.COLD)


def driver(cloud: answers.Answers) -> nova.NovaExecutor:
    conf = cfg.ConfigOpts()
    opts.register(conf)
    return nova.NovaExecutor(conf, cloud)


def look(cloud: answers.Answers, migrations: Any, server: Any,
         task: model.Task = TASK) -> base.MigrationProgress:
    """``migrations``: lists given in turn to those who ask."""
    cloud.answers['/os-migrations'] = [{'migrations': m} for m in migrations]
    cloud.answers['/servers/vm'] = [
        server if isinstance(server, answers.Response) else {'server': server}]
    cloud.answers['/servers/detail'] = [{'servers': []}]
    cloud.answers.setdefault('/servers/vm/os-instance-actions', [{'instanceActions': []}])
    cloud.answers.setdefault('/allocations/m6', [{'allocations': {}}])
    cloud.answers.setdefault('/allocations/vm', [{'allocations': {
        'node1': {'resources': {'VCPU': 2}}}}])
    cloud.answers['/os-hypervisors/detail'] = [{'hypervisors': [
        {'id': 'node2', 'hypervisor_hostname': 'host2.example.org', 'hypervisor_type': 'QEMU',
         'service': {'host': 'host2'}}]}]
    cloud.answers['/resource_providers'] = [{'resource_providers': [
        {'uuid': uuid, 'name': uuid, 'root_provider_uuid': 'node2',
         'parent_provider_uuid': parent, 'generation': 1}
        for uuid, parent in (('node2', None), ('numa2', 'node2'))]}]
    return driver(cloud).read_progress(task, MARKER)


def cold(number: int = 6, **fields: Any) -> dict[str, Any]:
    return answers.migration(number, migration_type='migration', **fields)


def stopped(status: str = 'SHUTOFF', task_state: str | None = None,
            host: str = 'host1') -> dict[str, Any]:
    return answers.server('vm', host, status=status, **{'OS-EXT-STS:task_state': task_state})
