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


"""Ways to scale a weigher's values to each other; 0 stays no opinion.

Every kind maps weights around 0 (KronosWeigher's, in [-0.5, 0.5]) to values in [-0.5, 0.5],
and equal weights, or a single one, to exactly 0; ``fixed`` leaves all weights unchanged.
Values are rounded to five places. Hosts without an opinion do not pass through here: they
weigh 0 under each kind.
"""

from collections.abc import Sequence
import math

FIXED = 'fixed'
KINDS = (FIXED, 'min-max', 'tanh')


def normalise_weights(weights: Sequence[float], kind: str, scale: float) -> list[float]:
    """Scale the weights of one group of hosts.

    :param weights: finite numbers.
    :param kind: ``fixed``; ``min-max``: the worst host gets -0.5 and the best 0.5;
        ``tanh``: tanh((weight - mean) / scale) / 2.
    :param scale: of ``tanh``: the distance from the mean at which the value reaches 76 % of
        its end; above 0.
    :raises ValueError: the kind is unknown.
    """
    if kind not in KINDS:
        raise ValueError(f'{kind} is no normalisation; there are {", ".join(KINDS)}')
    if kind == FIXED:
        return list(weights)
    low, high = min(weights, default=0.0), max(weights, default=0.0)
    if low == high:
        return [0.0] * len(weights)
    if kind == 'min-max':
        return [round((weight - low) / (high - low) - 0.5, 5) for weight in weights]
    mean = math.fsum(weights) / len(weights)
    return [round(math.tanh((weight - mean) / scale) / 2, 5) for weight in weights]
