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


"""Thousands of random clouds: our rules and costs against nova-scheduler's own
filters and weighers.

Groups and services take their real path: Nova's object, its record
in Nova's API, our reading of that record, our rule.
"""

import datetime
import random
import types
from unittest import mock

from nova import objects
from nova.api.openstack import api_version_request
from nova.api.openstack.compute import server_groups as groups_api
from nova.api.openstack.compute import services as services_api
from nova.scheduler import host_manager
from nova.scheduler.filters import affinity_filter
from nova.scheduler.filters import compute_filter
from nova.scheduler.weights import affinity as affinity_weights
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import instance as instance_rules
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.simulation import group_membership
from tests.unit import clouds

objects.register_all()

POLICIES = [str(p) for p in model.GroupPolicy]
REQUEST = types.SimpleNamespace(
    api_version_request=api_version_request.APIVersionRequest('2.72'),
    is_legacy_v2=lambda: False, environ={})
FILTERS = (affinity_filter.ServerGroupAntiAffinityFilter(),
           affinity_filter.ServerGroupAffinityFilter())
GROUP_RULES = (instance_rules.IDENTITY_RULE, server_groups.ANTI_AFFINITY_RULE,
               server_groups.AFFINITY_RULE)
#: Members that cannot move now, and still count.
ODD = ({'locked': True}, {'status': 'SHUTOFF'}, {'status': 'BUILD', 'task_state': 'spawning'},
       {'status': 'ERROR'}, {'pinned': 'no-allocations: for the test'})


def random_cluster(rng, policy):
    """One group over hosts of two scopes; its members are in any state."""
    hosts = [f'h{n}' for n in range(rng.randint(2, 6))]
    instances = [model.Instance(clouds.uuid_of(f'i{n}'), rng.choice(hosts),
                                **(rng.choice(ODD) if rng.random() < 0.3 else {}))
                 for n in range(rng.randint(1, 12))]
    members = [i.uuid for i in instances if rng.random() < 0.6]
    theirs = nova_group(clouds.uuid_of('g'), policy, members, rng.choice([None, 1, 2, 3]))
    there = {i.uuid for i in instances}
    with mock.patch.object(groups_api, '_get_not_deleted', lambda _context, uuids: [
            uuid for uuid in uuids if uuid in there]):
        group = nova_records.parse_server_group(
            groups_api.ServerGroupController._format_server_group(None, None, theirs, REQUEST))
    cluster = model.Cluster(
        {h: model.Host(h) for h in hosts}, {i.uuid: i for i in instances}, {}, groups=(group,),
        scope_hosts=frozenset(h for h in hosts if rng.random() < 0.7))
    return cluster, theirs


def nova_group(uuid, policy, members, limit):
    """A deleted member stays in Nova's list, as it does in life."""
    rules = ({'max_server_per_host': limit} if policy == 'anti-affinity' and limit else {})
    return objects.InstanceGroup(
        uuid=uuid, name='g', policy=policy, policies=[policy], rules=rules, project_id='p',
        user_id='u', members=[*members, clouds.uuid_of('deleted')])


def history_of(rng, cluster):
    uuids = sorted(cluster.instances)
    return model.MoveHistory(cooling={u: 60.0 for u in uuids if rng.random() < 0.2},
                             quarantined={u: -1 for u in uuids if rng.random() < 0.1})


def spec_of(cluster, theirs, uuid):
    """What nova-conductor hands to the scheduler for a live migration."""
    group = None
    if uuid in theirs.members:
        group = objects.InstanceGroup(
            uuid=theirs.uuid, policy=theirs.policy, policies=theirs.policies,
            rules=theirs.rules, members=theirs.members,
            hosts=sorted({cluster.instances[u].host for u in theirs.members
                          if u in cluster.instances}))
    return objects.RequestSpec(instance_uuid=uuid, instance_group=group,
                               ignore_hosts=[cluster.instances[uuid].host])


