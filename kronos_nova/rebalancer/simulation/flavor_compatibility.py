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


"""Hosts that flavors, projects and images let an instance reach, as an array.

The rules ``constraints.PAIRS`` compare an instance with a destination, independently of other
moves. Instances that the rules cannot tell apart, by the facts that they read (``Rule.reads``),
are of a kind, and so are hosts: the rules themselves judge each pair of kinds once, when it is
needed.
"""

from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import hypervisor
from kronos_nova.constraints import requests
from kronos_nova.constraints.rules import CloudFact
from kronos_nova.constraints.rules import Rule
from kronos_nova.rebalancer.simulation import arrays

#: Most verdicts that are kept; any further pair is permitted here and the
#: rules alone judge.
MOST = 4_000_000
#: The row of ``_verdicts`` that permits everything.
_ANY = 0
#: Number of rows for which space is reserved at first.
_SPACE = 64


class FlavorCompatibility:
    """Verdicts on H hosts and N instances by kind.

    :param order: which of ``instances`` is number 0, 1, ...
    """

    def __init__(self, view: cluster_view.ClusterView, hosts: Sequence[str],
                 instances: Sequence[model.Instance], order: arrays.Ints) -> None:
        self._view = view
        self._hosts = hosts
        self._rules, facts = _select_enabled_rules(view.options)
        spoken = (_collect_flavor_traits(instances) if CloudFact.FLAVOR_TRAITS in facts
                  else frozenset())
        self._host_kind, self._example = _number_kinds(_host_key(view, h, facts, spoken)
                                                       for h in hosts)
        #: All hosts are of one kind: a reason that keeps an instance from one
        #: keeps it from all, and the rules say so.
        self.everywhere = len(self._example) <= 1
        if self.everywhere:
            return
        kinds, examples = _number_kinds(_instance_keys(facts, instances, bool(spoken)))
        self._instance_kind = kinds[order]
        self._instances = [instances[n] for n in examples]
        #: Row by kinds of instance and of its host, for pairs that were needed.
        self._rows: dict[int, int] = {}
        #: Verdicts by row and kind of destination: True if permitted.
        self._verdicts = np.ones((_SPACE, len(self._example)), dtype=np.bool_)

    def mark_permitted(self, instances: arrays.Ints, places: arrays.Ints,
                       hosts: arrays.Ints) -> arrays.Bools:
        """Mark the permitted pairs: shape (instances, hosts).

        :param places: where the instances are.
        """
        if self.everywhere:
            return np.ones((len(instances), len(hosts)), dtype=np.bool_)
        pairs, which = np.unique(
            self._instance_kind[instances] * len(self._example) + self._host_kind[places],
            return_inverse=True)
        rows = arrays.make_int_array(self._find_verdict_row(int(pair)) for pair in pairs)[which]
        return np.asarray(self._verdicts[rows[:, None], self._host_kind[hosts]])

    def _find_verdict_row(self, pair: int) -> int:
        row = self._rows.get(pair)
        if row is not None:
            return row
        row, count = len(self._rows) + 1, len(self._example)
        if row * count > MOST:
            return _ANY
        if row == len(self._verdicts):
            self._verdicts = np.concatenate([self._verdicts, np.ones_like(self._verdicts)])
        self._verdicts[row] = self._judge_destinations(*divmod(pair, count))
        self._rows[pair] = row
        return row

    def _judge_destinations(self, kind: int, source: int) -> list[bool]:
        uuid, home = self._instances[kind].uuid, self._hosts[self._example[source]]
        return [constraints.judge_move(self._view, model.Move(
            uuid, home, self._hosts[number], model.Phase.SPREAD), self._rules) is None
            for number in self._example]


def _select_enabled_rules(options: model.PlanningOptions) -> tuple[list[Rule],
                                                                   frozenset[CloudFact]]:
    """Select the rules that are kept as an array, and all that they read."""
    rules = [rule for rule in constraints.PAIRS if rule.enabled(options)]
    return rules, frozenset(fact for rule in rules for fact in rule.reads or ())


def _collect_flavor_traits(instances: Iterable[model.Instance]) -> frozenset[str]:
    """Return the traits that any flavor names; instances of a flavor share its specs."""
    known = {id(i.extra_specs): i.extra_specs for i in instances if i.extra_specs}
    return frozenset(t for specs in known.values() for t in requests.list_compared_traits(specs))


def _host_key(view: cluster_view.ClusterView, name: str, facts: frozenset[CloudFact],
              spoken: frozenset[str]) -> Hashable:
    host = view.find_host(name)
    if host is None:
        return None
    tree: Hashable = ()
    if spoken:
        tree = tuple((frozenset(traits & spoken), frozenset(p.inventories), bool(traits))
                     for p in (*host.tree, *view.list_sharing_providers(name))
                     for traits in [p.traits | host.traits if p is host.provider else p.traits])
    return ((host.hypervisor_type, host.hypervisor_version) if CloudFact.HYPERVISOR in facts
            else (),
            frozenset(view.aggregates.list_with_metadata(name))
            if CloudFact.AGGREGATES in facts else (), tree)


def _instance_keys(facts: frozenset[CloudFact], instances: Iterable[model.Instance],
                   traits: bool) -> Iterable[Hashable]:
    shared: dict[int, Hashable] = {}
    specs, images, projects, status, vgpu = (fact in facts for fact in (
        CloudFact.EXTRA_SPECS, CloudFact.IMAGE_PROPERTIES, CloudFact.PROJECT, CloudFact.STATUS,
        CloudFact.VGPU))

    def make_mapping_key(mapping: Mapping[str, str] | None) -> Hashable:
        if not mapping:
            return mapping is None
        if id(mapping) not in shared:
            shared[id(mapping)] = frozenset(mapping.items())
        return shared[id(mapping)]

    for i in instances:
        claims: Hashable = bool(vgpu and i.claims.get(hypervisor.VGPU))
        if traits and i.extra_specs:
            claims = frozenset(name for name, amount in i.claims.items() if amount)
        yield (make_mapping_key(i.extra_specs) if specs else None, claims,
               make_mapping_key(i.image_properties) if images else None,
               i.project_id if projects else '', i.status if status else '')


def _number_kinds(keys: Iterable[Hashable]) -> tuple[arrays.Ints, list[int]]:
    """Give each key a number, the same for equal keys; and return an example of each."""
    number_by_key: dict[Hashable, int] = {}
    examples: list[int] = []
    kinds = []
    for n, key in enumerate(keys):
        if key not in number_by_key:
            number_by_key[key] = len(examples)
            examples.append(n)
        kinds.append(number_by_key[key])
    return np.array(kinds, dtype=np.intp), examples
