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


"""Traits that a flavor requires or forbids, on the destination's whole tree.

The rule refuses no more than Placement would. Placement also needs room on the same providers: the
rule ``claims`` and Placement itself judge that.
"""

from collections.abc import Sequence

from kronos_nova import model
from kronos_nova.constraints import requests
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views


def required_traits(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that lacks required traits or has forbidden ones.

    The traits of the unsuffixed group may be anywhere in the tree, or on a provider that shares
    with it; a group with a suffix has all its traits on one provider. A root without any trait
    means that the traits were not read: the rule judges nothing.
    """
    instance = view.find_instance(move.instance_uuid)
    host = view.find_host(move.to_host)
    if instance is None or not instance.extra_specs or host is None or host.provider is None:
        return None
    groups = requests.parse_groups(instance.extra_specs)
    if not any(group.required or group.forbidden for group in groups.values()):
        return None
    root = host.traits | host.provider.traits
    if not root:
        return None
    providers = [(root, frozenset(host.provider.inventories)),
                 *((p.traits, frozenset(p.inventories))
                   for p in (*host.nested, *view.list_sharing_providers(move.to_host)))]
    for suffix, group in groups.items():
        able = [(has, holds) for has, holds in providers if group.forbidden.isdisjoint(has)]
        if suffix:
            fits = any(group.required <= has and group.resources <= holds for has, holds in able)
        else:
            fits = _fulfils_unsuffixed_group(instance, groups, group, able)
        if not fits:
            return _build_rejection(move.to_host, group)
    return None


REQUIRED_TRAITS_RULE = rules.Rule(
    required_traits, reads=frozenset({rules.CloudFact.EXTRA_SPECS, rules.CloudFact.FLAVOR_TRAITS}),
    codes={
        'required-traits': rules.RejectionCode(
            meaning="The destination's providers, nested and sharing ones too, lack a trait that "
                    'the flavor requires (trait:X=required), or have one that it forbids.',
            remedy='the destination has, or loses, the trait; or the flavor asks for less',
            retry=rules.RetryClass.ELSEWHERE)})


def _fulfils_unsuffixed_group(instance: model.Instance, groups: dict[str, requests.RequestGroup],
                              group: requests.RequestGroup,
                              able: Sequence[tuple[frozenset[str], frozenset[str]]]) -> bool:
    """Return True when the providers fulfil the group without a suffix together.

    The providers without a forbidden trait must have the required traits between them and, if the
    group forbids any, every class that no other group requests.
    """
    elsewhere = {name for suffix, other in groups.items() if suffix for name in other.resources}
    classes = {name for name, amount in instance.claims.items() if amount} - elsewhere
    holding = {name for _, holds in able for name in holds}
    having = {trait for has, _ in able for trait in has}
    return group.required <= having and (not group.forbidden or classes <= holding)


def _build_rejection(host: str, group: requests.RequestGroup) -> model.Rejection:
    traits = [*sorted(group.required), *(f'!{t}' for t in sorted(group.forbidden))]
    return model.Rejection('required-traits', f'host {host} does not have, or must not have, one '
                                              f'of {", ".join(traits[:5])}')
