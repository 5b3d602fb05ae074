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

"""Reasons why Placement leaves a host out of its allocation candidates."""

from typing import Any

from nova import exception as nova_exception

#: Largest number of hosts to explain: four requests each.
MAX_ASKED = 50
NO_CANDIDATE = 'no allocation candidate'


def explain_no_candidate(client: Any, ctxt: Any, uuid: str, spec: Any, resources: Any) -> str:
    """Return which parts of the request the provider of a compute node cannot give.

    This checks the compute node's own provider only, not nested or shared providers.

    :param client: Nova's SchedulerReportClient.
    :param resources: the ResourceRequest that Nova has made of ``spec``.
    """
    try:
        inventories = _get(client, ctxt, f'/resource_providers/{uuid}/inventories')['inventories']
        usages = _get(client, ctxt, f'/resource_providers/{uuid}/usages')['usages']
        traits = set(_get(client, ctxt, f'/resource_providers/{uuid}/traits')['traits'])
        aggregates = set(_get(client, ctxt, f'/resource_providers/{uuid}/aggregates')[
            'aggregates'])
    except (KeyError, ValueError, nova_exception.NovaException):
        return 'Placement knows no such provider'
    group = resources.get_request_group(None)
    problems = [f'{name}: {short}' for name, amount in sorted(group.resources.items())
                if (short := _format_shortfall(inventories.get(name), usages.get(name, 0),
                                               int(amount)))]
    # A trait of the request as a whole is one of the tree's root.
    required = set(group.required_traits) | set(spec.root_required)
    forbidden = set(group.forbidden_traits) | set(spec.root_forbidden)
    problems += [f'it lacks trait {name}' for name in sorted(required - traits)]
    problems += [f'it has the forbidden trait {name}' for name in sorted(forbidden & traits)]
    problems += [f'it is in none of the aggregates {", ".join(sorted(any_of))}'
                 for any_of in group.aggregates if not aggregates & set(any_of)]
    problems += [f'it is in the isolated aggregate {name}'
                 for name in sorted(set(group.forbidden_aggregates or ()) & aggregates)]
    return '; '.join(problems)


def _format_shortfall(inventory: dict[str, Any] | None, used: int, amount: int) -> str:
    """Return how an inventory fails Placement's rules, or an empty text."""
    if inventory is None:
        return 'its own provider has none'
    capacity = (inventory['total'] - inventory['reserved']) * inventory['allocation_ratio']
    if used + amount > capacity:
        return f'{amount} wanted, {used} of {capacity:g} used'
    if not inventory['min_unit'] <= amount <= inventory['max_unit']:
        return (f'{amount} wanted, one allocation is {inventory["min_unit"]} to '
                f'{inventory["max_unit"]}')
    if amount % inventory['step_size']:
        return f'{amount} wanted, the step is {inventory["step_size"]}'
    return ''


def _get(client: Any, ctxt: Any, path: str) -> Any:
    answer = client.get(path, version='1.19', global_request_id=ctxt.global_id)
    return answer.json()
