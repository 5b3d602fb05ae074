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

"""Read and plan for ``kronos what-if`` and ``kronos why-nothing``."""

import argparse
from collections.abc import Sequence
import dataclasses
import time
from typing import Any

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.cli import _cloud
from kronos_nova.cli import _liveness
from kronos_nova.conf import policies as policy_files
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import drain_requests

PROG = 'kronos what-if'
NOTHING = 'kronos why-nothing'


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """A scope, real or hypothetical, and the plan of its next cycle."""

    cluster: model.Cluster
    plan: model.Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """A scope with its plan of today, and with the hypothetical one for what-if.

    ``holds``: why the scope makes no moves now, or no imbalance moves. ``today``: None for a scope
    that the cloud does not have. ``waits``: a plan of the scope waits for approval, and counts as
    under way. ``causes``: why no move is made, independent of the next plan.
    """

    name: str
    today: Side | None
    holds: tuple[str, ...] = ()
    waits: bool = False
    causes: tuple[str, ...] = ()
    supposed: Side | None = None


def plan_scopes_today(args: argparse.Namespace) -> list[Scope]:
    """Return the next cycle's plan for each requested scope, and the reasons that hold it."""
    causes: dict[str, tuple[str, ...]] = {}
    conf, policy_set, seen = _read(NOTHING, args, causes)
    there = seen.clusters()
    lost = [Scope(scope, None, (f'Nova has no aggregate {scope}: correct [engine] aggregates, or '
                                'create it',))
            for scope in seen.scopes if scope not in there and args.scope in (None, scope)]
    if args.scope in [scope.name for scope in lost]:
        return lost
    return lost + [dataclasses.replace(_plan_scope_today(conf, policy_set, seen, cluster),
                                       causes=causes.get(cluster.scope, ()))
                   for cluster in _cloud.list_clusters(seen, args.scope)]


def compare_plans(args: argparse.Namespace) -> list[Scope]:
    """Return each scope as it is beside its hypothetical state.

    Holds that end with time or by a command hold neither plan.
    """
    conf, policy_set, seen = _read(PROG, args)
    seen = seen.undecided()
    clusters = _cloud.list_clusters(seen, args.scope)
    other, other_set = seen, policy_set
    if args.policy is not None:
        conf.set_override('policies_file', args.policy, 'engine')
        other_set = policy_files.load(args.policy)
        other = _read_other_samples(args, conf, other_set, seen)
    named = {*args.drain, *args.remove_host, *(like for _, like in args.add_host)}
    for host in sorted(named - seen.cluster.hosts.keys()):
        raise _cloud.make_not_found_error('HOST', host, seen.cluster.hosts,
                                          'no such compute host')
    found = []
    for cluster in clusters:
        request = _cloud.request(conf, policy_set, seen, cluster)
        found.append(Scope(
            cluster.scope, _plan_side(conf, policy_set, _at_once(request)), _list_holds(request),
            supposed=_plan_supposed_side(args, conf, other_set, other, cluster.scope)))
    return found


def _read(prog: str, args: argparse.Namespace, causes: dict[str, tuple[str, ...]] | None = None
          ) -> tuple[Any, policy.PolicySet, _cloud.Seen]:
    """Read the configuration, the policies and the cloud.

    :param causes: filled with why moves are not made, by scope; left empty for a snapshot.
    """
    conf, policy_set = _cloud.read_configuration(
        prog, args.config_file, 'Plans, and does nothing.', live=not args.snapshot)

    def read_causes(store: Any, scopes: Sequence[str]) -> None:
        if causes is not None:
            causes.update(_liveness.list_causes(conf, store, scopes))

    return conf, policy_set, (_cloud.read_snapshot(conf, policy_set, args.snapshot) if args.snapshot
                              else _cloud.read_live_cloud(conf, policy_set, also=read_causes))


