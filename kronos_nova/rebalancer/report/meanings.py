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

"""Meanings of the rules, a line each: the words of doc/source/reference/rules.rst."""

from kronos_nova import constraints

#: Meanings of rejections by other parts than the rules.
_OTHERS = {
    'moved-already': 'The plan moves it already.',
    'would-worsen': 'Another policy would end above its threshold.',
    'would-undo-repair': 'The next repair would take it back.',
    'foreseen-peak': 'The destination would be above a ceiling at its foreseen peak (pack).',
    'partial-drain': 'No order lets the whole drain end (pack).',
    'just-came': (
        'The instance that it was booted beside has just come to the destination by a live '
        'migration, and nova-scheduler may not know it yet.'),
    'just-left': (
        'A member of its anti-affinity group, or an instance it was booted apart from, has '
        'just left the destination by a live migration, and nova-scheduler may not know it '
        'yet.'),
    'method-changed': (
        'The instance was started or stopped after it was planned: the next plan knows how to '
        'move it.'),
    'contract-method': (
        'It was to be shut down and moved, and its contract does not allow that; or the move is '
        'a drain\'s, and [engine] drain_offline or newer migrations do not.'),
    'no-slot': 'Migrations that others asked for fill the slots of a host.',
    'source-overcommitted': (
        'A resource provider of its host uses more than its capacity, and Placement before 14.0 '
        'refused the migration for that.'),
    'source-reshaped': (
        'The resource providers of its host were reshaped after it was planned: the next plan '
        'knows.'),
    'tree-reshaped': 'Those of the destination were: the next alternate is tried.',
    'no-swap': ("Two moves are no swap: neither to each other's place nor both of spread, or not "
                'in an order that can be undone.'),
    'over-budget': 'The plan has more moves than its budget.',
    'moved-twice': 'It moves an instance twice.',
    'alternate-twice': "A destination stands twice among a move's.",
    'wave-order': 'A move begins before a move that it requires.',
    'outage': 'Too many hosts are down or disabled.',
    'paused': 'The scope is paused.',
    'scope-cooling': 'The scope cools down.',
    'unsettled': "The scores do not show the instance's last move yet.",
    'not-drained': 'The source of a drain is not to be drained.',
    'no-repair': 'The instance is in no group that is to be repaired.',
    'held': 'The scope is paused, frozen or in an outage.',
    'no-destination': 'No host is known where the instance might go.',
    'breaks-failover': (
        'With it the instances of a host that is safe now would not all find places if the host '
        'failed.'),
    'no-place': 'The failover certificate names no place for it.',
    'not-on-host': 'The failover certificate names a place for an instance of another host.',
    'failed-host': 'Its place in the failover certificate is on a host that fails with its own.',
    'no-order': 'No order of the requested moves is safe.',
}
MEANINGS = {name: code.meaning for name, code in constraints.CODES.items()} | _OTHERS
#: Meaning of a rule that only a strategy of a plug-in has.
UNKNOWN = 'A rule of a plug-in; its own documentation explains it.'


def explain_rule(rule: str) -> str:
    return MEANINGS.get(rule, UNKNOWN)
