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

"""Our rules and Nova's and Placement's own code say the same.

A live migration to a named host: nova-conductor puts the source into
``ignore_hosts``, ``setup_instance_group`` gives the group the hosts of all of
its members, the mover's own among them, and the filters judge the destination.
"""

import datetime
import random
import types

from nova import objects
from nova.api.openstack import common
from nova.compute import api as compute_api
from nova.scheduler import host_manager
from nova.scheduler.filters import affinity_filter
from nova.scheduler.filters import compute_filter
import os_resource_classes as orc
from placement import exception as placement_exception
from placement.db.sqlalchemy import models
from placement.objects import allocation
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import claims
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.constraints import statuses
from tests.unit import clouds

objects.register_all()

HARD = ('anti-affinity', 'affinity')
CASES = 3000


def cluster_of(rng, policy):
    hosts = [f'h{n}' for n in range(rng.randint(2, 5))]
    instances = [model.Instance(clouds.uuid_of(f'i{n}'), rng.choice(hosts))
                 for n in range(rng.randint(1, 9))]
    members = [i.uuid for i in instances if rng.random() < 0.6] + [clouds.uuid_of('deleted')]
    group = model.ServerGroup(clouds.uuid_of('g'), model.GroupPolicy(policy), frozenset(members),
                              rng.choice([1, 1, 2, 3]) if policy == 'anti-affinity' else 1)
    return model.Cluster({h: model.Host(h) for h in hosts}, {i.uuid: i for i in instances}, {},
                         groups=(group,), scope_hosts=frozenset(hosts))


def request_spec(cluster, uuid):
    """What nova-conductor hands to the scheduler for a live migration."""
    group = cluster.groups[0]
    theirs = None
    if uuid in group.members:
        rules = ({'max_server_per_host': group.max_server_per_host}
                 if group.policy == 'anti-affinity' else {})
        theirs = objects.InstanceGroup(
            uuid=group.uuid, policy=str(group.policy), rules=rules,
            policies=[str(group.policy)], members=sorted(group.members),
            hosts=sorted({cluster.instances[u].host for u in group.members
                          if u in cluster.instances}))
    return objects.RequestSpec(instance_uuid=uuid, instance_group=theirs,
                               ignore_hosts=[cluster.instances[uuid].host])


def host_state(cluster, name, service=None):
    state = host_manager.HostState(name, name, clouds.uuid_of('cell'))
    state.instances = {i.uuid: object() for i in cluster.instances.values() if i.host == name}
    state.service = service
    return state


def nova_says(filters, spec, state):
    return state.host not in spec.ignore_hosts and all(
        f.host_passes(state, spec) for f in filters)


@pytest.mark.parametrize('policy', [str(p) for p in model.GroupPolicy])
def test_server_group_rules_say_what_novas_filters_say(policy):
    filters = (affinity_filter.ServerGroupAntiAffinityFilter(),
               affinity_filter.ServerGroupAffinityFilter())
    rng = random.Random(policy)
    verdicts = set()
    for _ in range(CASES):
        cluster = cluster_of(rng, policy)
        view = cluster_view.ClusterView(cluster, model.PlanningOptions())
        uuid = rng.choice(sorted(cluster.instances))
        spec = request_spec(cluster, uuid)
        for host in cluster.hosts:
            move = model.Move(uuid, cluster.instances[uuid].host, host, model.Phase.EVACUATE)
            ours = constraints.judge_move(view, move, (
                constraints.instance.IDENTITY_RULE, server_groups.ANTI_AFFINITY_RULE,
                server_groups.AFFINITY_RULE)) is None
            assert ours == nova_says(filters, spec, host_state(cluster, host)), (cluster, move)
            if host != move.from_host:
                verdicts.add(ours)
    assert verdicts == ({True, False} if policy in HARD else {True})


def test_a_group_of_one_or_all_together_is_unmovable_for_nova_too():
    affinity = affinity_filter.ServerGroupAffinityFilter()
    rng = random.Random(1)
    seen = 0
    while seen < 50:
        cluster = cluster_of(rng, 'affinity')
        here = {cluster.instances[u].host for u in cluster.groups[0].members
                if u in cluster.instances}
        if len(here) != 1:
            continue
        seen += 1
        uuid = next(u for u in sorted(cluster.groups[0].members) if u in cluster.instances)
        view = cluster_view.ClusterView(cluster, model.PlanningOptions())
        for host in set(cluster.hosts) - here:
            rejection = server_groups.affinity(
                view, model.Move(uuid, next(iter(here)), host, model.Phase.EVACUATE))
            assert rejection.rule == 'affinity-unmovable'
            assert not affinity.host_passes(host_state(cluster, host),
                                            request_spec(cluster, uuid))


def test_the_service_rule_says_what_novas_compute_filter_says():
    """Of the destination; that the source must be up is ours."""
    theirs = compute_filter.ComputeFilter()
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    for status in ('enabled', 'disabled'):
        for state in ('up', 'down'):
            for forced_down in (False, True):
                seen = now - datetime.timedelta(seconds=0 if state == 'up' else 3600)
                record = {'disabled': status == 'disabled', 'disabled_reason': None,
                          'host': 'b', 'binary': 'nova-compute', 'forced_down': forced_down,
                          'last_seen_up': seen, 'created_at': now}
                cluster = model.Cluster(
                    {h: model.Host(h) for h in 'ab'}, {'i': model.Instance('i', 'a')},
                    {'a': model.Service('a'), 'b': model.Service(
                        'b', status=status, state=state, forced_down=forced_down)})
                ours = service_state.service_state(
                    cluster_view.ClusterView(cluster, model.PlanningOptions()),
                    model.Move('i', 'a', 'b', model.Phase.SPREAD)) is None
                assert ours == theirs.host_passes(host_state(cluster, 'b', record),
                                                  objects.RequestSpec()), record


