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

"""The rules: one file per idea, each ``rule(view, move) -> Rejection | None``.

A new rule is a function in a file here, its line in ``RULES``, a test and a
release note. It must not change anything; its Rejection has a stable name.
"""

from collections.abc import Callable
from collections.abc import Sequence

from kronos_nova import model
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import candidates
from kronos_nova.constraints import claims
from kronos_nova.constraints import disks
from kronos_nova.constraints import hints
from kronos_nova.constraints import hypervisor
from kronos_nova.constraints import instance
from kronos_nova.constraints import live
from kronos_nova.constraints import metrics
from kronos_nova.constraints import opt_out
from kronos_nova.constraints import placement
from kronos_nova.constraints import prefilters
from kronos_nova.constraints import recently_booted
from kronos_nova.constraints import required_traits
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.constraints import traits
from kronos_nova.constraints import view as views

Rule = Callable[[views.View, model.Move], model.Rejection | None]

#: Rules that ignore the destination: their rejection holds for all destinations.
ALONE: tuple[Rule, ...] = (
    instance.state,
    opt_out.opted_out,
    live.devices,
    instance.history,
)
#: Rules that compare an instance with a destination, and ignore all other moves.
PAIRS: tuple[Rule, ...] = (
    hypervisor.hypervisor,
    aggregates.tenants,
    aggregates.extra_specs,
    aggregates.image_properties,
    prefilters.tenant_aggregates,
    prefilters.isolated_aggregates,
    required_traits.required_traits,
    live.destination_devices,
)

#: Cheap and informative rules first: ``check`` reports the first rejection.
RULES: tuple[Rule, ...] = (
    instance.identity,
    *ALONE,
    recently_booted.just_booted,
    disks.copies_disk,
    placement.scope,
    service_state.service_state,
    service_state.closed_host,
    placement.cell,
    placement.zone,
    *PAIRS,
    candidates.placement_refused,
    hints.hints,
    server_groups.anti_affinity,
    server_groups.affinity,
    server_groups.group_in_flight,
    hints.hint_in_flight,
    traits.cpu_traits,
    claims.claims,
    metrics.scored,
    metrics.ceiling,
)

#: Rules that an executor checks again on fresh data: all but those of metrics,
#: plus ``drain_over``.
PRE_FLIGHT: tuple[Rule, ...] = tuple(
    rule for rule in (*RULES, service_state.drain_over)
    if rule not in (metrics.scored, metrics.ceiling))


def check(view: views.View, move: model.Move,
          rules: Sequence[Rule] = RULES) -> model.Rejection | None:
    """Return the first rejection; None when the move is legal."""
    for rule in rules:
        rejection = rule(view, move)
        if rejection is not None:
            return rejection
    return None


def check_alone(view: views.View, move: model.Move) -> model.Rejection | None:
    """Return the first rejection that holds for every destination; None without one."""
    return next((no for rule in ALONE if (no := rule(view, move)) is not None), None)


def check_all(view: views.View, move: model.Move,
              rules: Sequence[Rule] = RULES) -> tuple[model.Rejection, ...]:
    """Return every rejection; empty when the move is legal.

    Stop after a rejection by ``identity``: the other rules need an instance on its source host.
    """
    if instance.identity in rules and (no := instance.identity(view, move)) is not None:
        return (no,)
    return tuple(no for rule in rules if (no := rule(view, move)) is not None)
