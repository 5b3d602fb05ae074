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

"""Durations and risks of live migrations, learned from measured ones. Pure.

Pre-copy sends the memory, then the pages written meanwhile, and so on: with ``r`` the rate at which
memory is written over the rate at which it is sent, the sum 1 + r + r^2 + ... = 1 / (1 - r) times
the memory (Clark et al., Live Migration of Virtual Machines, NSDI 2005). At r = 1 it would not end;
QEMU slows the guest down before (auto-converge), or Nova gives up.
"""

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import statistics

import numpy as np
import numpy.typing as npt

from kronos_nova import model

Floats = npt.NDArray[np.float64]

MIB = 1024.0 * 1024.0
#: Largest number of times that memory is assumed to be sent; and the smallest, for idle
#: instances, of whose memory little is sent.
MOST_TIMES = 10.0
LEAST_TIMES = 0.2
#: An attempt that did not arrive and ran for this multiple of the usual time did not converge;
#: Nova's own limit ends it as ``cancelled``, as an operator does.
GAVE_UP = 3.0
#: Weight of the general knowledge, in measurements of an instance's own.
GENERAL = 2.0
MOST_RISK = 0.95
#: Smallest risk at which an instance may not converge.
RISKY = 0.2
#: A phase is measured in whole seconds at best.
_SHORTEST = 1.0
#: Fewer pairs of different sizes do not show how the time depends on the size.
_PAIRS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationExpectation:
    """Expected duration and risk of one migration.

    ``seconds`` until it has arrived if it converges, ``risk`` in [0, 1] that it does not.
    """

    seconds: float
    risk: float


