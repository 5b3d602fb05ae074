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

"""Rules about metrics: moves need scores, and no move overfills a host."""

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

IMBALANCE = (model.Phase.SPREAD, model.Phase.PACK)

#: Tolerance for rounding errors in sums of ratios.
ROUNDING = 1e-9


def scored(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse an imbalance move without trusted scores at both ends and a usage.

    Refuse any other move to a host that lacks a score while the others' can be trusted.
    """
    return view.judge_missing_scores(move) if move.phase in IMBALANCE else view.judge_frozen_host(
        move.to_host)


SCORED_RULE = rules.Rule(
    scored, kind=rules.RuleKind.METRICS,
    codes={
        'policy-untrusted': rules.RejectionCode(
            meaning='The metrics cannot be believed.',
            remedy='the metrics are repaired; drains and repairs do not need them',
            retry=None),
        'host-frozen': rules.RejectionCode(
            meaning="A host has no score while the others' can be trusted.",
            remedy='the host has a score again: its exporter is scraped',
            retry=None),
        'no-profile': rules.RejectionCode(
            meaning='The instance has no usage in a policy.',
            remedy='the vm_profile_query has a series for it, or the policy a fallback',
            retry=None)})


def ceiling(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move that lifts its destination above a policy's ceiling.

    Imbalance limits a spread instead: it may go to a host above the ceiling when its source is
    worse off.
    """
    source = view.map_known_fills(move.from_host) if move.phase is model.Phase.SPREAD else {}
    for name, (fill, limit) in view.map_projected_fills(move).items():
        if fill > max(limit, source.get(name, limit)) + ROUNDING:
            return model.Rejection('ceiling', f'host {move.to_host} would reach {fill:.2f} of '
                                              f'{name}, above {limit:.2f}')
    return None


CEILING_RULE = rules.Rule(
    ceiling, kind=rules.RuleKind.METRICS,
    codes={
        'ceiling': rules.RejectionCode(
            meaning='The destination would be filled above its ceiling.',
            remedy='load leaves the host, or the ceiling is raised (capacity_threshold when '
                   'packing)',
            retry=None)})