def _read_other_samples(args: argparse.Namespace, conf: Any, policy_set: policy.PolicySet,
                        seen: _cloud.Seen) -> _cloud.Seen:
    """Return the same cloud with the samples of other policies."""
    if args.snapshot:
        return _cloud.read_snapshot(conf, policy_set, args.snapshot)
    return dataclasses.replace(seen, samples=_cloud.read_samples(conf, policy_set))


def _plan_scope_today(conf: Any, policy_set: policy.PolicySet, seen: _cloud.Seen,
                      cluster: model.Cluster) -> Scope:
    """Plan the scope as the next cycle does, with all holds of an engine.

    Only the hold after an engine's own start is left out.
    """
    request = _cloud.request(conf, policy_set, seen, cluster)
    side = _plan_side(conf, policy_set, request)
    waits = _cloud.new_wish(seen, side.plan)
    if waits is not None:
        request = dataclasses.replace(request, history=dataclasses.replace(
            request.history, waiting=waits))
        side = _plan_side(conf, policy_set, request)
    return Scope(cluster.scope, side, _list_holds(request), cluster.scope in seen.waiting)


def _list_holds(request: planner.Request) -> tuple[str, ...]:
    found = (planner.scope_hold(planner.prepare_request(request)), planning_holds.imbalance_hold(
        request.cluster, request.scores, request.history, request.options))
    return tuple(text for text in found if text is not None)


def _at_once(request: planner.Request) -> planner.Request:
    """Return the request without the holds that end with time or by a command.

    A what-if does not ask about this moment.
    """
    return dataclasses.replace(request, history=dataclasses.replace(
        request.history, cooling={}, fresh={}, scope_cooling=0.0, paused=None, waiting=None))


def _plan_supposed_side(args: argparse.Namespace, conf: Any, policy_set: policy.PolicySet,
                        seen: _cloud.Seen, scope: str) -> Side | None:
    """Return the hypothetical side; None if the other policies do not plan the scope."""
    cluster = seen.clusters().get(scope)
    if cluster is None:
        return None
    request = _at_once(_cloud.request(conf, policy_set, seen, cluster))
    found = what_if.Supposed(cluster, request.scores)
    if args.multiplier is not None:
        found = found.loaded(args.multiplier)
    for count, like in args.add_host:
        found = found.with_hosts(like, count)
    options = request.options
    for host in args.drain:
        found = found.drained(host, args.reason)
    for host in args.remove_host:
        found = found.drained(host, what_if.REASON)
    if args.remove_host:
        # A host is taken away even if drains are switched off; other hosts are drained as
        # configured.
        options = dataclasses.replace(
            options, evacuate_disabled_hosts=True, max_drain_fraction=1.0,
            drain_reason_regex=what_if.build_reason_regex(options))
    drained: list[str] = []
    if cluster.scope_hosts.intersection((*args.drain, *args.remove_host)):
        drained = drain_requests.drained_hosts(found.cluster, options)
    moving = sum(i.host in drained for i in cluster.instances.values())
    request = dataclasses.replace(
        request, cluster=found.cluster, scores=found.scores, options=options)
    if not moving:
        return _plan_side(conf, policy_set, request)
    # Allow as many more moves as the drains take, and no more imbalance moves.
    whole = _plan_side(conf, policy_set, dataclasses.replace(
        request, budget=request.budget + 2 * moving))
    others = sum(m.phase not in metrics.IMBALANCE for m in whole.plan.moves)
    if len(whole.plan.moves) - others <= request.budget:
        return whole
    return _plan_side(conf, policy_set, dataclasses.replace(
        request, budget=request.budget + others))


def _plan_side(conf: Any, policy_set: policy.PolicySet, request: planner.Request) -> Side:
    """Plan and check the request as a cycle does.

    :raises PlanRefused: the checker found a broken rule.
    """
    end = time.monotonic() + conf.engine.planning_deadline
    plan = planner.plan(request, expired=lambda: time.monotonic() > end)
    planning_pipeline.check(plan, request)
    return Side(request.cluster, plan)
