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
Only moves of the instance that has the hint are bound by it.
"""

from kronos_nova import model
from kronos_nova.constraints import view as views

DIFFERENT = 'DifferentHostFilter'
SAME = 'SameHostFilter'


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
