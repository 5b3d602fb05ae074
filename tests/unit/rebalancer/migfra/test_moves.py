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


"""From ended tasks to a result: the handler reads Nova first and then renders the result."""

import json
import types

from oslo_config import cfg
import pytest
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.conf import permits
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.migfra import move_results
from kronos_nova.rebalancer.migfra import moves
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import rows
from tests.unit.rebalancer.planning import test_failover
from tests.unit.rebalancer.planning import test_failover_guard

DOCUMENT = ('{"id": "r", "task": "migrate vm", "vm-name": "vm-1", "destination": "node2", '
            '"parameter": {"vcpu-map": [[4]]}}')
REQUEST = requests.MigfraRequest('node1/r', 'node1', 'migrate vm', DOCUMENT, '', 0.0, plan_id='p',
                                 progress={'named': {'u': 'vm-1'}, 'refused': {}})


class Nova:
    def __init__(self, *answers):
        self.answers = list(answers)

    def read_server(self, uuid):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return types.SimpleNamespace(instance=answer)


def made(nova, repin):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    task = model.Task('t', 'p', 's', 'u', 'node1', 'node2', model.Phase.SPREAD,
                      state=model.TaskState.COMPLETED)
    store = types.SimpleNamespace(
        tasks=types.SimpleNamespace(
            list_plan_tasks=lambda plan_id: [rows.TaskRow(task, completed_at=1.0)],
            list_swaps=lambda plan_id: []),
        hooks=types.SimpleNamespace(list_task_hooks=lambda task_id: []))
    return moves.MoveHandler(conf, None, nova, None, store, None, None, repin)


INSTANCE = model.Instance('u', 'vm-1', 'node2', 1, 1024)


def test_a_nova_outage_delays_the_result():
    pinned = []
    handler = made(Nova(api.ApiError('Nova', 'server u', 'no answer in time', 503), INSTANCE),
                   lambda *args: pinned.append(args))
    with pytest.raises(api.ApiError):
        handler.continue_request(REQUEST, 1.0)
    ended = handler.continue_request(REQUEST, 2.0)
    assert yaml.safe_load(ended.reply)['status'] == 'success' and not ended.failed
    assert pinned == [('node2', 'u', ((4,),), None)]


@pytest.mark.parametrize('answer, problem', [
    (INSTANCE, 'repin is away'), (api.ApiError('Nova', 'server u', 'is gone', 404), 'is gone')])
def test_a_failed_pinning_is_reported_in_the_result(answer, problem):
    def refuse(*args):
        raise exception.RepinError(what='repin', problem='is away', remedy='Look.')

    ended = made(Nova(answer), refuse).continue_request(REQUEST, 1.0)
    found = yaml.safe_load(ended.reply)
    assert found['status'] == 'error' and problem in found['details']
    assert found['details'].startswith('it was migrated; vcpu-map: ')


@pytest.mark.parametrize('document', [
    {'task': 'migrate vm', 'vm-name': 'b', 'destination': 'h2'},
    {'task': 'migrate vm', 'vm-name': 'b', 'destination': 'h3',
     'parameter': {'swap-with': {'vm-name': 'd'}}},
    {'task': 'evacuate node', 'destinations': ['h2', 'h3']}])
def test_requests_share_their_searches_for_a_certificate_while_any_is_open(monkeypatch, document):
    handler = made(None, None)
    handler._conf.set_override('allow', [permits.PermitType()('*:*:*')], 'migfra')
    handler._looks = types.SimpleNamespace(drop_old_reading=lambda: None)
    planning_input = test_failover_guard.with_mode(test_failover.small(4, [
        ('a', 'h0', 2), ('b', 'h1', 1), ('d', 'h3', 2)]), model.FailoverMode.ENFORCE)
    instances = planning_input.cluster.instances
    monkeypatch.setattr(moves.names, 'resolve_server', lambda _nova, name, *_: (
        types.SimpleNamespace(instance=instances[name])))
    monkeypatch.setattr(moves.cloud_state, 'build_planning_input', lambda *_: planning_input)
    cloud = types.SimpleNamespace(map_clusters=lambda: {'scope': planning_input.cluster})
    request = requests.MigfraRequest('h1/r', 'h1', document['task'],
                                     json.dumps({'id': 'r', **document}), '', 0.0)
    task = moves.request_handler.parse_task(request)

    def count_kept():
        answer = handler._judge_by_cloud(request, task, None, None, cloud).answer
        assert answer.plan.moves
        return answer.certificate.kept

    assert [count_kept(), count_kept()] == [0, 4]
    handler.release_pass_data()
    assert count_kept() == 0


def test_a_result_is_rendered_without_asking_anything():
    handler = made(None, None)
    task = moves.request_handler.parse_task(REQUEST)
    tasks = {row.task.instance_uuid: row for row in handler._store.tasks.list_plan_tasks('p')}
    ended = move_results.render_result('global', REQUEST, task, tasks, REQUEST.progress,
                                       {'u': 'no such cpu'})
    assert yaml.safe_load(ended.reply)['details'] == 'it was migrated; vcpu-map: no such cpu'
