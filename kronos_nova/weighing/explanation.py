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

"""Every weight and filter result by host: the content of ``kronos weigh explain``."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
from typing import Any

from nova import exception as nova_exception
from oslo_config import cfg
from oslo_db import exception as db_exception
from sqlalchemy import exc as sql_exception

from kronos_nova import exception
from kronos_nova import plurals
from kronos_nova.scheduler import runtime
from kronos_nova.weighing import candidates
from kronos_nova.weighing import dry_run
from kronos_nova.weighing import findings
from kronos_nova.weighing import multipliers
from kronos_nova.weighing import request_spec
from kronos_nova.weighing import scores
from kronos_nova.weighing import settings


def aggregate_hosts(name: str) -> frozenset[str]:
    """Return the hosts of an aggregate (name, id or UUID).

    :raises WeighError: the aggregate does not exist, or cannot be read.
    """
    with _convert_nova_errors():
        return frozenset(request_spec.read_aggregate(request_spec.make_admin_context(), name).hosts)


def explain_order(order: findings.BootOrder, patience: float) -> findings.ChoiceExplanation:
    """Return how nova-scheduler would serve an order now, and why.

    :param patience: seconds to wait for the first scores.
    :raises WeighError: Nova's data cannot be read, or the order is wrong.
    """
    with _convert_nova_errors():
        return _build_explanation(order, patience)


def explain_choice(conf: cfg.ConfigOpts, order: findings.BootOrder, patience: float = 60.0,
                   settings_texts: Sequence[str] = (),
                   aggregate: str | None = None) -> findings.ExplainedChoice:
    """Explain the choice of nova-scheduler for an order.

    :param conf: Nova's global configuration, as ``nova_setup.configure_nova`` returns it.
    :param patience: seconds to wait for the first scores, at most.
    :param settings_texts: ``NAME=VALUE`` of nova.conf: the order is explained with these, too.
    :param aggregate: name, id or UUID; the question is about its hosts alone.
    :raises WeighError: a value is wrong, or an input cannot be read.
    """
    wanted = settings.parse_setting(conf, settings_texts)
    hosts = aggregate_hosts(aggregate) if aggregate else None
    return findings.ExplainedChoice(*compare_settings(conf, order, patience, wanted), hosts)


def compare_settings(conf: cfg.ConfigOpts, order: findings.BootOrder, patience: float,
                     wanted: Sequence[tuple[str, str, str]],
                     ) -> tuple[findings.ChoiceExplanation, findings.ChoiceExplanation | None]:
    """Explain an order without and, if any are ``wanted``, with other settings.

    :param wanted: (group, name, value), as from :func:`settings.parse_setting`.
    :raises WeighError: as :func:`explain_order`, or a value is wrong.
    """
    # How a request ranks hosts that are nearly equal depends on its instance.
    plain = settings.apply_settings(conf, [('kronos', 'concurrent_boots', '1')])
    former_options: settings.Taken = []
    try:
        before = explain_order(order, patience)
        if not wanted:
            return before, None
        former_options = settings.apply_settings(conf, wanted)
        if any(group != 'filter_scheduler' for group, _, _ in wanted):
            # The door may have read the option when it opened.
            runtime.close()
        return before, explain_order(order, patience)
    finally:
        settings.restore_options(conf, former_options)
        settings.restore_options(conf, plain)
        runtime.close()


@contextlib.contextmanager
def _convert_nova_errors() -> Iterator[None]:
    """Convert Nova's errors into a WeighError that names a remedy."""
    try:
        yield
    except (db_exception.DBError, sql_exception.SQLAlchemyError) as e:
        raise exception.WeighError(
            what="Nova's database", problem=' '.join(str(e).split())[:300],
            remedy='Correct [database] and [api_database] of nova.conf, and the cell mappings '
                   '("nova-manage cell_v2 list_cells")') from e
    except nova_exception.NovaException as e:
        raise exception.WeighError(
            what='Nova', problem=' '.join(str(e).split()),
            remedy='nova-scheduler would fail alike; correct nova.conf') from e


def _build_explanation(order: findings.BootOrder,
                       patience: float) -> findings.ChoiceExplanation:
    ctxt = request_spec.make_admin_context()
    spec, uuids = request_spec.build_request_spec(ctxt, order)
    stage = dry_run.RehearsalManager()
    manager = stage.host_manager
    every = list(manager.get_host_states_by_uuids(ctxt, None, None))
    notes = []
    if not every:
        notes.append('Nova knows no compute host.')
    if _has_kronos_weigher(manager):
        notes += scores.await_scores(every, patience)
    else:
        notes.append('KronosWeigher is not enabled: [filter_scheduler] weight_classes lacks '
                     'kronos_nova.weighers.all_weighers.')
    refusal = stage.run(ctxt, spec, uuids)
    if refusal and not manager.filter_passes:
        notes.append(f'Nova says before any filter: {refusal}')
    lines, names = _build_host_lines(ctxt, spec, stage, every, notes)
    notes += _list_decision_notes(order, stage, lines)
    chosen = tuple((host.host, host.nodename) for host in stage.chosen)
    return findings.ChoiceExplanation(tuple(lines), names, chosen, tuple(notes))


