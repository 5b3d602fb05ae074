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


"""The check of the policy file: it loads, and no setting is known to be risky."""

from collections.abc import Iterator
from typing import Any

from kronos_nova import exception
from kronos_nova import policy as policies
from kronos_nova.checks import base
from kronos_nova.conf import policies as policy_files


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    path = context.conf.engine.policies_file
    try:
        context.policy_set = policy_files.load_policies(path)
    except exception.PolicyFileError as e:
        yield base.report_failure('policies', f'{path}: {e.kwargs["field"]}: {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
        return
    yield base.report_ok('policies', f'{path}: {format_summary(context.policy_set)}')
    yield from check_risks(context.policy_set)
    if context.conf.engine.drain_quiet_wait and not any(
            policy.vm_dirty_rate_query for policy in context.policy_set.enabled_policies):
        yield base.report_warning(
            'policies: vm_dirty_rate_query', 'no policy measures how much memory instances write, '
            'so no drain waits for a quieter hour ([engine] drain_quiet_wait)',
            'Give a policy vm_dirty_rate_query.')
    yield from list_ignored(policy_files.read_document(path))


def list_ignored(document: Any) -> Iterator[base.CheckItem]:
    """Warn of each field of the file that has no effect."""
    for note in policies.find_ignored(document):
        yield base.report_warning('policies', str(note), 'Remove it, or correct its name.')


def format_summary(policy_set: policies.PolicySet) -> str:
    return f'{policy_set.mode} by ' + ', '.join(
        f'{p.name} ({p.weight:g})' for p in policy_set.enabled_policies)


def check_risks(policy_set: policies.PolicySet) -> Iterator[base.CheckItem]:
    """Warn of settings that are valid but unwise."""
    for policy in policy_set.enabled_policies:
        if policy.vm_profile_query and policy.vm_profile_label_type == 'nova_display_name':
            yield base.report_warning(
                f'policies: {policy.name}', 'instances are found by display names, which their '
                'owners choose', 'Use nova_instance_uuid with a label that holds UUIDs.')
