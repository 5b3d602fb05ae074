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

"""Explanations why an instance is not moved to a host.

They have every rule's verdict, the holds of the scope, and the effect of the move on each policy.
"""

from collections.abc import Mapping
import dataclasses
from types import MappingProxyType

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import shortfall
from kronos_nova.rebalancer.operations import shutdown_verdicts
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds


@dataclasses.dataclass(frozen=True, slots=True)
class RuleVerdict:
    """Verdict of a rule on the move.

    ``rule`` names the rule, or the refusal. ``detail`` is the text of the refusal; where the rule
    allows the move, the use of the limit after the move if it counts an amount, or a note.
    """

    rule: str
    passed: bool
    detail: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyEffect:
    """Effect of the move on a policy; None: not known.

    ``before`` and ``after`` are imbalances of the scope, ``fill_before`` and ``fill_after`` fills
    of the destination; ``ceiling`` is the highest permitted fill.
    """

    policy: str
    threshold: float
    before: float
    after: float
    fill_before: float | None
    fill_after: float | None
    ceiling: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class MoveAnswer:
    """Verdicts on a move, the holds of its scope, and its effects.

    ``holds`` are reasons why nothing of the scope, or nothing for balance, is moved now.
    ``amounts``: by rule, the amount that is lacking or too much. Without effects the move was not
    tried: a host is not in the scope, or source and destination are the same. ``shutdown``: whether
    a drain may shut the instance down after a late live migration; None: another phase than
    ``evacuate``, or drains shut no instance down, and this one was not late.
    """

    move: model.Move
    holds: tuple[str, ...]
    verdicts: tuple[RuleVerdict, ...]
    effects: tuple[PolicyEffect, ...]
    combined_before: float | None
    combined_after: float | None
    over_threshold: bool
    amounts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shutdown: shutdown_verdicts.ShutdownVerdict | None = None

    @property
    def refused(self) -> tuple[RuleVerdict, ...]:
        return tuple(v for v in self.verdicts if not v.passed)

    @property
    def changes(self) -> tuple[tuple[str, str | None], ...]:
        """Pairs of each refusing rule and its remedy; all are necessary. None: no remedy exists."""
        remedies = []
        for rule in (v.rule for v in self.refused):
            remedy, amount = constraints.CODES[rule].remedy, self.amounts.get(rule)
            remedies.append((rule, f'{remedy}: {amount}' if remedy and amount else remedy))
        return tuple(remedies)

    @property
    def conclusion(self) -> str:
        if self.refused:
            return f'refused by {", ".join(v.rule for v in self.refused)}'
        if self.holds:
            return 'no rule refuses it; it waits, because ' + '; '.join(self.holds)
        if self.move.phase not in metrics.IMBALANCE:
            return 'no rule refuses it: it is one of the destinations that are compared'
        assert self.combined_before is not None and self.combined_after is not None
        if self.combined_after >= self.combined_before - metrics.ROUNDING:
            return ('no rule refuses it, but it would not lower the imbalance: '
                    f'{self.combined_before:.4f} to {self.combined_after:.4f}')
        if not self.over_threshold:
            return ('no rule refuses it and it would lower the imbalance, but that of no policy '
                    'is above its threshold')
        return ('no rule refuses it and it would lower the imbalance: a cycle makes it, unless '
                'others that bring more use up its moves')


def why_not(request: planner.PlanningInput, uuid: str, host: str, phase: model.Phase,
            notes: Mapping[str, str] = MappingProxyType({})) -> MoveAnswer:
    """Judge the move on the cloud as it is, with nothing else planned.

    :param uuid: an instance of ``request.cluster``.
    :param phase: purpose of the move; metrics count for spread and pack alone.
    :param notes: texts by rule, for rules that allow the move.
    """
    request = planner.prepare_planning_input(request)
    cluster = request.cluster
    move = model.Move(uuid, cluster.instances[uuid].host, host, phase)
    simulation = sim.Simulation(cluster, request.scores, request.policies, request.history,
                                request.options, seed=request.seed, now=request.now)
    holds = [planner.scope_hold(request)]
    if phase in metrics.IMBALANCE:
        holds.append(planning_holds.imbalance_hold(cluster, request.scores, request.history,
                                                   request.options))
    over, before = simulation.over_threshold(), simulation.compute_combined()
    verdicts = _judge_all_rules(simulation, move, notes)
    amounts = shortfall.format_shortfalls(simulation, move) if len(verdicts) > 1 else {}
    shutdown = (shutdown_verdicts.judge_refused_shutdown(
        simulation.view, move, [v.rule for v in verdicts if not v.passed])
        if phase is model.Phase.EVACUATE else None)
    effects = _compute_effects(simulation, request, move)
    return MoveAnswer(
        move=move, holds=tuple(text for text in holds if text is not None), verdicts=verdicts,
        effects=effects, over_threshold=over, amounts=amounts, shutdown=shutdown,
        combined_before=before if effects and simulation.trusted else None,
        combined_after=simulation.compute_combined() if effects and simulation.trusted else None)


def _judge_all_rules(simulation: sim.Simulation, move: model.Move,
                     notes: Mapping[str, str]) -> tuple[RuleVerdict, ...]:
    """Return the verdict of each rule in order, or only the first one if it refuses.

    The first rule is ``identity``: the other rules cannot judge a move that it refuses.
    """
    verdicts: list[RuleVerdict] = []
    margins: Mapping[str, str] = {}
    for rule in constraints.RULES:
        rejection, name = rule.judge(simulation.view, move), rule.name
        verdicts.append(RuleVerdict(name, True, margins.get(name, '')) if rejection is None
                        else RuleVerdict(rejection.rule, False, rejection.detail))
        if len(verdicts) == 1:
            if rejection is not None:
                break
            margins = {**notes, **shortfall.format_margins(simulation, move)}
    return tuple(verdicts)


def _compute_effects(simulation: sim.Simulation, request: planner.PlanningInput,
                     move: model.Move) -> tuple[PolicyEffect, ...]:
    """Apply the move to the simulation, allowed or not, and return its effect on each policy."""
    if {move.from_host, move.to_host} - simulation.host_index.keys():
        return ()
    if move.from_host == move.to_host:
        return ()
    before, filled = simulation.compute_imbalances(), dict(
        simulation.view.map_known_fills(move.to_host))
    simulation.apply_move(move)
    after, full = simulation.compute_imbalances(), simulation.view.map_known_fills(move.to_host)
    return tuple(
        PolicyEffect(p.name, p.threshold, float(before[n]), float(after[n]), filled.get(p.name),
                     full.get(p.name), simulation.ceilings.get(p.name))
        for n, p in enumerate(request.policies.enabled_policies))
