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

"""The failover check: whether the instances of failed hosts would find places."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import heapq
import itertools
import math
import time

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import failure_domains
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import failover_guard
from kronos_nova.rebalancer.planning import planner

#: Searches for all instances together that an operator's check may make.
DEEP_SEARCHES = 200
#: Verdicts for which it seeks repairs: as many as the command's table details.
REPAIRS = 20
#: Seconds for which a check searches, unless a person gives a number.
MAX_SECONDS = 600.0


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeFailover:
    """The failover check of a scope.

    ``names``: the failure domain, by its hosts; empty where single hosts were asked for.
    ``possible``: the number of sets of hosts that may fail; more than the certificate has
    verdicts where they are too many to try all. ``uncovered``: hosts of the scope without a
    domain of the kind, sorted. ``problem``: why nothing could be tried.
    """

    scope: str
    certificate: failover.FailoverCertificate
    possible: int
    names: Mapping[failover.FailedHosts, str] = dataclasses.field(default_factory=dict)
    uncovered: tuple[str, ...] = ()
    problem: str | None = None

    def list_unsearched(self) -> list[failover.FailedHosts]:
        """List the sets of hosts that the check did not reach in its time."""
        return [hosts for hosts, verdict in self.certificate.verdicts.items()
                if not verdict.is_searched and verdict.fault is None]

    @property
    def state(self) -> failover.FailureState:
        """The worst state of a set of hosts; unknown where some were not tried, or none was."""
        states = {v.state for v in self.certificate.verdicts.values()}
        if failover.FailureState.UNSAFE in states:
            return failover.FailureState.UNSAFE
        if (not states or failover.FailureState.UNKNOWN in states
                or self.certificate.hold is not None or self.problem is not None or self.uncovered
                or self.possible > len(self.certificate.verdicts)):
            return failover.FailureState.UNKNOWN
        return failover.FailureState.SAFE


def check_failover(session: cloud_state.Session, *, count: int = 1, kind: str | None = None,
                   scope: str | None = None, max_seconds: float = MAX_SECONDS,
                   report_progress: Callable[[str, float], None] = lambda what, part: None,
                   clock: Callable[[], float] = time.monotonic) -> list[ScopeFailover]:
    """Check each scope, or the given one.

    :param count: number of hosts that fail together.
    :param kind: instead, the hosts of each failure domain of this kind fail together.
    :param max_seconds: the verdicts that are not searched within this time are unknown. It begins
        before the cloud is read. The checker's replay of found places comes after it.
    :param report_progress: called with a name of the work, and the share that is done, in [0, 1].
    :param clock: returns monotonic seconds.
    :raises KronosException: an input cannot be read, the scope is not planned, or no host has a
        domain of the kind.
    """
    ends_at = clock() + max_seconds
    cloud = session.cloud_for_requests
    clusters = cloud_lookups.list_clusters(cloud, scope)
    domains = {} if kind is None else map_domain_hosts(cloud.cluster, kind)

    def certify_in_time(cluster: model.Cluster,
                        failures: Collection[failover.FailedHosts]) -> failover.FailoverCertificate:
        return certify(
            session.build_request(cluster, cloud), failures, expired=lambda: clock() >= ends_at,
            report_progress=lambda done: report_progress(f'scope {cluster.scope}',
                                                         done / len(failures)))

    checks = []
    for cluster in clusters:
        if kind is None:
            possible = failover.count_failures(cluster, count)
            checks.append(ScopeFailover(
                cluster.scope, certify_in_time(cluster, list(_choose_failures(cluster, count))),
                possible, problem=_find_problem(cluster, count)))
            continue
        names: dict[failover.FailedHosts, str] = {}
        for name, hosts in sorted(domains.items()):
            if failed := tuple(sorted(cluster.scope_hosts & hosts)):
                names[failed] = f'{names[failed]}, {name}' if failed in names else name
        covered = frozenset[str]().union(*domains.values())
        checks.append(ScopeFailover(
            cluster.scope, certify_in_time(cluster, names), len(names), names,
            tuple(sorted(cluster.scope_hosts - covered)),
            None if names else f'no host of the scope has a failure domain of the kind {kind}'))
    return checks


def certify(request: planner.PlanningInput, failures: Iterable[failover.FailedHosts],
            repairs: int = REPAIRS, expired: Callable[[], bool] = lambda: False,
            report_progress: Callable[[int], None] = lambda done: None,
            ) -> failover.FailoverCertificate:
    """Certify the failures, and check the places: what the checker refuses is unknown.

    :param repairs: number of verdicts for which moves are sought that make them safe.
    :param expired: true ends the search: the verdicts on the other sets are unknown.
    :param report_progress: called with the number of sets that are done.
    """
    certificate = failover.certify_failures(
        request, failures, deep_searches=DEEP_SEARCHES, repairs=repairs, expired=expired,
        report_progress=report_progress)
    return failover_guard.set_faulty_verdicts_aside(certificate, request)


def _find_problem(cluster: model.Cluster, count: int) -> str | None:
    """Return why no set of so many hosts leaves a host; None where one does."""
    if count < len(cluster.scope_hosts):
        return None
    return (f'the scope has {plurals.count_noun(len(cluster.scope_hosts), "host")}: if {count} '
            f'fail, none is left')


def map_domain_hosts(cluster: model.Cluster, kind: str) -> Mapping[str, frozenset[str]]:
    """Return the hosts of each failure domain of a kind; a host in two domains is in both.

    :raises ConfigError: an aggregate's domains cannot be read, or none is of the kind.
    """
    domains = failure_domains.FailureDomains(cluster.aggregates, cluster.aggregate_metadata)
    if domains.problems:
        raise exception.ConfigError(
            path='Nova', field=f'metadata {model.DOMAIN_KEY} of aggregates',
            problem=domains.problems[0], remedy='Nothing was checked')
    hosts = domains.map_hosts(kind.lower())
    if not hosts:
        known = ', '.join(sorted(domains.kinds)) or 'none'
        raise exception.ConfigError(
            path='command line', field='--domain',
            problem=f'no aggregate names a failure domain of the kind {kind}',
            remedy=f'Set the metadata {model.DOMAIN_KEY} = {kind}:NAME of aggregates. Known kinds: '
                   f'{known}.')
    return hosts


def _choose_failures(cluster: model.Cluster, count: int) -> Iterable[failover.FailedHosts]:
    """Return all sets of ``count`` hosts; of too many, those of the hosts with most claims."""
    if failover.count_failures(cluster, count) <= failover.SETS:
        return failover.list_failures(cluster, count)
    claims: dict[str, int] = dict.fromkeys(cluster.scope_hosts, 0)
    for instance in cluster.instances.values():
        if instance.host in claims:
            claims[instance.host] += instance.claims.get('MEMORY_MB', 0)
    width = count
    while math.comb(width + 1, count) <= failover.SETS:
        width += 1
    largest = heapq.nlargest(width, sorted(claims), key=claims.__getitem__)
    return itertools.combinations(sorted(largest), count)
