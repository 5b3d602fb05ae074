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

"""A cycle's result as plain data and as one line.

The keys are documented (doc/source/reference/replay.rst) and stable: kronos-replay prints them, and
``kronos-engine --once`` shows them.
"""

from collections import Counter
from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import tasks


def render_scope(outcome: planning_pipeline.PassOutcome, collect: float = 0.0) -> dict[str, Any]:
    """Render the result of one scope.

    :param collect: seconds that the collection of the cluster took.
    """
    cluster, plan = outcome.cluster, outcome.plan
    methods = tasks.choose_methods(plan, cluster, outcome.request.options, outcome.request.history)
    return {
        'name': cluster.scope,
        'hosts': len(cluster.scope_hosts),
        'instances': sum(1 for i in cluster.instances.values() if i.host in cluster.scope_hosts),
        'policies': [_render_policy(p, outcome.scores) for p in plan.policies],
        'combined_measured': plan.measured_imbalance,
        'combined_before': plan.combined_before,
        'combined_after': plan.combined_after,
        'moves': [render_move(m, cluster, methods[m.instance_uuid]) for m in plan.moves],
        'waves': _count_wave_moves(plan),
        'failover': _count_failover_states(outcome.certificate),
        'rejections': dict(plan.rejections),
        'held': [{'rule': rejection.rule, 'detail': rejection.detail} for rejection in plan.held],
        'warnings': list(plan.warnings),
        'draining': sorted(plan.draining),
        'undrained': [rejection.detail for rejection in plan.undrained],
        'truncated': plan.truncated,
        'reason': plan.reason,
        'timings': {'collect': round(collect, 6),
                    **{step: round(s, 6) for step, s in outcome.timings.items()}},
    }


def _count_failover_states(certificate: failover.FailoverCertificate | None) -> dict[str, int]:
    """Count the hosts by the state of the failover certificate; empty without one.

    ``unplaceable``: instances that no host may take, also after moves. They alone make no host
    unsafe here, else they would hide that others have lost their places.
    """
    if certificate is None or certificate.hold is not None:
        return {}
    counts = {str(state): len(certificate.list_verdicts(state)) for state in failover.FailureState}
    unsafe = certificate.list_verdicts(failover.FailureState.UNSAFE)
    counts['unsafe'] = sum(bool(v.list_lacking()) for v in unsafe)
    counts['unplaceable'] = sum(len(v.unplaced) - len(v.list_lacking())
                                for v in certificate.verdicts.values())
    return counts


def _count_wave_moves(plan: model.Plan) -> list[dict[str, int]]:
    """Count the moves of each wave, and the most moves of a wave that share one host.

    Executors begin moves that share a host one after the other.
    """
    rows = []
    for number in sorted({m.wave for m in plan.moves}):
        moves = [m for m in plan.moves if m.wave == number]
        rows.append({'moves': len(moves),
                     'most_from_one_host': max(Counter(m.from_host for m in moves).values()),
                     'most_to_one_host': max(Counter(m.to_host for m in moves).values())})
    return rows


def _render_policy(report: model.PolicyReport, scores: model.ClusterScores) -> dict[str, Any]:
    known = scores.policies[report.name]
    return {
        'name': report.name,
        'imbalance_measured': report.measured_imbalance,
        'imbalance_before': report.imbalance_before,
        'imbalance_after': report.imbalance_after,
        'threshold': report.threshold,
        'skipped': report.skipped,
        'reason': report.reason,
        'age_seconds': known.age,
        'coverage': dict(known.coverage),
        'missing_hosts': sorted(known.missing),
        'warnings': list(known.warnings),
    }


def render_move(m: model.Move, cluster: model.Cluster,
                method: model.MoveMethod) -> dict[str, Any]:
    """Render one move, with the zones of its hosts, because moves may cross zones."""
    def find_zone(host: str) -> str:
        service = cluster.services.get(host)
        return service.zone if service else ''

    return {
        'instance_uuid': m.instance_uuid,
        'from_host': m.from_host,
        'to_host': m.to_host,
        'from_zone': find_zone(m.from_host),
        'to_zone': find_zone(m.to_host),
        'phase': str(m.phase),
        'improvement': m.improvement,
        'wave': m.wave,
        'requires': list(m.requires),
        'alternates': list(m.alternates),
        'alternate_improvements': list(m.alternate_improvements),
        'gain': m.gain,
        'changes': [dataclasses.asdict(change) for change in m.changes],
        'method': str(method),
    }


def render_failed_scope(scope: str, reason: str) -> dict[str, Any]:
    """Render a scope that could not be planned: the same keys, no numbers."""
    return {'name': scope, 'hosts': None, 'instances': None, 'policies': [],
            'combined_measured': None, 'combined_before': None, 'combined_after': None,
            'moves': [], 'waves': [], 'failover': {},
            'rejections': {}, 'held': [], 'warnings': [], 'draining': [], 'undrained': [],
            'truncated': False, 'reason': reason, 'timings': {}}


def format_log_line(row: Mapping[str, Any]) -> str:
    """Format a cycle's result as one line for the log."""
    policies = ', '.join(
        f'{p["name"]} {p["reason"]}' if p['skipped'] else
        f'{p["name"]} {p["imbalance_before"]:.3f} -> {p["imbalance_after"]:.3f} '
        f'(threshold {p["threshold"]:.4f})' for p in row['policies'])
    phases = Counter(m['phase'] for m in row['moves'])
    moves = ', '.join(f'{n} {phase}' for phase, n in sorted(phases.items())) or 'no moves'
    refused = ', '.join(f'{rule} {n}' for rule, n in sorted(row['rejections'].items()))
    crossing = sum(1 for m in row['moves'] if m['from_zone'] != m['to_zone'])
    parts = [f'{plurals.count_noun(row["hosts"], "host")}, '
             f'{plurals.count_noun(row["instances"], "instance")}', policies, moves,
             f'{crossing} between zones' if crossing else '',
             f'refused: {refused}' if refused else '',
             f'because {row["reason"]}' if row['reason'] else '',
             'cut off, see the warnings' if row['truncated'] else '']
    return '; '.join(p for p in parts if p)
