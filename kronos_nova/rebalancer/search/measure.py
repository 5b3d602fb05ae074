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


"""The value of a state, and the gain that a migration must bring."""

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim

#: Weight of the part of an imbalance below its threshold, relative to the part
#: above: it decides between plans that are equally far above.
BELOW = 0.1
#: Ending above both its start and its threshold costs a policy so many times
#: its weight, and a higher combined imbalance than at the start likewise.
REFUSED = 20.0
MIB_PER_GIB = 1024.0


def compute_price(options: model.PlanningOptions, mebibytes: sim.Floats) -> sim.Floats:
    """Return the gain in combined imbalance that each migration must bring to be made.

    It is ``minimum_gain`` per GiB that the migration is expected to send.
    """
    return options.minimum_gain / MIB_PER_GIB * mebibytes


class StateMeasure:
    """Values of the states that follow from one start; lower is better.

    A value is weight x imbalance, where the part above the threshold counts fully and the
    rest :data:`BELOW`, plus penalties for outcomes that a whole plan must avoid.
    """

    def __init__(self, simulation: sim.Simulation) -> None:
        self.weights = simulation.weights
        self.thresholds = simulation.thresholds
        #: Added to scores, they exclude hosts that may not give or take.
        self._out = (np.where(simulation.givers, 0.0, -np.inf),
                     np.where(simulation.takers, 0.0, np.inf))
        self.start = simulation.compute_combined()
        #: P: where a policy's imbalance may end.
        self._limits = np.maximum(simulation.compute_imbalances(),
                                  self.thresholds) + metrics.ROUNDING

    def compute_highest(self, score: sim.Floats) -> sim.Floats:
        """Return the highest score of the hosts that may give (shape ... P).

        ``score`` is ... P x H here and below, one state or many.
        """
        return np.asarray((score + self._out[0]).max(axis=-1))

    def compute_lowest(self, score: sim.Floats) -> sim.Floats:
        """Return the lowest score of the hosts that may take (shape ... P)."""
        return np.asarray((score + self._out[1]).min(axis=-1))

    def compute_imbalances(self, score: sim.Floats) -> sim.Floats:
        return np.asarray(np.maximum(self.compute_highest(score) - self.compute_lowest(score), 0.0))

    def compute_combined(self, score: sim.Floats) -> float:
        return float(self.weights @ self.compute_imbalances(score))

    def compute_excess(self, score: sim.Floats) -> float:
        """Return the sum of weight x imbalance above the thresholds, rounding apart."""
        above = self.compute_imbalances(score) - self.thresholds
        return float(self.weights @ np.where(above > metrics.ROUNDING, above, 0.0))

    def compute_value(self, score: sim.Floats) -> float:
        return float(self.compute_values(score))

    def compute_values(self, score: sim.Floats) -> sim.Floats:
        """Return :meth:`compute_value` of each state (shape ...)."""
        imbalance = self.compute_imbalances(score)
        combined = imbalance @ self.weights
        above = np.maximum(imbalance - self.thresholds, 0.0) @ self.weights
        refused = np.maximum(imbalance - self._limits, 0.0) @ self.weights
        refused += np.maximum(0.0, combined - self.start - metrics.ROUNDING)
        return np.asarray(BELOW * combined + (1.0 - BELOW) * above + REFUSED * refused)

    def mark_reached(self, score: sim.Floats) -> sim.Bools:
        """Return which states bring every policy to its threshold and are not refused."""
        imbalance = self.compute_imbalances(score)
        limits = np.minimum(self.thresholds + metrics.ROUNDING, self._limits)
        return np.asarray((imbalance <= limits).all(axis=-1)
                          & (imbalance @ self.weights <= self.start + metrics.ROUNDING))

    def mark_refused(self, score: sim.Floats) -> bool:
        """Return whether a policy ends worse above its threshold, or all together end worse."""
        imbalance = self.compute_imbalances(score)
        return bool((imbalance > self._limits).any()
                    or float(self.weights @ imbalance) > self.start + metrics.ROUNDING)
