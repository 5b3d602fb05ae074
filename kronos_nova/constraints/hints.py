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


"""Instances that a scheduler hint keeps beside, or apart from, others.

Each hint counts where ``nova_enabled_filters`` names its filter: Nova keeps hints and applies them
to every move. A parity test compares the rules with Nova's classes. A hint binds only the moves of
the instance that has it. But of the instances that a hint ties together, one is in flight at a
time: otherwise another of our moves could break the hint of an instance that is in flight or waits
for its turn.
"""

from collections.abc import Collection
from collections.abc import Mapping

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

DIFFERENT = 'DifferentHostFilter'
SAME = 'SameHostFilter'
_FILTERS = {'different_host': DIFFERENT, 'same_host': SAME}


def hints(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that may break a hint of the instance.

    The rule reads every host where the other instances are, were before this plan, or may come to
    be. So neither the order of the plan's moves nor the end of a move under way matters.
    """
    instance = view.find_instance(move.instance_uuid)
    if instance is None or not instance.scheduler_hints:
        return None
    enabled = view.options.nova_enabled_filters
    apart = instance.scheduler_hints.get('different_host', ())
    if DIFFERENT in enabled and any(move.to_host in view.list_possible_hosts(u) for u in apart):
        return model.Rejection('different-host', f'instance {instance.uuid} was booted apart from '
                                                 f'an instance on {move.to_host}')
    beside = instance.scheduler_hints.get('same_host', ())
    if SAME in enabled and beside and not any(
            set(view.list_possible_hosts(u)) == {move.to_host} for u in beside):
        return model.Rejection('same-host-hint', f'instance {instance.uuid} was booted beside '
                                                 f'instances that are not on {move.to_host}')
    return None


HINTS_RULE = rules.Rule(
    hints,
    codes={
        'different-host': rules.RejectionCode(
            meaning='It was booted with the hint different_host, and such an instance is there, '
                    'or may come there by a move under way, also by an alternate of its task. '
                    'With DifferentHostFilter.',
            remedy='those that it was booted apart from leave the host',
            retry=rules.RetryClass.ELSEWHERE),
        'same-host-hint': rules.RejectionCode(
            meaning='It was booted with the hint same_host, and no such instance is there, or '
                    'only instances that a move under way may take away. With SameHostFilter.',
            remedy='those that it was booted beside are there first',
            retry=rules.RetryClass.ELSEWHERE)})


def hint_in_flight(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move of an instance that must wait for a tied instance in flight.

    The hint of the instance in flight names this one; or this one's hint names the instance in
    flight, and Nova has not scheduled that yet.
    """
    for uuid in view.list_hinted_instances(move.instance_uuid):
        instance = view.find_instance(move.instance_uuid)
        if instance is not None and view.is_in_flight(uuid) and must_wait_for(
                instance, view.find_instance(uuid), view.has_unknown_destination(uuid)):
            return model.Rejection('hint-in-flight', f'instance {uuid}, to which a scheduler hint '
                                                     'ties it, is migrating')
    return None


HINT_IN_FLIGHT_RULE = rules.Rule(
    hint_in_flight, kind=rules.RuleKind.IN_FLIGHT,
    codes={
        'hint-in-flight': rules.RejectionCode(
            meaning='An instance is migrating that a hint ties to it: one of its project whose '
                    'different_host or same_host hint names it; or one that its own hint names, '
                    'and Nova has not said where to. With the filter of the hint.',
            remedy='the instance that is migrating arrives first',
            retry=rules.RetryClass.PASSING)})


def must_wait_for(instance: model.Instance, other: model.Instance | None,
                  unscheduled: bool) -> bool:
    """Return True when the instance must wait for a tied one in flight.

    A hint of another project's instance does not count: Nova does not verify hints.

    :param unscheduled: the destination of the other instance is not known.
    """
    if other is None:
        return unscheduled
    names = other.project_id == instance.project_id and any(
        instance.uuid in others for others in other.scheduler_hints.values())
    return names or unscheduled and any(
        other.uuid in others for others in instance.scheduler_hints.values())


def build_hint_ties(instances: Mapping[str, model.Instance],
                    enabled: Collection[str]) -> dict[str, set[str]]:
    """Return, by instance UUID, the instances that its hints name or whose hints name it.

    :param enabled: the enabled filters; only their hints count.
    """
    ties: dict[str, set[str]] = {}
    if not any(name in enabled for name in _FILTERS.values()):
        return ties
    for instance in instances.values():
        for hint, others in instance.scheduler_hints.items():
            if _FILTERS.get(hint) in enabled:
                for other in set(others) - {instance.uuid}:
                    ties.setdefault(instance.uuid, set()).add(other)
                    ties.setdefault(other, set()).add(instance.uuid)
    return ties
