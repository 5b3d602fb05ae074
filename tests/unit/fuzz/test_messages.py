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


"""RPC and notification payloads: a task or result of sound values, or none."""

import dataclasses
import json
import math
import uuid

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.messaging import messages
from tests.unit.fuzz import junk
from tests.unit.rebalancer.messaging import test_messages

NOW = 1_700_000_000.0
TASK = messages.to_wire(test_messages.TASK)
RESULT = messages.to_payload(test_messages.RESULT)


def sound(found):
    """Every UUID is one, every number can be counted with, no text is long."""
    values(found)
    assert found.from_host and found.to_host and found.aggregate
    return True


def values(found):
    for name, value in ((f.name, getattr(found, f.name)) for f in dataclasses.fields(found)):
        if name in ('task_id', 'plan_id', 'instance_uuid'):
            assert str(uuid.UUID(value)) == value
        elif isinstance(value, float):
            assert math.isfinite(value) and (value >= 0 or name == 'improvement')
        elif isinstance(value, str):
            assert len(value) <= 4096
        elif isinstance(value, tuple):
            assert len(value) <= 1000
            for part in value:
                if dataclasses.is_dataclass(part):
                    values(part)
                elif isinstance(part, float):
                    assert math.isfinite(part)
                else:
                    assert isinstance(part, str) and len(part) <= 4096


def accepted(read, data):
    try:
        return sound(read(data))
    except exception.MessageError as e:
        assert len(str(e)) < 1000
        return False


@junk.examples(300)
@hypothesis.given(junk.spoiled(TASK) | junk.spoiled(RESULT) | junk.values)
def test_no_payload_causes_another_error(data):
    accepted(messages.from_wire, data)
    accepted(messages.from_payload, data)


@junk.examples(200)
@hypothesis.given(data=junk.spoiled(TASK) | junk.values, event=st.sampled_from(
    [messages.COMPLETED, messages.FAILED, 'x', None]))
def test_an_endpoint_never_raises_and_wakes_for_valid_messages_alone(data, event):
    woken, heard = [], []
    listeners._WakeUp(TASK['aggregate'], lambda: woken.append(1),
                      lambda task: None).execute_migration({}, data)
    if woken:
        assert accepted(messages.from_wire, data)
        assert messages.from_wire(data).aggregate == TASK['aggregate']
    listeners._NotificationEndpoint(lambda *news: heard.append(news)).info({}, '', event, data, {})
    assert not heard or sound(heard[0][1])


@pytest.mark.parametrize('field', ['created_at', 'completed_at'])
@pytest.mark.parametrize('value', ['0001-01-01', '1969-12-31', '9999-12-31T23:59:59-23:59'])
def test_a_time_that_no_clock_shows_is_refused(field, value):
    good, read = ((TASK, messages.from_wire) if field == 'created_at'
                  else (RESULT, messages.from_payload))
    with pytest.raises(exception.MessageError, match=field):
        read({**good, field: value})


def test_reading_a_decoded_message_takes_bounded_memory():
    many = {**TASK, 'requires': [str(uuid.UUID(int=n)) for n in range(50_000)]}
    names = {f'field {n}': n for n in range(100_000)}
    for data in (many, names, {**TASK, 'to_host': 'x' * 5_000_000},
                 {'x' * 5_000_000: 1}, json.loads(junk.nested(900))):
        with junk.within(40):
            assert not accepted(messages.from_wire, data)


def test_the_good_ones_are_accepted():
    assert accepted(messages.from_wire, TASK) and accepted(messages.from_payload, RESULT)
    assert messages.from_wire(TASK).phase is model.Phase.SPREAD
