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

"""The watch of a drain: look at a host until it is empty, and say why no move begins."""

from collections.abc import Callable
import dataclasses
import functools
import re
import time
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.clients import hidden_servers
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.text import drain_lines

#: Seconds without a successful look after which the command gives up.
PATIENCE = 300.0
#: Seconds between two looks meanwhile, at most.
BLIND_INTERVAL = 30.0
#: Reasons of the newest plan to print at once, at most.
REASONS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class WatchRow:
    """An instance that is or was on the host, with its newest task, if it has one."""

    instance_uuid: str
    to_host: str
    state: str
    seconds: float | None
    error: str


@dataclasses.dataclass(frozen=True, slots=True)
class DrainState:
    """The host at one time.

    ``remaining``: number of instances on the host. ``busy``: a task from or to it is not over.
    ``emptied``: an engine empties it, disabled or not. ``holds``: why no move begins now, else ''.
    ``deadline``: when the host is to be empty; None: at no time.
    """

    rows: list[WatchRow]
    remaining: int
    busy: bool = False
    enabled: bool = False
    emptied: bool = True
    holds: str = ''
    deadline: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class WatchTimes:
    """Times of a watch, in seconds.

    ``interval``: between two looks. ``timeout``: from the first look to the last. ``since``: tasks
    that ended at most so long before the first look are shown too.
    """

    interval: float = 10.0
    timeout: float = 86400.0
    since: float = 3600.0


def watch_drain(session: cloud_state.Session, host: str, tell: Callable[[list[WatchRow]], None],
                say: Callable[[str], None],
                times: WatchTimes = WatchTimes()) -> tuple[str | None, list[WatchRow]]:
    """Look until the host is empty or enabled, or the timeout is over.

    :param tell: receives the rows of each look.
    :param say: receives each message once: why no move begins, and that a look fails.
    :returns: why the host is not empty, None when it is; and the last look.
    :raises KronosException: Nova or the database cannot be read at first, or for too long.
    """
    scopes = planning_settings.list_planned_scopes(session.conf, session.policies)
    # Read once for all looks: a host keeps its hypervisor.
    store, connection = session.existing_store, session.connection
    hypervisors = functools.cache(nova_api.NovaApi(connection).read_hypervisors)
    return watch_until_end(host, times, functools.partial(
        read_host_progress, session.conf, scopes, store, connection, host, hypervisors=hypervisors),
                           tell, say)


def watch_until_end(host: str, times: WatchTimes, seen_since: Callable[[float], DrainState],
                    tell: Callable[[list[WatchRow]], None], say: Callable[[str], None],
                    wait: Callable[[float], None] = time.sleep,
                    clock: Callable[[], float] = time.time) -> tuple[str | None, list[WatchRow]]:
    """Look until the end, as :func:`watch_drain`, with the given functions.

    :param seen_since: takes a look; tasks that ended before the given time are left out.
    """
    begun = clock()
    last: DrainState | None = None
    disabled, holds, due = False, '', ''
    blind: float | None = None  # time of the first failed look
    while True:
        try:
            now = seen_since(begun - times.since)
        except (api.ApiError, exception.StoreError) as e:
            if last is None:
                raise _make_host_error(host, str(e)) from None
            if blind is None:
                blind = clock()
                say(f'Cannot look: {str(e).rstrip(".")}. It is tried again for {PATIENCE:.0f} s.')
            elif clock() - blind >= PATIENCE:
                raise _make_host_error(host,
                                       f'no look has succeeded for {clock() - blind:.0f} s: '
                                         f'{e}') from None
        else:
            if blind is not None:
                say('It can be looked at again.')
            blind, last = None, now
            tell(now.rows)
            if not now.remaining and not now.busy:
                return None, now.rows
            disabled |= not now.enabled
            if now.enabled and (disabled or not now.emptied):
                return _format_end_reason(now, disabled), now.rows
            told, due = due, drain_lines.format_deadline_state(now.deadline, clock())
            if due not in ('', told):
                say(due)
            if now.holds != holds:
                holds = now.holds
                say(f'Nothing begins now: {holds}' if holds else 'Nothing holds it any longer.')
        if clock() - begun >= times.timeout:
            return 'is not empty yet.', last.rows
        pause = times.interval if blind is None else min(times.interval, BLIND_INTERVAL)
        wait(min(pause, max(0.1, begun + times.timeout - clock())))


