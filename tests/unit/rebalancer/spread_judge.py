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
"""A judge of spreads over failure domains that shares no code with the rule.

It carries out a plan's moves in a random order that the requirements permit, lets some fail or end
at an alternate, and compares the sorted numbers of members by domain after each one.
"""

import collections

from kronos_nova import model

KEY = 'kronos:domain'


def list_worsening_moves(cluster, plan, rng, fails=0.2):
    """Return (UUID, set, numbers before, numbers after) of moves that worsened a spread.

    Drains and requested moves are carried out, and not judged.
    """
    rack_of = map_domains(cluster)
    sets = list_sets(cluster, {kind for kind, _host in rack_of})
    place = {u: i.host for u, i in cluster.instances.items()}
    waiting, done, bad = list(plan.moves), set(), []
    while waiting:
        ready = [m for m in waiting if done.issuperset(m.requires)]
        if not ready:
            break
        move = rng.choice(ready)
        waiting.remove(move)
        if rng.random() < fails:
            continue  # what requires it never begins
        before = {key: count(members, key[0], rack_of, place) for key, members in sets.items()}
        place[move.instance_uuid] = rng.choice([move.to_host, move.to_host, *move.alternates])
        done.add(move.instance_uuid)
        if move.phase in (model.Phase.EVACUATE, model.Phase.REQUESTED):
            continue
        for key, members in sets.items():
            after = count(members, key[0], rack_of, place)
            if after > before[key]:
                bad.append((move.instance_uuid, key, before[key], after))
    return bad


def map_domains(cluster):
    """Return the domain by (kind, host); hosts of several or none are left out."""
    names = collections.defaultdict(set)
    for aggregate, metadata in cluster.aggregate_metadata.items():
        for part in metadata.get(KEY, '').split(','):
            kind, colon, name = part.partition(':')
            if colon:
                for host in cluster.aggregates.get(aggregate, ()):
                    names[kind, host].add(name)
    return {key: min(found) for key, found in names.items() if len(found) == 1}


def list_sets(cluster, kinds):
    groups = collections.defaultdict(list)
    for group in cluster.groups:
        for uuid in group.members:
            groups[uuid].append(group.uuid)
    sets = collections.defaultdict(set)
    for uuid, instance in cluster.instances.items():
        for request in instance.spread:
            if request.kind in kinds:
                scopes = ([f'named {request.name}'] if request.name
                          else groups[uuid] or ['all others'])
                for scope in scopes:
                    sets[request.kind, instance.project_id, scope].add(uuid)
    return sets


def count(members, kind, domains, place):
    """Return the numbers of members by domain, the largest first."""
    numbers = collections.Counter(domains.get((kind, place[u]), '-') for u in members)
    return sorted(numbers.values(), reverse=True)
