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

"""The sentences from which an operator decides on a move."""

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.store import rows
from kronos_nova.text import move_effects

CPU = model.ScoreChange('cpu', 0.5, 0.38, 0.1, 0.22)
IDLE = model.ScoreChange('memory', 0.2, 0.2, 0.3, 0.3)
FROZEN = model.ScoreChange('disk', 0.5, 0.4, None, None)


def row(gain, *changes):
    return {'from_host': 'compute-01', 'to_host': 'compute-02', 'gain': gain,
            'changes': [dataclasses.asdict(change) for change in changes]}


@pytest.mark.parametrize('gain, changes, text', [
    (0.12, [CPU, IDLE], 'compute-01 0.50 to 0.38, compute-02 0.10 to 0.22 (cpu); '
                        'without it 0.1200 of the gain is lost'),
    (None, [CPU], 'compute-01 0.50 to 0.38, compute-02 0.10 to 0.22 (cpu)'),
    (-0.01, [FROZEN], 'compute-01 0.50 to 0.40 (disk); '
                      'without it the imbalance would be lower by 0.0100'),
    (-1e-9, [], 'without it -0.0000 of the gain is lost'.replace('-', '')),
    (None, [], '')])
def test_effects_name_hosts_scores_and_the_lost_gain(gain, changes, text):
    assert move_effects.describe_effects(row(gain, *changes)) == text


def test_stored_plan_keeps_effects():
    move = model.Move('u', 'a', 'b', model.Phase.SPREAD, gain=0.12, changes=(CPU, FROZEN))
    stored = {'document': rows.plan_document(model.Plan('s', (move,))), 'scope': 's',
              'reason': None, 'plan_id': 'p', 'created_at': 0.0, 'dry_run': 0, 'epoch': 1}
    assert rows.plan_row(stored).plan.moves == (move,)
