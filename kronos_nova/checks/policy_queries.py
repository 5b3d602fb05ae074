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

"""The results of each query of policies, compared with the Nova of kronos.conf."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses

from kronos_nova import exception
from kronos_nova import policy as policies
from kronos_nova.checks import base
from kronos_nova.checks import catalogue
from kronos_nova.checks import details
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer.operations import cloud_state

#: Checks that must pass first; only their failures are shown.
NEEDED = ('source', 'keystone', 'nova')


def examine_policies(session: cloud_state.Session, path: str | None = None,
                     names: Sequence[str] = (), *,
                     every: bool = False) -> list[details.QueryFinding]:
    """Run the queries of the chosen policies, and compare their results with Nova.

    :param path: the policy file; None: [engine] policies_file.
    :param names: the policies; empty: all that are enabled.
    :param every: show all names, not only the first ones.
    :raises KronosException: the configuration or the policy file cannot be used.
    """
    conf = session.conf
    path = path or conf.engine.policies_file
    policy_set = policy_files.load_policies(path)
    chosen = _choose_policies(policy_set, names, path)
    context = base.CheckContext(conf, policy_set=policy_set)
    try:
        return [dataclasses.replace(finding, item=base.mask_item(finding.item))
                for finding in _list_details(context, chosen, every)]
    finally:
        context.close()


def _choose_policies(policy_set: policies.PolicySet, names: Sequence[str],
                     path: str) -> list[policies.Policy]:
    known = {policy.name: policy for policy in policy_set.policies}
    for name in names:
        if name not in known:
            raise exception.ConfigError(
                path=path, field='--policy',
                problem=f'no policy {name!r}',
                remedy=f'There are: {", ".join(known)}.')
    # A disabled policy is tested before it is enabled.
    return [known[name] for name in dict.fromkeys(names)] or list(policy_set.enabled_policies)


def _list_details(context: base.CheckContext, chosen: list[policies.Policy],
                  every: bool) -> Iterator[details.QueryFinding]:
    for item in catalogue.run_checks(context, NEEDED):
        # kronos-test-config shows the findings on aggregates and scopes.
        if item.status is base.CheckStatus.FAILED and not item.name.startswith(('aggregate',
                                                                                'scope')):
            yield details.QueryFinding('', '', item)
    if context.source is None:
        return
    yield from details.examine_queries(context, chosen, every)
