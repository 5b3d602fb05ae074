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

"""Forecasts of campaigns: hosts that are emptied one batch after the other. Pure.

A host that is done is enabled and empty when the next batch begins, so the instances of one batch
go where the batch before left room. An instance that lands on a host that is still to come moves
again; that happens only when none of the first :data:`TRIED` hosts can be emptied otherwise.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import campaign_calendars
from kronos_nova.rebalancer.operations import supposed_clouds
from kronos_nova.rebalancer.planning import planner

#: Hosts that are tried for a step before its destinations may be hosts that are still to come.
TRIED = 16
#: Steps that pass over a host before it is the last choice: hosts that are done may give it room.
TRIES = 3

#: Returns the seconds that a plan of the request takes; None: no migration was measured.
Estimate = Callable[[model.Plan, planner.PlanningInput], float | None]
#: Returns whether the time of a search is over.
IsOver = Callable[[], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignStep:
    """Hosts that are emptied together.

    ``again``: instances that land on a host that is still to come. ``seconds``: the expected time
    until the hosts are empty; None: not known.
    """

    hosts: tuple[str, ...]
    moves: tuple[model.Move, ...]
    again: int = 0
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignForecast:
    """The steps of a campaign in order.

    ``staying``: hosts that do not become empty, with the instances that stay on each, or of which
    that is not known.
    ``unforecast``: hosts of which the forecast says nothing, because its time was over.
    ``instances``: how many the other hosts have before the campaign. ``together``: most hosts that
    are emptied at a time; 0: nothing was forecast. ``together_reason``: why that is not the number
    that was asked for, or why a smaller one was not tried to the end. ``obstacles``: why engines
    would not carry it out, or not now. ``schedule``: the times of the first steps, of all if they
    are known.
    """

    steps: tuple[CampaignStep, ...]
    staying: Mapping[str, tuple[blocked_instances.BlockedInstance, ...]]
    instances: int
    together: int = 0
    together_reason: str = ''
    obstacles: tuple[str, ...] = ()
    unforecast: tuple[str, ...] = ()
    schedule: tuple[campaign_calendars.ScheduledStep, ...] = ()

    @property
    def migrations(self) -> int:
        return sum(len(step.moves) for step in self.steps)

    @property
    def stuck(self) -> Mapping[str, tuple[blocked_instances.BlockedInstance, ...]]:
        """Hosts with instances that stay, also later, and these instances."""
        return self._select_staying(lambda b: not (b.later or b.is_cut_off))

    @property
    def unjudged(self) -> Mapping[str, tuple[blocked_instances.BlockedInstance, ...]]:
        """Hosts with instances of which planning was cut off, and these instances."""
        return self._select_staying(lambda b: b.is_cut_off)

    def _select_staying(self, is_meant: Callable[[blocked_instances.BlockedInstance], bool],
                        ) -> dict[str, tuple[blocked_instances.BlockedInstance, ...]]:
        chosen = {host: tuple(filter(is_meant, blocked)) for host, blocked in self.staying.items()}
        return {host: blocked for host, blocked in chosen.items() if blocked}

    @property
    def seconds(self) -> float | None:
        """The sum of all steps; None: one is not known."""
        known = [step.seconds for step in self.steps if step.seconds is not None]
        return sum(known) if len(known) == len(self.steps) else None


def forecast_campaign(request: planner.PlanningInput, hosts: Collection[str], together: int, *,
                      estimate: Estimate = lambda plan, request: None,
                      report_progress: Callable[[int], None] = lambda done: None,
                      expired: IsOver = lambda: False,
                      repeat_expired: IsOver | None = None) -> CampaignForecast:
    """Forecast the campaign: which hosts are emptied together, and where their instances go.

    Batches leave room in smaller pieces than single hosts do. So where hosts stay that no other
    limit keeps, the campaign is forecast again with half as many hosts at a time, and so on; the
    forecast in which the fewest hosts stay is returned, with as many at a time as leave no more.

    :param request: for the scope of the hosts, with ``evacuate`` among its strategies.
    :param together: most hosts that are emptied at a time.
    :param report_progress: called with the number of hosts that the first forecast has judged; an
        error that it raises ends the forecast.
    :param expired: true ends the first forecast, at most one plan for one host later. No host is
        called staying by a search that was cut off.
    :param repeat_expired: true ends the forecasts with smaller batches at once: the best one before
        counts. None: see ``expired``.
    :raises PlanRefused: the checker found a rule broken.
    """
    cloud = supposed_clouds.SupposedCloud(request)
    hold = planner.scope_hold(planner.prepare_planning_input(cloud.build_request((), ())))
    if hold is not None:
        return CampaignForecast((), {}, 0, obstacles=(hold,))
    first = best = _forecast_steps(cloud, request, hosts, _Search(
        together, estimate, expired, report_progress))
    is_over, cut_off = repeat_expired or expired, 0
    while together > 1 and _may_leave_fewer(cloud, best):
        together //= 2
        repeat = _forecast_steps(cloud, request, hosts, _Search(
            together, estimate, is_over, most_staying=len(best.staying) - 1))
        if not repeat.unforecast:
            best = repeat
        elif is_over():
            cut_off = together
            break
    return dataclasses.replace(
        best, together_reason=_explain_together(first, best, cut_off), obstacles=tuple(
            f'host {host} is empty, but its nova-compute is down'
            for host, blocked in best.staying.items() if not blocked))


def _explain_together(first: CampaignForecast, best: CampaignForecast, cut_off: int) -> str:
    """Return the reason of the number of hosts at a time; empty: it is as asked for.

    :param cut_off: the smaller number whose forecast had no time; 0: each had its time.
    """
    reasons = []
    if best is not first:
        more = len(first.staying) - len(best.staying)
        what = ('would keep instances, or have no plan that was made to the end,'
                if first.unjudged else 'would keep instances')
        reasons.append(f'{best.together} at a time and not {first.together}, because '
                       f'{plurals.count_noun(more, "more host")} {what} with {first.together}')
    if cut_off:
        reasons.append(f'the time was over before the forecast with {cut_off} at a time ended, '
                       'which may leave fewer hosts with instances')
    return '; '.join(reasons)


def _may_leave_fewer(cloud: supposed_clouds.SupposedCloud, forecast: CampaignForecast) -> bool:
    """Return whether smaller batches could empty more hosts."""
    return not forecast.unforecast and any(
        len(step.hosts) > 1 for step in forecast.steps) and bool(
        forecast.staying.keys() - cloud.list_held_hosts(forecast.staying))


@dataclasses.dataclass(frozen=True, slots=True)
class _Search:
    """One forecast: most hosts at a time, and its limits.

    ``most_staying``: a repeat in which more hosts stay explains none; None: it is no repeat.
    """

    together: int
    estimate: Estimate
    is_over: IsOver
    report_progress: Callable[[int], None] = lambda done: None
    most_staying: int | None = None


def _forecast_steps(cloud: supposed_clouds.SupposedCloud, request: planner.PlanningInput,
                    hosts: Collection[str], search: _Search) -> CampaignForecast:
    """Forecast the campaign with so many hosts at a time; see :func:`forecast_campaign`.

    :param cloud: that of the request; it stays as it is.
    """
    steps = list[CampaignStep]()
    counts = dict.fromkeys(hosts, 0)
    for instance in request.cluster.instances.values():
        if instance.host in counts:
            counts[instance.host] += 1
    # The largest first: each leaves room for the next, which is no larger. Among hosts of one
    # size the emptiest first: while all hosts are full, its instances move twice.
    to_come = sorted(counts, key=lambda host: (
        -_classify_size(request.cluster.hosts[host]), counts[host], host))
    tries, size = dict.fromkeys(counts, 0), search.together
    # No other host's end lets these instances go.
    aside = cloud.list_held_hosts(to_come)
    while True:
        search.report_progress(len(counts) - len(to_come))
        to_come.sort(key=lambda host: tries[host] >= TRIES)
        found = None if search.is_over() else find_step(
            cloud, [host for host in to_come if host not in aside], to_come, size, search.is_over,
            finishes_one=search.most_staying is None)
        if found is None:
            break
        cloud, hosts_done, plans = found
        cloud.enable_hosts(hosts_done)
        for host in to_come[:to_come.index(hosts_done[0])]:
            tries[host] += 1
        to_come = [host for host in to_come if host not in hosts_done]
        # A tight cloud would pay for the search of a large batch in each step.
        size = min(search.together, 2 * len(hosts_done))
        moves = [move for plan, _request in plans for move in plan.moves]
        seconds = [search.estimate(plan, planned) for plan, planned in plans]
        steps.append(CampaignStep(
            hosts_done, tuple(moves), sum(move.to_host in to_come for move in moves),
            None if None in seconds else sum(filter(None, seconds), 0.0)))
    is_worse = search.most_staying is not None and len(to_come) > search.most_staying
    staying = {} if is_worse else _explain_hosts(cloud, to_come, len(counts), search)
    return CampaignForecast(
        tuple(steps), staying, sum(counts[host] for step in steps for host in step.hosts),
        search.together, unforecast=tuple(host for host in to_come if host not in staying))


def _explain_hosts(cloud: supposed_clouds.SupposedCloud, hosts: Collection[str], count: int,
                   search: _Search) -> dict[str, tuple[blocked_instances.BlockedInstance, ...]]:
    """Return the instances that stay on each of the hosts that keep some.

    Hosts are left out once the time is over: a search that it cuts off judges no host.

    :param count: the number of all hosts of the campaign.
    """
    staying = dict[str, tuple[blocked_instances.BlockedInstance, ...]]()
    for number, host in enumerate(hosts, count - len(hosts) + 1):
        blocked = () if search.is_over() else cloud.explain_host(host, search.is_over)
        if search.is_over():
            break
        staying[host] = blocked
        search.report_progress(number)
    return staying


def _classify_size(host: model.Host) -> int:
    """Return the size class of a host by its memory; the next class has a tenth more."""
    inventory = host.provider and host.provider.inventories.get('MEMORY_MB')
    return round(math.log(max(1.0, inventory.capacity), 1.1)) if inventory else 0


def find_step(cloud: supposed_clouds.SupposedCloud, candidates: Sequence[str],
              to_come: Sequence[str], together: int,
              is_over: IsOver = lambda: False,
              *, finishes_one: bool = True) -> supposed_clouds.FoundStep | None:
    """Find the hosts that are emptied next; return None if no host can be.

    Several hosts at a time while the first ones can be emptied together; nothing moves onto
    hosts that are still to come. Else one host: without moves of other instances, then with such
    moves that make room, and last with moves onto hosts that are still to come.

    :param candidates: those of the hosts that are to come that may be next, in order.
    :param is_over: true ends the search.
    :param finishes_one: one try of the first host goes on nevertheless.
    """
    stranded = {} if together == 1 else cloud.list_stranded(
        candidates[:max(TRIED, together)], to_come)
    first = [host for host, uuids in stranded.items() if not uuids][:together]
    first = first[:cloud.count_fitting_hosts(first, to_come)]
    while len(first) > 1 and not is_over():
        found = supposed_clouds.empty_hosts(cloud, first, to_come, is_over, helpers=())
        if found is not None and len(found[1]) == len(first):
            return found
        # Hosts that could be emptied beside the others; without any, the first half.
        first = list(found[1]) if found is not None else first[:len(first) // 2]
    tries = 0
    for host, closed, helpers in _list_tries(cloud, [*first, *candidates], to_come):
        finishes = finishes_one and not tries
        if not finishes and is_over():
            return None
        found = supposed_clouds.empty_hosts(
            cloud, [host], closed, _is_never_over if finishes else is_over, helpers)
        if found is not None:
            return found
        tries += 1
    return None


def _is_never_over() -> bool:
    return False


def _list_tries(cloud: supposed_clouds.SupposedCloud, hosts: Sequence[str],
                to_come: Collection[str],
                ) -> Iterator[tuple[str, Collection[str], Collection[str] | None]]:
    """Yield the tries of single hosts: the host, ``closed`` and ``helpers`` of empty_hosts.

    Among the next :data:`TRIED` hosts those come first where each instance has a destination now.
    Others follow where each has one once another instance has made room, those with the fewest
    such instances first. In the end all instances of the cloud may move for any host.
    """
    every = list(dict.fromkeys(hosts))
    for closed, tried in ((to_come, every[:TRIED]), ((), every)):
        for number in range(0, len(tried), TRIED):
            stranded = cloud.list_stranded(tried[number:number + TRIED], closed)
            yield from ((host, closed, ()) for host, uuids in stranded.items() if not uuids)
            makers = cloud.list_room_makers({u for uuids in stranded.values() for u in uuids},
                                            closed)
            for host in sorted(stranded, key=lambda host: len(stranded[host])):
                helpers = {maker for uuid in stranded[host] for maker in makers[uuid]}
                if all(makers[uuid] for uuid in stranded[host]):
                    yield host, closed, helpers
    yield from ((host, (), None) for host in every)
