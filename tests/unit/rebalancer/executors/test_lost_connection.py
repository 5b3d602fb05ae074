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

"""A worker whose connection to Nova is closed while it sends a request."""

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import connection
from kronos_nova.rebalancer.executors import nova
from tests.unit.rebalancer.clients import served
from tests.unit.rebalancer.clients import test_connection
from tests.unit.rebalancer.executors import novas


@pytest.fixture
def cloud(bench):
    """Nova behind a socket; it accepts the migration request of the only task."""
    bench.plan()
    uuid = bench.tasks[0].instance_uuid
    with served.serving({'GET /': [test_connection.VERSIONS],
                         f'POST /servers/{uuid}/action': [(202, {})],
                         'GET /os-migrations': [{'migrations': []}]}) as found:
        yield found


@pytest.fixture
def executor(cloud, tmp_path):
    """The executor of live migrations over a connection as daemons make it."""
    conf = test_connection.conf(
        tmp_path, '[nova]\nauth_type = none\nconnect_retries = 3\nstatus_code_retries = 3\n'
                  f'endpoint_override = {cloud.connection.compute.endpoint_override}\n')
    return nova.NovaExecutor(conf, connection.make_connection(conf))


def test_migration_request_that_may_have_arrived_is_unknown_and_sent_once(
        bench, cloud, executor, monkeypatch):
    served.close_while_sending(monkeypatch, cloud, 'POST')
    monkeypatch.setattr(bench.driver, 'submit', executor.submit)
    bench.passes(1)
    row = bench.row()
    assert (row.task.state, row.error_type) == (
        model.TaskState.UNKNOWN, exception.AmbiguousSubmit.wire_type)
    assert 'the connection broke' in row.error
    bench.passes(1)
    assert cloud.number('POST') == 1


def test_look_that_loses_its_connection_is_repeated(bench, cloud, executor, caplog, monkeypatch):
    bench.driver.answers['read_progress'] = [lambda task: executor.read_progress(task,
                                                                                 novas.MARKER)]
    bench.passes(1)
    assert bench.state is model.TaskState.SUBMITTED
    served.close_while_sending(monkeypatch, cloud, 'GET', times=10)
    bench.passes(1)
    assert bench.state is model.TaskState.SUBMITTED
    assert 'the endpoint cannot be reached' in caplog.text
    assert 'It is looked at again.' in caplog.text
    assert not [r for r in caplog.records if r.levelname == 'ERROR']


def test_login_that_loses_its_connection_ends_no_pass(
        bench, cloud, tmp_path, caplog, monkeypatch):
    url = cloud.connection.compute.endpoint_override
    cloud.answers['POST /v3/auth/tokens'] = [None]
    conf = test_connection.conf(
        tmp_path, f'[nova]\nauth_type = v3password\nauth_url = {url}/v3\nusername = kronos\n'
                  'password = secret\nproject_name = service\nuser_domain_name = Default\n'
                  f'project_domain_name = Default\nendpoint_override = {url}\n')
    executor = nova.NovaExecutor(conf, connection.make_connection(conf))
    monkeypatch.setattr(bench.driver, 'log_in', executor.log_in)
    served.close_while_sending(monkeypatch, cloud, 'POST', times=10)
    caplog.set_level('INFO')
    bench.passes(1)
    row = bench.row()
    assert (row.task.state, row.task.retry_count) == (model.TaskState.QUEUED, 0)
    assert 'Keystone gave no token: the endpoint cannot be reached: it waits for' in caplog.text
    assert bench.steps('submit') == []