def state_of(cluster, name, service=None):
    state = host_manager.HostState(name, name, clouds.uuid_of('cell'))
    state.instances = {i.uuid: object() for i in cluster.instances.values() if i.host == name}
    state.service = service
    return state


def nova_says(cluster, theirs, move):
    spec = spec_of(cluster, theirs, move.instance_uuid)
    state = state_of(cluster, move.to_host)
    return state.host not in spec.ignore_hosts and all(f.host_passes(state, spec)
                                                       for f in FILTERS)


@pytest.mark.parametrize('policy', POLICIES)
def test_verdicts_on_groups_are_the_filters(policy):
    """Members of other scopes, cooling, quarantined, locked, stopped, building
    and in error count as Nova counts them."""
    rng = random.Random(policy)
    verdicts = set()
    for _ in range(clouds.many(1500)):
        cluster, theirs = random_cluster(rng, policy)
        view = cluster_view.ClusterView(cluster, model.PlanningOptions(), history_of(rng, cluster))
        for uuid in rng.sample(sorted(cluster.instances), min(3, len(cluster.instances))):
            for host in cluster.hosts:
                move = model.Move(uuid, cluster.instances[uuid].host, host, model.Phase.EVACUATE)
                ours = constraints.judge_move(view, move, GROUP_RULES) is None
                assert ours == nova_says(cluster, theirs, move), (cluster, move)
                if host != move.from_host:
                    verdicts.add(ours)
    assert verdicts == ({True, False} if model.GroupPolicy(policy).is_hard else {True})


def landed(cluster, flights):
    """The cluster once these have arrived."""
    moved = {f.instance_uuid: f.to_host for f in flights}
    return model.Cluster(
        cluster.hosts, {u: model.Instance(u, moved.get(u, i.host))
                        for u, i in cluster.instances.items()}, {}, groups=cluster.groups)


@pytest.mark.parametrize('policy', ['anti-affinity', 'affinity'])
def test_nova_allows_legal_moves_before_and_after_flights_land(policy):
    """We may refuse more while members are in flight; we never allow more."""
    rng = random.Random(f'flights {policy}')
    legal = 0
    for _ in range(clouds.many(1500)):
        cluster, theirs = random_cluster(rng, policy)
        flying = rng.sample(sorted(cluster.instances), min(2, len(cluster.instances)))
        flights = tuple(model.InFlightMove(u, cluster.instances[u].host,
                                           rng.choice(sorted(cluster.hosts)),
                                           rng.choice(('nova', 'task')))
                        for u in flying)
        with_flights = model.Cluster(cluster.hosts, cluster.instances, {}, groups=cluster.groups,
                                     flights=flights)
        view = cluster_view.ClusterView(with_flights, model.PlanningOptions())
        others = sorted(cluster.instances.keys() - set(flying))
        if not others:
            continue
        uuid = rng.choice(others)
        for host in cluster.hosts:
            move = model.Move(uuid, cluster.instances[uuid].host, host, model.Phase.SPREAD)
            if constraints.judge_move(view, move,
                                      (*GROUP_RULES, server_groups.GROUP_IN_FLIGHT_RULE)):
                continue
            legal += 1
            for some in ((), flights[:1], flights[1:], flights):
                assert nova_says(landed(cluster, some), theirs, move), (cluster, flights, move)
    assert legal > 100


SOFT = {'soft-affinity': affinity_weights.ServerGroupSoftAffinityWeigher,
        'soft-anti-affinity': affinity_weights.ServerGroupSoftAntiAffinityWeigher}


