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

"""Watts of a host by its utilisation."""

import dataclasses

import numpy as np

from kronos_nova.rebalancer.backtest import history as pasts

#: SPECpower_ssj2008's measuring points: 0, 10, ..., 100 % of load.
POINTS = 11


@dataclasses.dataclass(frozen=True, slots=True)
class PowerCurve:
    """``watts`` at evenly spaced utilisations from 0 to 1, linear between.

    ``empty_is_off``: a host without instances draws nothing.
    """

    watts: tuple[float, ...]
    empty_is_off: bool = False

    def compute_watts(self, utilisation: pasts.Floats) -> pasts.Floats:
        """Return the watts, in the same shape; a utilisation not known counts as 0."""
        known = np.clip(np.nan_to_num(utilisation), 0.0, 1.0)
        return np.interp(known, np.linspace(0.0, 1.0, len(self.watts)), self.watts)

    def kilowatt_hours(self, utilisation: pasts.Floats, counts: pasts.Places,
                       seconds: float) -> float:
        """Compute the energy of T x H utilisations that hold for ``seconds`` each.

        :param counts: T x H, instances on the host.
        """
        watts = self.compute_watts(utilisation)
        if self.empty_is_off:
            watts = np.where(counts > 0, watts, 0.0)
        return float(watts.sum()) * seconds / 3_600_000.0


def parse_power_curve(text: str, empty_is_off: bool = False) -> PowerCurve:
    """Parse ``IDLE:MAX`` watts, or 11 comma-separated watts at 0, 10, ..., 100 %.

    :raises ValueError: the text is neither; the message names the fault.
    """
    parts = text.split(':') if ':' in text else text.split(',')
    if len(parts) != (2 if ':' in text else POINTS):
        raise ValueError(f'{text!r} is neither IDLE:MAX nor {POINTS} comma-separated numbers')
    try:
        watts = tuple(float(part) for part in parts)
    except ValueError:
        raise ValueError(f'{text!r} holds something that is no number') from None
    if not all(0.0 <= w < float('inf') for w in watts):
        raise ValueError(f'{text!r} holds a negative or infinite number')
    return PowerCurve(watts, empty_is_off)
