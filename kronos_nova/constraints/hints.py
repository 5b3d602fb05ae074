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


"""Instances that were booted beside, or apart from, others by a hint.

Each is judged where ``nova_enabled_filters`` names its filter, for Nova keeps
hints and applies them to every move; held to Nova's classes by a parity test.
Only moves of the instance that has the hint are bound by it; but of those that
it ties together one is under way at a time, so that none that is on its way,
or waits for its turn, finds its hint broken by another of our moves.
"""

from collections.abc import Collection
from collections.abc import Mapping

from kronos_nova import model
from kronos_nova.constraints import view as views

DIFFERENT = 'DifferentHostFilter'
SAME = 'SameHostFilter'
_FILTERS = {'different_host': DIFFERENT, 'same_host': SAME}


def hints(view: views.View, move: model.Move) -> model.Rejection | None:
    """Where the others are, were before this plan, or may come to be: neither
    the order of its moves nor the end of one under way may matter."""
    instance = view.instance(move.instance_uuid)
    if instance is None or not instance.scheduler_hints:
        return None
    enabled = view.options.nova_enabled_filters
    apart = instance.scheduler_hints.get('different_host', ())
    if DIFFERENT in enabled and any(move.to_host in view.places(u) for u in apart):
        return model.Rejection('different-host', f'instance {instance.uuid} was booted apart from '
                                                 f'an instance on {move.to_host}')
    beside = instance.scheduler_hints.get('same_host', ())
    if SAME in enabled and beside and not any(
            set(view.places(u)) == {move.to_host} for u in beside):
        return model.Rejection('same-host-hint', f'instance {instance.uuid} was booted beside '
                                                 f'instances that are not on {move.to_host}')
    return None


def hint_in_flight(view: views.View, move: model.Move) -> model.Rejection | None:
    """Nobody overtakes an instance on its way whose hint names it; and beside
    or apart from one that Nova has not scheduled yet nobody can be put."""
    for uuid in view.tied(move.instance_uuid):
        instance = view.instance(move.instance_uuid)
        if instance is not None and view.in_flight(uuid) and waits(
                instance, view.instance(uuid), view.unscheduled(uuid)):
            return model.Rejection('hint-in-flight', f'instance {uuid}, to which a scheduler hint '
                                                     'ties it, is migrating')
    return None


def waits(instance: model.Instance, other: model.Instance | None, unscheduled: bool) -> bool:
    """Whether it waits for another in flight that is tied to it.

    Another project's hints, which nobody has verified, hold nobody's moves.

    :param unscheduled: nobody knows where the other is going.
    """
    if other is None:
        return unscheduled
    names = other.project_id == instance.project_id and any(
        instance.uuid in others for others in other.scheduler_hints.values())
    return names or unscheduled and any(
        other.uuid in others for others in instance.scheduler_hints.values())


def ties(instances: Mapping[str, model.Instance],
         enabled: Collection[str]) -> dict[str, set[str]]:
    """By instance UUID: whom its hints name, and whose hints name it.

    :param enabled: of these filters alone.
    """
    found: dict[str, set[str]] = {}
    if not any(name in enabled for name in _FILTERS.values()):
        return found
    for instance in instances.values():
        for hint, others in instance.scheduler_hints.items():
            if _FILTERS.get(hint) in enabled:
                for other in set(others) - {instance.uuid}:
                    found.setdefault(instance.uuid, set()).add(other)
                    found.setdefault(other, set()).add(instance.uuid)
    return found
