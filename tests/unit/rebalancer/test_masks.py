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

"""Masks may permit too much, never too little."""

import dataclasses
import random

import hypothesis
import numpy as np
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.simulation import flavor_compatibility
from tests.unit import clouds


def simulate(knobs):
    r = clouds.request(knobs)
    return sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)


def some_moves(knobs, simulation):
    """Yield some moves, so that the masks are updated and not computed from the start."""
    rng = random.Random(knobs.seed)
    numbers = [int(n) for n in np.flatnonzero(simulation.movable)]
    for n in rng.sample(numbers, min(len(numbers), rng.randint(0, 4))):
        h = rng.choice([h for h in range(len(simulation.hosts)) if h != simulation.place[n]])
        yield simulation.build_move(n, h, model.Phase.EVACUATE)


def all_of(simulation):
    return (np.arange(len(simulation.uuids), dtype=np.intp),
            np.arange(len(simulation.hosts), dtype=np.intp))


@pytest.mark.parametrize('mask', masks.FILLING, ids=lambda m: m.__name__)
@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(devices=True))
def test_a_mask_permits_every_move_that_the_rules_permit(mask, knobs):
    simulation = simulate(knobs)
    rows, columns = all_of(simulation)
    for move in some_moves(knobs, simulation):
        simulation.apply_move(move)
    allowed = mask(simulation, rows, columns)
    phases = [p for p in model.Phase if mask in masks.MASKS or p is not model.Phase.SPREAD]
    for n in rows:
        for h in columns:
            for phase in phases:
                if constraints.judge_move(simulation.view,
                                          simulation.build_move(n, h, phase)) is None:
                    assert allowed[n, h], (simulation.uuids[n], simulation.hosts[h], phase)


#: What each mask says no to is what these rules say no to.
BEHIND = {
    'mark_receiving': ('identity', 'service-state', 'closed-host'),
    'mark_reachable': ('cell', 'zone', 'cpu-traits'),
    'mark_compatible': tuple(rule.name for rule in constraints.PAIRS),
    'mark_unrefused': ('placement-refused',),
    'mark_room': ('claims',),
    'mark_still_groups': ('group-in-flight',),
    'mark_hard_groups': ('anti-affinity', 'affinity'),
    'mark_below_ceilings': ('ceiling',),
}


@pytest.mark.parametrize('mask', masks.FILLING, ids=lambda m: m.__name__)
@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(devices=True))
def test_a_mask_refuses_only_what_its_rules_refuse(mask, knobs):
    simulation = simulate(knobs)
    rows, columns = all_of(simulation)
    for move in some_moves(knobs, simulation):
        simulation.apply_move(move)
    rules = [r for r in constraints.RULES if r.name in BEHIND[mask.__name__]]
    assert len(rules) == len(BEHIND[mask.__name__])
    for n, h in zip(*np.nonzero(~mask(simulation, rows, columns)), strict=True):
        move = simulation.build_move(int(n), int(h), model.Phase.EVACUATE)
        assert any(rule.judge(simulation.view, move) for rule in rules), move


def test_some_clouds_have_kinds_of_hosts_that_pin_instances():
    """Or the two tests above would show nothing about the mask."""
    refused = 0
    for seed in range(40):
        simulation = simulate(clouds.Knobs(seed, hosts=6, instances=12, clean=False))
        rows, columns = all_of(simulation)
        refused += int((~masks.hosts.mark_compatible(simulation, rows, columns)).sum())
    assert refused > 100


def test_with_too_many_kinds_the_mask_permits_everything(monkeypatch):
    monkeypatch.setattr(flavor_compatibility, 'MOST', 1)
    for seed in range(5):
        simulation = simulate(clouds.Knobs(seed, hosts=6, instances=12, clean=False))
        rows, columns = all_of(simulation)
        assert masks.hosts.mark_compatible(simulation, rows, columns).all()


