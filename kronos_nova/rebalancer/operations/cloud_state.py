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
import functools
import os
import threading
import time
from typing import Any, TYPE_CHECKING

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.snapshots import replay
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.sources import base as sources
from kronos_nova.sources import snapshot as snapshot_source

if TYPE_CHECKING:
    from kronos_nova.rebalancer.clients import collector as collectors
    from kronos_nova.rebalancer.clients import compute_service

#: Seconds after which the session says that it still reads the cloud.
NOTICE_AFTER = 3.0
#: The work that follows the reading of a cloud.
COMPUTING = 'Computing the answer'
READING = ('Still reading Nova, Placement and metrics; a server that does not answer is retried '
           'for a while.')


@dataclasses.dataclass(frozen=True, slots=True)
class CloudState:
    """A cloud at one time, with the samples and histories of its scopes.

    ``scopes`` are in the order of precedence, ``histories`` by scope. ``warnings`` name the parts
    that could not be read. ``named``: the configured aggregates that any engine plans, in order.
    ``waiting``: by scope, the plan that waits for approval and holds its engine; ``pending``: the
    instances that such plans move, which count as in flight; ``yielding``: by scope, the tasks of
    such plans that give way to a drain. ``wished``: by scope, since when it
    has exceeded a threshold; ``sustain``: for how many seconds it must do so. A snapshot has
    neither, and a dry run applies neither. ``scores`` by scope, and ``options``: those of the
    engine that has published the cloud; without them the samples are scored, and the configuration
    has the options.
    """

    cluster: model.Cluster
    samples: dict[str, model.PolicySamples]
    scopes: Sequence[str]
    histories: dict[str, model.MoveHistory]
    now: float
    warnings: tuple[str, ...] = ()
    named: Sequence[str] = ()
    waiting: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    yielding: Mapping[str, Sequence[model.Task]] = dataclasses.field(default_factory=dict)
    wished: Mapping[str, float] = dataclasses.field(default_factory=dict)
    sustain: float = 0.0
    scores: Mapping[str, model.ClusterScores] = dataclasses.field(default_factory=dict)
    options: model.PlanningOptions | None = None

    def map_clusters(self) -> dict[str, model.Cluster]:
        """Return the cloud with its scope set, for each scope that exists."""
        return {scope: self.cluster.replace_scope(scope, self.named) for scope in self.scopes
                if scope == model.UNASSIGNED or scope in self.cluster.aggregates}

    def hold_for_approval(self) -> 'CloudState':
        """Return the cloud where a plan that waits for approval holds its scope, as for engines."""
        return dataclasses.replace(self, histories={
            scope: dataclasses.replace(history, paused=history.paused or self.waiting.get(scope))
            for scope, history in self.histories.items()})

    def drop_undecided_plans(self) -> 'CloudState':
        """Return the cloud as if no plan waited for approval."""
        return dataclasses.replace(
            self, cluster=drain_precedence.drop_task_moves(self.cluster, self.pending))


def build_planning_input(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, cloud: CloudState,
                         cluster: model.Cluster) -> planner.PlanningInput:
    """Build the request from which the next cycle would plan a scope.

    :param cluster: with its scope set.
    """
    settings = planning_settings.build_settings(conf, policy_set)
    if cloud.options is not None:
        settings = dataclasses.replace(settings, options=cloud.options)
    scores = cloud.scores.get(cluster.scope)
    if scores is None:
        scores = planning_pipeline.score_policies(cluster, cloud.samples, settings, cloud.now)
    return planning_pipeline.build_planning_input(cluster, scores, cloud.histories[cluster.scope],
                                                  settings, now=cloud.now,
                                                  busy=planning_pipeline.count_busy_moves(
                                                      cluster.flights, cluster))


def read_cloud(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, store: Any,
               collector: Any, source: sources.MetricsSource, *,
               clock: Callable[[], float] = time.time) -> CloudState:
    """Read the cloud as the next cycle would see it, for an operator's request.

    Answers of Placement that an engine remembers are missing: only that engine knows them. A plan
    that waits for approval holds nothing; see :meth:`CloudState.hold_for_approval`.

    :param store: the database, a store.api.Store.
    :param collector: of Nova and Placement.
    :raises KronosException: a part cannot be read.
    """
    scopes = planning_settings.list_planned_scopes(conf, policy_set)
    recording = recorder.read_recording(collector, source, store, policy_set, scopes, clock)
    if isinstance(recording.cluster, str):
        raise _make_read_error('Nova and Placement', recording.cluster)
    if isinstance(recording.histories, str):
        raise _make_read_error('the database', recording.histories)
    return add_stored_state(conf, store, CloudState(
        recording.cluster, dict(recording.samples), scopes, dict(recording.histories),
        recording.now))


