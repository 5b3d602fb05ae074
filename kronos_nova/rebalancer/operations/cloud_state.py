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

"""The cloud as the next cycle would see it, for requests that run outside the engines."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import time
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.sources import base as sources


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A cloud at one time, with the samples and histories of its scopes.

    ``scopes`` are in the order of precedence, ``histories`` by scope. ``warnings`` name the parts
    that could not be read. ``named``: the configured aggregates that any engine plans, in order.
    ``waiting``: by scope, the plan that waits for approval and holds its engine; ``pending``: the
    instances that such plans move, which count as in flight. ``wished``: by scope, since when it
    has exceeded a threshold; ``sustain``: for how many seconds it must do so. A snapshot has
    neither, and a dry run applies neither.
    """

    cluster: model.Cluster
    samples: dict[str, model.PolicySamples]
    scopes: Sequence[str]
    histories: dict[str, model.History]
    now: float
    warnings: tuple[str, ...] = ()
    named: Sequence[str] = ()
    waiting: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    wished: Mapping[str, float] = dataclasses.field(default_factory=dict)
    sustain: float = 0.0

    def clusters(self) -> dict[str, model.Cluster]:
        """Return the cloud with its scope set, for each scope that exists."""
        return {scope: self.cluster.scoped(scope, self.named) for scope in self.scopes
                if scope == model.UNASSIGNED or scope in self.cluster.aggregates}

    def undecided(self) -> 'Seen':
        """Return the cloud as if no plan waited for approval."""
        return dataclasses.replace(self, cluster=dataclasses.replace(
            self.cluster, flights=tuple(f for f in self.cluster.flights
                                        if f.source != 'task'
                                        or f.instance_uuid not in self.pending)))


def build_request(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, seen: Seen,
                  cluster: model.Cluster) -> planner.Request:
    """Build the request from which the next cycle would plan a scope.

    :param cluster: with its scope set.
    """
    settings = planning_settings.build_settings(conf, policy_set)
    scores = planning_pipeline.score(cluster, seen.samples, settings, seen.now)
    return planning_pipeline.build_request(cluster, scores, seen.histories[cluster.scope], settings,
                                           now=seen.now,
                                           busy=planning_pipeline.count_busy_moves(
                                               cluster.flights, cluster))


def read_cloud(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, store: Any,
               collector: Any, source: sources.Source, *, undecided: bool = True,
               also: Callable[[Any, Sequence[str]], None] = lambda store, scopes: None,
               clock: Callable[[], float] = time.time) -> Seen:
    """Read the cloud as the next cycle would see it.

    Answers of Placement that an engine remembers are missing: only that engine knows them.

    :param store: the database, a store.api.Store.
    :param collector: of Nova and Placement.
    :param undecided: a plan that waits for approval holds its scope, as it holds engines.
    :param also: reads more from the database; gets the store and the scopes.
    :raises KronosException: a part cannot be read.
    """
    from kronos_nova.rebalancer.snapshots import recorder

    scopes = planning_settings.list_planned_scopes(conf, policy_set)
    found = recorder.read_recording(collector, source, store, policy_set, scopes, clock)
    also(store, scopes)
    # A host in two aggregates belongs to the first planned one, as in an engine.
    planned = {*scopes, *store.leased()}
    now = store.now()
    acts = not conf.engine.dry_run
    waiting = {plan.scope: str(plan) for plan in reversed(store.waiting(now))} if acts else {}
    wished = store.wished() if acts else {}
    pending = frozenset(row.task.instance_uuid
                        for row in store.in_states((model.TaskState.PENDING,)))
    if isinstance(found.cluster, str):
        raise _make_read_error('Nova and Placement', found.cluster)
    if isinstance(found.histories, str):
        raise _make_read_error('the database', found.histories)
    frozen = engine_conf.find_freeze_reason(conf, now)
    sustain = float(conf.engine.sustain_for) if acts else 0.0
    left = {scope: since + sustain - found.now for scope, since in wished.items()}
    histories = {scope: dataclasses.replace(
        history, paused=history.paused or frozen or (waiting.get(scope) if undecided else None),
        waiting=format_sustain_wait(left[scope]) if left.get(scope, 0.0) > 0 else None)
        for scope, history in found.histories.items()}
    return Seen(found.cluster, dict(found.samples), scopes, histories, found.now,
                named=[n for n in conf.engine.aggregates if n in planned], waiting=waiting,
                pending=pending, wished=wished, sustain=sustain)


def format_sustain_wait(left: float) -> str:
    """Format the reason why an imbalance is left alone for another ``left`` seconds."""
    return f'the imbalance has to last for another {left:.0f} s (sustain_for)'


def _make_read_error(what: str, problem: str) -> exception.ConfigError:
    return exception.ConfigError(
        path='kronos.conf', field=what, remedy='See kronos-test-config.',
        problem=problem.removesuffix('Nothing is moved this cycle.').strip().rstrip('.'))
