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

"""Steps against migrations as kronos-api and openstack rebalance show them."""

import pytest

from kronos_nova import model
from kronos_nova.api import attempt_resources
from kronos_nova.osc import task as task_commands

STEP = model.EscalationStep(model.EscalationKind.FORCE_COMPLETE, 60.0, 'it writes',
                            migration_uuid='m')


@pytest.mark.parametrize(('answer', 'seconds', 'line'), [
    (None, None, 'no answer is known'), ('Nova refused: HTTP 403', None, 'Nova refused: HTTP 403'),
    (model.ACCEPTED_POSTCOPY, 4.0, 'accepted, by post-copy; it had arrived about 4 s later')])
@pytest.mark.parametrize(('expected', 'addition'), [
    (None, ''), (5.0, '; 5 s were expected for a pause')])
def test_step_is_shown_with_its_answer(answer, seconds, line, expected, addition):
    step = model.EscalationStep(STEP.kind, STEP.at, STEP.reason, answer, seconds, 'm', expected)
    shown = attempt_resources.EscalationStep.from_model(step).model_dump(mode='json')
    assert shown == {'kind': 'force-complete', 'at': '1970-01-01T00:01:00Z',
                     'reason': 'it writes', 'answer': answer, 'seconds': seconds,
                     'expected_seconds': expected}
    text = task_commands._format_step(shown)
    assert text.startswith('force-complete, 1970-01-01')
    assert text.endswith(f': it writes: {line}{addition}')


def test_step_of_an_earlier_server_has_no_expectation():
    shown = attempt_resources.EscalationStep.from_model(STEP).model_dump(mode='json')
    del shown['expected_seconds']
    assert task_commands._format_step(shown).endswith(': no answer is known')
