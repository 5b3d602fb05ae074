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

"""Grows provider trees on a flat cloud: NUMA cells, GPUs, shared pools.

Uses no rule: allocations are put on providers by what each kind of host has,
and inventories are made so that they hold them.
"""

import dataclasses
import itertools
import uuid

from kronos_nova import model

NUMA = ('VCPU', 'MEMORY_MB')
GPU = 'VGPU'
POOL = 'CUSTOM_ADDRESS'
STORE = 'DISK_GB'


def uuid_of(text):
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def grown(cluster, rng, tight=False):
    """The same cloud with trees.

    Of a host: its CPUs and memory may be on two NUMA cells, its GPUs on two
    children or still on the root, its disks on a provider that several share.
    """
    pools = {uuid_of(f'pool {n}'): set() for n in range(2)}
    store = uuid_of('store')
    hosts, shapes = {}, {}
    for name in sorted(cluster.hosts):
        shapes[name] = {'numa': rng.random() < 0.4, 'gpu': rng.choice(['', 'root', 'children']),
                        'pools': {u for u in sorted(pools) if rng.random() < 0.5},
                        'store': rng.random() < 0.2}
    used, instances = {}, {}
    for u, instance in sorted(cluster.instances.items()):
        claims = dict(instance.claims)
        shape = shapes.get(instance.host, {'numa': False, 'gpu': '', 'pools': (), 'store': False})
        if shape['gpu'] and rng.random() < 0.4:
            claims[GPU] = rng.choice([1, 1, 2])
        if shape['pools'] and rng.random() < 0.4:
            claims[POOL] = 1
        allocations = _placed(instance.host, claims, shape, store, rng)
        instances[u] = dataclasses.replace(instance, claims=claims, allocations=allocations)
        _charge(used, allocations)
    # What Nova migrates is allocated at its destination already.
    for flight in cluster.flights:
        if flight.source == 'nova' and flight.to_host in shapes:
            known = instances.get(flight.instance_uuid)
            if known is not None and known.host != flight.to_host:
                _charge(used, _placed(flight.to_host, known.claims, shapes[flight.to_host], store,
                                      rng, whole=True))
    for name, host in cluster.hosts.items():
        if host.provider is not None:
            hosts[name] = _host(host, shapes[name], used, store, rng, tight)
        else:
            hosts[name] = host
    room = rng.choice([0, 1, 5])
    sharing = {p: _provider(p, {POOL: 1}, used, rng, room) for p in pools}
    sharing[store] = _provider(store, {STORE: 10}, used, rng, 10)
    return dataclasses.replace(cluster, hosts=hosts, instances=instances, sharing=sharing)


def _placed(host, claims, shape, store, rng, whole=False):
    """Place claims on providers at random; ``whole``: never split between GPUs."""
    root = uuid_of(f'provider {host}')
    placed = {}

    def put(provider, name, amount):
        placed.setdefault(provider, {})[name] = amount

    cell = uuid_of(f'{host} cell {rng.randrange(2)}')
    for name, amount in claims.items():
        if name in NUMA and shape['numa']:
            put(cell, name, amount)
        elif name == GPU and shape['gpu'] == 'children':
            cards = [uuid_of(f'{host} gpu {n}') for n in range(2)]
            if amount == 2 and not whole and rng.random() < 0.5:
                for card in cards:
                    put(card, name, 1)
            else:
                put(rng.choice(cards), name, amount)
        elif name == POOL and shape['pools']:
            put(rng.choice(sorted(shape['pools'])), name, amount)
        elif name == STORE and shape['store']:
            put(store, name, amount)
        else:
            put(root, name, amount)
    return placed


def _charge(used, allocations):
    for provider, resources in allocations.items():
        for name, amount in resources.items():
            held = used.setdefault(provider, {})
            held[name] = held.get(name, 0) + amount


def _host(host, shape, used, store, rng, tight):
    flat = dict(host.provider.inventories)
    root = uuid_of(f'provider {host.name}')
    on_root = {c: flat[c] for c in flat if not (c in NUMA and shape['numa'])
               and not (c == STORE and shape['store'])}
    nested = []
    slack = 0 if tight else 2
    if shape['numa']:
        for n in range(2):
            cell = uuid_of(f'{host.name} cell {n}')
            held = used.get(cell, {})
            nested.append(model.Provider(cell, parent_uuid=root, used=held, inventories={
                c: model.Inventory(held.get(c, 0) + rng.choice([0, 2, 4]) * (
                    1024 if c == 'MEMORY_MB' else 1), step_size=rng.choice(
                        [1, 1, 1, 2]) if c == 'VCPU' else 1) for c in NUMA}))
    if shape['gpu'] == 'children':
        for n in range(2):
            card = uuid_of(f'{host.name} gpu {n}')
            held = used.get(card, {})
            nested.append(model.Provider(card, parent_uuid=root, used=held, inventories={
                GPU: model.Inventory(max(1, held.get(GPU, 0) + rng.choice([0, 1, slack])),
                                     max_unit=rng.choice([1, 4]))}))
    elif shape['gpu'] == 'root':
        on_root[GPU] = model.Inventory(used.get(root, {}).get(GPU, 0) + rng.choice([1, 2]))
    extra = {c: model.Inventory(amount) for c, amount in used.get(root, {}).items()
             if c not in on_root}
    sharing = shape['pools'] | ({store} if shape['store'] else set())
    return dataclasses.replace(
        host, provider=model.Provider(root, inventories=on_root | extra,
                                      used=used.get(root, {})),
        nested=tuple(nested), sharing=frozenset(sharing))


def _provider(provider, classes, used, rng, room):
    held = used.get(provider, {})
    return model.Provider(provider, used=held, inventories={
        c: model.Inventory(held.get(c, 0) + room * amount) for c, amount in classes.items()})


def providers(cluster):
    """Every provider once, by UUID."""
    return {p.uuid: p for p in itertools.chain(
        cluster.sharing.values(), *(h.tree for h in cluster.hosts.values()))}
