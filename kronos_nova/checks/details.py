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

"""The detailed check of each query of a policy: ``kronos policy test``.

``kronos-test-config`` reports a query in one line. Both use :mod:`survey`, :mod:`units`,
:mod:`coverage` and the scoring itself.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import functools

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.checks import base
from kronos_nova.checks import coverage
from kronos_nova.checks import queries
from kronos_nova.checks import survey
from kronos_nova.sources import answer

#: Number of names in a line unless ``every`` is set; maximum characters of each name.
SHOWN, LONGEST = 5, 160


@dataclasses.dataclass(frozen=True, slots=True)
class QueryFinding:
    """One finding on one query; ``item.name`` names the examined property."""

    policy: str
    field: str
    item: base.CheckItem


def examine_queries(context: base.CheckContext, chosen: Iterable[policies.Policy],
                    every: bool) -> Iterator[QueryFinding]:
    """Yield the findings on the queries of the chosen policies.

    :param context: with a source; without a cluster nothing is compared with Nova.
    :param every: show all names, not only the first ones.
    """
    for policy, samples in queries.fetch_samples(context, chosen):
        if isinstance(samples, base.CheckItem):
            yield QueryFinding(policy.name, '', samples)
        else:
            yield from _examine_policy(context, policy, samples, every)


def _examine_policy(context: base.CheckContext, policy: policies.Policy,
                    samples: model.PolicySamples,
                    every: bool) -> Iterator[QueryFinding]:
    for field, result in queries.list_results(samples):
        for item in _examine_query(context, policy, field, result, every):
            yield QueryFinding(policy.name, field, item)
    yield QueryFinding(policy.name, 'age_query',
                       dataclasses.replace(queries.check_age(context, policy, samples),
                                           name='sample age'))
    for item in coverage.check(context, policy, samples):
        yield QueryFinding(policy.name, 'vm_profile_query',
                           dataclasses.replace(item, name='coverage'))
    for item in queries.check_scores(context, policy, samples):
        yield QueryFinding(policy.name, '', dataclasses.replace(
            item, name=item.name.partition(' in ')[2]))


def _examine_query(context: base.CheckContext, policy: policies.Policy, field: str,
                   result: model.QueryResult, every: bool) -> Iterator[base.CheckItem]:
    by_host = field in survey.HOST_FIELDS
    label = policy.host_label if by_host else policy.vm_profile_label
    none_there = context.cluster is not None and not context.cluster.instances
    missing = queries.find_series_fault('series', label, result)
    if missing is not None and not by_host and none_there and result.error is None:
        yield base.report_ok('series', 'none, as there are no instances')
        return
    if missing is not None:
        yield missing
        return
    text = f'{len(result.series)} by {label}'
    if result.warnings:
        yield base.report_warning('series', '; '.join((text, *result.warnings)),
                                  'See what the query returns in Prometheus.')
    else:
        yield base.report_ok('series', text)
    if context.cluster is None:
        yield base.report_skip('labels', 'not compared with Nova, which could not be read')
        return
    cluster = survey.restrict_scope(context.cluster, context.policy_set)
    answer_survey = (survey.compare_hosts if by_host else survey.compare_instances)(
        policy, result, cluster)
    show = functools.partial(_format_names, every=every)
    what = 'hosts' if by_host else 'instances'
    yield _check_labels(policy, answer_survey, what, show, every)
    if answer_survey.missing:
        yield base.report_warning('missing',
                                  f'{len(answer_survey.missing)} of {answer_survey.expected} '
                                  f'{what} have no value: {show(answer_survey.missing)}',
                                  _format_remedy(policy, by_host))
    else:
        yield base.report_ok('missing', f'none of {answer_survey.expected} {what}')
    yield _check_duplicates(policy, field, answer_survey, by_host, show)
    yield _check_range(cluster, field, answer_survey)


def _check_labels(policy: policies.Policy, answer_survey: survey.AnswerSurvey, what: str,
                  show: 'functools.partial[str]', every: bool) -> base.CheckItem:
    text = f'{len(answer_survey.values)} are {what} of Nova\'s'
    if answer_survey.renamed:
        text += f', by another name {len(answer_survey.renamed)}'
    if name_by_label := ({label: name for name, label in answer_survey.names.items()} if every
                         else answer_survey.renamed):
        text += ': ' + show(f'{label} -> {name}' for label, name in sorted(name_by_label.items()))
    if answer_survey.unknown:
        text += f'; {len(answer_survey.unknown)} are unknown to Nova: {show(answer_survey.unknown)}'
    if answer_survey.values or not answer_survey.expected:
        return base.report_ok('labels', text)
    return base.report_failure('labels', text, f'Correct host_label ({policy.host_label}), or set '
                               'host_regex.' if what == 'hosts' else
                               f'Correct vm_profile_label ({policy.vm_profile_label}) and '
                               f'vm_profile_label_type ({policy.vm_profile_label_type}).')


def _format_remedy(policy: policies.Policy, by_host: bool) -> str:
    if by_host:
        return ('See that the exporters on these hosts run and are scraped. A host without a '
                'value neither gives nor takes.')
    return ('See that the exporters of instances run on all hosts. Instances without a value '
            f'follow vm_profile_fallback ({policy.vm_profile_fallback}).')


def _check_duplicates(policy: policies.Policy, field: str, answer_survey: survey.AnswerSurvey,
                      by_host: bool,
                      show: 'functools.partial[str]') -> base.CheckItem:
    if not answer_survey.twice:
        return base.report_ok('duplicates', 'none')
    text = f'{len(answer_survey.twice)} have more than one series: {show(answer_survey.twice)}'
    if by_host:
        return base.report_failure('duplicates', text,
                                   f'Aggregate {field} by ({policy.host_label}).')
    return base.report_warning('duplicates', text + '; they have no usage then',
                               f'Aggregate {field} by ({policy.vm_profile_label}).')


def _check_range(cluster: model.Cluster, field: str,
                 answer_survey: survey.AnswerSurvey) -> base.CheckItem:
    """Check the lowest and the highest value of Nova's hosts or instances."""
    if not answer_survey.values:
        return base.report_skip('range', 'no value is of a host or an instance of Nova\'s')
    text = f'{answer_survey.lowest:g} to {answer_survey.highest:g}'
    if field in ('imbalance_query', 'capacity_query'):
        if answer_survey.lowest < -scoring.ROUNDING:
            return base.report_failure('range', f'{text}: a ratio is not negative',
                                       'Make the query return a ratio from 0 to 1.')
        if answer_survey.highest > 1.0 + scoring.ROUNDING:
            mistake = queries.guess_score_unit(cluster, answer_survey)
            return base.report_failure('range', f'{text}, outside [0, 1]' + (
                f': it is probably in {mistake.unit}' if mistake else ''),
                mistake.remedy if mistake else 'Make the query return a ratio from 0 to 1.')
    elif field == 'host_capacity_query' and answer_survey.lowest <= 0:
        return base.report_warning('range',
                                   f'{text}: a host whose capacity is not positive is treated '
                                     'as missing', 'Correct the query in the policy file.')
    elif answer_survey.lowest < 0:
        return base.report_warning('range', f'{text}: a negative usage is not used',
                                   'Correct the query in the policy file.')
    return base.report_ok('range', text)


def _format_names(names: Iterable[str], every: bool) -> str:
    listed = [answer.clean_text(name, LONGEST) for name in names]
    if every or len(listed) <= SHOWN:
        return ', '.join(listed)
    return f'{", ".join(listed[:SHOWN])} and {len(listed) - SHOWN} more'
