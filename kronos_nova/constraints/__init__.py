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

"""The rules: a file of one idea each, with judges and their definitions.

A new rule is a :class:`rules.Rule` in a file here and its line in ``ALL``; everything else follows
from its definition. A judge must not change anything.
"""

from collections.abc import Mapping
from collections.abc import Sequence

from kronos_nova import model
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import candidates
from kronos_nova.constraints import claims
from kronos_nova.constraints import contracts
from kronos_nova.constraints import disks
from kronos_nova.constraints import domain_spread
from kronos_nova.constraints import evacuation
from kronos_nova.constraints import hints
from kronos_nova.constraints import hypervisor
from kronos_nova.constraints import instance
from kronos_nova.constraints import live
from kronos_nova.constraints import metrics
from kronos_nova.constraints import placement
from kronos_nova.constraints import prefilters
from kronos_nova.constraints import quiet_hours
from kronos_nova.constraints import recently_booted
from kronos_nova.constraints import required_traits
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.constraints import traits
from kronos_nova.constraints import view as views
from kronos_nova.constraints.rules import RejectionCode
from kronos_nova.constraints.rules import RetryClass
from kronos_nova.constraints.rules import Rule
from kronos_nova.constraints.rules import RuleKind

#: Every rule, the cheap and informative ones first: ``judge_move`` reports the first rejection.
ALL: tuple[Rule, ...] = (
    instance.IDENTITY_RULE,
    instance.STATE_RULE,
    contracts.CONTRACT_RULE,
    live.DEVICES_RULE,
    instance.HISTORY_RULE,
    quiet_hours.QUIETER_HOUR_RULE,
    recently_booted.JUST_BOOTED_RULE,
    disks.COPIES_DISK_RULE,
    placement.SCOPE_RULE,
    service_state.SERVICE_STATE_RULE,
    service_state.CLOSED_HOST_RULE,
    placement.CELL_RULE,
    placement.ZONE_RULE,
    hypervisor.HYPERVISOR_RULE,
    aggregates.TENANTS_RULE,
    aggregates.EXTRA_SPECS_RULE,
    aggregates.IMAGE_PROPERTIES_RULE,
    prefilters.TENANT_AGGREGATES_RULE,
    prefilters.ISOLATED_AGGREGATES_RULE,
    required_traits.REQUIRED_TRAITS_RULE,
    live.DESTINATION_DEVICES_RULE,
    candidates.PLACEMENT_REFUSED_RULE,
    hints.HINTS_RULE,
    server_groups.ANTI_AFFINITY_RULE,
    server_groups.AFFINITY_RULE,
    server_groups.GROUP_IN_FLIGHT_RULE,
    hints.HINT_IN_FLIGHT_RULE,
    domain_spread.WORSENS_SPREAD_RULE,
    traits.CPU_TRAITS_RULE,
    claims.CLAIMS_RULE,
    metrics.SCORED_RULE,
    metrics.CEILING_RULE,
    service_state.DRAIN_OVER_RULE,
    service_state.RECEIVING_SERVICE_RULE,
    evacuation.REBUILD_RULE,
    evacuation.AFFINITY_IN_FLIGHT_RULE,
)
#: Rules of a planner.
RULES: tuple[Rule, ...] = tuple(
    rule for rule in ALL if rule.kind not in (RuleKind.PRE_FLIGHT, RuleKind.FAILURE))
#: Rules of a planner whose rejection holds for all destinations.
ALONE: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.kind is RuleKind.ALONE)
#: Rules of a planner that one mask judges by the facts that they read.
PAIRS: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.reads is not None)
#: Rules of a planner that hold for a way back: the instance was there before, however full the
#: host.
BACK: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.kind is not RuleKind.METRICS)
#: Rules that an executor checks again on fresh data.
PRE_FLIGHT: tuple[Rule, ...] = tuple(
    rule for rule in ALL if rule.kind not in (RuleKind.METRICS, RuleKind.FAILURE))
#: Rules for the place of an instance whose host has failed. Nova rebuilds it there from its image
#: or its volumes, so that no rule of a live migration holds; nor does one that keeps the instance
#: on a host that works.
EVACUATION: tuple[Rule, ...] = (
    instance.IDENTITY_RULE,
    evacuation.REBUILD_RULE,
    placement.SCOPE_RULE,
    service_state.RECEIVING_SERVICE_RULE,
    service_state.CLOSED_HOST_RULE,
    placement.CELL_RULE,
    placement.ZONE_RULE,
    aggregates.TENANTS_RULE,
    aggregates.EXTRA_SPECS_RULE,
    aggregates.IMAGE_PROPERTIES_RULE,
    prefilters.TENANT_AGGREGATES_RULE,
    prefilters.ISOLATED_AGGREGATES_RULE,
    required_traits.REQUIRED_TRAITS_RULE,
    candidates.PLACEMENT_REFUSED_RULE,
    hints.HINTS_RULE,
    server_groups.ANTI_AFFINITY_RULE,
    server_groups.AFFINITY_RULE,
    evacuation.AFFINITY_IN_FLIGHT_RULE,
    claims.CLAIMS_RULE,
    metrics.SCORED_RULE,
    metrics.CEILING_RULE,
)

#: Every name under which a rule rejects a move.
CODES: Mapping[str, RejectionCode] = {
    name: code for rule in ALL for name, code in rule.codes.items()}


def judge_move(view: views.CloudView, move: model.Move,
               rules: Sequence[Rule] = RULES) -> model.Rejection | None:
    """Return the first rejection; None when the move is legal."""
    for rule in rules:
        rejection = rule.judge(view, move)
        if rejection is not None:
            return rejection
    return None


def check_alone(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Return the first rejection that holds for every destination; None without one."""
    return next((rejection for rule in ALONE
                 if (rejection := rule.judge(view, move)) is not None), None)


def list_rejections(view: views.CloudView, move: model.Move,
                    rules: Sequence[Rule] = RULES) -> tuple[model.Rejection, ...]:
    """Return every rejection; empty when the move is legal.

    Stop after a rejection by ``identity``: the other rules need an instance on its source host.
    """
    if instance.IDENTITY_RULE in rules and (rejection := instance.identity(view, move)) is not None:
        return (rejection,)
    return tuple(rejection for rule in rules if (rejection := rule.judge(view, move)) is not None)


def select_codes(retry: RetryClass) -> frozenset[str]:
    """Return the names of rejections to which an executor reacts in this way."""
    return frozenset(name for name, code in CODES.items() if code.retry is retry)
