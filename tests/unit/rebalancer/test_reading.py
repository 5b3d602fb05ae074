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
"""Masks follow from what rules declare to read, and rules read no more."""

import dataclasses

import hypothesis
import numpy as np
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints.rules import CloudFact
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from tests.unit import clouds
from tests.unit.rebalancer.test_masks import all_of
from tests.unit.rebalancer.test_masks import simulate

#: By what is read of an instance or host, the facts any of which covers it.
FACTS = {
    ('view', 'aggregates'): {CloudFact.AGGREGATES},
    ('view', 'list_sharing_providers'): {CloudFact.FLAVOR_TRAITS},
    ('host', 'hypervisor_type'): {CloudFact.HYPERVISOR},
    ('host', 'hypervisor_version'): {CloudFact.HYPERVISOR},
    ('host', 'traits'): {CloudFact.FLAVOR_TRAITS},
    ('host', 'provider'): {CloudFact.FLAVOR_TRAITS},
    ('host', 'nested'): {CloudFact.FLAVOR_TRAITS},
    ('instance', 'extra_specs'): {CloudFact.EXTRA_SPECS},
    ('instance', 'image_properties'): {CloudFact.IMAGE_PROPERTIES},
    ('instance', 'project_id'): {CloudFact.PROJECT},
    ('instance', 'status'): {CloudFact.STATUS},
    ('instance', 'claims'): {CloudFact.VGPU, CloudFact.FLAVOR_TRAITS},
}
#: They name things and decide nothing, or are the operator's options.
FREE = {('view', 'options'), ('view', 'find_instance'), ('view', 'find_host'),
        ('host', 'name'), ('instance', 'uuid')}


class Recorded:
    """Passes reads on and writes them down."""

    def __init__(self, what, target, seen):
        self._what, self._target, self._seen = what, target, seen

    def __getattr__(self, name):
        self._seen.add((self._what, name))
        found = getattr(self._target, name)
        if self._what == 'view' and name in ('find_instance', 'find_host'):
            return lambda key: (None if (one := found(key)) is None
                                else Recorded(name.removeprefix('find_'), one,
                                              self._seen))
        return found


def undeclared(rule, view, move):
    """What the rule reads beyond its declaration."""
    seen = set()
    rule.judge(Recorded('view', view, seen), move)
    facts = rule.reads if rule.enabled(view.options) else frozenset()
    return {read for read in seen - FREE if facts.isdisjoint(FACTS.get(read, ()))}


def every_move(simulation):
    for n in range(len(simulation.uuids)):
        for h in range(len(simulation.hosts)):
            yield simulation.build_move(n, h, model.Phase.EVACUATE)


@pytest.mark.parametrize('rule', constraints.PAIRS, ids=lambda rule: rule.name)
@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(clean=False))
def test_a_rule_reads_nothing_that_it_does_not_declare(rule, knobs):
    simulation = simulate(knobs)
    for move in every_move(simulation):
        assert undeclared(rule, simulation.view, move) == set()


def same_rack(view, move):
    """A rule of a site, which no filter of Nova asks for."""
    instance = view.find_instance(move.instance_uuid)
    wanted = (instance.extra_specs or {}).get('ssd') if instance is not None else None
    if wanted is None or 'true' in view.aggregates.map_metadata_values(move.to_host).get('ssd', ()):
        return None
    return model.Rejection('same-rack', f'{move.to_host} has none')


def rule_that_reads(*facts):
    return rules.Rule(same_rack, {}, reads=frozenset(facts))


def test_a_rule_that_reads_more_than_it_declares_is_found():
    found = set()
    for seed in range(40):
        simulation = simulate(clouds.Knobs(seed, hosts=6, instances=12, clean=False))
        for move in every_move(simulation):
            found |= undeclared(rule_that_reads(CloudFact.EXTRA_SPECS), simulation.view, move)
    assert found == {('view', 'aggregates')}


def without_filters(knobs):
    r = clouds.request(knobs)
    options = dataclasses.replace(r.options, nova_enabled_filters=frozenset(),
                                  nova_prefilters=frozenset())
    return sim.Simulation(r.cluster, r.scores, r.policies, r.history, options)


@pytest.mark.parametrize('rule', [
    rules.Rule(same_rack, {}), rule_that_reads(CloudFact.EXTRA_SPECS, CloudFact.AGGREGATES)])
def test_a_mask_allows_for_a_new_rule_that_no_filter_asks_for(rule, monkeypatch):
    if rule.reads is not None:
        monkeypatch.setattr(constraints, 'PAIRS', (*constraints.PAIRS, rule))
    monkeypatch.setattr(constraints, 'RULES', (*constraints.RULES, rule))
    legal = refused = 0
    for seed in range(60):
        simulation = without_filters(clouds.Knobs(seed, hosts=6, instances=12, clean=False))
        allowed = masks.hosts.mark_compatible(simulation, *all_of(simulation))
        for n, h in np.ndindex(allowed.shape):
            move = simulation.build_move(n, h, model.Phase.EVACUATE)
            if constraints.judge_move(simulation.view, move, constraints.RULES) is None:
                legal += 1
                assert allowed[n, h], move
            refused += bool(rule.judge(simulation.view, move) and not allowed[n, h])
    assert legal > 100
    assert refused > 100 or rule.reads is None
