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

"""The counts of a daemon since its start, and its last observations.

The parts that do the work record them; a reader gets a copy. No text in here is written by a
tenant: operators name scopes, policies and hosts, and all other values are from a closed list of
ours. Other modules decide how to show them.
"""

import bisect
from collections import Counter
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import threading
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.store import attempt_phases

#: Upper ends of buckets, seconds: of a step of a cycle, of a task's wait, of a phase of an
#: attempt, of a migration.
STEPS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
WAITS = (1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0)
PHASES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
MIGRATIONS = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)

#: The code of a failure that is no exception of ours.
DEFECT = 'defect'
#: The codes of failed cycles.
CODES = (*(kind.code for kind in (
    exception.CollectError, exception.StoreError, exception.LeaseLost, exception.PlanRefused,
    exception.ConfigError, exception.PolicyFileError, exception.PluginNotFound)), DEFECT)

#: The key of a count or a duration: values of labels.
Key = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ValueDistribution:
    """The number of values up to each of ``bounds``, and above the last.

    ``counts`` is one longer than ``bounds``; each value is in exactly one count.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @classmethod
    def make_empty(cls, bounds: tuple[float, ...]) -> 'ValueDistribution':
        return cls(bounds, (0,) * (len(bounds) + 1), 0.0)

    def add_value(self, value: float) -> 'ValueDistribution':
        at = bisect.bisect_left(self.bounds, value)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1:])
        return ValueDistribution(self.bounds, counts, self.total + value)


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeReading:
    """A scope as its last cycle found it.

    ``report`` is a row of :mod:`cycle_report`. ``scores``: in [0, 1] by policy and host.
    ``untrusted``: policies whose answers must not be used. ``undrained``: how many hosts were
    ordered to be drained and keep instances.
    """

    report: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, float]]
    untrusted: frozenset[str]
    undrained: int


@dataclasses.dataclass(frozen=True, slots=True)
class TallyCopy:
    """A copy of a tally.

    ``planned_at`` and ``certified_at`` (the last failover certificate, else the first cycle
    that should have had one) in epoch seconds, by scope;
    ``readings`` lack the scopes whose last cycle failed,
    and those that another engine has now.
    """

    scopes: tuple[str, ...]
    planned_at: Mapping[str, float]
    certified_at: Mapping[str, float]
    readings: Mapping[str, ScopeReading]
    counts: Mapping[str, Mapping[Key, int]]
    durations: Mapping[str, Mapping[Key, ValueDistribution]]


class DaemonTally:
    """The counts of one daemon. Any thread may write, any may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scopes: tuple[str, ...] = ()
        self._reported_scopes: set[str] = set()
        self._planned_at: dict[str, float] = {}
        self._certified_at: dict[str, float] = {}
        self._readings: dict[str, ScopeReading] = {}
        self._counts: dict[str, Counter[Key]] = {}
        self._durations: dict[str, dict[Key, ValueDistribution]] = {}

    def copy_tally(self) -> TallyCopy:
        with self._lock:
            return TallyCopy(
                self._scopes, dict(self._planned_at), dict(self._certified_at),
                dict(self._readings),
                {name: dict(counts) for name, counts in self._counts.items()},
                {name: dict(durations) for name, durations in self._durations.items()})

    # An engine.

    def begin_cycle(self) -> None:
        """Begin a cycle: the results of all scopes are open."""
        with self._lock:
            self._reported_scopes.clear()

    def expect_scopes(self, scopes: Collection[str], dry_run: bool = False) -> None:
        """Set the scopes that this engine plans, and begin their counts at 0.

        A count that begins at 1 would not show as an increase.
        """
        dry = str(dry_run).lower()
        with self._lock:
            for scope in set(self._scopes).difference(scopes):
                self._readings.pop(scope, None)
                self._planned_at.pop(scope, None)
                self._certified_at.pop(scope, None)
            self._scopes = tuple(scopes)
            for scope in scopes:
                for result in ('moves', 'nothing', 'failed', 'stopped'):
                    self._add_count('cycles', scope, result, by=0)
                for code in CODES:
                    self._add_count('cycle_failures', scope, code, by=0)
                self._add_count('plans', scope, dry, by=0)
                for phase in model.Phase:
                    for method in model.MoveMethod:
                        self._add_count('planned_moves', scope, phase.value, method.value, dry,
                                        by=0)
                for result in ('better', 'worse'):
                    self._add_count('judged_plans', scope, result, by=0)
                self._add_count('breaker_trips', scope, by=0)
                self._add_count('truncated_plans', scope, by=0)

    def record_planned_cycle(self, report: Mapping[str, Any], scores: model.ClusterScores,
                             at: float, dry_run: bool, undrained: int = 0,
                             failover: model.FailoverMode = model.FailoverMode.OFF) -> None:
        """Record a cycle of a scope that has ended well, with its plan stored.

        :param at: epoch seconds.
        :param undrained: hosts that were ordered to be drained and keep instances.
        :param failover: whether the cycle should have a failover certificate.
        """
        scope = report['name']
        dry = str(dry_run).lower()
        with self._lock:
            self._reported_scopes.add(scope)
            self._readings[scope] = ScopeReading(
                report, {name: policy_scores.hosts
                         for name, policy_scores in scores.policies.items()},
                frozenset(name for name, policy_scores in scores.policies.items()
                          if policy_scores.untrusted),
                undrained)
            self._planned_at[scope] = at
            if report['failover']:
                self._certified_at[scope] = at
            elif failover is not model.FailoverMode.OFF:
                # Else the alert would have nothing to compare before the first certificate.
                self._certified_at.setdefault(scope, at)
            self._add_count('cycles', scope, 'moves' if report['moves'] else 'nothing')
            self._add_count('plans', scope, dry, by=int(bool(report['moves'])))
            self._add_count('truncated_plans', scope, by=int(report['truncated']))
            for phase in model.Phase:
                for method in model.MoveMethod:
                    self._add_count('planned_moves', scope, phase.value, method.value, dry, by=sum(
                        (move['phase'], move['method']) == (phase.value, method.value)
                        for move in report['moves']))
            for step, seconds in report['timings'].items():
                self._record_duration('steps', STEPS, seconds, step)

    def record_failed_cycle(self, scope: str | None, code: str) -> None:
        """Record a failed cycle of a scope; None: of all scopes without a result in this cycle.

        :param code: of the exception, or :data:`DEFECT`.
        """
        with self._lock:
            for name in (set(self._scopes) - self._reported_scopes) if scope is None else {scope}:
                self._reported_scopes.add(name)
                self._readings.pop(name, None)
                self._add_count('cycles', name, 'failed')
                self._add_count('cycle_failures', name, code)

    def record_stopped_cycle(self, scope: str) -> None:
        """Record a cycle of a scope that a stop of the engine ended."""
        with self._lock:
            self._reported_scopes.add(scope)
            self._add_count('cycles', scope, 'stopped')

    def drop_scope(self, scope: str) -> None:
        """Drop the last observation of a scope that this engine does not plan any more.

        The time when it was planned stays.
        """
        with self._lock:
            self._reported_scopes.add(scope)
            self._readings.pop(scope, None)
            self._certified_at.pop(scope, None)

    def count_judged_plan(self, scope: str, worse: bool) -> None:
        """Count a plan by its result: better or worse."""
        with self._lock:
            self._add_count('judged_plans', scope, 'worse' if worse else 'better')

    def count_breaker_trip(self, scope: str) -> None:
        """Count a trip of the scope's circuit breaker."""
        with self._lock:
            self._add_count('breaker_trips', scope)

    # An executor.

    def begin_executor_counts(self, error_types: Collection[str]) -> None:
        """Begin the counts of an executor at 0.

        :param error_types: the types of errors by which attempts may fail.
        """
        with self._lock:
            for error_type in error_types:
                self._add_count('failed_attempts', error_type, by=0)
            for phase in model.Phase:
                self._durations.setdefault('waits', {}).setdefault(
                    (phase.value,), ValueDistribution.make_empty(WAITS))
                for method in model.MoveMethod:
                    for part in attempt_phases.PHASES:
                        self._durations.setdefault('phases', {}).setdefault(
                            (method.value, part), ValueDistribution.make_empty(PHASES))
                    for state in (state for state in model.TaskState if state.is_terminal):
                        self._add_count('tasks_ended', phase.value, method.value, state.value, by=0)
                        self._durations.setdefault('migrations', {}).setdefault(
                            (method.value, state.value), ValueDistribution.make_empty(MIGRATIONS))

    def record_submission(self, task: model.Task, waited: float) -> None:
        """Record a migration that is sent to Nova ``waited`` seconds after it was planned."""
        with self._lock:
            self._record_duration('waits', WAITS, waited, task.phase.value)

    def attempt_failed(self, error_type: str) -> None:
        """Count a failed try at one destination; another may follow."""
        with self._lock:
            self._add_count('failed_attempts', error_type)

    def record_attempt(self, method: model.MoveMethod, phases: Mapping[str, float]) -> None:
        """Record the phases of a try at one destination that has ended, well or not.

        :param phases: seconds of each phase that it reached.
        """
        with self._lock:
            for part, seconds in phases.items():
                self._record_duration('phases', PHASES, seconds, method.value, part)

    def count_ended_task(self, task: model.Task, state: model.TaskState,
                         took: float | None) -> None:
        """Count a task that is over.

        :param took: seconds since the request to Nova; None without a request.
        """
        with self._lock:
            self._add_count('tasks_ended', task.phase.value, task.method.value, state.value)
            if took is not None:
                self._record_duration('migrations', MIGRATIONS, took, task.method.value,
                                      state.value)

    # Under the lock.

    def _add_count(self, name: str, *key: str, by: int = 1) -> None:
        counter = self._counts.setdefault(name, Counter())
        counter[key] += by

    def _record_duration(self, name: str, bounds: tuple[float, ...], value: float,
                         *key: str) -> None:
        distributions = self._durations.setdefault(name, {})
        distributions[key] = distributions.get(
            key, ValueDistribution.make_empty(bounds)).add_value(max(0.0, value))