def test_kinds_outside_the_query_do_not_count_towards_the_limit(monkeypatch):
    """Most kinds of instance are on hosts of few kinds."""
    refused = 0
    for seed in range(20):
        knobs = clouds.Knobs(seed, hosts=6, instances=12, clean=False)
        every = simulate(knobs)
        rows, columns = all_of(every)
        expected = masks.hosts.mark_compatible(every, rows, columns)
        with monkeypatch.context() as patch:
            patch.setattr(flavor_compatibility, 'MOST', len(rows) * len(columns))
            simulation = simulate(knobs)
            assert (masks.hosts.mark_compatible(simulation, rows, columns) == expected).all()
            # One that exists nowhere: judged when it comes about, and no sooner.
            assert simulation.flavor_fit.everywhere or len(simulation.flavor_fit._rows) <= len(rows)
        refused += int((~expected).sum())
    assert refused > 50


def test_more_kinds_than_the_reserved_space_are_judged(monkeypatch):
    monkeypatch.setattr(flavor_compatibility, '_SPACE', 1)
    for seed in range(10):
        knobs = clouds.Knobs(seed, hosts=6, instances=12, clean=False)
        small, (rows, columns) = simulate(knobs), all_of(simulate(knobs))
        found = np.concatenate([masks.hosts.mark_compatible(small, rows[n:n + 1], columns)
                                for n in rows])
        monkeypatch.undo()
        assert (found == masks.hosts.mark_compatible(simulate(knobs), rows, columns)).all()
        monkeypatch.setattr(flavor_compatibility, '_SPACE', 1)


def test_refusals_of_placement_are_read_once():
    """Not for every question: there may be hundreds of pairs."""
    class Counted(dict):
        read = 0

        def items(self):
            type(self).read += 1
            return super().items()

    r = clouds.request(clouds.Knobs(3, hosts=5, instances=9))
    one, two, *_ = sorted(r.cluster.instances)
    refused = Counted({one: frozenset({'nowhere', *sorted(r.cluster.scope_hosts)[:2]}),
                       two: frozenset(), clouds.uuid_of('nobody'): frozenset({'x'})})
    history = dataclasses.replace(r.history, refused=refused)
    simulation = sim.Simulation(r.cluster, r.scores, r.policies, history, r.options)
    before = Counted.read
    rows, columns = all_of(simulation)
    for chosen in (columns, columns[::-1], columns[1:3], columns[:0]):
        allowed = masks.hosts.mark_unrefused(simulation, rows, chosen)
        assert allowed.tolist() == [
            [simulation.hosts[h] not in refused.get(simulation.uuids[n], ()) for h in chosen]
            for n in rows]
    assert Counted.read == before == 1


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(clean=False))
def test_the_masks_together_are_their_conjunction(knobs):
    simulation = simulate(knobs)
    rows, columns = all_of(simulation)
    expected = np.ones((len(rows), len(columns)), dtype=bool)
    for mask in masks.MASKS:
        expected &= mask(simulation, rows, columns)
    assert (masks.mark_permitted(simulation, rows, columns) == expected).all()


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs())
def test_masks_permit_legal_moves_after_moves_and_reverts(knobs):
    simulation = simulate(knobs)
    rng = random.Random(knobs.seed)
    rows, columns = all_of(simulation)
    made = []
    for _ in range(6):
        legal = [m for n in rows for h in columns
                 if (m := simulation.build_move(int(n), int(h), model.Phase.AFFINITY)).from_host
                 != m.to_host and simulation.judge_move(m) is None]
        if not legal:
            break
        made.append(rng.choice(legal))
        simulation.apply_move(made[-1])
        if rng.random() < 0.4:
            simulation.undo_move(made.pop())
        allowed = masks.mark_permitted(simulation, rows, columns)
        for n in rows:
            for h in columns:
                move = simulation.build_move(int(n), int(h), model.Phase.AFFINITY)
                if simulation.judge_move(move) is None:
                    assert allowed[n, h], (move, made)
