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

"""migrate vm and evacuate node: requests become plans and tasks, as any other move.

The plan and the note that it belongs to the request are one transaction; so a request is planned
once, even if the process dies. Executors carry the tasks out and know nothing of requests.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.migfra import cloud_cache
from kronos_nova.rebalancer.migfra import move_results
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import repin
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra import task_settings
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import evacuations
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.operations import swap_requests
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps

LOG = logging.getLogger(__name__)

ASKED = 'asked'


@dataclasses.dataclass(frozen=True, slots=True)
class MigfraRequestPlan:
    """The plan for a request, and why some instances have no part in it.

    ``named``: the client's names of the instances, else their names in Nova. ``refusals``: by
    instance, why the client may not move it. ``partner``: the instance that comes in exchange.
    """

    answer: requested_moves.RequestedPlan
    cluster: model.Cluster
    named: Mapping[str, str]
    refusals: Mapping[str, str] = dataclasses.field(default_factory=dict)
    partner: str | None = None


class _FinalRefusal(request_handler.MigfraRequestRefusal):
    """A refusal that no other look at the cloud changes."""


class MoveHandler:
    """The handler of migrate vm and evacuate node.

    :param looks: at the cloud.
    :param note: writes within a transaction of the store that a plan is the request's.
    :param repin: pins, or raises RepinError.
    """

    name = 'moves'
    kinds = frozenset({MigfraRequestKind.MIGRATE, MigfraRequestKind.EVACUATE})

    def __init__(self, conf: cfg.ConfigOpts, policies: Callable[[], policy.PolicySet],
                 nova: nova_api.NovaApi, hosts: names.ScopesByHost, store: store_api.Store,
                 looks: cloud_cache.CloudCache,
                 note: Callable[[Any, requests.MigfraRequest, dict[str, Any], str], None],
                 repin: repin.Repin) -> None:
        self._conf = conf
        self._signer = task_authorization.make_signer(conf)
        self._policies = policies
        self._nova = nova
        self._hosts = hosts
        self._store = store
        self._looks = looks
        self._note = note
        self._repin = repin
        #: The last failover certificates by scope: requests that come in one go share searches.
        self._certificates: dict[str, failover.FailoverCertificate] = {}

    def begin_pass(self, due: Sequence[requests.MigfraRequest]) -> None:
        return None

    def end_pass(self) -> None:
        return None

    def continue_request(self, request: requests.MigfraRequest,
                         now: float) -> request_handler.MigfraRequestResult | None:
        task = request_handler.parse_task(request)
        assert isinstance(task, protocol.MigrateVm | protocol.EvacuateNode)
        if 'named' not in request.progress:
            return self._plan(request, task)
        plan_id = request.plan_id or ''
        tasks = {row.task.instance_uuid: row for row in self._store.tasks.list_plan_tasks(plan_id)}
        if not all(row.task.state.is_terminal for row in tasks.values()):
            return None
        if any(self._store.hooks.list_task_hooks(row.task.task_id) for row in tasks.values()):
            return None  # one that was paused is not there yet
        for swap in self._store.tasks.list_swaps(plan_id):
            if swap.state in swaps.OPEN or any(
                    self._store.hooks.list_task_hooks(row.task.task_id) for row in swap.tasks):
                return None
            # Pinning asks Nova and libvirt; rendering asks no service.
            return move_results.render_swap(
                self._conf.migfra.scheduler, task, swap, self._pin_swapped(task, swap))
        return move_results.render_result(
            self._conf.migfra.scheduler, request, task, tasks, request.progress,
            self._pin_moved(task, tasks.values()))

    def release_pass_data(self) -> None:
        self._looks.drop_old_reading()
        self._certificates.clear()

    def close(self) -> None:
        return None

    # From a request to a plan.

    def _plan(self, request: requests.MigfraRequest,
              task: protocol.MigrateVm
              | protocol.EvacuateNode) -> request_handler.MigfraRequestResult | None:
        """Plan a request and store its plan.

        :returns: the result, where the plan has no moves.
        """
        projects = request_handler.list_permitted_projects(self._conf.migfra.allow or (),
                                                           self._hosts, request,
                                                           task)
        policies = self._policies()
        mark = self._store.plans.read_live_work()
        request_plan = self._judge_by_cached_cloud(request, task, policies, projects)
        if request_plan is None:
            mark = self._store.plans.read_live_work()
            cloud = self._looks.read_cloud(policies, new=True).state
            request_plan = self._judge_by_cloud(request, task, policies, projects, cloud)
        plan = request_plan.answer.plan
        progress = {
            'named': dict(request_plan.named),
            'refused': {uuid: request_plan.refusals.get(
                            uuid, f'{rejection.rule}: {rejection.detail}')
                        for uuid, rejection in request_plan.answer.refused.items()}}
        if not plan.moves:
            return move_results.render_result(
                self._conf.migfra.scheduler, request, task, {}, progress, {})
        tasks = plan_requests.store_requested_plan(
            self._conf, policies, self._store, plan, request_plan.cluster, mark,
            plan_decisions.OperatorDecision(request_handler.SOURCE,
                                            f'{task.task} {task.id}, on the topic of '
                                   f'{request.host}'), ASKED, signer=self._signer, person=None,
            needed=0, adjust=task_settings.make_adjuster(task, request_plan.partner),
            also=lambda connection, plan_id: self._note(connection, request, progress, plan_id))
        LOG.info('Request %s (%s on %s): plan %s has %s; refused: %s',
                 request.request_id, task.task, request.host, tasks[0].plan_id,
                 plurals.count_noun(len(tasks), 'move'),
                 plurals.count_noun(len(request_plan.answer.refused), 'instance'))
        return None

    def _judge_by_cached_cloud(self, request: requests.MigfraRequest,
                               task: protocol.MigrateVm | protocol.EvacuateNode,
                               policies: policy.PolicySet,
                               projects: frozenset[str] | None) -> MigfraRequestPlan | None:
        """Return the plan by a look that other requests may share; None where a new look is needed.

        The instances of a whole host always need a new look.
        """
        if not isinstance(task, protocol.MigrateVm):
            return None
        glance = self._looks.read_cloud(policies)
        try:
            request_plan = self._judge_by_cloud(request, task, policies, projects, glance.state)
        except (request_handler.MigfraRequestRefusal, exception.PlanRefused) as e:
            if not glance.old or isinstance(e, _FinalRefusal):
                raise
            return None
        return None if glance.old and request_plan.answer.refused else request_plan

    def _judge_by_cloud(self, request: requests.MigfraRequest,
                        task: protocol.MigrateVm | protocol.EvacuateNode,
                        policies: policy.PolicySet,
                        projects: frozenset[str] | None,
                        cloud: cloud_state.CloudState) -> MigfraRequestPlan:
        cluster = next((c for c in cloud.map_clusters().values()
                        if request.host in c.scope_hosts), None)
        if cluster is None:
            raise request_handler.MigfraRequestRefusal(
                f'host {request.host} is in no scope that is planned')
        # The host may have come to another scope since that was looked at.
        projects = self._list_permitted_projects(task, cluster.scope, projects)
        planning_input = cloud_state.build_planning_input(self._conf, policies, cloud, cluster)
        request_plan = (self._plan_migration(request, task, projects, planning_input)
                        if isinstance(task, protocol.MigrateVm)
                        else self._plan_evacuation(request, task, projects, planning_input))
        plan, certificate = request_plan.answer.plan, request_plan.answer.certificate
        if certificate is not None:
            self._certificates[cluster.scope] = certificate
        if plan.reason is not None:
            kind = (_FinalRefusal if plan.reason == planning_input.history.paused
                    else request_handler.MigfraRequestRefusal)
            raise kind(f'scope {plan.scope}: {plan.reason}')
        return request_plan

    def _list_permitted_projects(self, task: protocol.Task, scope: str,
                                 projects: frozenset[str] | None) -> frozenset[str] | None:
        """Return the projects whose servers the whole request may concern, including its pins."""
        allow = self._conf.migfra.allow or ()
        project_sets = [projects, request_handler.of_scope(allow, scope, task.task)]
        if _has_vcpu_map(task):
            project_sets.append(request_handler.of_scope(allow, scope, MigfraRequestKind.REPIN))
        some = [names_ for names_ in project_sets if names_ is not None]
        return frozenset.intersection(*some) if some else None

    def _plan_migration(self, request: requests.MigfraRequest, task: protocol.MigrateVm,
                        projects: frozenset[str] | None,
                        planning_input: planner.PlanningInput) -> MigfraRequestPlan:
        try:
            server = names.resolve_server(self._nova, task.vm_name, projects, request.host)
        except names.NotMeant as e:
            raise _FinalRefusal(str(e)) from None
        uuid = server.instance.uuid
        self._by_rdma(task, server.instance)
        self._check_pinnable(task)
        if task.destination not in planning_input.cluster.scope_hosts:
            raise request_handler.MigfraRequestRefusal(
                f'destination: {task.destination} is no host of scope '
                f'{planning_input.cluster.scope}, which instances do not leave')
        self._check_cooldowns(planning_input, [uuid])
        if task.parameter.swap_with is not None:
            return self._plan_swap(task, projects, planning_input, uuid)
        answer = requested_moves.plan_requested_moves(
            planning_input, [requested_moves.RequestedMove(uuid, request.host,
                                                           (task.destination,))],
            self._certificates.get(planning_input.cluster.scope))
        return MigfraRequestPlan(answer, planning_input.cluster, {uuid: task.vm_name})

    def _by_rdma(self, task: protocol.MigrateVm, instance: model.Instance) -> None:
        if task.parameter.rdma_migration and not names.has_rdma_hosts(
                instance, self._conf.migfra.rdma_extra_spec):
            raise _FinalRefusal('rdma-migration: nothing in its flavor says that its hosts '
                                   'migrate by RDMA, and Nova cannot be asked for it')

    def _check_pinnable(self, task: protocol.MigrateVm) -> None:
        if _has_vcpu_map(task) and not self._conf.repin.uri:
            raise _FinalRefusal('vcpu-map: Nova has no call for it, and [repin] is not enabled')

    def _plan_swap(self, task: protocol.MigrateVm, projects: frozenset[str] | None,
                   planning_input: planner.PlanningInput, uuid: str) -> MigfraRequestPlan:
        partner = task.parameter.swap_with
        assert partner is not None
        try:
            other = names.resolve_server(self._nova, partner.vm_name, projects, task.destination)
            self._by_rdma(task, other.instance)
            self._check_cooldowns(planning_input, [other.instance.uuid])
            answer = swap_requests.plan_swap(
                planning_input, (uuid, other.instance.uuid),
                certificate=self._certificates.get(planning_input.cluster.scope))
        except (names.NotMeant, exception.ConfigError) as e:
            raise request_handler.MigfraRequestRefusal(f'swap-with: {e}') from None
        return MigfraRequestPlan(answer, planning_input.cluster, {uuid: task.vm_name},
                                 partner=other.instance.uuid)

    def _check_cooldowns(self, planning_input: planner.PlanningInput, uuids: Sequence[str]) -> None:
        for uuid in uuids:
            if (why := self._find_cooldown(planning_input, uuid)) is not None:
                raise _FinalRefusal(why)

    def _find_cooldown(self, planning_input: planner.PlanningInput, uuid: str) -> str | None:
        seconds = planning_input.history.cooling.get(uuid)
        if seconds is None or self._conf.migfra.ignore_cooldowns:
            return None
        return (f'instance {uuid} was moved a moment ago and cools down for another '
                f'{seconds:.0f} s')

    def _plan_evacuation(self, request: requests.MigfraRequest, task: protocol.EvacuateNode,
                         projects: frozenset[str] | None,
                         planning_input: planner.PlanningInput) -> MigfraRequestPlan:
        here = {i.uuid: i for i in planning_input.cluster.instances.values()
                if i.host == request.host}
        stay_reasons: dict[str, str] = {}
        for uuid, instance in sorted(here.items()):
            why = self._find_cooldown(planning_input, uuid)
            if projects is not None and instance.project_id not in projects:
                stay_reasons[uuid] = 'it is of a project that may not be asked for'
            elif task.parameter.rdma_migration and not names.has_rdma_hosts(
                    instance, self._conf.migfra.rdma_extra_spec):
                stay_reasons[uuid] = ('rdma-migration: nothing in its flavor says that its hosts '
                                      'migrate by RDMA')
            elif why is not None:
                stay_reasons[uuid] = why
        planning_input = dataclasses.replace(planning_input, options=dataclasses.replace(
            planning_input.options, pinned_instances=planning_input.options.pinned_instances
            | stay_reasons.keys()))
        try:
            answer = evacuations.plan_evacuation(
                planning_input, request.host, task.destinations,
                model.DrainMode(task.parameter.mode.value),
                overbooking=task.parameter.overbooking,
                certificate=self._certificates.get(planning_input.cluster.scope))
        except exception.ConfigError as e:
            raise request_handler.MigfraRequestRefusal(str(e)) from None
        return MigfraRequestPlan(answer, planning_input.cluster,
                                 _choose_result_names(here.values(), projects), stay_reasons)

    # The pins of moved instances.

    def _pin_moved(self, task: protocol.Task, moved: Collection[rows.TaskRow],
                   ) -> dict[str, str]:
        """Pin the migrated instances, where the task has a vCPU map; may run twice.

        :returns: by UUID why it could not be done.
        :raises ApiError: Nova did not answer; look again later.
        """
        vcpu_map = task.parameter.vcpu_map if isinstance(task, protocol.MigrateVm) else None
        if vcpu_map is None:
            return {}
        return {row.task.instance_uuid: problem for row in moved
                if row.task.state is model.TaskState.COMPLETED
                and (problem := self._pin_instance(row.task, vcpu_map)) is not None}

    def _pin_swapped(self, task: protocol.Task, swap: swaps.StoredSwap) -> dict[str, str]:
        """Pin both instances that have changed places; see :meth:`_pin_moved`."""
        assert isinstance(task, protocol.MigrateVm)
        partner = task.parameter.swap_with
        maps = {swap.members[0].instance_uuid: task.parameter.vcpu_map}
        for member in swap.members[1:]:
            maps[member.instance_uuid] = None if partner is None else partner.vcpu_map
        targets = {member.instance_uuid: member.target for member in swap.members}
        problems: dict[str, str] = {}
        for row in swap.tasks if swap.state == swaps.SWAPPED else ():
            uuid = row.task.instance_uuid
            vcpu_map = maps[uuid]
            if vcpu_map is None or row.task.to_host != targets[uuid]:
                continue
            problem = self._pin_instance(row.task, vcpu_map)
            if problem is not None:
                problems[uuid] = problem
        return problems

    def _pin_instance(self, moved: model.Task, vcpu_map: Any) -> str | None:
        """Pin an instance on its new host; return why that failed."""
        try:
            instance = self._nova.read_server(moved.instance_uuid).instance
            self._repin(moved.to_host, instance.uuid, vcpu_map, repin.cpu_policy(instance))
        except api.ApiError as e:
            if e.status != 404:
                raise
            return str(e)
        except exception.KronosException as e:
            return str(e)
        return None

def _choose_result_names(instances: Collection[model.Instance],
                         projects: frozenset[str] | None) -> dict[str, str]:
    """Return by UUID the names of instances in a result.

    A name in Nova is used if it is unique and the instance's project is permitted; else the UUID.
    """
    permitted_instances = [i for i in instances if projects is None or i.project_id in projects]
    count = Counter(i.name for i in permitted_instances)
    names_ = {i.uuid: i.name for i in permitted_instances if i.name and count[i.name] == 1}
    return {i.uuid: names_.get(i.uuid, i.uuid) for i in sorted(instances, key=lambda i: i.uuid)}


def _has_vcpu_map(task: protocol.Task) -> bool:
    """Return whether the task has a vCPU map."""
    if not isinstance(task, protocol.MigrateVm):
        return False
    partner = task.parameter.swap_with
    return task.parameter.vcpu_map is not None or (
        partner is not None and partner.vcpu_map is not None)
