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

"""What ``kronos what-if`` and ``kronos why-nothing`` read and plan."""

import argparse
import dataclasses
import time
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.cli import _cloud
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer import cycle
from kronos_nova.rebalancer import gates
from kronos_nova.rebalancer import planner
from kronos_nova.rebalancer import supposing

PROG = 'kronos what-if'
NOTHING = 'kronos why-nothing'


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """A scope as it is, or as it would be, and the plan of its next cycle."""

    cluster: model.Cluster
    plan: model.Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """``holds``: why nothing, or nothing for balance's sake, is moved as it is."""

    name: str
    today: Side
    holds: tuple[str, ...] = ()
    supposed: Side | None = None


def today(args: argparse.Namespace) -> list[Scope]:
    """What the next cycle would do in each scope that is asked for, and what holds it."""
    conf, policy_set, seen = _read(NOTHING, args)
    return [_today(conf, policy_set, seen, cluster) for cluster in _clusters(args, seen)]


def compared(args: argparse.Namespace) -> list[Scope]:
    """Each scope as it is beside what it would be."""
    conf, policy_set, seen = _read(PROG, args)
    clusters = _clusters(args, seen)
    other, other_set = seen, policy_set
    if args.policy is not None:
        conf.set_override('policies_file', args.policy, 'engine')
        other_set = policy_files.load(args.policy)
        other = _again(args, conf, other_set, seen)
    named = {*args.drain, *args.remove_host, *(like for _, like in args.add_host)}
    for host in sorted(named - seen.cluster.hosts.keys()):
        raise _cloud.absent('HOST', host, seen.cluster.hosts, 'there is no such compute host')
    return [dataclasses.replace(
        _today(conf, policy_set, seen, cluster),
        supposed=_supposed(args, conf, other_set, other, cluster)) for cluster in clusters]


def _read(prog: str, args: argparse.Namespace) -> tuple[Any, policy.PolicySet, _cloud.Seen]:
    conf, policy_set = _cloud.configuration(
        prog, args.config_file, 'Plans, and does nothing.', live=not args.snapshot)
    return conf, policy_set, (_cloud.recorded(conf, policy_set, args.snapshot) if args.snapshot
                              else _cloud.live(conf, policy_set))


def _again(args: argparse.Namespace, conf: Any, policy_set: policy.PolicySet,
           seen: _cloud.Seen) -> _cloud.Seen:
    """The same cloud by other policies."""
    if args.snapshot:
        return _cloud.recorded(conf, policy_set, args.snapshot)
    return dataclasses.replace(seen, samples=_cloud.samples(conf, policy_set))


def _clusters(args: argparse.Namespace, seen: _cloud.Seen) -> list[model.Cluster]:
    clusters = seen.clusters()
    if args.scope is None:
        return list(clusters.values())
    if args.scope not in clusters:
        raise exception.ConfigError(
            path='command line', field='--scope', problem=f'{args.scope} is not planned',
            remedy=f'Planned are: {", ".join(sorted(clusters))}.')
    return [clusters[args.scope]]


def _today(conf: Any, policy_set: policy.PolicySet, seen: _cloud.Seen,
           cluster: model.Cluster) -> Scope:
    request = _cloud.request(conf, policy_set, seen, cluster)
    begun = planner.begun(request)
    holds = (planner.scope_hold(begun), gates.imbalance_hold(
        cluster, request.scores, request.history, request.options))
    return Scope(cluster.scope, _side(conf, policy_set, request),
                 tuple(text for text in holds if text is not None))


def _supposed(args: argparse.Namespace, conf: Any, policy_set: policy.PolicySet,
              seen: _cloud.Seen, cluster: model.Cluster) -> Side:
    request = _cloud.request(conf, policy_set, seen, cluster)
    found = supposing.Supposed(cluster, request.scores)
    if args.multiplier is not None:
        found = found.loaded(args.multiplier)
    for count, like in args.add_host:
        found = found.with_hosts(like, count)
    options = request.options
    for host in (*args.drain, *args.remove_host):
        found = found.drained(host)
    if args.remove_host:
        # Whoever takes a host away does not ask whether drains are switched on.
        options = dataclasses.replace(
            options, evacuate_disabled_hosts=True, drain_reason_regex='', max_drain_fraction=1.0)
    leaving = cluster.scope_hosts.intersection((*args.drain, *args.remove_host))
    moving = sum(i.host in leaving for i in cluster.instances.values())
    return _side(conf, policy_set, dataclasses.replace(
        request, cluster=found.cluster, scores=found.scores, options=options,
        budget=max(request.budget, moving), history=dataclasses.replace(
            request.history, scope_cooling=0.0, waiting=None)))


def _side(conf: Any, policy_set: policy.PolicySet, request: planner.Request) -> Side:
    """Planned and checked as a cycle does it.

    :raises PlanRefused: the checker found a rule broken.
    """
    end = time.monotonic() + conf.engine.planning_deadline
    plan = planner.plan(request, expired=lambda: time.monotonic() > end)
    cycle.check(plan, request)
    return Side(request.cluster, plan)