@pytest.mark.parametrize('policy', POLICIES)
def test_soft_costs_differ_between_destinations_as_the_weighers_weights_do(policy):
    """The weights of two destinations in Nova differ as our costs do, with the opposite
    sign; hard groups and instances without a group have neither weight nor cost."""
    rng = random.Random(f'soft {policy}')
    weigher = SOFT.get(policy, affinity_weights.ServerGroupSoftAffinityWeigher)()
    seen = set()
    for _ in range(clouds.many(1500)):
        cluster, theirs = random_cluster(rng, policy)
        view = cluster_view.ClusterView(cluster, model.PlanningOptions(), history_of(rng, cluster))
        uuid = rng.choice(sorted(cluster.instances))
        source = cluster.instances[uuid].host
        spec = spec_of(cluster, theirs, uuid)
        index = {h: n for n, h in enumerate(sorted(cluster.hosts))}
        hard, soft = group_membership.sum_added_violations(view, index, uuid, source)
        others = [h for h in cluster.hosts if h != source]
        weights = {h: weigher._weigh_object(state_of(cluster, h), spec) for h in others}
        for a in others:
            for b in others:
                difference = int(soft[index[b]] - soft[index[a]])
                assert difference == weights[a] - weights[b], (cluster, uuid, a, b)
                seen.add(difference != 0)
        if policy in SOFT:
            assert not hard.any()
    assert seen == ({True, False} if policy in SOFT else {False})


def test_a_soft_cost_equals_the_weight_of_the_source_without_the_mover():
    """A move that Nova's weigher would not make when it could choose costs."""
    rng = random.Random('source')
    for policy, weigher in SOFT.items():
        for _ in range(clouds.many(500)):
            cluster, theirs = random_cluster(rng, policy)
            view = cluster_view.ClusterView(cluster, model.PlanningOptions())
            uuid = rng.choice(sorted(cluster.instances))
            spec = spec_of(cluster, theirs, uuid)
            source = cluster.instances[uuid].host
            here = state_of(cluster, source)
            del here.instances[uuid]
            index = {h: n for n, h in enumerate(sorted(cluster.hosts))}
            _hard, soft = group_membership.sum_added_violations(view, index, uuid, source)
            for host in cluster.hosts:
                if host != source:
                    there = weigher()._weigh_object(state_of(cluster, host), spec)
                    assert soft[index[host]] == weigher()._weigh_object(here, spec) - there


def test_verdicts_on_services_are_the_compute_filters():
    """Of the destination; that the source must be up is ours."""
    theirs = compute_filter.ComputeFilter()
    controller = types.SimpleNamespace(servicegroup_api=theirs.servicegroup_api)
    rng = random.Random('services')
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)
    verdicts = set()
    for n in range(clouds.many(3000)):
        # Not so near to service_down_time that the clock decides.
        silent = rng.choice((rng.uniform(-30, 30), rng.uniform(90, 1e6), -rng.uniform(90, 1e6)))
        seen = now - datetime.timedelta(seconds=silent)
        disabled = rng.random() < 0.4
        service = objects.Service(
            id=n, uuid=clouds.uuid_of(f's{n}'), host='b', binary='nova-compute',
            topic='compute', availability_zone='nova', disabled=disabled,
            disabled_reason=rng.choice((None, '', 'maintenance', 'AUTO: x')) if disabled else None,
            forced_down=rng.random() < 0.2, updated_at=seen, created_at=seen,
            last_seen_up=seen if rng.random() < 0.9 else None)
        record = services_api.ServiceController._get_service_detail(
            controller, service, ('forced_down',), REQUEST)
        record['updated_at'] = seen.isoformat()  # as in JSON
        cluster = model.Cluster(
            {h: model.Host(h) for h in 'ab'}, {'i': model.Instance('i', 'a')},
            {'a': model.Service('a'), 'b': nova_records.parse_service(record)})
        ours = service_state.service_state(
            cluster_view.ClusterView(cluster, model.PlanningOptions()),
            model.Move('i', 'a', 'b', rng.choice(list(model.Phase)))) is None
        assert ours == theirs.host_passes(state_of(cluster, 'b', service),
                                          objects.RequestSpec()), record
        verdicts.add(ours)
    assert verdicts == {True, False}
