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


"""Aggregates that Nova's filters reserve for some flavors, projects or images.

Each rule applies where ``nova_enabled_filters`` names its filter, and judges as that filter does; a
parity test compares the rules with Nova's classes.
"""

from kronos_nova import model
from kronos_nova.constraints import extra_specs_ops
from kronos_nova.constraints import image_properties as images
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

EXTRA_SPECS = 'AggregateInstanceExtraSpecsFilter'
TENANTS = 'AggregateMultiTenancyIsolation'
IMAGES = 'AggregateImagePropertiesIsolation'
SCOPE = 'aggregate_instance_extra_specs'


def extra_specs(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination whose aggregates do not fulfil an extra spec of the flavor.

    The rule reads extra specs with the scope of ``SCOPE``, and those without any scope.
    """
    instance = view.find_instance(move.instance_uuid)
    if EXTRA_SPECS not in view.options.nova_enabled_filters or instance is None:
        return None
    values = None
    for key, required in (instance.extra_specs or {}).items():
        scope, colon, rest = key.partition(':')
        if colon and scope != SCOPE:
            continue
        if values is None:
            values = view.aggregates.map_metadata_values(move.to_host)
        if not any(extra_specs_ops.matches_extra_spec(value, required)
                   for value in values.get(rest if colon else key, ())):
            return model.Rejection(
                'aggregate-extra-specs', f'no aggregate of {move.to_host} fulfils an extra spec '
                                         f'of the flavor of instance {instance.uuid}')
    return None


EXTRA_SPECS_RULE = rules.Rule(
    extra_specs, reads=frozenset({rules.CloudFact.EXTRA_SPECS, rules.CloudFact.AGGREGATES}),
    enabled=lambda options: EXTRA_SPECS in options.nova_enabled_filters,
    codes={
        'aggregate-extra-specs': rules.RejectionCode(
            meaning='An extra spec of the flavor, without a scope or with '
                    'aggregate_instance_extra_specs:, is fulfilled by no aggregate of the '
                    'destination. With AggregateInstanceExtraSpecsFilter.',
            remedy='the host joins an aggregate with that metadata',
            retry=rules.RetryClass.ELSEWHERE)})


def tenants(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that is reserved for other projects."""
    instance = view.find_instance(move.instance_uuid)
    if TENANTS not in view.options.nova_enabled_filters or instance is None:
        return None
    allowed = view.aggregates.list_tenants(move.to_host)
    if not allowed or instance.project_id in allowed:
        return None
    return model.Rejection('aggregate-tenant', f'host {move.to_host} is kept for other projects '
                                               f'than that of instance {instance.uuid}')


TENANTS_RULE = rules.Rule(
    tenants, reads=frozenset({rules.CloudFact.PROJECT, rules.CloudFact.AGGREGATES}),
    enabled=lambda options: TENANTS in options.nova_enabled_filters,
    codes={
        'aggregate-tenant': rules.RejectionCode(
            meaning='The destination is in aggregates with filter_tenant_id* for other projects. '
                    'With AggregateMultiTenancyIsolation.',
            remedy='filter_tenant_id of the aggregate names the project',
            retry=rules.RetryClass.ELSEWHERE)})


def image_properties(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination whose aggregates give a property of the image other values."""
    instance = view.find_instance(move.instance_uuid)
    if (IMAGES not in view.options.nova_enabled_filters or instance is None
            or not instance.image_properties):
        return None
    values = view.aggregates.map_metadata_values(move.to_host)
    for name, texts in images.parse_properties(instance.image_properties).items():
        allowed = values.get(name)
        if allowed is not None and texts and allowed.isdisjoint(texts):
            return model.Rejection(
                'aggregate-image', f'an aggregate of {move.to_host} excludes the image of '
                                   f'instance {instance.uuid}')
    return None


IMAGE_PROPERTIES_RULE = rules.Rule(
    image_properties,
    reads=frozenset({rules.CloudFact.IMAGE_PROPERTIES, rules.CloudFact.AGGREGATES}),
    enabled=lambda options: IMAGES in options.nova_enabled_filters,
    codes={
        'aggregate-image': rules.RejectionCode(
            meaning='An aggregate of the destination names a property of the image with other '
                    'values. With AggregateImagePropertiesIsolation.',
            remedy='the metadata of the aggregate, or the image, is changed',
            retry=rules.RetryClass.ELSEWHERE)})
