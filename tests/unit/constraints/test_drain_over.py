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

"""A drain ends when its host is enabled again, also for queued moves."""

import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view


def judged(status, phase, rules):
    cluster = model.Cluster(
        hosts={h: model.Host(h) for h in 'ab'}, instances={'i': model.Instance('i', 'a')},
        services={'a': model.Service('a', status=status), 'b': model.Service('b')},
        scope_hosts=frozenset('ab'), placement_known=False)
    no = constraints.judge_move(cluster_view.ClusterView(cluster, model.PlanningOptions()),
                                model.Move('i', 'a', 'b', phase), rules)
    return no.rule if no else None


@pytest.mark.parametrize(('status', 'phase', 'expected'), [
    ('disabled', model.Phase.EVACUATE, None), ('enabled', model.Phase.EVACUATE, 'drain-over'),
    ('enabled', model.Phase.SPREAD, None), ('disabled', model.Phase.SPREAD, 'source-disabled')])
def test_pre_flight_asks_whether_the_reason_for_a_drain_still_stands(status, phase, expected):
    assert judged(status, phase, constraints.PRE_FLIGHT) == expected