def _format_end_reason(now: DrainState, disabled: bool) -> str:
    remaining = plurals.count_with_verb(now.remaining, 'instance')
    if disabled:
        return f'is enabled again: the drain is over, {remaining} left.'
    return (f'is enabled, and no engine empties it: {remaining} on it. kronos drain start disables '
            'it.')


def _make_host_error(host: str, problem: str) -> exception.ConfigError:
    return exception.ConfigError(path='command line', field=host, problem=problem.rstrip('.'),
                                 remedy='See kronos-test-config.')


def read_host_progress(conf: Any, scopes: list[str], store: store_api.Store, connection: Any,
                       host: str,
                       since: float, *,
                       hypervisors: Callable[[], list[nova_api.Hypervisor]]) -> DrainState:
    """Read the host, its tasks, and the reasons why no move begins.

    The services are read before and after the servers: Nova leaves out the servers of a cell that
    is down, and only the list of services shows that. An empty host is empty in Placement, too.

    :param scopes: the scopes that the configuration plans.
    :param since: tasks that ended before are left out.
    :param hypervisors: reads the hypervisors of all hosts.
    :raises ApiError: Nova cannot be read.
    :raises StoreError: the database cannot be read.
    :raises ConfigError: the host does not exist.
    """
    nova = nova_api.NovaApi(connection)
    _require_service(nova.read_services(), host)
    here = compute_service.ComputeService(connection, host).list_left_servers()
    if not here:
        hidden_servers.refuse_hidden_servers(
            nova, placement_api.PlacementApi(connection), host,
            [hypervisor.uuid for hypervisor in hypervisors() if hypervisor.host == host])
    services = nova.read_services()
    service = _require_service(services, host)
    # Nova-compute takes part until the last task from or to the host is over.
    busy = any(host in (f.from_host, f.to_host, *f.alternates)
               for f in store.tasks.list_in_flight_moves())
    cluster = _find_host_cluster(conf, scopes, store, nova, services, host, hypervisors)
    holds = _list_holds(conf, store, host, cluster)
    if not holds and not busy and here and cluster is not None:
        holds = _planned_reasons(store, cluster.scope, host, here, since)
    tasks = store.tasks.list_tasks_from_host(host, store.tasks.find_drain_begin(host, since))
    return DrainState(_build_rows(here, tasks), len(here), busy, service.enabled,
                      host in store.plans.list_draining_hosts(), '; '.join(holds),
                      model.find_drain_deadline(store.drain_orders.map_deadlines(store.now()),
                                                service))


def _require_service(services: dict[str, model.Service], host: str) -> model.Service:
    if host in services:
        return services[host]
    raise cloud_lookups.make_not_found_error('HOST', host, services, 'no such compute host')


def _find_host_cluster(conf: Any, scopes: list[str], store: store_api.Store, nova: nova_api.NovaApi,
                       services: dict[str, model.Service], host: str,
                       hypervisors: Callable[[],
                                             list[nova_api.Hypervisor]]) -> model.Cluster | None:
    """Return the host's scope, with services alone; None if no engine plans the host.

    Of several aggregates it is the first one that is planned, as for an engine.
    """
    aggregates = {name: tuple(aggregate.hosts)
                  for name, aggregate in nova.read_aggregates().items()}
    of = {name for name, hosts in aggregates.items() if host in hosts}
    planned = {*scopes, *store.leases.list_leased_scopes()}
    named = [name for name in conf.engine.aggregates if name in planned and name in aggregates]
    scope = next((name for name in named if name in of), model.UNASSIGNED)
    if scope == model.UNASSIGNED and (of or scope not in planned):
        return None
    # Engines plan no host of another hypervisor type, and do not count it as disabled.
    nodes, _notes = collector.choose_hypervisors(hypervisors(), conf.engine.hypervisor_types,
                                                 services)
    return model.Cluster({name: model.Host(name) for name in nodes}, {}, services,
                         aggregates=aggregates,
                         planned_zone=engine_conf.planned_zone(conf)).replace_scope(scope, named)


