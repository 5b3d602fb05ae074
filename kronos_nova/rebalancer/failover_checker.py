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

"""The checker of failover certificates. It knows no search, and trusts none.

It lands the instances of hosts that fail together one after the other on the places that a
certificate names, and asks each rule for an evacuation about each.
"""

from collections import defaultdict
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import evacuation
from kronos_nova.constraints import placement_overlay

#: Most faults that a text names.
NAMED = 5


def check_places(places: Mapping[tuple[str, ...], Mapping[str, str]], cluster: model.Cluster,
                 options: model.PlanningOptions, history: model.MoveHistory,
                 scores: model.ClusterScores | None, ceilings: Mapping[str, float],
                 moves: Sequence[model.Move] = (), excused: Collection[str] = (),
                 ) -> dict[tuple[str, ...], tuple[model.Rejection, ...]]:
    """Return the faults of the places, by the hosts that fail together; empty without any.

    :param places: destination by instance UUID, by the hosts that fail together.
    :param cluster: with its scope set.
    :param moves: of a plan; the hosts fail when all have landed.
    :param excused: instances that need no place.
    """
    destinations = {m.instance_uuid: m.to_host for m in moves}
    residents: dict[str, list[str]] = defaultdict(list)
    for uuid, instance in cluster.instances.items():
        residents[destinations.get(uuid, instance.host)].append(uuid)
    stopped = dataclasses.replace(cluster, instances={
        uuid: evacuation.stop_instance(i) for uuid, i in cluster.instances.items()})
    # A host that a campaign still has to empty is a place for instances of a failed host.
    history = dataclasses.replace(history, campaign_hosts=frozenset())
    view = cluster_view.ClusterView(stopped, options, history, scores, ceilings,
                                    draining=history.draining)
    arrivals: dict[str, set[str]] = defaultdict(set)
    for departure in placement_overlay.list_departures(cluster):
        for end in (departure.to_host, *departure.alternates):
            if end is not None:
                arrivals[end].add(departure.uuid)
    for move in moves:
        view.land_move(move)
    faults = {}
    for hosts, assigned in places.items():
        here = [uuid for host in hosts for uuid in residents[host]]
        arriving = sorted(set[str]().union(*(arrivals[host] for host in hosts)) - set(here))
        if found := tuple(_check_set(view, hosts, here, arriving, assigned, excused)):
            faults[hosts] = found
    return faults


def describe_faults(faults: Mapping[tuple[str, ...], Sequence[model.Rejection]]) -> str:
    """Describe the first faults in one line."""
    found = [fault for of_set in faults.values() for fault in of_set]
    return '; '.join(f'{fault.rule}: {fault.detail}' for fault in found[:NAMED])


def _check_set(view: cluster_view.ClusterView, hosts: Sequence[str], residents: Sequence[str],
               arriving: Sequence[str], assigned: Mapping[str, str],
               excused: Collection[str]) -> Iterator[model.Rejection]:
    """Yield the faults of one set.

    :param arriving: instances of other hosts that may still arrive. They come last, and take no
        room that another such instance leaves: its migration may fail.
    """
    for uuid in sorted(assigned.keys() - {*residents, *arriving}):
        yield model.Rejection('not-on-host', f'instance {uuid} is on none of {", ".join(hosts)}')
    left = {view.find_host_of(uuid) for uuid in arriving}
    landed = []
    for uuid in (*residents, *arriving):
        to_host = assigned.get(uuid)
        if to_host is None:
            if uuid not in excused:
                yield model.Rejection('no-place', f'instance {uuid} has no place')
            continue
        if to_host in hosts:
            yield model.Rejection('failed-host', f'instance {uuid} would come to {to_host}, which '
                                                 'fails as well')
        if uuid in arriving and to_host in left:
            yield model.Rejection('no-room', f'instance {uuid} would come to {to_host}, which an '
                                             'instance in flight may not have left')
        from_host = str(view.find_host_of(uuid))
        move = model.Move(uuid, from_host, to_host, model.Phase.EVACUATE)
        yield from constraints.list_rejections(view, move, constraints.EVACUATION)
        view.land_move(move)
        landed.append(move)
    for move in reversed(landed):
        view.undo_landing(move)
