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

"""Hard server group policies, as Nova's filters judge them.

A parity test compares the rules with ``ServerGroupAntiAffinityFilter`` and
``ServerGroupAffinityFilter``. Members count wherever they are: cooling, quarantined, building, in
another scope, and in flight at both ends.
"""

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views


def anti_affinity(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that has ``max_server_per_host`` other members already."""
    for group in view.list_groups_of(move.instance_uuid):
        if group.policy is not model.GroupPolicy.ANTI_AFFINITY:
            continue
        others = [u for u in view.list_members_on(group, move.to_host) if u != move.instance_uuid]
        if len(others) >= group.max_server_per_host:
            return model.Rejection(
                'anti-affinity', f'server group {group.uuid} has {len(others)} members on '
                                 f'{move.to_host}, {group.max_server_per_host} allowed')
    return None


ANTI_AFFINITY_RULE = rules.Rule(
    anti_affinity,
    codes={
        'anti-affinity': rules.RejectionCode(
            meaning='The group has too many members there.',
            remedy='a member of the server group leaves the host first',
            retry=rules.RetryClass.ELSEWHERE)})


def affinity(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that holds no other member.

    Nova admits only hosts that hold a member and ignores the source, so a group whose members share
    one host cannot be live-migrated at all.
    """
    for group in view.list_groups_of(move.instance_uuid):
        if group.policy is not model.GroupPolicy.AFFINITY:
            continue
        if any(u != move.instance_uuid for u in view.list_members_on(group, move.to_host)):
            continue
        elsewhere = any(view.find_host_of(u) not in (None, move.from_host) for u in group.members)
        if elsewhere:
            return model.Rejection('affinity', f'server group {group.uuid} has no member on '
                                               f'{move.to_host}')
        return model.Rejection(
            'affinity-unmovable', f'server group {group.uuid} has all its members on '
                                  f'{move.from_host}; Nova migrates them to no other host')
    return None


AFFINITY_RULE = rules.Rule(
    affinity,
    codes={
        'affinity': rules.RejectionCode(
            meaning='The group has no member there.',
            remedy='a member of the server group is there first',
            retry=rules.RetryClass.ELSEWHERE),
        'affinity-unmovable': rules.RejectionCode(
            meaning='All members are on the source: Nova migrates them nowhere.',
            remedy=None,
            retry=rules.RetryClass.FINAL)})


def group_in_flight(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move while another member of a group is in flight anywhere in the cloud.

    Nova reads a group's hosts when it schedules: two members under way at once can pass each other
    unseen.
    """
    for group in view.list_groups_of(move.instance_uuid):
        under_way = [u for u in group.members if u != move.instance_uuid and view.is_in_flight(u)]
        if under_way:  # sets have no order, and a replay must report the same
            return model.Rejection('group-in-flight', f'instance {min(under_way)} of server group '
                                                      f'{group.uuid} is migrating')
    return None


GROUP_IN_FLIGHT_RULE = rules.Rule(
    group_in_flight, kind=rules.RuleKind.IN_FLIGHT,
    codes={
        'group-in-flight': rules.RejectionCode(
            meaning='Another member of the group is migrating.',
            remedy='the member that is migrating arrives first',
            retry=rules.RetryClass.PASSING)})
