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


"""Topics, fields and refused messages."""

import dataclasses
import json

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.messaging import messages

TASK = model.Task(
    task_id='0f6b52ba-6b27-4c1c-9d2c-5a7b2d3e4f50', plan_id='5d1f0c1e-8a4b-4f6d-9c3e-2b1a0f9e8d7c',
    aggregate='rack 1', instance_uuid='a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d', from_host='h1',
    to_host='h2', phase=model.Phase.SPREAD, policy_names=('cpu', 'memory'), instance_name='vm "1"',
    improvement=0.25, wave=2, requires=('c1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d',),
    alternates=('h3',), alternate_improvements=(0.125,), not_before=1700000030.5,
    created_at=1700000000.25, deadline=1700009000.0)
RESULT = model.TaskResult(
    TASK.task_id, TASK.plan_id, TASK.aggregate, TASK.instance_uuid, 'h1', 'h2', False, 'it failed',
    'MigrationFailed', 12.5, 2, 1700000100.0, (
        model.Attempt('h3', 1700000030.5, 1700000040.0, 'PlacementRejected', 'no room'),
        model.Attempt('h2', 1700000050.0, 1700000100.0, 'MigrationFailed', 'it failed',
                      '6c6c5d80-9b43-4d5c-8f43-0d7bb8a3d201', {'queue': 3.0, 'running': 40.5})))
KRONOS = {
    'task_id': TASK.task_id, 'plan_id': TASK.plan_id, 'aggregate': 'prod', 'policy_names': ['cpu'],
    'instance_uuid': TASK.instance_uuid, 'instance_name': 'vm', 'from_host': 'h1',
    'to_host': 'h2', 'improvement': 0.1, 'phase': 'evacuate', 'priority': 5, 'max_retries': 3,
    'retry_count': 0, 'not_before': 1700000000.0, 'created_at': '2023-11-14T22:13:20'}


def test_a_task_survives_the_wire():
    wire = json.loads(json.dumps(messages.to_wire(TASK)))
    assert messages.from_wire(wire, 1700000000) == TASK


def test_a_result_survives_the_wire():
    wire = json.loads(json.dumps(messages.to_payload(RESULT)))
    assert messages.from_payload(wire) == RESULT
    ok = dataclasses.replace(RESULT, success=True, error=None, error_type=None)
    assert messages.from_payload(messages.to_payload(ok)) == ok


def test_news_of_an_executor_of_the_release_before_are_understood():
    wire = messages.to_payload(RESULT)
    del wire['attempts']
    assert messages.from_payload(wire) == dataclasses.replace(RESULT, attempts=())


def test_phases_of_an_attempt_may_be_missing_or_unknown():
    wire = json.loads(json.dumps(messages.to_payload(RESULT)))
    del wire['attempts'][0]['phases']
    wire['attempts'][1]['phases']['warm_up'] = 1
    first, second = messages.from_payload(wire).attempts
    assert first.phases == {}
    assert second.phases == {'queue': 3.0, 'running': 40.5, 'warm_up': 1.0}


@pytest.mark.parametrize('phases', [
    None, [], 'x', {'queue': -1}, {'queue': 'x'}, {'queue': True}, {'queue': float('nan')},
    {'queue': None}, {'Queue\n': 1}, {'x' * 33: 1}, {f'x{"y" * n}': 1 for n in range(33)}])
def test_seconds_of_phases_are_numbers_by_plain_names(phases):
    wire = messages.to_payload(RESULT)
    wire['attempts'][0]['phases'] = phases
    with pytest.raises(exception.MessageError, match='phases'):
        messages.from_payload(wire)


def test_a_message_of_kronos_0_2_is_understood():
    task = messages.from_wire(KRONOS)
    assert (task.phase, task.created_at, task.deadline) == (model.Phase.EVACUATE, 1.7e9, None)


def test_all_names_of_kronos_0_2_are_sent():
    assert KRONOS.keys() <= messages.to_wire(TASK).keys()
    assert messages.to_payload(RESULT).keys() == {
        'task_id', 'plan_id', 'aggregate', 'instance_uuid', 'from_host', 'to_host', 'success',
        'error', 'error_type', 'duration_seconds', 'retry_count', 'completed_at',
        'attempts'}  # ours


@pytest.mark.parametrize('field, value', [
    ('task_id', 'x'), ('task_id', 5), ('plan_id', None), ('instance_uuid', '0' * 10**6),
    ('aggregate', ''), ('aggregate', 'a' * 256), ('from_host', ['h1']), ('to_host', 'h1'),
    ('to_host', 'a\0b'), ('to_host', 'h2\nERROR forged'), ('from_host', '\ud800'),
    ('aggregate', 'a\u2028b'), ('phase', 'teleport'), ('phase', []), ('priority', -1),
    ('priority', True), ('priority', 2.5), ('max_retries', 10**9), ('retry_count', '1'),
    ('not_before', float('nan')), ('not_before', float('inf')), ('not_before', -1),
    ('not_before', True), ('not_before', 10**400), ('improvement', '0.1'),
    ('created_at', 'yesterday'),
    ('created_at', 5), ('created_at', '9' * 100), ('policy_names', 'cpu'),
    ('policy_names', [1]), ('policy_names', ['a'] * 1001), ('requires', ['x']),
    ('alternates', [None]), ('alternate_improvements', [float('nan')]),
    ('alternate_improvements', ['0.1']), ('alternate_improvements', [True]),
    ('instance_name', 7), ('instance_name', 'x' * 256),
    ('version', '2.0'), ('version', '1'), ('version', '1.0\n'),
    ('version', '1.99999'), ('version', 1.0), ('deadline', 'soon'), ('wave', -1),
    ('deadline', 1699999999.0)])
