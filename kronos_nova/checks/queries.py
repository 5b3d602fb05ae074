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


"""The check of each query of each enabled policy: it is run and mapped to Nova's names."""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import time

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.checks import base
from kronos_nova.checks import coverage
from kronos_nova.checks import survey
from kronos_nova.checks import units
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer import simulation

#: How many names an item shows.
SHOWN = 5


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    if context.policy_set is None or context.source is None:
        yield base.report_skip('queries', 'there are no policies, or no source to ask')
        return
    for policy, samples in fetch_samples(context, context.policy_set.enabled_policies):
        if isinstance(samples, base.CheckItem):
            yield dataclasses.replace(samples, name=f'queries: {policy.name}')
            continue
        for field, result in list_results(samples):
            check_result = _by_host if field in survey.HOST_FIELDS else _by_instance
            yield check_result(context, policy, field, result)
        yield check_age(context, policy, samples)
        yield from (item for item in coverage.check(context, policy, samples)
                    if item.status in (base.CheckStatus.WARNING, base.CheckStatus.FAILED))
        yield from check_scores(context, policy, samples)


def fetch_samples(context: base.CheckContext, chosen: Iterable[policies.Policy]) -> Iterator[
        tuple[policies.Policy, model.PolicySamples | base.CheckItem]]:
    """Yield each policy with its samples, or with an item that says why it was skipped.

    When the source no longer answers, the other policies are skipped: each query would have to
    time out.
    """
    lost = None
    for policy in chosen:
        if lost is not None:
            yield policy, base.report_skip('queries', f'not asked: {lost}')
            continue
        samples = context.source.fetch(policy)
        if any(result.health is model.SourceHealth.UNREACHABLE for _field,
               result in list_results(samples)):
            # A single slow query does not mean that the source is lost.
            health, text = context.source.health()
            lost = text if health is model.SourceHealth.UNREACHABLE else None
        yield policy, samples


def list_results(samples: model.PolicySamples) -> Iterator[tuple[str, model.QueryResult]]:
    """Yield each result with the field of its query, without the ages."""
    for field, result in (('imbalance_query', samples.imbalance),
                          ('capacity_query', samples.capacity),
                          ('host_capacity_query', samples.host_capacity),
                          ('vm_profile_query', samples.profile),
                          ('vm_mean_query', samples.mean),
                          ('vm_deviation_query', samples.deviation),
                          ('vm_dirty_rate_query', samples.dirty_rate)):
        if result is not None:
            yield field, result


def format_title(policy: policies.Policy, field: str) -> str:
    return f'query: {policy.name} {field}'


def find_series_fault(title: str, label: str, result: model.QueryResult) -> base.CheckItem | None:
    """Return an item that says why a result has no series; None when it has some."""
    if result.error is not None:
        return base.report_failure(title, result.error,
                                   'Run the query in Prometheus and correct it in the policy file.')
    if not result.series and not result.duplicates:
        return base.report_failure(
            title, 'it returns no series', 'See that its metrics are scraped and that its '
            f'joins match; the result must carry the label {label}.')
    return None


def _by_host(context: base.CheckContext, policy: policies.Policy, field: str,
             result: model.QueryResult) -> base.CheckItem:
    title = format_title(policy, field)
    if (item := find_series_fault(title, policy.host_label, result)) is not None:
        return item
    if context.cluster is None:
        return base.report_warning(title,
                                   f'{len(result.series)} series, not compared with Nova\'s hosts',
                                   'Put Nova right first.')
    cluster = survey.restrict_scope(context.cluster, context.policy_set)
    answer_survey = survey.compare_hosts(policy, result, cluster)
    if field != 'host_capacity_query':
        names = survey.map_host_names(policy, cluster)
        _values, problem, _warnings = scoring.host_scores(policy, result, names)
        if problem is not None:
            mistake = guess_score_unit(cluster, answer_survey)
            return base.report_failure(
                title, problem + (f': it is probably in {mistake.unit}' if mistake else ''),
                mistake.remedy if mistake else 'Correct the query in the policy file.')
    missing = answer_survey.missing
    known = sum(1 for host in answer_survey.values if host in cluster.scope_hosts)
    text = f'{known} of {len(cluster.scope_hosts)} hosts have a value'
    if answer_survey.values:
        text += f', {answer_survey.lowest:g} to {answer_survey.highest:g}'
    if cluster.scope_hosts and not known:
        return base.report_failure(title, 'no series is one of Nova\'s hosts',
                                   f'Correct host_label ({policy.host_label}), or set host_regex.')
    if missing:
        return base.report_warning(title, f'{text}; missing: {", ".join(missing[:SHOWN])}',
                                   'See that the exporters on these hosts run and are scraped. A '
                                   'host without a value neither gives nor takes.')
    return base.report_ok(title, text)


