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

"""Instances that the scheduler has just placed: they stay there for a while.

The scheduler used the same scores. The usage of an instance that boots says little about its later
usage, and its owner is waiting for it.
"""

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

#: Seconds by which clocks of computes may be ahead of ours.
SKEW = 60.0


def just_booted(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse an imbalance move of an instance launched less than ``instance_cooldown`` ago.

    Drains and repairs do not wait.
    """
    if move.phase not in metrics.IMBALANCE:
        return None
    seconds = view.compute_fresh_seconds(move.instance_uuid)
    if seconds <= 0:
        return None
    return model.Rejection('just-booted', f'instance {move.instance_uuid} has just booted and '
                                          f'stays for another {seconds:.0f} s')


JUST_BOOTED_RULE = rules.Rule(
    just_booted,
    codes={
        'just-booted': rules.RejectionCode(
            meaning='It was launched less than instance_cooldown ago.',
            remedy='it stays where the scheduler put it for a while; drains do not wait',
            retry=rules.RetryClass.QUARANTINE)})


def compute_fresh_seconds(launched_at: float | None, now: float, cooldown: float) -> float:
    """Return the seconds during which an instance is still fresh; 0: it is not, or unknown.

    :param launched_at: epoch seconds, by the clock of its compute.
    """
    if launched_at is None or not -SKEW <= now - launched_at < cooldown:
        return 0.0
    return min(cooldown, launched_at + cooldown - now)
