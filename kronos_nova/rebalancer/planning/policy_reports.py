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

"""Imbalances before and after a plan, as its reports have them."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import pack_prediction


@dataclasses.dataclass(frozen=True, slots=True)
class InitialImbalances:
    """Imbalances before a plan by policy and combined, with moves in flight and as measured.

    Not ``comparable``: no host may give, or none may take.
    """

    imbalances: sim.Floats
    combined: float
    measured: Sequence[float]
    combined_measured: float
    comparable: bool
    packing: '_PackedHosts | None'

    @classmethod
    def measure_simulation(cls, simulation: sim.Simulation) -> 'InitialImbalances':
        """Record a simulation in which no move has been made yet."""
        measured, combined_measured = simulation.measure_imbalances()
        return cls(simulation.compute_imbalances(), simulation.compute_combined(), measured,
                   combined_measured, simulation.has_comparable_hosts(),
                   _PackedHosts.measure_simulation(simulation) if simulation.mode == 'pack'
                   else None)

    def compare_packing(self, simulation: sim.Simulation, moves: Sequence[model.Move],
                        ) -> tuple[model.PackingDensity | None, model.PackingDensity | None]:
        """Return how the scope was packed before a plan of mode pack, and is after it.

        :param moves: of the plan, applied to ``simulation``.
        """
        if self.packing is None or not moves or not (simulation.trusted and self.comparable):
            return None, None
        touched = sorted({simulation.host_index[host] for m in moves
                          for host in (m.from_host, m.to_host)})
        return (self.packing.build_density(touched),
                _PackedHosts.measure_simulation(simulation).build_density(touched))


@dataclasses.dataclass(frozen=True, slots=True)
class _PackedHosts:
    """The fill level of each host, and whether it is in use."""

    levels: sim.Floats
    in_use: sim.Bools

    @classmethod
    def measure_simulation(cls, simulation: sim.Simulation) -> '_PackedHosts':
        return cls(_compute_fill_levels(simulation), _in_use(simulation))

    def build_density(self, touched: Sequence[int]) -> model.PackingDensity:
        return model.PackingDensity(int(self.in_use.sum()),
                                    pack_prediction.sum_overload(self.levels[touched].tolist()))


def _compute_fill_levels(simulation: sim.Simulation) -> sim.Floats:
    """Return by host the fill in parts of the ceiling, for the policy nearest to its ceiling."""
    ceilings = np.array([[pack_prediction.compute_relief_ceiling(weighed)]
                         for weighed in simulation.policies])
    levels: sim.Floats = (np.nan_to_num(simulation.fill) / ceilings).max(axis=0)
    return levels


def _in_use(simulation: sim.Simulation) -> sim.Bools:
    """Mark the hosts that hold an instance, or expect one that is in flight."""
    in_use: sim.Bools = np.bincount(simulation.place, minlength=len(simulation.hosts)) > 0
    expected = [simulation.host_index[f.to_host] for f in simulation.cluster.flights
                if f.to_host in simulation.host_index]
    in_use[expected] = True
    return in_use


def report_policies(policies: policy.PolicySet, scores: model.ClusterScores,
                    before: InitialImbalances, after: sim.Floats) -> tuple[model.PolicyReport, ...]:
    """Report each policy's imbalance before and after the plan, None where it is not known."""
    reports = []
    for p, weighed in enumerate(policies.enabled_policies):
        reason = scores.policies[weighed.name].untrusted
        if reason is None and not before.comparable:
            reason = _explain_missing_imbalance(scores)
        reports.append(model.PolicyReport(
            name=weighed.name, threshold=weighed.threshold,
            imbalance_before=None if reason else float(before.imbalances[p]),
            imbalance_after=None if reason else float(after[p]),
            skipped=reason is not None, reason=reason,
            age=scores.policies[weighed.name].age,
            imbalance_measured=None if reason else before.measured[p]))
    return tuple(reports)


def _explain_missing_imbalance(scores: model.ClusterScores) -> str:
    others = sorted(name for name, known in scores.policies.items() if known.untrusted)
    if not others:
        return 'not computed: no host of the scope may give load, or none may take any'
    return (f'not computed: {", ".join(others)} '
            f'{"is" if len(others) == 1 else "are"} not trusted, and a host counts only where '
            'every policy has its score')
