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

"""Gaps of a plan: data that it did not look at, believe or try, with the reasons."""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.report import values


def of_plan(plan: model.Plan, warnings: Sequence[str] = ()) -> tuple[values.DataGap, ...]:
    """List the gaps that the plan itself reports."""
    gaps = []
    if plan.truncated:
        gaps.append(values.DataGap('The plan was cut off: not everything that it could move was '
                                   'tried. See the warnings.'))
    left_out = [f'{p.name}: {p.reason or "left out"}' for p in plan.policies if p.skipped]
    if left_out:
        gaps.append(values.DataGap('Metrics that are not believed. No move for the sake of '
                                   'balance is made without them.', tuple(left_out)))
    if plan.undrained:
        gaps.append(values.DataGap('Disabled hosts that keep their instances.',
                                   tuple(rejection.detail for rejection in plan.undrained)))
    texts = tuple(dict.fromkeys((*warnings, *plan.warnings)))
    if texts:
        gaps.append(values.DataGap('Warnings.', texts))
    return tuple(gaps)


def of_outcome(outcome: planning_pipeline.PassOutcome, policy_set: policies.PolicySet,
               planned: Mapping[str, str], warnings: Sequence[str],
               waiting: Collection[str] = ()) -> tuple[values.DataGap, ...]:
    """List the gaps of the plan, of the metrics and of the cloud.

    :param planned: the scope of each host that is planned anywhere.
    :param waiting: instances whose moves wait for approval; these moves are not under way.
    """
    warning_texts = [f'{name}: {text}' for name, known in sorted(outcome.scores.policies.items())
                     for text in known.warnings]
    return (*of_plan(outcome.plan, [*warnings, *warning_texts]),
            *_list_metric_gaps(outcome, policy_set), *_list_cloud_gaps(outcome, planned, waiting))


def _list_metric_gaps(outcome: planning_pipeline.PassOutcome,
                      policy_set: policies.PolicySet) -> Iterator[values.DataGap]:
    disabled = [p.name for p in policy_set.policies if not p.enabled]
    if disabled:
        yield values.DataGap('Policies that the file has and that are not enabled.',
                             tuple(disabled))
    here = [u for u, i in outcome.cluster.instances.items()
            if i.host in outcome.cluster.scope_hosts]
    lacking = []
    for name, known in sorted(outcome.scores.policies.items()):
        if known.missing:
            yield values.DataGap(
                f'Hosts that are up and have no score of {name}'
                + ('.' if known.untrusted else ': frozen, they neither give nor take for '
                                               'balance.'), tuple(sorted(known.missing)))
        without = sum(1 for uuid in here if uuid not in known.usages)
        if without:
            lacking.append(f'{name}: {without:,} of {plurals.count_noun(len(here), "instance")}')
    if lacking:
        yield values.DataGap('Instances whose use is not known: they count, and are not moved for '
                             'balance.', tuple(lacking))


def _list_cloud_gaps(outcome: planning_pipeline.PassOutcome, planned: Mapping[str, str],
                     waiting: Collection[str]) -> Iterator[values.DataGap]:
    cluster = outcome.cluster
    idle = [f'{host}: {reason}' for host in sorted(cluster.scope_hosts)
            if (reason := _explain_unavailable(cluster.services.get(host)))]
    if idle:
        yield values.DataGap('Hosts of the scope that take nothing.', tuple(idle))
    others = sum(1 for host, scope in planned.items() if scope != cluster.scope)
    if others:
        yield values.DataGap(f'{plurals.count_noun(others, "host")} of other planned scopes.')
    outside = sorted(set(cluster.hosts) - set(planned))
    if outside:
        yield values.DataGap('Hosts of no planned scope: nothing is moved from or to them.',
                             tuple(outside))
    under_way = sum(flight.instance_uuid not in waiting for flight in cluster.flights)
    if waiting:
        yield values.DataGap(f'{plurals.count_noun(len(waiting), "move")} that '
                             f'{plurals.choose_form(len(waiting), "waits", "wait")} for approval: '
                             'those instances stay as they are.')
    if under_way:
        yield values.DataGap(f'{plurals.count_noun(under_way, "migration")} under way in the '
                             'cloud: those instances stay as they are.')
    if not cluster.placement_known:
        yield values.DataGap('Placement was not recorded: claims are not judged.')
    yield values.DataGap('Placement was not asked to confirm the moves, as an engine does with '
                         'confirm_moves; Nova judges each once more when it is made.')


def _explain_unavailable(service: model.Service | None) -> str | None:
    if service is None:
        return 'it has no nova-compute service'
    if not service.up:
        return 'its nova-compute is down'
    if not service.enabled:
        return 'disabled' + (f' ({service.disabled_reason})' if service.disabled_reason else '')
    return None