def _by_instance(context: base.CheckContext, policy: policies.Policy, field: str,
                 result: model.QueryResult) -> base.CheckItem:
    title = format_title(policy, field)
    none_there = context.cluster is not None and not context.cluster.instances
    item = find_series_fault(title, policy.vm_profile_label, result)
    if item is not None and result.error is None and none_there:
        return base.report_ok(title, 'no series, as there are no instances')
    if item is not None:
        return item
    if context.cluster is None:
        return base.report_warning(title, f'{len(result.series)} series, not compared with Nova\'s '
                                   'instances', 'Put Nova right first.')
    answer_survey = survey.compare_instances(
        policy, result, survey.restrict_scope(context.cluster, context.policy_set))
    known = answer_survey.expected - len(answer_survey.missing)
    text = f'{known} of {answer_survey.expected} active instances have a value'
    if answer_survey.expected and not known:
        return base.report_failure(title, 'no series is one of Nova\'s instances',
                                   f'Correct vm_profile_label ({policy.vm_profile_label}) and '
                                   f'vm_profile_label_type ({policy.vm_profile_label_type}).')
    if answer_survey.missing:
        lacking = {'vm_profile_query': 'Instances without a value follow vm_profile_fallback '
                                       f'({policy.vm_profile_fallback}).',
                   'vm_dirty_rate_query': 'An instance without a value costs what its memory '
                                          'and its past migrations say.'}
        return base.report_warning(title, text, ' '.join((
            'See that the exporters of instances run on all hosts.',
            lacking.get(field, 'Instances without a value count as steady.'))))
    return base.report_ok(title, text)


def guess_score_unit(cluster: model.Cluster,
                     answer_survey: survey.AnswerSurvey) -> units.UnitMistake | None:
    """Guess the unit of host scores above 1; None when no score is above 1."""
    cpus = max((h.sum_inventories('VCPU') for h in cluster.hosts.values()), default=0)
    return units.guess_score_unit(answer_survey.values.values(), cpus or None)


def check_age(context: base.CheckContext, policy: policies.Policy,
              samples: model.PolicySamples) -> base.CheckItem:
    title = format_title(policy, 'age_query')
    if policy.age_query is None:
        if context.conf.engine.require_age:
            return base.report_failure(title, 'no query is set, and require_age is set',
                                       'Give the policy an age_query, or set require_age = false.')
        return base.report_warning(title,
                                   'no query is set, so stale samples look like fresh '
                                   'ones', 'Give the policy an age_query; see the presets.')
    if samples.age is None:
        return base.report_failure(title, samples.imbalance.error or 'the age is not known',
                                   'Run the query in Prometheus and correct it in the policy file.')
    staleness = context.conf.prometheus.staleness_threshold
    if samples.age > staleness:
        return base.report_failure(title, f'the samples are {samples.age:.0f} s old, more than '
                                  f'staleness_threshold ({staleness} s)',
                                   'See that Prometheus scrapes the exporters.')
    return base.report_ok(title, f'the samples are {samples.age:.0f} s old')


def check_scores(context: base.CheckContext, policy: policies.Policy,
                 samples: model.PolicySamples) -> Iterator[base.CheckItem]:
    """Yield the engine's judgement of the whole policy, by scope."""
    conf = context.conf
    if context.cluster is None or samples.imbalance.error is not None:
        return
    covered = context.policy_set.aggregates if context.policy_set is not None else ()
    scopes = [a for a in conf.engine.aggregates if a in context.cluster.aggregates
              and (not covered or a in covered)]
    if conf.engine.include_unassigned_hosts:
        scopes.append(model.UNASSIGNED)
    for scope in scopes:
        cluster = context.cluster.replace_scope(scope, scopes)
        if not cluster.scope_hosts:
            continue
        policy_scores = scoring.score_policy(
            policy, samples, cluster, now=time.time(),
            staleness=conf.prometheus.staleness_threshold, require_age=conf.engine.require_age,
            max_missing_hosts=conf.engine.max_missing_hosts)
        title = f'policy: {policy.name} in {scope}'
        if policy_scores.untrusted:
            yield base.report_failure(title, policy_scores.untrusted,
                                      'Until then no instance moves by load.')
        else:
            yield base.report_ok(title, _format_imbalance(context, policy, cluster, policy_scores))


def _format_imbalance(context: base.CheckContext, policy: policies.Policy, cluster: model.Cluster,
                      policy_scores: model.PolicyScores) -> str:
    """Format the imbalance with which an engine starts to plan, by this policy alone."""
    alone = policies.PolicySet(
        policies=(policy.model_copy(update={'enabled': True, 'weight': 1.0}),))
    simulated = simulation.Simulation(
        cluster, model.ClusterScores({policy.name: policy_scores}), alone, model.MoveHistory(),
        engine_conf.build_options(context.conf))
    counted = int((simulated.givers | simulated.takers).sum())
    hosts = len(cluster.scope_hosts)
    return (f'imbalance {simulated.compute_imbalances()[0]:.4f}'
            + (f' of {counted} of {hosts} hosts' if counted < hosts else '')
            + f', threshold {policy.threshold:.4f}')
