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

"""Review of a journey for an operator. Each time of the window stands for one step."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from kronos_nova.rebalancer.backtest import backtest_run as journeys
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import power
from kronos_nova.rebalancer.backtest import simulated_executor
from kronos_nova.rebalancer.backtest import world as worlds

#: A score of a trace is a single float: 0.8 may be 0.80000001.
PRECISION = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class ReviewQuestion:
    """Contents and parameters of a review.

    ``ceiling``: a host above it is overloaded. ``return_seconds``: an instance that comes back to a
    host within this time plays ping-pong. ``energy_measure``: the measure whose score is the
    utilisation that draws power. ``scopes``: the scopes over whose hosts imbalance is taken.
    """

    scopes: tuple[str, ...]
    ceiling: float = 0.8
    return_seconds: float = 24 * 3600.0
    curve: power.PowerCurve | None = None
    energy_measure: str = ''
    limits: simulated_executor.ConcurrencyLimits = dataclasses.field(
        default_factory=simulated_executor.ConcurrencyLimits)


def review_journey(
        past: pasts.LoadHistory, journey: journeys.BacktestResult,
        question: ReviewQuestion) -> dict[str, Any]:
    """Build one candidate's row.

    The keys are documented in doc/source/admin/simulate.rst and stable.
    """
    window = past.window
    days = window.count * window.step / 86400.0
    over = mark_overloaded(journey.score, question.ceiling)
    up = _mark_up_hosts(past)
    empty = (journey.counts == 0) & up
    copied = [_compute_copied_mib(past, m, question) for m in journey.moved]
    spreads = {scope: compute_imbalances(past, journey.score, scope) for scope in question.scopes}
    return {
        'name': journey.name,
        'moves': len(journey.moved),
        'moves_per_day': len(journey.moved) / days,
        'moved_gib': sum(copied) / 1024.0,
        'ping_pongs': count_ping_pongs(journey.moved, question.return_seconds),
        'cancelled': dict(sorted(journey.cancelled.items())),
        'overload_host_minutes': count_host_minutes(over.any(axis=0), window.step),
        'overload_by_measure': {m.name: count_host_minutes(over[i], window.step)
                                for i, m in enumerate(past.measures)},
        'unknown_host_minutes': count_host_minutes(np.isnan(journey.score[:, :, up]).any(axis=0),
                                                   window.step),
        'energy_kwh': compute_energy(past, journey, question, up),
        'empty_hosts': {'mean': float(empty.sum(axis=1).mean()),
                        'max': int(empty.sum(axis=1).max()), 'last': int(empty[-1].sum())},
        'imbalance': {scope: {m.name: compute_statistics(imbalances[i]) for i,
                              m in enumerate(past.measures)}
                      for scope, imbalances in spreads.items()},
        'cycles': journey.cycles,
        'reasons': _sort_by_count(journey.idle),
        'rejections': _sort_by_count(journey.rejections),
        'over_time': {
            'imbalance': {scope: {m.name: _round_values(imbalances[i])
                                  for i, m in enumerate(past.measures)}
                          for scope, imbalances in spreads.items()},
            'overloaded_hosts': over.any(axis=0).sum(axis=1).tolist(),
            'empty_hosts': empty.sum(axis=1).tolist(),
            'moves': _count_completed_moves(journey.moved, window.start, window.step,
                                            window.count)},
        'move_list': [_render_move(past, m) for m in journey.moved],
    }


def mark_overloaded(score: pasts.Floats, ceiling: float) -> Any:
    """Mark scores above the ceiling, M x T x H; an unknown score is not."""
    return np.nan_to_num(score, nan=-1.0) > ceiling + PRECISION


def count_host_minutes(which: Any, step: float) -> float:
    """Count the host-minutes of the times that are true; ``step`` in seconds."""
    return float(int(which.sum()) * step / 60.0)


def compute_imbalances(past: pasts.LoadHistory, score: pasts.Floats, scope: str) -> pasts.Floats:
    """Return max - min over the scope's hosts that may give and take: M x T.

    NaN where fewer than two are known.
    """
    services = past.cluster.services
    inside = set(past.cluster.list_hosts_of(scope))
    hosts = [h for h, name in enumerate(past.hosts)
             if name in inside and name in services and services[name].available]
    scope_scores = score[:, :, hosts]
    known = ~np.isnan(scope_scores)
    most = np.where(known, scope_scores, -np.inf).max(axis=2, initial=-np.inf)
    least = np.where(known, scope_scores, np.inf).min(axis=2, initial=np.inf)
    enough = known.sum(axis=2) > 1
    return np.where(enough, np.where(enough, most, 0.0) - np.where(enough, least, 0.0), np.nan)


def compute_statistics(values: pasts.Floats) -> dict[str, float | None]:
    """Compute statistics over the times at which the value is known."""
    known = values[~np.isnan(values)]
    if not known.size:
        return {'mean': None, 'p95': None, 'max': None}
    return {'mean': float(known.mean()), 'p95': float(np.quantile(known, 0.95)),
            'max': float(known.max())}


def count_ping_pongs(moved: Sequence[worlds.CompletedMove], within: float) -> int:
    """Count the moves that bring an instance to a host it left so few seconds before."""
    departure_times: dict[tuple[int, int], float] = {}
    count = 0
    for m in moved:
        before = departure_times.get((m.instance, m.to_host))
        if before is not None and m.at - before <= within:
            count += 1
        departure_times[m.instance, m.from_host] = m.at
    return count


def compute_energy(past: pasts.LoadHistory, journey: journeys.BacktestResult,
                   question: ReviewQuestion,
                   up: Any) -> float | None:
    """Compute the kWh of the hosts that are up; None without a power curve."""
    if question.curve is None:
        return None
    m = [measure.name for measure in past.measures].index(question.energy_measure)
    return question.curve.kilowatt_hours(
        journey.score[m][:, up], journey.counts[:, up], past.window.step)


def _mark_up_hosts(past: pasts.LoadHistory) -> Any:
    services = past.cluster.services
    return np.array([name in services and services[name].up for name in past.hosts])


def _compute_copied_mib(past: pasts.LoadHistory, m: worlds.CompletedMove,
                        question: ReviewQuestion) -> float:
    instance = past.cluster.instances[past.uuids[m.instance]]
    return question.limits.compute_copied_mib(instance.memory_mb, instance.disk_gb)


def _render_move(past: pasts.LoadHistory, m: worlds.CompletedMove) -> dict[str, Any]:
    return {'instance_uuid': past.uuids[m.instance], 'from_host': past.hosts[m.from_host],
            'to_host': past.hosts[m.to_host], 'completed_at': m.at}


def _sort_by_count(counts: Mapping[str, int]) -> dict[str, int]:
    """Sort the counts, most frequent first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _round_values(values: pasts.Floats) -> list[float | None]:
    return [None if np.isnan(v) else round(float(v), 6) for v in values]


def _count_completed_moves(moved: Sequence[worlds.CompletedMove], start: float, step: float,
                           count: int) -> list[int]:
    """Count the moves completed up to each time."""
    at = np.array(sorted(m.at for m in moved))
    counts = np.searchsorted(at, start + step * np.arange(count), side='right')
    return [int(n) for n in counts]
