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

"""What the scheduler has just placed stays there for a while.

It was put there by the same scores. What it uses now, while it boots, says
little of what it is going to use, and its owner is waiting for it.
"""

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.constraints import view as views

#: Clocks of computes may be ahead of ours by so many seconds.
SKEW = 60.0


def just_booted(view: views.View, move: model.Move) -> model.Rejection | None:
    """No imbalance move of an instance that was launched less than
    ``instance_cooldown`` ago. Drains and repairs do not wait."""
    if move.phase not in metrics.IMBALANCE:
        return None
    left = view.fresh(move.instance_uuid)
    if left <= 0:
        return None
    return model.Rejection('just-booted', f'instance {move.instance_uuid} has just booted and '
                                          f'stays for another {left:.0f} s')


def left(launched_at: float | None, now: float, cooldown: float) -> float:
    """Seconds during which an instance is fresh; 0: it is not, or nobody knows.

    :param launched_at: epoch seconds, by the clock of its compute.
    """
    if launched_at is None or not -SKEW <= now - launched_at < cooldown:
        return 0.0
    return min(cooldown, launched_at + cooldown - now)