def test_a_wrong_field_is_refused_by_name(field, value):
    with pytest.raises(exception.MessageError, match=field):
        messages.from_wire({**messages.to_wire(TASK), field: value}, 1700000000)


@pytest.mark.parametrize('version', ['1.0', '1.1', '1.27'])
def test_fields_of_a_later_release_are_ignored(version):
    wire = {**messages.to_wire(TASK), 'version': version, 'surprise': {'a': [1]}, 5: None}
    assert messages.from_wire(wire, 1700000000) == TASK
    payload = {**messages.to_payload(RESULT), 'surprise': 'x' * 100}
    assert messages.from_payload(payload) == RESULT


@pytest.mark.parametrize('field', ['task_id', 'plan_id', 'aggregate', 'instance_uuid',
                                   'from_host', 'to_host', 'phase'])
def test_a_missing_field_is_refused_by_name(field):
    wire = messages.to_wire(TASK)
    del wire[field]
    with pytest.raises(exception.MessageError, match=f'{field}: is missing'):
        messages.from_wire(wire)


@pytest.mark.parametrize('field, value', [
    ('success', 1), ('success', None), ('error', 5), ('error', 'x' * 5000),
    ('duration_seconds', -1), ('retry_count', None), ('completed_at', {}), ('task_id', 'x'),
    ('attempts', {}), ('attempts', [1]), ('attempts', [{}]),
    ('attempts', [{'to_host': 'h2', 'migration_uuid': 'm'}]),
    ('attempts', [{'to_host': 'h2\nERROR forged'}]), ('attempts', [{'to_host': 'h'}] * 1001)])
def test_a_wrong_result_is_refused_by_name(field, value):
    with pytest.raises(exception.MessageError, match=field):
        messages.from_payload({**messages.to_payload(RESULT), field: value})


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner,
                                                                max_size=3), max_leaves=8)


@hypothesis.given(st.dictionaries(st.sampled_from(sorted(messages.to_wire(TASK))), junk) | junk)
def test_no_message_causes_another_error(changes):
    for data in ([changes, {**messages.to_wire(TASK), **changes}]
                 if isinstance(changes, dict) else [changes]):
        for read in (messages.from_wire, messages.from_payload):
            try:
                read(data)
            except exception.MessageError:
                pass


def test_plain_names_keep_kronos_topics():
    assert messages.migrations_topic('prod-1.a_b') == 'kronos.migrations.prod-1.a_b'
    assert messages.results_topic(model.UNASSIGNED) == 'kronos.results._unassigned_'
    assert messages.publisher_id('prod') == 'kronos-executor-prod'


def test_an_aggregate_called_unassigned_is_not_the_pool():
    topic = messages.migrations_topic(model.UNASSIGNED, aggregate=True)
    assert topic != messages.migrations_topic(model.UNASSIGNED)


def test_an_error_text_cannot_begin_a_line_of_a_log():
    payload = {**messages.to_payload(RESULT), 'error': 'no\n2026 INFO forged\x1b[2J\ud800'}
    assert messages.from_payload(payload).error == 'no 2026 INFO forged [2J '


NAMES = st.text(max_size=255) | st.sampled_from([
    '', ' ', 'a b', 'a-b', 'a  b', 'a/b', '#', '*', '*.*', 'a.#', '..', 'x' * 255, 'x' * 300,
    'ß' * 255, '\U0001f600' * 255, 'aggregate', 'Größe 1', 'Gr-e 1', '\ud800'])


@hypothesis.given(NAMES, NAMES)
def test_topics_fit_amqp_and_never_collide(first, second):
    for name in (first, second):
        topic = messages.migrations_topic(name)
        assert len(topic.encode('ascii')) <= 200
        assert not set(topic) & set('#* \n')
    assert (messages.format_slug(first) == messages.format_slug(second)) == (first == second)


def test_a_plain_name_cannot_pose_as_a_hashed_one():
    assert messages.format_slug(messages.format_slug('a b')) != messages.format_slug('a b')


def test_success_has_empty_strings_for_errors_as_the_ancestor_has_them():
    done = dataclasses.replace(RESULT, success=True, error=None, error_type=None)
    payload = messages.to_payload(done)
    assert payload['error'] == payload['error_type'] == ''
    assert messages.from_payload(payload) == done
