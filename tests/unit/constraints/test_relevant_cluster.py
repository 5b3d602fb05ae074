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
"""A view of the instances that matter answers as one of the whole cloud."""

import hypothesis

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import relevant_cluster
from kronos_nova.rebalancer.planning import planner
from tests.unit import clouds


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(clean=False, domains=True))
def test_every_rule_says_the_same_of_the_part_as_of_the_whole(knobs):
    request = clouds.request(knobs)
    plan = planner.plan(request)
    uuids = [*sorted(request.cluster.instances)[:3], *(m.instance_uuid for m in plan.moves)]
    moves = [model.Move(u, request.cluster.instances[u].host, h, phase)
             for u in uuids for h in sorted(request.cluster.hosts) for phase in model.Phase]
    part = relevant_cluster.reduce_cluster(request.cluster, moves, request.history)
    assert len(part.instances) <= len(request.cluster.instances)

    def said(cluster):
        view = cluster_view.ClusterView(cluster, request.options, request.history, request.scores,
                                        {'cpu': 0.8})
        return [constraints.list_rejections(view, m) for m in moves]

    assert said(part) == said(request.cluster)


def test_instances_that_have_nothing_to_do_with_it_are_left_out():
    instances = {u: model.Instance(u, 'a') for u in ('mover', 'mate', 'flying', 'done', 'other')}
    cluster = model.Cluster(
        {}, instances, {}, groups=(
            model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset({'mover', 'mate'})),
            model.ServerGroup('h', model.GroupPolicy.AFFINITY, frozenset({'other'}))),
        flights=(model.InFlightMove('flying', 'a', 'b'),))

    def move(uuid):
        return model.Move(uuid, 'a', 'b', model.Phase.SPREAD)

    part = relevant_cluster.reduce_cluster(cluster, [move('mover')],
                                           model.MoveHistory(completed=((move('done'), 1.0),)))
    assert set(part.instances) == {'mover', 'mate', 'flying', 'done'}
    assert [g.uuid for g in part.groups] == ['g']
