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

"""Campaigns: the hosts of an aggregate, or of a list, are emptied one batch after the other."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import difflib
import time
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.conf import freeze
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import campaign_calendars
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds

#: Most hosts that are emptied at a time, unless a person gives a number.
TOGETHER = 8
#: Seconds for which a forecast looks for steps, unless a person gives a number.
MAX_SECONDS = 600.0
#: Names of hosts that an error has at most.
NAMED = 5


def plan_campaign(session: cloud_state.Session, hosts: Collection[str] = (),
                  aggregate: str | None = None, together: int | None = None,
                  report_progress: Callable[[str, float], None] = lambda what, part: None, *,
                  windows: Sequence[str] = (), begin: float | None = None,
                  work_seconds: float = 0.0, max_seconds: float = MAX_SECONDS,
                  clock: Callable[[], float] = time.monotonic,
                  repeats_expired: Callable[[], bool] = lambda: False,
                  ) -> campaign_forecasts.CampaignForecast:
    """Forecast a campaign over hosts, an aggregate, or both; nothing is changed.

    :param aggregate: all its compute hosts take part.
    :param together: most hosts that are emptied at a time; None: as many as engines drain at a
        time (``max_drain_fraction``), and TOGETHER at most.
    :param report_progress: called with a name of the work, and the share that is done, in [0, 1].
    :param windows: when hosts may begin, and the work.
    :param begin: when the campaign is started, in seconds since the epoch; None: when the cloud
        was read.
    :param work_seconds: for so long the work takes at the hosts of a step.
    :param max_seconds: for so long the forecast looks for steps; it says nothing of the hosts that
        are then left.
    :param clock: returns monotonic seconds.
    :param repeats_expired: true ends the forecasts with smaller batches before max_seconds does.
    :raises KronosException: an input cannot be read, or the hosts are not those of one scope.
    """
    ends_at = clock() + max_seconds
    calendar = build_calendar(session.conf, windows, work_seconds)
    cloud = session.cloud_for_requests
    names, cluster = find_hosts(cloud, hosts, aggregate)
    request = session.build_request(cluster, cloud)
    most = count_drainable(cluster, request.options, names)
    if together is not None and not 1 <= together <= most:
        raise exception.ConfigError(
            path='command line', field='--together', problem=f'engines drain 1 to {most} of the '
            f'{plurals.count_noun(len(cluster.scope_hosts), "host")} of scope {cluster.scope} at '
            'a time ([engine] max_drain_fraction)', remedy='Give a number in this range')

    def estimate(plan: model.Plan, planned: planner.PlanningInput) -> float | None:
        found = drain_checks.estimate_plan(session.conf, plan, planned)
        return None if found is None else found.seconds

    forecast = campaign_forecasts.forecast_campaign(
        request, names, together or min(most, TOGETHER), estimate=estimate,
        report_progress=lambda done: report_progress('hosts', done / len(names)),
        expired=lambda: clock() >= ends_at,
        repeat_expired=lambda: repeats_expired() or clock() >= ends_at)
    waiting = None if cloud.yielding.get(cluster.scope) else cloud.waiting.get(cluster.scope)
    return dataclasses.replace(forecast, obstacles=(
        *forecast.obstacles, *list_obstacles(request, forecast, waiting)),
        schedule=campaign_calendars.schedule_steps(
            [step.seconds for step in forecast.steps], calendar,
            request.now if begin is None else begin))


def build_calendar(conf: Any, windows: Sequence[str],
                   work_seconds: float = 0.0) -> campaign_calendars.CampaignCalendar:
    """Return when engines, as configured, would carry a campaign on; parameters as above.

    :raises ConfigError: a window cannot be read.
    """
    zone, frozen = conf.engine.freeze_timezone, conf.engine.freeze_windows or ()
    return campaign_calendars.CampaignCalendar(
        parse_windows(windows), zone, lambda at: freeze.find_freeze_end(frozen, zone, at),
        lambda at: freeze.find_next_freeze(frozen, zone, at),
        float(conf.engine.evaluation_interval), work_seconds)


def parse_windows(texts: Sequence[str]) -> tuple[maintenance_windows.MaintenanceWindow, ...]:
    """Read the windows of a request.

    :raises ConfigError: one cannot be read, or there are too many.
    """
    windows = []
    for text in texts:
        try:
            windows.append(maintenance_windows.parse_window(text))
        except ValueError as e:
            raise exception.ConfigError(
                path='command line', field='--window', problem=f'{text!r}: {e}',
                remedy='Correct it, or leave it out: then a host may begin at any time') from None
    if len(windows) > maintenance_windows.MOST:
        raise exception.ConfigError(
            path='command line', field='--window',
            problem=f'a campaign has {maintenance_windows.MOST} windows at most',
            remedy='Give fewer')
    return tuple(windows)


def find_hosts(cloud: cloud_state.CloudState, hosts: Collection[str],
               aggregate: str | None) -> tuple[Sequence[str], model.Cluster]:
    """Return the hosts of a campaign in order of their names, and the cluster of their scope.

    :raises ConfigError: a host does not exist, no host is named, or they are not those of one
        scope, or of one cell.
    """
    names = _list_hosts(cloud, hosts, aggregate)
    cluster = _find_cluster(cloud, names)
    _refuse_several_cells(cluster, names)
    return names, cluster


def count_drainable(cluster: model.Cluster, options: model.PlanningOptions,
                    hosts: Collection[str]) -> int:
    """Return how many of the hosts engines drain at a time (``max_drain_fraction``)."""
    return max(1, planning_holds.count_drainable_hosts(cluster, options, hosts))


def list_obstacles(request: planner.PlanningInput, forecast: campaign_forecasts.CampaignForecast,
                   waiting: str | None) -> tuple[str, ...]:
    """List why engines, as configured, would not carry the forecast out, or not now.

    :param waiting: the plan that waits for approval and gives way to no drain; None: no plan.
    """
    obstacles = [] if waiting is None else [waiting]
    largest = max(forecast.steps, key=lambda step: len(step.hosts), default=None)
    return (*drains.list_obstacles(request, largest.hosts if largest else ()), *obstacles)


def _list_hosts(cloud: cloud_state.CloudState, hosts: Collection[str],
                aggregate: str | None) -> Sequence[str]:
    """Return the hosts of the campaign in order of their names.

    :raises ConfigError: a host does not exist, or the campaign has no host.
    """
    names = set(hosts)
    for host in sorted(names):
        cloud_lookups.check_host_exists(cloud, host)
    if aggregate is not None:
        if aggregate not in cloud.cluster.aggregates:
            near = difflib.get_close_matches(aggregate, list(cloud.cluster.aggregates), 1, 0.8)
            raise exception.ConfigError(
                path='command line', field='--aggregate',
                problem=f'{aggregate}: no such aggregate',
                remedy=f'Is {near[0]} meant?' if near else
                'openstack aggregate list has the names of all aggregates.')
        names.update(cloud.cluster.aggregates[aggregate])
    for host in sorted(names):
        if host not in cloud.cluster.hosts or host not in cloud.cluster.services:
            raise exception.ConfigError(
                path='command line', field='HOST',
                problem=f'{host}: Nova shows no compute node, or no nova-compute',
                remedy='Name the other hosts, without the aggregate')
    if not names:
        raise exception.ConfigError(
            path='command line', field='HOST', problem='no compute host is named',
            remedy='Name hosts, or an --aggregate with hosts.')
    return sorted(names)


def _refuse_several_cells(cluster: model.Cluster, hosts: Sequence[str]) -> None:
    """Check that the hosts belong to one cell, as far as aggregates name their cells.

    :raises ConfigError: they belong to several: no instance moves from one to another.
    """
    first: dict[str, str] = {}
    for host in hosts:
        cell = cluster.hosts[host].cell
        if cell is not None:
            first.setdefault(cell, host)
    if len(first) > 1:
        raise exception.ConfigError(
            path='command line', field='HOST',
            problem='the hosts belong to several cells: ' + ', '.join(
                f'{host} to {cell}' for cell, host in sorted(first.items())[:NAMED]),
            remedy='Plan a campaign for the hosts of each cell: no instance moves between cells')


def _find_cluster(cloud: cloud_state.CloudState, hosts: Sequence[str]) -> model.Cluster:
    """Return the cluster of the scope that plans all hosts.

    :raises ConfigError: a host belongs to no scope that is planned, or hosts belong to two.
    """
    clusters = cloud.map_clusters()
    first = drain_checks.find_host_cluster(cloud, hosts[0])
    elsewhere = [host for host in hosts if host not in first.scope_hosts]
    if not elsewhere:
        return first
    scopes = sorted({scope for scope, cluster in clusters.items()
                     if cluster.scope_hosts.intersection(elsewhere)})
    more = len(elsewhere) - NAMED
    raise exception.ConfigError(
        path='command line', field='HOST',
        problem=f'host {hosts[0]} belongs to scope {first.scope}, and '
                + ', '.join(elsewhere[:NAMED])
                + (f' and {plurals.count_noun(more, "more host")}' if more > 0 else '')
                + (f' to {", ".join(scopes)}' if scopes else ' to no scope that is planned'),
        remedy='Plan a campaign for the hosts of each scope: instances stay within theirs')
