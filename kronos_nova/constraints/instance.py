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

"""The instance itself: it must be movable, and on the source of the move."""

from kronos_nova import model
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import rules
from kronos_nova.constraints import statuses
from kronos_nova.constraints import view as views


def identity(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move whose instance does not exist, is not on the source, or stays there."""
    uuid = move.instance_uuid
    if view.find_instance(uuid) is None:
        return model.Rejection('no-such-instance', f'instance {uuid} is not in Nova')
    if view.find_host_of(uuid) != move.from_host:
        return model.Rejection('moved-away',
                               f'instance {uuid} is on {view.find_host_of(uuid)}, not '
                                             f'on {move.from_host}')
    if move.from_host == move.to_host:
        return model.Rejection('same-host', f'instance {uuid} is on {move.to_host} already')
    return None


IDENTITY_RULE = rules.Rule(
    identity,
    codes={
        'no-such-instance': rules.RejectionCode(
            meaning='The instance is not in Nova any more.',
            remedy=None,
            retry=rules.RetryClass.GONE),
        'moved-away': rules.RejectionCode(
            meaning='It is on another host than the plan says.',
            remedy='ask of the host where it is now',
            retry=rules.RetryClass.QUARANTINE),
        'same-host': rules.RejectionCode(
            meaning='It is on the destination already.',
            remedy=None,
            retry=rules.RetryClass.QUARANTINE)})


def state(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse to move an instance that is not ACTIVE, or is locked, busy or pinned.

    A drain also moves instances in other statuses that Nova can move (see :mod:`statuses`). Nova
    lets an administrator migrate a locked instance, so this rule must respect the lock.
    """
    instance = view.find_instance(move.instance_uuid)
    assert instance is not None, 'identity runs first'
    uuid = instance.uuid
    if instance.locked:
        return model.Rejection('locked', f'instance {uuid} is locked by its owner')
    if not statuses.is_movable(instance, move.phase, view.options):
        remedy = statuses.REMEDIES.get(instance.status)
        return model.Rejection('not-active', f'instance {uuid} is {instance.status}'
                                             + (f': {remedy}' if remedy else ''))
    if instance.task_state is not None:
        return model.Rejection('task-state', f'instance {uuid} is {instance.task_state}')
    if uuid in view.options.pinned_instances:
        return model.Rejection('opted-out', f'instance {uuid} is in pinned_instances')
    if instance.pinned is not None:
        return model.Rejection('pinned', f'instance {uuid}: {instance.pinned}')
    if view.is_in_flight(uuid):
        return model.Rejection('in-flight', f'instance {uuid} is migrating already, or its task '
                                            'is not over')
    return None


STATE_RULE = rules.Rule(
    state, kind=rules.RuleKind.ALONE,
    codes={
        'locked': rules.RejectionCode(
            meaning='Its owner, or an administrator, locked it.',
            remedy='its owner unlocks it (openstack server unlock)',
            retry=rules.RetryClass.FINAL),
        'not-active': rules.RejectionCode(
            meaning='Instances in its status are not moved.',
            remedy='it is started, or resumed, first; a drain takes some other states as well',
            retry=rules.RetryClass.QUARANTINE),
        'task-state': rules.RejectionCode(
            meaning='Nova is doing something with it.',
            remedy='Nova finishes its own action',
            retry=rules.RetryClass.QUARANTINE),
        'opted-out': rules.RejectionCode(
            meaning='It is in pinned_instances.',
            remedy='its UUID leaves [engine] pinned_instances',
            retry=rules.RetryClass.FINAL),
        'pinned': rules.RejectionCode(
            meaning='It has allocations that cannot be judged; the text says why.',
            remedy=None,
            retry=rules.RetryClass.QUARANTINE),
        'in-flight': rules.RejectionCode(
            meaning='It is migrating.',
            remedy='the migration that is under way ends',
            retry=rules.RetryClass.QUARANTINE)})


def history(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse an instance that its history holds: cooling, quarantined, refused everywhere.

    A quarantine after a late live migration of a drain does not hold the move after that, which
    shuts the instance down.
    """
    return view.judge_history(move.instance_uuid,
                              is_late_drain=offline_drains.is_admitted(view, move))


HISTORY_RULE = rules.Rule(
    history, kind=rules.RuleKind.ALONE,
    codes={
        history_holds.QUARANTINED: rules.RejectionCode(
            meaning='Its last migration failed for good.',
            remedy='kronos quarantine lift instance, when its last failure is understood',
            retry=rules.RetryClass.FINAL),
        'cooling': rules.RejectionCode(
            meaning='It was moved lately.',
            remedy='the cooldown ends with time; kronos plan retry does not wait for it',
            retry=rules.RetryClass.QUARANTINE),
        'placement-refuses-everywhere': rules.RejectionCode(
            meaning='Placement was asked for it on three hosts and confirmed none; only when '
                    'planning.',
            remedy='Placement has a candidate again; an engine asks in its turn',
            retry=rules.RetryClass.FINAL)})
