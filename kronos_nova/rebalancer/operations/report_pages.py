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

"""The page of a report, from the cloud, a snapshot or a stored plan."""

import dataclasses
import math
import time
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import version
from kronos_nova.rebalancer.operations import campaign_views
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import plan_sections
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.report import page
from kronos_nova.rebalancer.report import planned_section
from kronos_nova.rebalancer.report import stored_section
from kronos_nova.rebalancer.report import values

#: Number of plans that make up a scope's imbalance over time.
PLANS = 200
ONE_TIME = 'A snapshot holds one time only; earlier plans are in the database.'


def render_report(session: cloud_state.Session, *, plan: str | None = None,
                  scope: str | None = None) -> str:
    """Return the page as HTML.

    :param plan: UUID of the stored plan to show; None: the plan that the next cycle would make.
    :param scope: None: all scopes.
    :raises KronosException: an input cannot be read, or does not exist.
    """
    source, at, sections = (_build_cloud_sections(session, scope) if plan is None
                            else _build_stored_section(session, plan, scope))
    campaigns = () if session.snapshot is not None and plan is None else _read_campaigns(
        session, sections, scope if plan is None else sections[0].scope, at)
    return page.render_page(values.WholeReport(source, at, time.time(), version.read_release(),
                                               sections, campaigns))


def _read_campaigns(session: cloud_state.Session, sections: tuple[values.ScopeSection, ...],
                    scope: str | None, at: float,
                    ) -> tuple[values.CampaignProgress | model.UnreadableCampaign, ...]:
    """Read the campaigns that go on, and those that ended since the first plan of the page."""
    since = min((point.at for section in sections for point in section.points), default=at)
    return campaign_views.list_progress(session, scope, ended_since=since)


def _build_stored_section(session: cloud_state.Session, plan_id: str,
                          scope: str | None) -> tuple[str, float, tuple[values.ScopeSection, ...]]:
    if scope:
        raise _make_config_error('--scope', 'it does not go with --plan',
                                 'A plan is of one scope: leave it out.')
    store = session.existing_store
    row = store.plans.find_plan(plan_id)
    if row is None:
        raise _make_config_error('--plan', f'{plan_id}: no such plan',
                                 'kronos plan list shows the newest; [engine] keep_days is how '
                                 'long they are kept.')
    section = plan_sections.build_section(store, row, session.conf.executor.stagger_seconds, PLANS)
    return 'A stored plan and its outcome.', row.created_at, (section,)


def _build_cloud_sections(session: cloud_state.Session,
                          scope: str | None) -> tuple[str, float, tuple[values.ScopeSection, ...]]:
    conf, policy_set = session.conf, session.policies
    settings = planning_settings.build_settings(conf, policy_set)
    cloud = session.cloud
    past: dict[str, tuple[values.PlanPoint, ...]] = {}
    waiting: dict[str, dict[str, str]] = {}
    waiting_sections: dict[str, list[values.ScopeSection]] = {}
    if session.snapshot is not None:
        # As kronos-replay: a plan does not depend on the machine.
        settings = dataclasses.replace(settings, deadline=math.inf)
        source = ('A snapshot, planned by the configuration of now, as kronos-replay does. '
                  'No move is carried out.')
    else:
        store = session.store
        for name in cloud.scopes:
            plans = store.plans.list_plans(PLANS, name)
            past[name] = plan_sections.build_points(store, plans)
            waiting[name], waiting_sections[name] = _read_waiting(conf, store, name)
        source = ('The cloud, and the plan that a cycle would make from it. No move is carried '
                  'out.')
    if scope and scope not in cloud.scopes:
        raise _make_config_error('--scope', f'{scope} is not planned',
                                 f'Planned are: {", ".join(sorted(cloud.scopes))}.')
    clusters = cloud.map_clusters()
    cloud = write_rates.add_cloud_rates(session, cloud, [
        cluster for name, cluster in clusters.items() if scope in (None, name)])
    planned = {host: name for name, cluster in clusters.items() for host in cluster.scope_hosts}
    sections = []
    for name in cloud.scopes:
        if scope not in (None, name):
            continue
        if name not in clusters:
            sections.append(values.ScopeSection(name, cloud.now,
                                                failed=f'the cloud has no aggregate {name}'))
            continue
        try:
            outcome = _plan_scope(clusters[name], cloud, settings)
        except exception.PlanRefused as e:
            sections.append(values.ScopeSection(name, cloud.now, failed=str(e)))
            continue
        sections.append(planned_section.build_section(
            outcome, policy_set, stagger=conf.executor.stagger_seconds, planned=planned,
            warnings=cloud.warnings, past=past.get(name, ()),
            no_points=ONE_TIME if session.snapshot is not None else '',
            waiting=waiting.get(name, {})))
        sections += waiting_sections.get(name, ())
    return source, cloud.now, tuple(sections)


def _read_waiting(conf: cfg.ConfigOpts, store: Any,
                  scope: str) -> tuple[dict[str, str], list[values.ScopeSection]]:
    """Return the plan of each instance whose move waits for approval, and a section a plan."""
    plan_ids, sections = {}, []
    for waits in store.approvals.list_waiting_plans(store.now(), scope):
        row, tasks = store.plans.find_plan(waits.plan_id), store.tasks.list_tasks_of_plans(
            [waits.plan_id])
        if row is None:
            continue
        plan_ids.update({t.task.instance_uuid: waits.plan_id for t in tasks
                         if t.task.state is model.TaskState.PENDING})
        sections.append(stored_section.build_section(row, tasks, realised=None, past=(),
                                                     now=time.time(),
                                                     stagger=conf.executor.stagger_seconds))
    return plan_ids, sections


def _plan_scope(cluster: model.Cluster, cloud: cloud_state.CloudState,
                settings: planning_pipeline.PassSettings) -> planning_pipeline.PassOutcome:
    def run(history: model.MoveHistory) -> planning_pipeline.PassOutcome:
        return planning_pipeline.plan_scope(cluster, cloud.samples, history, settings,
                                            now=cloud.now, clock=time.monotonic,
                                            busy=planning_pipeline.count_busy_moves(
                                                cluster.flights, cluster))

    history = cloud.histories[cluster.scope]
    outcome = run(history)
    waits = cloud_state.find_new_wait(cloud, outcome.plan)
    return outcome if waits is None else run(dataclasses.replace(history, waiting=waits))


def _make_config_error(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=field, problem=problem,
                                 remedy=remedy)