def _list_holds(conf: Any, store: store_api.Store, host: str,
                cluster: model.Cluster | None) -> list[str]:
    """Return why engines begin no move from the host."""
    if cluster is None:
        return [f'host {host} belongs to no scope that is planned: name one of its aggregates '
                'in [engine] aggregates, or set include_unassigned_hosts']
    scope, service = cluster.scope, cluster.services[host]
    now, options = store.now(), engine_conf.build_options(conf)
    refusal = None
    if not service.enabled:
        refusal = (drain_requests.find_drain_refusal(service, options)
                   if options.evacuate_disabled_hosts
                   else 'evacuate_disabled_hosts is not set')
    reasons = [refusal and f'engines do not drain it: {refusal}',
               store.pauses.find_pause(scope, now), engine_conf.find_freeze_reason(conf, now),
               *_list_holding_plans(store, scope, now),
               planning_holds.find_outage_reason(cluster, options),
               _find_engine_hold(store, scope, options)]
    return [str(why) for why in reasons if why is not None]


def _list_holding_plans(store: store_api.Store, scope: str,
                        now: float) -> list[plan_approvals.WaitingPlan]:
    """Return the plans of the scope that wait for approval, if the next cycle leaves them."""
    pending = store.tasks.list_tasks_in_states((model.TaskState.PENDING,), [scope])
    if drain_precedence.list_yielding_tasks(row.task for row in pending):
        return []
    return store.approvals.list_waiting_plans(now, scope)


def _planned_reasons(store: store_api.Store, scope: str, host: str, here: list[str],
                     since: float) -> list[str]:
    """Return why the scope's last cycle left the host's instances where they are.

    :param since: reasons of earlier cycles are left out; they do not concern this drain.
    """
    plans, scope_stats = (store.plans.list_plans(1, scope),
                          store.statistics.read_census().scopes.get(scope))
    names = {host, *here}
    reasons = [rejection.detail for row in plans
               for rejection in (*row.plan.undrained, *row.plan.held) if row.created_at >= since
               and not names.isdisjoint(re.findall(r'[^\s,:;()]+', rejection.detail))]
    if reasons:
        return list(dict.fromkeys(reasons))[:REASONS]
    last = None if scope_stats is None else scope_stats.cycle
    if last is None or last.at is None or last.at < since or last.moves or not last.reason:
        return []
    return [last.reason]


def _find_engine_hold(store: store_api.Store, scope: str,
                      options: model.PlanningOptions) -> str | None:
    """Return why no engine acts on the scope, or None. A dry run takes no lease."""
    if options.dry_run:
        return '[engine] dry_run is set, and then nothing is moved'
    if scope in store.leases.list_leased_scopes():
        return None
    return f'no engine plans scope {scope}: is kronos-engine running?'


def _build_rows(here: list[str], tasks: list[store_rows.TaskRow]) -> list[WatchRow]:
    newest: dict[str, store_rows.TaskRow] = {}
    for row in tasks:  # oldest first
        newest[row.task.instance_uuid] = row
    watch_rows = []
    for uuid in sorted({*here, *newest}):
        if uuid not in newest:
            watch_rows.append(WatchRow(uuid, '', 'waits', None, ''))
            continue
        row = newest[uuid]
        ended = None if row.completed_at is None or row.submitted_at is None else (
            row.completed_at - row.submitted_at)
        watch_rows.append(WatchRow(uuid, row.task.to_host, str(row.task.state), ended,
                                   row.error or ''))
    return watch_rows
