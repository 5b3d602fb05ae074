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


"""Replay of the engine's cycle over a recorded cloud: offline, and the same every time."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math
import os
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import engine as engine_conf
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.sources import snapshot

LOG = logging.getLogger(__name__)


def replay_snapshot(conf: cfg.ConfigOpts, directory: str,
                    clock: Callable[[], float]) -> list[dict[str, Any]]:
    """Plan every recorded scope that the configuration covers.

    Options and policies are the configuration's, the cloud and the time are the snapshot's.
    ``planning_deadline`` is not kept: it would make a plan depend on the machine.

    :param clock: monotonic seconds, for timings.
    :returns: a report row per scope (see :mod:`cycle_report`).
    :raises KronosException: snapshot or configuration cannot be used.
    """
    started = clock()
    policy_set = policy_files.load_policies(conf.engine.policies_file)
    recorded = reader.read_snapshot(directory)
    recorded = dataclasses.replace(recorded, cluster=dataclasses.replace(
        recorded.cluster, planned_zone=engine_conf.planned_zone(conf)))
    source = snapshot.SnapshotSource(conf, directory)
    samples = {p.name: source.fetch(p) for p in policy_set.enabled_policies}
    if conf.engine.require_cpu_compatibility and not recorded.traits_known:
        raise exception.SnapshotError(
            path=os.path.join(directory, schema.TRAITS), problem='CPU traits were not recorded',
            remedy='Record with require_cpu_compatibility = true, or replay without it.')
    for text in recorded.warnings:
        LOG.warning('Snapshot %s: %s', directory, text)
    settings = dataclasses.replace(planning_settings.build_settings(conf, policy_set),
                                   deadline=math.inf)
    collected = clock() - started
    rows = []
    chosen = choose_scopes(conf, policy_set, recorded)
    planned = [s for s in conf.engine.aggregates or chosen if s in chosen]
    for scope in chosen:
        row = _plan_scope(scope, planned, recorded, samples, settings, conf, clock, collected)
        row['warnings'] = [*recorded.warnings, *row['warnings']]
        rows.append(row)
    return rows


def choose_scopes(conf: cfg.ConfigOpts, policy_set: policies.PolicySet,
                  recorded: reader.RecordedSnapshot) -> list[str]:
    """Return the recorded scopes without those that the configuration leaves out.

    A configuration that names no aggregate leaves none out: it need not be written for the
    recorded cloud.

    :raises SnapshotError: nothing is left.
    """
    chosen = [s for s in recorded.scopes
              if (conf.engine.include_unassigned_hosts if s == model.UNASSIGNED
                  else not conf.engine.aggregates or s in conf.engine.aggregates)]
    if policy_set.aggregates:
        chosen = [s for s in chosen if s in policy_set.aggregates]
    if not chosen:
        raise exception.SnapshotError(
            path='meta.json', problem='the configuration plans none of its aggregates '
                                      f'({", ".join(recorded.scopes) or "there are none"})',
            remedy='Name one in [engine] aggregates, or set include_unassigned_hosts.')
    return chosen


def _plan_scope(scope: str, planned: Sequence[str], recorded: reader.RecordedSnapshot,
                samples: dict[str, model.PolicySamples], settings: planning_pipeline.PassSettings,
                conf: cfg.ConfigOpts, clock: Callable[[], float],
                collected: float) -> dict[str, Any]:
    if scope != model.UNASSIGNED and scope not in recorded.cluster.aggregates:
        return _report_failure(scope, f'the snapshot has no aggregate {scope}')
    cluster = recorded.cluster.replace_scope(scope, planned)
    history = recorded.build_history(scope, cooldown=conf.engine.cooldown,
                                     instance_cooldown=conf.engine.instance_cooldown)
    busy = planning_pipeline.count_busy_moves(cluster.flights, cluster)
    try:
        outcome = planning_pipeline.plan_scope(cluster, samples, history, settings,
                                               now=recorded.recorded_at,
                                               clock=clock, busy=busy)
    except exception.PlanRefused as e:
        return _report_failure(scope, str(e))
    return cycle_report.render_scope(outcome, collected)


def _report_failure(scope: str, reason: str) -> dict[str, Any]:
    LOG.error('Scope %s: %s', scope, reason)
    return cycle_report.render_failed_scope(scope, reason)
