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

"""Instances whose memory is copied for so long that they do not move to balance load."""

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

LARGEST_MB = 262144


def huge_memory(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse to balance load with an instance of huge memory; drains and repairs move it."""
    instance = view.find_instance(move.instance_uuid)
    if instance is None or move.phase not in metrics.IMBALANCE:
        return None
    if instance.memory_mb > LARGEST_MB:
        return model.Rejection('huge-memory', f'instance {instance.uuid} has '
                                              f'{instance.memory_mb} MiB, above {LARGEST_MB}')
    return None


HUGE_MEMORY_RULE = rules.Rule(
    huge_memory, kind=rules.RuleKind.ALONE,
    codes={
        'huge-memory': rules.RejectionCode(
            meaning='It has so much memory that its migration would last for hours.',
            remedy='it is resized to less memory; drains move it',
            retry=rules.RetryClass.FINAL)})