def _build_host_lines(ctxt: Any, spec: Any, stage: dry_run.RehearsalManager, every: Sequence[Any],
                      notes: list[str]) -> tuple[list[findings.HostLine], tuple[str, ...]]:
    """Build the lines: ranked hosts first, then the others, later filters first."""
    manager = stage.host_manager
    filtered = manager.filter_passes[0] if manager.filter_passes else dry_run.FilterPass([], {})
    weighed = manager.weigh_passes[0] if manager.weigh_passes else dry_run.WeighPass([])
    names = _weigher_names(manager.weighers)
    # Scores from host states before any instance consumed from them.
    host_scores = scores.map_host_scores(list(every)) if _has_kronos_weigher(manager) else {}
    multiplier_keys = multipliers.MultiplierKeys(manager.weighers)
    weights: dict[int, dict[str, findings.WeigherShare]] = {}
    for name, opinion in zip(names, weighed.opinions, strict=False):
        for host, raw, normalised, multiplier in zip(
                weighed.hosts, opinion.raw, opinion.normalised, opinion.multipliers,
                strict=True):
            weights.setdefault(id(host), {})[name] = findings.WeigherShare(
                float(raw), float(normalised), multiplier,
                multiplier_keys.list_aggregates(opinion.weigher, host, multiplier))
    lines: list[findings.HostLine] = []
    hollow = [host for host, _ in weighed.ranked if id(host) in weighed.hollow]
    for host, total in weighed.ranked:
        if id(host) not in weighed.hollow:
            lines.append(_build_host_line(host, host_scores, rank=len(lines) + 1, total=total,
                                          weights=weights.get(id(host), {})))
    lines += [_build_host_line(host, host_scores, filtered_by=candidates.NO_CANDIDATE,
                               why='the filters have refused all its hosts') for host in hollow]
    order = [type(f).__name__ for f in manager.enabled_filters]
    refused = [(host, *filtered.refused[id(host)]) for host in filtered.considered
               if id(host) in filtered.refused]
    refused.sort(key=lambda row: (-order.index(row[1]), row[0].host))
    lines += [_build_host_line(host, host_scores, filtered_by=name, why=why) for host, name,
              why in refused]
    listed_nodes = {(line.host, line.node) for line in lines}
    unlisted_hosts = sorted((h for h in every if (h.host, h.nodename) not in listed_nodes),
                            key=lambda h: (h.host, h.nodename))
    for number, host in enumerate(unlisted_hosts):
        if host.uuid in stage.claims.summaries:
            lines.append(_build_host_line(host, host_scores, filtered_by='the request',
                                          why='it names other hosts'))
            continue
        why = ''
        if number < candidates.MAX_ASKED and stage.claims.requests and host.uuid:
            why = candidates.explain_no_candidate(stage.placement, ctxt, host.uuid, spec,
                                                  stage.claims.requests[0])
        lines.append(_build_host_line(host, host_scores, filtered_by=candidates.NO_CANDIDATE,
                                      why=why))
    if len(weighed.ranked) == 1:
        notes.append('One host is left: Nova does not ask its weighers.')
    return lines, names


def _build_host_line(host: Any, host_scores: dict[tuple[str, str], findings.HostScores], *,
                     rank: int | None = None,
                     total: float | None = None, filtered_by: str = '', why: str = '',
                     weights: dict[str, findings.WeigherShare] | None = None) -> findings.HostLine:
    return findings.HostLine(
        host.host, host.nodename, tuple(sorted(a.name for a in host.aggregates)), rank, total,
        filtered_by, why, host_scores.get((host.host, host.nodename)), weights or {})


def _has_kronos_weigher(manager: Any) -> bool:
    return any(type(w).__module__.startswith('kronos_nova.') for w in manager.weighers)


def _weigher_names(weighers: Sequence[Any]) -> tuple[str, ...]:
    """Return class names; a class that nova.conf names twice counts twice."""
    names: list[str] = []
    for weigher in weighers:
        name = type(weigher).__name__
        count = sum(1 for other in names if other.partition(' ')[0] == name)
        names.append(f'{name} ({count + 1})' if count else name)
    return tuple(names)


def _list_decision_notes(order: findings.BootOrder, stage: dry_run.RehearsalManager,
                         lines: Sequence[findings.HostLine]) -> list[str]:
    """Return notes on Nova's settings and results that also decide."""
    conf = request_spec.CONF
    notes = []
    ranked = [line for line in lines if line.rank is not None]
    if ranked and len(stage.chosen) < order.count:
        notes.append(f'{order.count - len(stage.chosen)} of {order.count} instances find no '
                     'host any more: Nova refuses the whole request.')
    if not ranked:
        notes.append('No host is left: Nova says "No valid host was found".')
    best = [line for line in ranked if line.total == ranked[0].total]
    if len(best) > 1:
        notes.append(f'The highest sum belongs to {plurals.count_noun(len(best), "host")}; ' + (
            'Nova shuffles them (shuffle_best_same_weighed_hosts).'
            if conf.filter_scheduler.shuffle_best_same_weighed_hosts
            else 'their order is random.'))
    if conf.filter_scheduler.host_subset_size > 1:
        notes.append('Nova takes any of the first '
                     f'{conf.filter_scheduler.host_subset_size} (host_subset_size).')
    limit = conf.scheduler.max_placement_results
    requests = stage.claims.requests
    if requests and len(stage.claims.summaries) >= limit and requests[0]._limit is not None:
        notes.append(f'Placement tells of {limit} candidates at most ([scheduler] '
                     'max_placement_results); other hosts may fit as well.')
    return notes
