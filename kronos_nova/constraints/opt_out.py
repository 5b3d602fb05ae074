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


"""Instances that their owner opted out, or whose project the operator opted out.

A tenant can only keep an instance where it is: no text that a tenant writes makes an instance
movable that another rule holds.
"""

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views


def opted_out(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse to move an instance that is opted out, also by drains and repairs."""
    instance = view.find_instance(move.instance_uuid)
    if instance is None:
        return None
    if instance.project_id and instance.project_id in view.options.opted_out_projects:
        return model.Rejection('project-opted-out', f'the project of instance {instance.uuid} is '
                                                    'in opted_out_projects')
    if instance.opted_out is not None:
        return model.Rejection('owner-opted-out', f'instance {instance.uuid} was opted out by its '
                                                  f'owner ({instance.opted_out})')
    return None


OPTED_OUT_RULE = rules.Rule(
    opted_out, kind=rules.RuleKind.ALONE,
    codes={
        'project-opted-out': rules.RejectionCode(
            meaning='Its project is in opted_out_projects.',
            remedy='the project leaves [engine] opted_out_projects',
            retry=rules.RetryClass.FINAL),
        'owner-opted-out': rules.RejectionCode(
            meaning='Its metadata or tags say so.',
            remedy='its owner takes the metadata or the tag away',
            retry=rules.RetryClass.FINAL)})