def add_stored_state(conf: cfg.ConfigOpts, store: Any, cloud: CloudState) -> CloudState:
    """Return the cloud with the holds of its scopes that the database and the clock know.

    :param store: the database, a store.api.Store.
    :raises StoreError: the database cannot be read.
    """
    # A host in two aggregates belongs to the first planned one, as in an engine.
    planned = {*cloud.scopes, *store.leases.list_leased_scopes()}
    now = store.now()
    acts = not conf.engine.dry_run
    waiting = {plan.scope: str(plan)
               for plan in reversed(store.approvals.list_waiting_plans(now))} if acts else {}
    wished = store.outcomes.list_imbalance_since() if acts else {}
    undecided = [row.task for row in store.tasks.list_tasks_in_states((model.TaskState.PENDING,))]
    yielding: dict[str, list[model.Task]] = {}
    for task in drain_precedence.list_yielding_tasks(undecided) if acts else ():
        yielding.setdefault(task.aggregate, []).append(task)
    frozen = engine_conf.find_freeze_reason(conf, now)
    sustain = float(conf.engine.sustain_for) if acts else 0.0
    sustain_left = {scope: since + sustain - cloud.now for scope, since in wished.items()}
    histories = {scope: dataclasses.replace(
        history, paused=history.paused or frozen,
        waiting=format_sustain_wait(sustain_left[scope])
        if sustain_left.get(scope, 0.0) > 0 else None)
        for scope, history in cloud.histories.items()}
    return dataclasses.replace(
        cloud, histories=histories, waiting=waiting, wished=wished, yielding=yielding,
        pending=frozenset(task.instance_uuid for task in undecided), sustain=sustain,
        named=cloud.named or [n for n in conf.engine.aggregates if n in planned])


def read_snapshot(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, directory: str) -> CloudState:
    """Read the cloud from a snapshot.

    :raises SnapshotError: the snapshot cannot be used.
    """
    snapshot = reader.read_snapshot(directory)
    if conf.engine.require_cpu_compatibility and not snapshot.traits_known:
        raise exception.SnapshotError(
            path=os.path.join(directory, schema.TRAITS), problem='CPU traits were not recorded',
            remedy='Record with require_cpu_compatibility = true, or ask without it.')
    source = snapshot_source.SnapshotSource(conf, directory)
    named = list(conf.engine.aggregates)
    scopes = sorted(replay.choose_scopes(conf, policy_set, snapshot),
                    key=lambda s: named.index(s) if s in named else len(named))
    cluster = dataclasses.replace(
        snapshot.cluster, planned_zone=engine_conf.planned_zone(conf))
    return CloudState(
        cluster, {p.name: source.fetch(p) for p in policy_set.enabled_policies}, scopes, {
            s: snapshot.build_history(s, cooldown=conf.engine.cooldown,
                                      instance_cooldown=conf.engine.instance_cooldown)
            for s in scopes}, snapshot.recorded_at, snapshot.warnings,
        named=[s for s in scopes if s != model.UNASSIGNED])


def find_new_wait(cloud: CloudState, plan: model.Plan) -> str | None:
    """Return why imbalance moves wait for sustain_for; None if they do not.

    They wait if the plan has such moves and no cycle has seen the scope's imbalance before.
    """
    if cloud.sustain <= 0 or plan.scope in cloud.wished or not any(
            m.phase in metrics.IMBALANCE for m in plan.moves):
        return None
    return format_sustain_wait(cloud.sustain)


def format_sustain_wait(seconds: float) -> str:
    """Format the reason why an imbalance is left alone for another ``seconds`` seconds."""
    return f'the imbalance has to last for another {seconds:.0f} s (sustain_for)'


def _make_read_error(what: str, problem: str) -> exception.ConfigError:
    return exception.ConfigError(
        path='kronos.conf', field=what, remedy='See kronos-test-config.',
        problem=problem.removesuffix('Nothing is moved this cycle.').strip().rstrip('.'))


