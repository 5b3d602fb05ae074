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

"""``openstack rebalance policy list``: the policies by which engines plan."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc.columns import Column
from kronos_nova.text import widths


def _format_scopes(policy: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    scopes = policy['scopes']
    return columns.Cell(scopes, '\n'.join(
        scope if style.full else widths.cut_text(scope, 20) for scope in scopes))


def _format_untrusted(entry: Mapping[str, Any]) -> str:
    return f'{entry["scope"]}: {entry["reason"]}'


class ListPolicies(command.ListResources):
    """List the policies of each engine, with the scopes that it plans by them.

    Trusted is false where a scope does not use the scores of the policy; --long shows why.
    """

    columns = (
        Column('Name', columns.read_name('name', 18)),
        Column('Scopes', _format_scopes),
        Column('Mode', columns.read_text('mode')),
        Column('Enabled', columns.read_text('enabled')),
        Column('Weight', columns.read_text('weight')),
        Column('Threshold', columns.read_text('threshold')),
        Column('Trusted', columns.read_text('trusted')),
        Column('Untrusted', columns.read_lines('untrusted', _format_untrusted), long=True),
        Column('Max Moves Per Cycle', columns.read_text('max_moves_per_cycle'), long=True),
        Column('Imbalance Query', columns.read_text('imbalance_query'), long=True),
        Column('Capacity Query', columns.read_text('capacity_query'), long=True),
        Column('Instance Query', columns.read_text('instance_query'), long=True),
        Column('Age Query', columns.read_text('age_query'), long=True),
        Column('Boot Ceiling', columns.read_text('boot_ceiling'), long=True),
        Column('Fill Target', columns.read_text('fill_target'), long=True),
        Column('Read At', columns.read_time('read_at'), long=True))

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        for policy_set in self.client.send('GET', '/v1/policies')['policy_sets']:
            for policy in policy_set['policies']:
                untrusted = [entry for entry in policy_set['untrusted']
                             if entry['policy'] == policy['name']]
                yield {**policy, 'scopes': policy_set['scopes'], 'mode': policy_set['mode'],
                       'read_at': policy_set['read_at'], 'trusted': not untrusted,
                       'untrusted': untrusted}
