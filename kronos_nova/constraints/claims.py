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

"""Room on the destination's resource providers for the instance's allocation."""

from kronos_nova import model
from kronos_nova.constraints import provider_assignment
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views


def claims(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move that Placement itself would refuse to allocate.

    Source: placement.objects.allocation, check_capacity_exceeded: capacity is (total - reserved) *
    allocation_ratio; amount within min_unit, max_unit and a multiple of step_size.

    The rule judges the instance's allocation, not its flavor. It includes DISK_GB, unless
    ``enforce_placement_disk`` is false: Nova's scheduler requests DISK_GB for any storage. The root
    of a tree must have at least one of the classes: nova.scheduler.manager knows an allocation
    request by its root. Root and children that have the same class are left to Nova: no driver
    reports such a tree.
    """
    instance = view.find_instance(move.instance_uuid)
    host = view.find_host(move.to_host)
    if not view.options.enforce_placement_claims or not view.has_known_claims() or instance is None:
        return None
    if host is None or host.provider is None:
        return model.Rejection('no-provider', f'host {move.to_host} has no resource provider in '
                                              'Placement')
    occupancy = view.occupancy
    if occupancy.has_root_alone(host):
        return _on_root(view, instance, host, host.provider)
    needed = [name for name, amount in sorted(instance.claims.items()) if amount]
    if needed and host.provider.inventories.keys().isdisjoint(needed):
        return model.Rejection(
            'no-inventory', f'resource provider {host.provider.uuid} of host {host.name} has '
                            f'none of {", ".join(needed)}: Nova takes no host that would not '
                            'serve something on its root')
    if occupancy.has_room_for(instance.uuid, host):
        return None
    for demand in occupancy.build_demands(instance.uuid, host):
        rejection = _refuse_demand(view, instance, host, demand)
        if rejection is not None:
            return rejection
    return model.Rejection(
        'no-room', f'the resource providers of host {host.name} have room for each part of the '
                   f'allocation of instance {instance.uuid}, but not for all at once, beside '
                   'other moves to them')


CLAIMS_RULE = rules.Rule(
    claims,
    codes={
        'no-provider': rules.RejectionCode(
            meaning='The destination has no resource provider, or its providers change faster '
                    'than they can be read.',
            remedy='nova-compute of the host reports to Placement',
            retry=rules.RetryClass.NO_ROOM),
        'no-inventory': rules.RejectionCode(
            meaning="No provider of the destination's tree has a resource class, or its root has "
                    'no resource class that the instance needs.',
            remedy='the host has an inventory of the class',
            retry=rules.RetryClass.NO_ROOM),
        'claim-unit': rules.RejectionCode(
            meaning='The amount cannot be allocated there in one piece.',
            remedy="the inventory's min_unit, max_unit and step_size admit the amount",
            retry=rules.RetryClass.NO_ROOM),
        'no-room': rules.RejectionCode(
            meaning='The providers of its tree, and those that share with it, have not enough '
                    'left for the claim.',
            remedy='as much as is short is freed on the host, or its allocation ratio is raised',
            retry=rules.RetryClass.NO_ROOM)})


def _on_root(view: views.CloudView, instance: model.Instance, host: model.Host,
             root: model.Provider) -> model.Rejection | None:
    """Refuse a root provider that cannot serve the whole allocation."""
    where = f'resource provider {root.uuid} of host {host.name}'
    for resource_class, amount in instance.claims.items():
        if not amount or resource_class in view.occupancy.free:
            continue
        inventory = root.inventories.get(resource_class)
        if inventory is None:
            return model.Rejection('no-inventory', f'{where} has no {resource_class}, instance '
                                                   f'{instance.uuid} needs {amount}')
        for part in _list_part_amounts(instance, resource_class, amount):
            if not provider_assignment.is_allocated_whole(inventory, part):
                return _no_unit(where, resource_class, part)
        used = view.sum_allocated(host.name, resource_class)
        if used + amount > inventory.capacity:
            return model.Rejection('no-room',
                                   _format_shortage(where, instance, resource_class, amount,
                                                               inventory.capacity - used))
    return None


def _list_part_amounts(instance: model.Instance, resource_class: str, amount: int) -> list[int]:
    """Return the instance's amounts of a class, one for each provider."""
    if len(instance.allocations) < 2:
        return [amount]
    return [resources[resource_class] for resources in instance.allocations.values()
            if resources.get(resource_class)]


def _refuse_demand(view: views.CloudView, instance: model.Instance, host: model.Host,
                   demand: provider_assignment.PieceDemand) -> model.Rejection | None:
    """Return why no provider can serve this part of the allocation; None if one can."""
    judged = [(name, amount) for name, amount in demand.piece.resources
              if name not in view.occupancy.free]
    needs = ' and '.join(f'{amount} {name}' for name, amount in judged)
    have = [s for s in demand.spaces
            if all(name in s.provider.inventories for name, _ in judged)]
    if not have:
        return model.Rejection(
            'no-inventory', f'no resource provider of host {host.name} has '
                            f'{" and ".join(name for name, _ in judged)}, instance '
                            f'{instance.uuid} needs {needs} of one')
    fitting = [s for s in have
               if all(provider_assignment.is_allocated_whole(s.provider.inventories[name], amount)
                                      for name, amount in judged)]
    if not fitting:
        where = f'resource provider {have[0].provider.uuid} of host {host.name}'
        return next(_no_unit(where, name, amount) for name, amount in judged
                    if not provider_assignment.is_allocated_whole(
                            have[0].provider.inventories[name], amount))
    best: tuple[float, str] | None = None
    for space in fitting:
        free_amounts = {name: space.provider.inventories[name].capacity
                        - view.occupancy.sum_allocated_of(host, space, name)
                        for name, _ in judged}
        short = next(((name, amount) for name, amount in judged
                      if free_amounts[name] < amount), None)
        if short is None:
            return None
        name, amount = short
        text = _format_shortage(f'resource provider {space.provider.uuid} of host {host.name}',
                                instance,
                                name, amount, free_amounts[name])
        if best is None or free_amounts[name] / amount > best[0]:
            best = free_amounts[name] / amount, text
    if best is None:
        return None
    others = f'; {len(fitting) - 1} others have no more' if len(fitting) > 1 else ''
    return model.Rejection('no-room', best[1] + others)


def _no_unit(where: str, resource_class: str, amount: int) -> model.Rejection:
    return model.Rejection('claim-unit', f'{amount} {resource_class} cannot be allocated on '
                                         f'{where} in one piece')


def _format_shortage(where: str, instance: model.Instance, resource_class: str, amount: int,
                     free: float) -> str:
    return f'{where} has {free:.0f} {resource_class} left, instance {instance.uuid} needs {amount}'
