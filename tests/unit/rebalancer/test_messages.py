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

import uuid

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer import messages


def task(**values):
    return model.Task(**{
        'task_id': str(uuid.UUID(int=1)), 'plan_id': str(uuid.UUID(int=2)),
        'aggregate': 'gpu', 'instance_uuid': str(uuid.UUID(int=3)), 'from_host': 'a',
        'to_host': 'b', 'phase': model.Phase.EVACUATE, 'policy_names': ('cpu',),
        'instance_name': '<script>', 'created_at': 1000.5, 'not_before': 1030.0, **values})


def test_plain_scopes_keep_the_topics_of_kronos():
    assert messages.migrations_topic('_unassigned_') == 'kronos.migrations._unassigned_'
    assert messages.results_topic('gpu-1.a') == 'kronos.results.gpu-1.a'
    assert messages.publisher_id('gpu') == 'kronos-executor-gpu'


@given(st.text(min_size=1, max_size=255), st.text(min_size=1, max_size=255))
def test_topics_fit_amqp_and_two_scopes_never_share_one(one, two):
    topics = messages.migrations_topic(one), messages.migrations_topic(two)
    assert all(len(t.encode()) <= 200 and t.isascii() and t.isprintable() for t in topics)
    assert (topics[0] == topics[1]) == (one == two)


def test_a_task_keeps_the_fields_of_kronos_and_comes_back_equal():
    wire = messages.task_to_wire(task())
    assert set(wire) >= {
        'task_id', 'plan_id', 'aggregate', 'policy_names', 'instance_uuid', 'instance_name',
        'from_host', 'to_host', 'improvement', 'phase', 'priority', 'max_retries',
        'retry_count', 'not_before', 'created_at'}
    assert wire['phase'] == 'evacuate' and wire['created_at'].startswith('1970-01-01T00:16:40')
    assert messages.task_from_wire(wire) == task()


@pytest.mark.parametrize('field, value', [
    ('task_id', 'x'), ('instance_uuid', None), ('from_host', 'a b'), ('to_host', ''),
    ('phase', 'reboot'), ('priority', True), ('priority', float('inf')), ('retry_count', -1),
    ('created_at', 'yesterday'), ('policy_names', 'cpu'), ('policy_names', [1]),
    ('not_before', '5'), ('aggregate', 'x' * 256), ('deadline', 'soon')])
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(exception.MessageError, match=f'field {field}:'):
        messages.task_from_wire({**messages.task_to_wire(task()), field: value})


@pytest.mark.parametrize('data', [None, [], 'x', 5])
def test_what_is_no_mapping_is_refused(data):
    with pytest.raises(exception.MessageError):
        messages.task_from_wire(data)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5),
                    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=5), c),
                    max_leaves=5), st.sampled_from(sorted(messages.task_to_wire(task()))))
def test_no_value_of_any_field_raises_anything_but_a_message_error(value, field):
    try:
        messages.task_from_wire({**messages.task_to_wire(task()), field: value})
    except exception.MessageError:
        pass


def test_a_result_comes_back_equal():
    result = model.Result(
        task_id=str(uuid.UUID(int=1)), plan_id=str(uuid.UUID(int=2)), aggregate='gpu',
        instance_uuid=str(uuid.UUID(int=3)), from_host='a', to_host='b', success=False,
        error='no', error_type='PreFlightError', duration_seconds=1.5, retry_count=2,
        completed_at=1000.25)
    assert messages.result_from_wire(messages.result_to_wire(result)) == result


def test_a_result_without_success_is_refused():
    with pytest.raises(exception.MessageError, match='success'):
        messages.result_from_wire({**messages.result_to_wire(model.Result(
            str(uuid.UUID(int=1)), str(uuid.UUID(int=2)), 'g', str(uuid.UUID(int=3)), 'a', 'b',
            True)), 'success': 'yes'})
