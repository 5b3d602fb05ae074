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

"""The check of the share of hosts' load that instances explain; it reveals a wrong unit."""

from collections.abc import Iterator
import time

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.checks import base
from kronos_nova.checks import survey
from kronos_nova.checks import units


def check(context: base.CheckContext, policy: policies.Policy,
          samples: model.PolicySamples) -> Iterator[base.CheckItem]:
    """Yield one item, or none when there is nothing to compare."""
    if context.cluster is None or samples.profile is None or samples.profile.error is not None:
        return
    cluster = survey.restrict_scope(context.cluster, context.policy_set)
    title = f'coverage: {policy.name}'
    # Use measured usages alone: a fallback would explain the whole load.
    policy_scores = scoring.score_policy(
        policy.model_copy(update={'vm_profile_fallback': 'skip'}), samples, cluster,
        now=time.time(), staleness=context.conf.prometheus.staleness_threshold)
    share = (scoring.compute_explained_share(policy_scores.hosts, policy_scores.coverage)
             if policy_scores.coverage else None)
    if share is None:
        yield base.report_skip(title,
                               'it is not known what instances explain of their hosts\' load: '
                                  'no host has a score and an instance with a usage, or all are '
                                  'next to idle')
        return
    lowest, highest = (edge(policy_scores.coverage, key=lambda h: policy_scores.coverage[h])
                       for edge in (min, max))
    text = (f'instances explain {share:.2%} of their hosts\' load '
            f'({policy_scores.coverage[lowest]:.2%} on {lowest} to '
            f'{policy_scores.coverage[highest]:.2%} on {highest})')
    if not units.is_implausible(share):
        yield base.report_ok(title, text)
        return
    mistake = units.guess_usage_unit(policy, share, cluster, policy_scores.capacity.values())
    if mistake is not None:
        text += f': vm_profile_query is probably in {mistake.unit}'
    if share > scoring.HIGH_COVERAGE:
        make = base.report_failure if share > scoring.MAX_COVERAGE else base.report_warning
        yield make(title, text, mistake.remedy if mistake else
                   'Compare what the query says of one instance with vm_profile_unit '
                   f'({policy.vm_profile_unit}) and with the host\'s capacity.')
    elif mistake is not None:
        yield base.report_warning(title, text, mistake.remedy)
    else:
        yield base.report_ok(title, text)
