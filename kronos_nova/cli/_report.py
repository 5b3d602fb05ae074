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

"""Build the page of ``kronos report`` from a cloud, a snapshot or a stored plan."""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import time
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import version
from kronos_nova.cli import _cloud
from kronos_nova.conf import opts
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.report import page
from kronos_nova.rebalancer.report import planned_section
from kronos_nova.rebalancer.report import stored_section
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.wiring import times
from kronos_nova.wiring import tools

PROG = 'kronos report'
#: Number of plans that make up a scope's imbalance over time.
PLANS = 200
ONE_TIME = 'A snapshot holds one time only; earlier plans are in the database.'


def render_report(args: argparse.Namespace) -> str:
    """Return the page as HTML.

    :raises KronosException: an input cannot be read, or does not exist.
    """
    if not args.snapshot:
        tools.native_threads()  # before the log is set up, as it logs its choice
    conf = cfg.ConfigOpts()
    opts.register(conf)
    files = [part for path in args.config_file for part in ('--config-file', path)]
    tools.configure_command(conf, PROG, files, [], 'Writes a report.')
    if args.plan:
        source, at, sections = _of_plan(conf, args)
    else:
        source, at, sections = _of_cloud(conf, args)
    return page.render_page(values.Report(source, at, time.time(), version.release(), sections))


def _of_plan(conf: cfg.ConfigOpts,
             args: argparse.Namespace) -> tuple[str, float, tuple[values.Section, ...]]:
    if args.scope:
        raise _make_config_error('--scope', 'it does not go with --plan',
                                 'A plan is of one scope: leave '
                                                              'it out.')
    database.must_exist(conf.database.connection)
    store = api.Store(conf)
    try:
        store.check()
        row = store.plan(args.plan)
        if row is None:
            raise _make_config_error('--plan', f'{args.plan}: no such plan',
                                     'kronos plan list shows the newest; [engine] keep_days is how '
                                     'long they are kept.')
        plans = store.plans(PLANS, row.plan.scope)
        if row.plan_id not in {p.plan_id for p in plans}:
            plans = [*plans, row]
        realised = _read_realised_imbalance(store, plans)
        section = stored_section.build_section(
            row, store.tasks_of([row.plan_id]), realised=realised.get(row.plan_id),
            past=stored_section.build_points(plans, realised, row.plan_id,
                                             _list_dropped_plans(store, plans)),
            now=time.time(), stagger=conf.executor.stagger_seconds,
            decisions=[_format_decision(decision) for decision in store.decisions(row.plan_id)])
    finally:
        store.close()
    return 'A stored plan and its outcome.', row.created_at, (section,)


def _of_cloud(conf: cfg.ConfigOpts,
              args: argparse.Namespace) -> tuple[str, float, tuple[values.Section, ...]]:
    policy_set = policy_files.load(conf.engine.policies_file)
    settings = planning_settings.build_settings(conf, policy_set)
    past: dict[str, tuple[values.Point, ...]] = {}
    waiting: dict[str, dict[str, str]] = {}
    waiting_sections: dict[str, list[values.Section]] = {}

    def read_past_plans(store: Any, scopes: Sequence[str]) -> None:
        for scope in scopes:
            plans = store.plans(PLANS, scope)
            past[scope] = stored_section.build_points(plans, _read_realised_imbalance(store, plans),
                                                      dropped=_list_dropped_plans(store, plans))
            waiting[scope], waiting_sections[scope] = _read_waiting(conf, store, scope)

    if args.snapshot:
        seen = _cloud.read_snapshot(conf, policy_set, args.snapshot)
        # As kronos-replay: a plan does not depend on the machine.
        settings = dataclasses.replace(settings, deadline=math.inf)
        source = ('A snapshot, planned by the configuration of now, as kronos-replay does. '
                  'No move is carried out.')
    else:
        seen = _cloud.read_live_cloud(conf, policy_set, also=read_past_plans)
        source = ('The cloud, and the plan that a cycle would make from it. No move is carried '
                  'out.')
    if args.scope and args.scope not in seen.scopes:
        raise _make_config_error('--scope', f'{args.scope} is not planned',
                                 f'Planned are: {", ".join(sorted(seen.scopes))}.')
    clusters = seen.clusters()
    planned = {host: scope for scope, cluster in clusters.items() for host in cluster.scope_hosts}
    sections = []
    for scope in seen.scopes:
        if args.scope not in (None, scope):
            continue
        if scope not in clusters:
            sections.append(values.Section(scope, seen.now,
                                           failed=f'the cloud has no aggregate {scope}'))
            continue
        try:
            outcome = _plan_scope(clusters[scope], seen, settings)
        except exception.PlanRefused as e:
            sections.append(values.Section(scope, seen.now, failed=str(e)))
            continue
        sections.append(planned_section.build_section(
            outcome, policy_set, stagger=conf.executor.stagger_seconds, planned=planned,
            warnings=seen.warnings, past=past.get(scope, ()),
            no_points=ONE_TIME if args.snapshot else '', waiting=waiting.get(scope, {})))
        sections += waiting_sections.get(scope, ())
    return source, seen.now, tuple(sections)


def _read_waiting(conf: cfg.ConfigOpts, store: Any,
                  scope: str) -> tuple[dict[str, str], list[values.Section]]:
    """Return the plan of each instance whose move waits for approval, and a section a plan."""
    found, sections = {}, []
    for waits in store.waiting(store.now(), scope):
        row, tasks = store.plan(waits.plan_id), store.tasks_of([waits.plan_id])
        if row is None:
            continue
        found.update({t.task.instance_uuid: waits.plan_id for t in tasks
                      if t.task.state is model.TaskState.PENDING})
        sections.append(stored_section.build_section(row, tasks, realised=None, past=(),
                                                     now=time.time(),
                                                     stagger=conf.executor.stagger_seconds))
    return found, sections


def _plan_scope(cluster: model.Cluster, seen: _cloud.Seen,
                settings: planning_pipeline.Settings) -> planning_pipeline.Outcome:
    def run(history: model.History) -> planning_pipeline.Outcome:
        return planning_pipeline.run(cluster, seen.samples, history, settings, now=seen.now,
                                     clock=time.monotonic,
                                     busy=planning_pipeline.count_busy_moves(
                                         cluster.flights, cluster))

    history = seen.histories[cluster.scope]
    outcome = run(history)
    waits = _cloud.new_wish(seen, outcome.plan)
    return outcome if waits is None else run(dataclasses.replace(history, waiting=waits))


def _format_decision(decision: Any) -> str:
    return (f'{times.format_time(decision.decided_at)}: {decision.tasks} {decision.verb} by '
            f'{decision.decided_by}' + (f': {decision.reason}' if decision.reason else ''))


def _read_realised_imbalance(store: Any, plans: Sequence[Any]) -> Mapping[str, float | None]:
    """Return the measured imbalance after each plan, by plan.

    Dry runs and plans without moves are left out.
    """
    found: Mapping[str, float | None] = store.realised(
        [row.plan_id for row in plans if row.plan.moves and not row.dry_run])
    return found


def _list_dropped_plans(store: Any, plans: Sequence[Any]) -> frozenset[str]:
    return stored_section.list_dropped_plans(store.tasks_of([row.plan_id for row in plans
                                                             if row.plan.moves]))


def _make_config_error(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=field, problem=problem,
                                 remedy=remedy)
