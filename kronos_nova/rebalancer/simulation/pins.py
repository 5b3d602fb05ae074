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


"""What flavors, projects and images let an instance reach, as an array.

The rules ``constraints.PAIRS`` compare an instance with a destination whatever
else moves. Instances that they cannot tell apart are of a kind, and so are
hosts: each pair of kinds is judged once, by the rules themselves, when asked.
"""

from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import hypervisor
from kronos_nova.constraints import prefilters
from kronos_nova.constraints import requests
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.simulation import arrays

#: Verdicts that are kept at most; what is asked for beyond them is permitted
#: and the rules alone judge.
MOST = 4_000_000
#: The row of ``_verdicts`` that permits everything.
_ANY = 0
#: Rows that there is space for at first.
_SPACE = 64


class Pins:
    """H hosts and N instances by kind.

    :param order: which of ``instances`` is number 0, 1, ...
    """

    def __init__(self, view: cluster_view.ClusterView, hosts: Sequence[str],
                 instances: Sequence[model.Instance], order: arrays.Ints) -> None:
        self._view = view
        self._hosts = hosts
        spoken = _traits(instances)
        self._host_kind, self._example = _kinds(_host_key(view, h, spoken) for h in hosts)
        #: Every host is like every other: what keeps an instance from one of
        #: them keeps it from all, and the rules say so.
        self.everywhere = len(self._example) <= 1
        if self.everywhere:
            return
        kinds, examples = _kinds(_instance_keys(view.options, instances, bool(spoken)))
        self._instance_kind = kinds[order]
        self._instances = [instances[n] for n in examples]
        #: Kinds of instance and of its host that were asked about, by row.
        self._rows: dict[int, int] = {}
        #: By row, of a kind of destination: whether it may.
        self._verdicts = np.ones((_SPACE, len(self._example)), dtype=np.bool_)

    def permits(self, instances: arrays.Ints, places: arrays.Ints,
                hosts: arrays.Ints) -> arrays.Bools:
        """Shape (instances, hosts).

        :param places: where the instances are.
        """
        if self.everywhere:
            return np.ones((len(instances), len(hosts)), dtype=np.bool_)
        pairs, which = np.unique(
            self._instance_kind[instances] * len(self._example) + self._host_kind[places],
            return_inverse=True)
        rows = arrays.whole(self._row(int(pair)) for pair in pairs)[which]
        return np.asarray(self._verdicts[rows[:, None], self._host_kind[hosts]])

    def _row(self, pair: int) -> int:
        row = self._rows.get(pair)
        if row is not None:
            return row
        row, count = len(self._rows) + 1, len(self._example)
        if row * count > MOST:
            return _ANY
        if row == len(self._verdicts):
            self._verdicts = np.concatenate([self._verdicts, np.ones_like(self._verdicts)])
        self._verdicts[row] = self._judged(*divmod(pair, count))
        self._rows[pair] = row
        return row

    def _judged(self, kind: int, source: int) -> list[bool]:
        uuid, home = self._instances[kind].uuid, self._hosts[self._example[source]]
        return [constraints.check_pair(self._view, model.Move(
            uuid, home, self._hosts[number], model.Phase.SPREAD)) is None
            for number in self._example]


def _traits(instances: Iterable[model.Instance]) -> frozenset[str]:
    """Those that a flavor speaks of; instances of a flavor share its specs."""
    known = {id(i.extra_specs): i.extra_specs for i in instances if i.extra_specs}
    return frozenset(t for specs in known.values() for t in requests.traits(specs))


def _host_key(view: cluster_view.ClusterView, name: str, spoken: frozenset[str]) -> Hashable:
    host = view.host(name)
    if host is None:
        return None
    named: Hashable = ()
    if view.options.nova_enabled_filters or view.options.nova_prefilters:
        named = frozenset(view.aggregates.of(name))
    tree: Hashable = ()
    if spoken:
        tree = tuple((frozenset(traits & spoken), frozenset(p.inventories), bool(traits))
                     for p in (*host.tree, *view.sharing(name))
                     for traits in [p.traits | host.traits if p is host.provider else p.traits])
    return host.hypervisor_type, host.hypervisor_version, named, tree


def _instance_keys(options: model.Options, instances: Iterable[model.Instance],
                   traits: bool) -> Iterable[Hashable]:
    projects = (aggregates.TENANTS in options.nova_enabled_filters
                or prefilters.TENANTS in options.nova_prefilters)
    images = aggregates.IMAGES in options.nova_enabled_filters
    shared: dict[int, Hashable] = {}

    def key(found: Mapping[str, str] | None) -> Hashable:
        if not found:
            return found is None
        if id(found) not in shared:
            shared[id(found)] = frozenset(found.items())
        return shared[id(found)]

    for i in instances:
        specs = key(i.extra_specs)
        claims = (frozenset(name for name, amount in i.claims.items() if amount)
                  if traits and i.extra_specs else bool(i.claims.get(hypervisor.VGPU)))
        yield (specs, claims, key(i.image_properties) if images else None,
               i.project_id if projects else '',
               statuses.method(i.status) is model.Method.COLD)


def _kinds(keys: Iterable[Hashable]) -> tuple[arrays.Ints, list[int]]:
    """A number for each, the same for equal keys, and an example of each."""
    found: dict[Hashable, int] = {}
    examples: list[int] = []
    kinds = []
    for n, key in enumerate(keys):
        if key not in found:
            found[key] = len(examples)
            examples.append(n)
        kinds.append(found[key])
    return np.array(kinds, dtype=np.intp), examples
