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


"""Aggregates that Nova asks Placement for, or asks it to leave out.

Each rule applies where ``nova_prefilters`` names its option of [scheduler]; a parity test compares
the rules with Nova's request filters.
"""

from kronos_nova import model
from kronos_nova.constraints import requests
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

TENANTS = 'limit_tenants_to_placement_aggregate'
TENANTS_REQUIRED = 'placement_aggregate_required_for_tenants'
ISOLATED = 'enable_isolated_aggregate_filtering'


def tenant_aggregates(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination outside the aggregates of the instance's project.

    A project without aggregates goes anywhere, or nowhere if aggregates are required.
    """
    instance = view.find_instance(move.instance_uuid)
    if TENANTS not in view.options.nova_prefilters or instance is None:
        return None
    theirs = view.aggregates.list_for_tenant(instance.project_id)
    if not theirs and TENANTS_REQUIRED in view.options.nova_prefilters:
        return model.Rejection('tenant-without-aggregate', f'the project of instance '
                               f'{instance.uuid} has no aggregate, and Nova demands one')
    if not theirs or not theirs.isdisjoint(view.aggregates.list_with_metadata(move.to_host)):
        return None
    return model.Rejection('tenant-aggregate', f'host {move.to_host} is in no aggregate of the '
                                               f'project of instance {instance.uuid}')


TENANT_AGGREGATES_RULE = rules.Rule(
    tenant_aggregates, reads=frozenset({rules.CloudFact.PROJECT, rules.CloudFact.AGGREGATES}),
    enabled=lambda options: TENANTS in options.nova_prefilters,
    codes={
        'tenant-aggregate': rules.RejectionCode(
            meaning='The project has aggregates, and the destination is outside all these '
                    'aggregates. With limit_tenants_to_placement_aggregate.',
            remedy='the host joins an aggregate of the project',
            retry=rules.RetryClass.ELSEWHERE),
        'tenant-without-aggregate': rules.RejectionCode(
            meaning='The project has no aggregate. With placement_aggregate_required_for_tenants, '
                    'too.',
            remedy='an aggregate is given to the project',
            retry=rules.RetryClass.FINAL)})


def isolated_aggregates(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse an aggregate with ``trait:X=required`` to an instance that does not require X.

    Nova does not show the traits that an image requires. A trait that isolates the source, too, is
    one that the instance must have required when it got there.
    """
    instance = view.find_instance(move.instance_uuid)
    if (ISOLATED not in view.options.nova_prefilters or instance is None
            or instance.extra_specs is None):
        return None
    wanted = view.aggregates.list_isolating_traits(move.to_host)
    if not wanted:
        return None
    lacking = wanted - view.aggregates.list_isolating_traits(
        move.from_host) - requests.list_required_traits(
            instance.extra_specs)
    if not lacking:
        return None
    return model.Rejection('isolated-aggregate', f'host {move.to_host} is kept for instances '
                                                 f'that require {", ".join(sorted(lacking)[:5])}')


ISOLATED_AGGREGATES_RULE = rules.Rule(
    isolated_aggregates, reads=frozenset({rules.CloudFact.EXTRA_SPECS, rules.CloudFact.AGGREGATES}),
    enabled=lambda options: ISOLATED in options.nova_prefilters,
    codes={
        'isolated-aggregate': rules.RejectionCode(
            meaning='An aggregate of the destination has trait:X=required, the flavor does not '
                    'require X, and the source is in no such aggregate. With '
                    'enable_isolated_aggregate_filtering.',
            remedy='the flavor or image requires the traits of the aggregate',
            retry=rules.RetryClass.ELSEWHERE)})
