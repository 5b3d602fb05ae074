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

"""Generated requests: every answer fits the OpenAPI document, and no status is above 499.

Half of the identifiers of plans, tasks and instances exist, and half of the names of hosts and
scopes. Requests change the database, so that later ones
meet other states. The middleware that judges tokens is not here (tests/integration/test_api.py has
it), so the document says that no request needs one.
"""

import datetime

import hypothesis
from oslo_config import cfg
import pytest
import schemathesis
from schemathesis.specs.openapi import checks as openapi_checks

from kronos_nova.api import application
from kronos_nova.conf import opts
from kronos_nova.model import TaskState
from tests.fixtures import stores
from tests.scenarios import loader
from tests.unit.api import published
from tests.unit.api import test_campaigns
from tests.unit.api import test_requests
from tests.unit.rebalancer.store import cases

HEADERS = {'X-Identity-Status': 'Confirmed', 'X-User-Id': 'u', 'X-User-Name': 'alice',
           'X-Project-Id': 'p', 'X-Roles': 'admin'}
OPERATIONS = 43
#: These ask Nova with the token of the user; test_drains and test_campaigns have one.
NEED_NOVA = {'abort_campaign', 'end_work', 'repeat_work', 'resume_campaign', 'skip_host',
             'start_campaign', 'start_drain', 'stop_drain'}
#: Operations that succeed only in some states of tasks, which depend on the requests before.
RARE = {'approve_plan', 'cancel_plan', 'cancel_task', 'lift_quarantine', 'pause_campaign',
        'reject_plan', 'resolve_task', 'resume_scope', 'retry_plan', 'revert_plan'}


@pytest.fixture(scope='module')
def known(tmp_path_factory):
    """Return (the routes, values that exist by the name of the path, parameter or field)."""
    directory = tmp_path_factory.mktemp('schema')
    path = directory / 'kronos.sqlite'
    store = stores.in_file(path)
    published.Publisher(store, directory).run_cycle()
    a1 = loader.uuid_of('a1')
    retried = [published.end_move(store, a1, 'a', 'b', TaskState.FAILED)]
    reverted = [published.end_move(store, a1, 'b', 'a', TaskState.COMPLETED)]
    plans, tasks = [], []
    for _number in range(20):
        plan_id, of_plan = test_requests.save_waiting_plan(store)
        plans.append(plan_id)
        tasks += [task.task_id for task in of_plan]
        plan_id, of_plan, _plan = cases.save(store, 2, now=store.now())
        cases.claim(store, now=store.now() + 60)
        plans.append(plan_id)
        tasks += [task.task_id for task in of_plan]
    store.pauses.pause_scope('blue', store.now(), seconds=None, paused_by='me', reason='x')
    store.quarantine.count_refusal('h1', store.now(), limit=1, seconds=600, reason='full')
    campaign_id = test_campaigns.save(store, a='held', b='to-come')
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('dry_run', False, group='engine')
    conf.set_override('max_waiting', 0, group='kronos_api')
    conf.set_override('connection', f'sqlite:///{path}', group='database')
    yield application.make_routes(conf), {
        'campaign_id': [campaign_id], 'plan_id': plans, 'task_id': tasks,
        'host': published.HOSTS, 'scope': ['blue'],
        'retry_plan.plan_id': retried, 'revert_plan.plan_id': reverted,
        'instance_id': [*published.TWINS, published.PINNED]}
    store.close()


def send_requests(known, number):
    """Send so many requests to each operation; return the statuses of its answers by its name."""
    routes, identifiers = known
    document = routes.test_client().get('/v1/openapi.json').get_json()
    for methods in document['paths'].values():
        for operation in methods.values():
            operation['security'] = []
    schema = schemathesis.openapi.from_dict(document)
    schema.app = routes
    statuses = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        name = operation.definition.raw['operationId']
        statuses[name] = send_requests_to(operation, name, identifiers, number)
    return statuses


def send_requests_to(operation, operation_id, identifiers, number):
    """Send so many requests to an operation; return the statuses of its answers."""
    statuses = []
    cases_of_both_kinds = operation.as_strategy() | operation.as_strategy(
        generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @hypothesis.settings(max_examples=number, deadline=None, database=None, derandomize=True,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=cases_of_both_kinds, data=hypothesis.strategies.data())
    def send(case, data):
        # A wrong value must stay where it is.
        right = case.meta.generation.mode is schemathesis.GenerationMode.POSITIVE
        for part in (case.path_parameters, *((case.query, case.body) if right else ())):
            for name in sorted(part) if isinstance(part, dict) else ():
                known_values = identifiers.get(f'{operation_id}.{name}', identifiers.get(name))
                if known_values and data.draw(hypothesis.strategies.booleans()):
                    part[name] = data.draw(hypothesis.strategies.sampled_from(known_values))
                if name == 'deadline' and right:  # No schema says which times have passed.
                    part[name] = (datetime.datetime.now(datetime.UTC)
                                  + datetime.timedelta(hours=2)).isoformat()
        answer = case.call(headers=HEADERS)
        # A wrong value may be too long as well.
        is_too_long = answer.status_code == 413
        assert not is_too_long or len(answer.request.body) > application.MAX_BODY
        case.validate_response(answer, excluded_checks=[
            openapi_checks.negative_data_rejection] if is_too_long else [])
        statuses.append(answer.status_code)

    send()
    return statuses


def check_statuses(statuses, number):
    found = [status for of_operation in statuses.values() for status in of_operation]
    assert len(found) >= number and max(found) < 500
    assert {200, 400, 404, 409} <= set(found), 'requests succeed and fail'
    assert len(statuses) == OPERATIONS
    never = {name for name, of_operation in statuses.items()
             if not {200, 204} & set(of_operation)}
    assert never <= RARE | NEED_NOVA


def test_answers_to_generated_requests_fit_the_schema(known):
    check_statuses(send_requests(known, 25), OPERATIONS * 15)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_answers_fit_the_schema(known):
    check_statuses(send_requests(known, 450), 10_000)
