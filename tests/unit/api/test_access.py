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

"""Who may call what: the default rules, the operator's policy file, tokens of other scopes."""

import os

import pytest

from kronos_nova import exception
from kronos_nova.api import application
from kronos_nova.api import endpoints
from kronos_nova.api import policies
from tests.unit.api import conftest

ADDRESS = {'campaign_id': '00000000-0000-4000-8000-000000000003',
           'plan_id': '00000000-0000-4000-8000-000000000000',
           'task_id': '00000000-0000-4000-8000-000000000001',
           'instance_id': '00000000-0000-4000-8000-000000000002'}
#: Roles as Keystone sends them, with the implied ones.
READER, MEMBER = 'reader', 'member,reader'
MANAGER, ADMIN = 'manager,member,reader', 'admin,manager,member,reader'
#: (roles, project) -> the accesses that it has.
IDENTITIES = {
    (READER, conftest.OPERATORS): {'reader'},
    (MEMBER, conftest.OPERATORS): {'reader'},
    (MANAGER, conftest.OPERATORS): {'reader', 'manager'},
    (ADMIN, conftest.OPERATORS): {'reader', 'manager', 'admin'},
    ('', conftest.OPERATORS): set(),
    (READER, conftest.TENANT): set(),
    (MANAGER, conftest.TENANT): set(),
    (ADMIN, conftest.TENANT): {'reader', 'manager', 'admin'},
    (READER, ''): set()}


def is_admitted(client, endpoint, **identity):
    """Return whether the endpoint does not answer with 403; it may refuse the empty request."""
    status, document = client.send(endpoint.method, endpoint.path.format_map(ADDRESS),
                                   **identity)
    assert status < 500 or document['errors'][0]['code'] == 'kronos.reading_missing'
    return status != 403


@pytest.mark.parametrize(('roles', 'project'), IDENTITIES)
def test_each_identity_has_the_access_of_its_role(client, roles, project):
    for endpoint in endpoints.ENDPOINTS:
        assert is_admitted(client, endpoint, roles=roles, project=project) is (
            endpoint.access.value in IDENTITIES[roles, project]), endpoint


def test_without_operator_projects_only_administrators_have_access(conf):
    conf.set_override('operator_projects', [], group='kronos_api')
    client = conftest.Client(application.make_routes(conf))
    for endpoint in endpoints.ENDPOINTS:
        assert not is_admitted(client, endpoint, roles=MANAGER)
        assert not is_admitted(client, endpoint, roles=MANAGER, project='')
        assert is_admitted(client, endpoint, roles=ADMIN)


@pytest.mark.parametrize('headers', [
    {'X-Project-Id': '', 'OpenStack-System-Scope': 'all'},
    {'X-Project-Id': '', 'X-Domain-Id': 'default'}])
def test_administrator_of_a_system_or_domain_is_refused(client, headers):
    status, detail = client.fail('GET', '/v1/plans', roles=ADMIN, headers=headers)
    assert status == 403 and 'kronos:plan:list' in detail


@pytest.mark.parametrize('status', ['Invalid', ''])
def test_identity_that_is_not_confirmed_is_no_identity(client, status):
    for endpoint in endpoints.ENDPOINTS:
        answer = client.fail(endpoint.method, endpoint.path.format_map(ADDRESS),
                             headers={'X-Identity-Status': status})
        assert answer == (401, 'No identity is confirmed.')


def test_policy_file_of_the_operator_takes_the_place_of_a_default(conf, tmp_path):
    file = tmp_path / 'policy.yaml'
    file.write_text('"kronos:plan:list": "role:auditor"\n')
    client = conftest.Client(application.make_routes(conf))
    assert client.send('GET', '/v1/plans', roles='auditor', project=conftest.TENANT)[0] == 200
    assert client.send('GET', '/v1/plans', roles=READER)[0] == 403
    assert client.send('GET', '/v1/tasks', roles=READER)[0] == 200


@pytest.mark.parametrize('text', [
    '"kronos:plan:list": [', '"kronos:plan:list": "rule:no_such_rule"', '- a list\n'])
def test_broken_policy_file_is_refused_at_the_start(conf, tmp_path, text):
    file = tmp_path / 'policy.yaml'
    file.write_text(text)
    with pytest.raises(exception.ConfigError, match=r'policy\.yaml: policy rules: '):
        application.make_routes(conf)


def test_policy_file_that_breaks_later_admits_no_request_until_it_is_read_again(conf, tmp_path):
    file = tmp_path / 'policy.yaml'
    file.write_text('"kronos:plan:list": "role:auditor"\n')
    client = conftest.Client(application.make_routes(conf))
    assert client.send('GET', '/v1/plans', roles='auditor')[0] == 200
    later = os.stat(file).st_mtime
    for text in ('- a list\n', '"kronos:plan:list": ['):
        file.write_text(text)
        later += 10
        os.utime(file, (later, later))
        status, detail = client.fail('GET', '/v1/plans', roles='auditor')
        assert status == 503 and str(tmp_path) not in detail
    file.write_text('"kronos:plan:list": "role:reviewer"\n')
    os.utime(file, (later + 10, later + 10))
    assert client.send('GET', '/v1/plans', roles='auditor')[0] == 403
    assert client.send('GET', '/v1/plans', roles='reviewer')[0] == 200


def test_every_endpoint_has_a_rule_of_its_own_with_a_description():
    rules = {rule.name: rule for rule in policies.list_rules()}
    named = [endpoint.rule for endpoint in endpoints.ENDPOINTS]
    assert len(named) == len(set(named)) == 42
    for endpoint in endpoints.ENDPOINTS:
        rule = rules[endpoint.rule]
        assert rule.operations == [{'path': endpoint.path, 'method': endpoint.method}]
        assert rule.description.endswith('.') and rule.scope_types == ['project']
