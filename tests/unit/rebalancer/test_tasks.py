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

"""Tasks of a plan."""

import pytest

from kronos_nova import model
from kronos_nova.rebalancer import tasks


def made(phase, cooldown=600.0):
    plan = model.Plan('s', moves=tuple(model.Move(u, 'a', 'b', phase) for u in 'xy'))
    cluster = model.Cluster({}, {u: model.Instance(u, 'a', memory_mb=7) for u in 'xy'}, {})
    return tasks.from_plan(plan, cluster, ('cpu',), plan_id='p', now=1000.0, stagger_seconds=30,
                           max_retries=2, new_id=lambda: 'id', cooldown=cooldown)


def test_moves_of_a_wave_are_staggered():
    assert [t.not_before for t in made(model.Phase.SPREAD)] == [1000.0, 1030.0]


@pytest.mark.parametrize(('phase', 'cooldown', 'deadline'), [
    (model.Phase.SPREAD, 900.0, 2800.0), (model.Phase.PACK, 0.0, 2200.0),
    (model.Phase.EVACUATE, 900.0, None), (model.Phase.AFFINITY, 900.0, None)])
def test_what_follows_scores_is_dropped_when_they_are_old(phase, cooldown, deadline):
    assert {t.deadline for t in made(phase, cooldown)} == {deadline}