class MigrationCosts:
    """Durations, risks and amounts of live migrations, estimated from measured attempts.

    :param measured: attempts, in any order.
    :param copies_disk: disks are copied, too.
    """

    def __init__(self, measured: Sequence[model.MeasuredAttempt], copies_disk: bool) -> None:
        self._copies_disk = copies_disk
        known = [m for m in measured if self.compute_copied_mib(m.memory_mb, m.disk_gb) > 0]
        arrived = [m for m in known if m.arrived]
        self.count = len(arrived)
        copied = np.array([self.compute_copied_mib(m.memory_mb, m.disk_gb) for m in arrived])
        running = np.maximum(np.array([m.running for m in arrived]), _SHORTEST)
        #: Seconds of copying that do not depend on the size, and MiB/s; None: nothing was
        #: measured.
        self._set_up, self.rate = _fit_line(copied, running)
        #: MiB/s of each migration that arrived, from the MiB that it had to copy at least once.
        self._rates: Floats = np.sort(copied / np.maximum(running - self._set_up, _SHORTEST))
        #: Seconds besides copying.
        self.overhead = self._set_up + (
            statistics.median([m.other for m in arrived]) if arrived else 0.0)
        self._own_times: dict[str, list[float]] = defaultdict(list)
        self._own_ends: dict[str, list[bool]] = defaultdict(list)
        for m in known:
            usual, copying = self._compute_usual_seconds(m), max(m.running - self._set_up,
                                                                 _SHORTEST)
            if m.arrived and usual > 0:
                self._own_times[m.instance_uuid].append(copying / usual)
            if m.arrived or self._gave_up(m, usual):
                self._own_ends[m.instance_uuid].append(not m.arrived)

    def compute_copied_mib(self, memory_mb: float, disk_gb: float) -> float:
        """Return the MiB to copy, each page once."""
        return memory_mb + (disk_gb * 1024.0 if self._copies_disk else 0.0)

    def _compute_usual_seconds(self, m: model.MeasuredAttempt) -> float:
        """Return the seconds of copying at the usual rate; 0: not known."""
        if self.rate is None:
            return 0.0
        return max(self.compute_copied_mib(m.memory_mb, m.disk_gb) / self.rate, _SHORTEST)

    def _gave_up(self, m: model.MeasuredAttempt, usual: float) -> bool:
        return m.running > 0 and (
            m.late or 0 < self._set_up + usual * GAVE_UP < m.running)

    def compute_copy_factors(self, index: Mapping[str, int], dirty: Floats) -> Floats:
        """Return how often each instance's memory is sent, in relation to the usual: N.

        :param index: place of instances by UUID; others may be left out.
        :param dirty: N, bytes a second that each writes; 0 where nothing is known.
        """
        factors = np.ones(len(dirty))
        if self.rate is not None:
            factors = 1.0 / (1.0 - np.minimum(dirty / MIB / self.rate, 1.0 - 1.0 / MOST_TIMES))
        for uuid, own in self._own_times.items():
            if (n := index.get(uuid)) is not None:
                # The geometric mean: twice as long and half as long even out.
                logs = GENERAL * math.log(factors[n]) + math.fsum(map(math.log, own))
                factors[n] = math.exp(logs / (GENERAL + len(own)))
        return np.clip(factors, LEAST_TIMES, MOST_TIMES)

    def compute_risks(self, index: Mapping[str, int], dirty: Floats) -> Floats:
        """Return the chance that each instance does not converge: N.

        That is the chance that its sending rate is among the measured rates below its write rate,
        corrected by its own past attempts. Parameters as of :meth:`compute_copy_factors`.
        """
        risks = self._compute_general_risks(dirty)
        for uuid, own in self._own_ends.items():
            if (n := index.get(uuid)) is not None:
                risks[n] = (GENERAL * risks[n] + sum(own)) / (GENERAL + len(own))
        return np.minimum(risks, MOST_RISK)

    def compute_rate_risk(self, dirty: float) -> float:
        """Return the chance that an instance that writes at a rate does not converge.

        Its own past attempts, made while it wrote at other rates, do not count.
        """
        return float(self._compute_general_risks(np.array([dirty]))[0])

    def _compute_general_risks(self, dirty: Floats) -> Floats:
        below = np.searchsorted(self._rates, dirty / MIB, side='right')
        return np.where(dirty > 0, below / (self.count + GENERAL), 0.0)

    def compute_expected_mib(self, index: Mapping[str, int], copied: Floats,
                             dirty: Floats) -> Floats:
        """Return the MiB that are sent until each instance has arrived: N.

        Failed attempts are made again: 1 / (1 - risk) attempts on average.

        :param copied: N, MiB, each page once.
        """
        return copied * self.compute_copy_factors(index,
                                                  dirty) / (1.0 - self.compute_risks(index, dirty))

    def expect_migration(self, uuid: str, memory_mb: int, disk_gb: int,
                         dirty: float) -> MigrationExpectation | None:
        """Return the expectation for one instance, None: no migration was measured.

        :param dirty: bytes a second.
        """
        if self.rate is None:
            return None
        index, rates = {uuid: 0}, np.array([dirty])
        copying = self.compute_copied_mib(memory_mb, disk_gb) / self.rate * float(
            self.compute_copy_factors(index, rates)[0])
        return MigrationExpectation(self.overhead + max(copying, _SHORTEST),
                                    float(self.compute_risks(index, rates)[0]))


def dirty_rates(scores: model.ClusterScores) -> dict[str, float]:
    """Return bytes a second by instance UUID; of several policies the highest."""
    rates: dict[str, float] = {}
    for policy in scores.policies.values():
        for uuid, rate in policy.dirty_rates.items():
            rates[uuid] = max(rate, rates.get(uuid, 0.0))
    return rates


def _fit_line(copied: Floats, running: Floats) -> tuple[float, float | None]:
    """Fit the seconds that each migration takes independently of its size, and MiB/s.

    Theil and Sen: the median of the slopes between any two of which one copies twice as much as the
    other; half of the measurements may be wrong. Where too few differ, or the larger ones took no
    longer, the median rate, and no seconds apart.
    """
    if not copied.size:
        return 0.0, None
    first, other = np.triu_indices(copied.size, 1)
    differ = (np.maximum(copied[first], copied[other])
              >= 2 * np.minimum(copied[first], copied[other]))
    if differ.sum() >= _PAIRS:
        first, other = first[differ], other[differ]
        slope = float(np.median(
            (running[other] - running[first]) / (copied[other] - copied[first])))
        if slope > 0:
            set_up = float(np.median(running - slope * copied))
            return min(max(set_up, 0.0), float(running.min())), 1.0 / slope
    return 0.0, float(np.median(copied / running))