class Session(sessions.DatabaseSession):
    """Configuration, policies, database and cloud for the functions of ``operations``.

    Each is opened or read at its first use and kept until the session ends. Functions that order
    moves or a drain read the cloud again. A session belongs to one thread::

        with operations.Session('/etc/kronos/kronos.conf') as session:
            for scope in operations.list_hosts(session):
                ...

    :param files: kronos.conf files; none: those in the places where oslo.config looks.
    :param snapshot: a directory that kronos-record wrote; the cloud is read from it, not from
        Nova, Placement and metrics.
    :param more: the parameters of :class:`DatabaseSession`.
    """

    def __init__(self, *files: str, snapshot: str | None = None, **more: Any) -> None:
        super().__init__(*files, **more)
        self.snapshot = snapshot
        #: The source of metrics may be asked for more than the cloud has.
        self.asks_metrics = snapshot is None
        #: By host, services that are newer than a published cloud.
        self.present_services: Mapping[str, model.Service] = {}

    @functools.cached_property
    def connection(self) -> Any:
        """The openstacksdk connection to Nova and Placement; it logs in when it is first used.

        :raises ConfigError: [nova] does not say how to log in.
        """
        # kronos-api asks neither Nova nor Placement, and openstacksdk takes 15 MB.
        from kronos_nova.rebalancer.clients import connection  # noqa: PLC0415

        sdk_connection = connection.make_connection(self.conf)
        self._close_at_end(sdk_connection.close)
        return sdk_connection

    def find_service(self, host: str) -> 'compute_service.ComputeService':
        """Return the nova-compute of a host, for the user of [nova]."""
        from kronos_nova.rebalancer.clients import compute_service  # noqa: PLC0415

        return compute_service.ComputeService(self.connection, host)

    @functools.cached_property
    def collector(self) -> 'collectors.CloudCollector':
        """The reader of Nova and Placement."""
        from kronos_nova.rebalancer.clients import collector as collectors  # noqa: PLC0415

        return collectors.CloudCollector(self.conf, self.connection)

    @functools.cached_property
    def cloud(self) -> CloudState:
        """The cloud as the next cycle would see it, or the cloud of the snapshot.

        Only the engine that asked Placement knows Placement's refusals; they are missing.

        :raises KronosException: a part cannot be read.
        """
        return self.cloud_for_requests.hold_for_approval()

    @functools.cached_property
    def cloud_for_requests(self) -> CloudState:
        """The cloud for an operator's request: no plan that waits for approval holds its scope.

        :raises KronosException: a part cannot be read.
        """
        return self.read_cloud(self.policies)

    def forget_cloud(self) -> None:
        """Read the cloud again at its next use, for a function that changes it.

        :raises ConfigError: the session reads a snapshot, which shows the past.
        """
        if self.snapshot is not None:
            raise exception.ConfigError(
                path=self.snapshot, field='snapshot',
                problem='it shows the past, and a request would change the cloud of today',
                remedy='Ask without the snapshot.')
        for name in ('cloud', 'cloud_for_requests'):
            vars(self).pop(name, None)

    def read_cloud(self, policies: policy.PolicySet) -> CloudState:
        """Read the cloud, with the metrics of the given policies.

        :raises KronosException: a part cannot be read.
        """
        if self.snapshot is not None:
            self.show_work('Reading the snapshot')
            cloud = read_snapshot(self.conf, policies, self.snapshot)
            self.show_work(COMPUTING)
            return cloud
        planning_settings.list_planned_scopes(self.conf, policies)  # before anything is opened
        store, collector, source = self.store, self.collector, self.metrics_source
        notice = threading.Timer(NOTICE_AFTER, self._notify, [READING])
        notice.daemon = True
        if not self.show_work('Reading Nova, Placement and metrics'):
            notice.start()
        try:
            cloud = read_cloud(self.conf, policies, store, collector, source)
        finally:
            notice.cancel()
        self.show_work(COMPUTING)
        return cloud

    def build_request(self, cluster: model.Cluster,
                      cloud: CloudState | None = None) -> planner.PlanningInput:
        """Build the request from which the next cycle would plan a scope.

        :param cluster: with its scope set.
        :param cloud: with the samples and the history of the scope; None: :attr:`cloud`.
        """
        return build_planning_input(self.conf, self.policies,
                                    self.cloud if cloud is None else cloud, cluster)