class ResourceClasses:
    """Placement's cache of class names, for the standard ones."""

    id_from_string = staticmethod(orc.STANDARDS.index)
    string_from_id = staticmethod(orc.STANDARDS.__getitem__)


@pytest.fixture(scope='module')
def placement():
    """Placement's tables in memory, and what its objects take as a context."""
    engine = sa.create_engine('sqlite://')
    models.BASE.metadata.create_all(engine)
    with orm.Session(engine) as session:
        yield types.SimpleNamespace(session=session, rc_cache=ResourceClasses())
    engine.dispose()


def stored(placement, number, provider):
    """The provider with its inventories and usage, as rows."""
    session = placement.session
    row = models.ResourceProvider(id=number, uuid=provider.uuid, name=provider.uuid,
                                  generation=0, root_provider_id=number)
    session.add(row)
    for name, i in provider.inventories.items():
        session.add(models.Inventory(
            resource_provider_id=number, resource_class_id=orc.STANDARDS.index(name),
            total=i.total, reserved=i.reserved, min_unit=i.min_unit, max_unit=i.max_unit,
            step_size=i.step_size, allocation_ratio=i.allocation_ratio))
    for name, used in provider.used.items():
        session.add(models.Allocation(
            resource_provider_id=number, resource_class_id=orc.STANDARDS.index(name),
            consumer_id=clouds.uuid_of('others'), used=used))
    session.flush()
    return row


def a_provider(rng, number):
    inventories = {c: model.Inventory(
        total=(total := rng.randint(4, 60)), reserved=rng.randint(0, min(3, total)),
        allocation_ratio=rng.choice([0.5, 1.0, 1.1, 1.5, 4.0]), min_unit=rng.choice([1, 1, 2]),
        max_unit=rng.choice([4, 8, 64]), step_size=rng.choice([1, 1, 2]))
        for c in ('VCPU', 'MEMORY_MB', 'DISK_GB') if rng.random() < 0.93}
    used = {c: rng.randint(0, int(i.capacity) + 1) for c, i in inventories.items()}
    return model.Provider(clouds.uuid_of(f'provider {number}'), inventories=inventories,
                          used=used)


def test_the_claims_rule_says_what_placement_says(placement):
    rng = random.Random(7)
    verdicts = []
    for number in range(1, 601):
        provider = a_provider(rng, number)
        row = stored(placement, number, provider)
        for _ in range(3):
            need = {c: rng.choice([0, 0, 1, 2, 2, 4, 9])
                    for c in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
            wanted = [types.SimpleNamespace(resource_class=c, resource_provider=row, used=amount)
                      for c, amount in need.items()]
            try:
                allocation._check_capacity_exceeded(placement, wanted, {})
                theirs = True
            except (placement_exception.InvalidInventory,
                    placement_exception.InvalidAllocationCapacityExceeded,
                    placement_exception.InvalidAllocationConstraintsViolated):
                theirs = False
            cluster = model.Cluster(
                {'a': model.Host('a'), 'b': model.Host('b', provider=provider)},
                {'i': model.Instance('i', 'a', claims=need)}, {})
            view = cluster_view.ClusterView(cluster,
                                            model.PlanningOptions(enforce_placement_disk=True))
            ours = claims.claims(view, model.Move('i', 'a', 'b', model.Phase.SPREAD)) is None
            assert ours == theirs, (provider, need)
            verdicts.append(ours)
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9


def statuses_that_nova_lets(action):
    """By the vm_state that the outermost check of the API's method asks for."""
    method = getattr(compute_api.API, action)
    while 'vm_state' not in method.__code__.co_freevars:
        method = method.__wrapped__
    states = method.__closure__[method.__code__.co_freevars.index('vm_state')].cell_contents
    return {common._STATE_MAP[state]['default'] for state in states}


def test_a_drain_takes_what_nova_can_move_and_nothing_else():
    """By the way that Nova has for it; what runs is moved live."""
    allowed = model.PlanningOptions(cold_migrate_stopped=True)
    for status in {name for by_task in common._STATE_MAP.values() for name in by_task.values()}:
        instance = model.Instance('i', 'h', status=status)
        may = statuses.is_movable(instance, model.Phase.EVACUATE, allowed)
        assert may == (status in statuses_that_nova_lets('live_migrate')
                       | statuses_that_nova_lets('resize')), status
        if may:
            action = {'live': 'live_migrate', 'cold': 'resize'}[statuses.choose_method(status)]
            assert status in statuses_that_nova_lets(action)
        if status == 'SHUTOFF':
            assert not statuses.is_movable(instance, model.Phase.EVACUATE, model.PlanningOptions())
        for phase in (model.Phase.AFFINITY, model.Phase.SPREAD, model.Phase.PACK):
            assert statuses.is_movable(instance, phase, allowed) == (status == 'ACTIVE')


def test_statuses_with_a_remedy_are_novas():
    known = {name for by_task in common._STATE_MAP.values() for name in by_task.values()}
    assert statuses.REMEDIES.keys() <= known
    assert {statuses.ACTIVE, statuses.PAUSED, statuses.STOPPED, statuses.UNCONFIRMED} <= known
