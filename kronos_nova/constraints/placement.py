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

"""Possible ends of a move: scope, availability zone, cell."""

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views


def scope(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move that leaves the scope: between aggregates, or to and from the pool."""
    for host in (move.from_host, move.to_host):
        if view.find_host(host) is None or not view.is_in_scope(host):
            zone = view.find_other_zone(host)
            return model.Rejection('out-of-scope', f'host {host} is not in this scope' + (
                '' if zone is None else f': it is in availability zone {zone}'))
    return None


SCOPE_RULE = rules.Rule(
    scope,
    codes={
        'out-of-scope': rules.RejectionCode(
            meaning='A host is not in the scope.',
            remedy='both hosts belong to one scope: one aggregate of [engine] aggregates, or none',
            retry=rules.RetryClass.ELSEWHERE)})


def zone(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move to another zone than the one that the instance was booted into.

    Nova demands this. Other instances change zone unless ``restrict_to_az``.
    """
    source, destination = view.find_service(move.from_host), view.find_service(move.to_host)
    instance = view.find_instance(move.instance_uuid)
    if source is None or destination is None or instance is None:
        return None
    if instance.pinned_zone is not None and destination.zone != instance.pinned_zone:
        return model.Rejection('az-pinned', f'instance {instance.uuid} was booted into zone '
                                            f'{instance.pinned_zone!r}')
    if view.options.restrict_to_az and source.zone != destination.zone:
        return model.Rejection('az-differs', f'{move.to_host} is in another zone than '
                                             f'{move.from_host} (restrict_to_az)')
    return None


ZONE_RULE = rules.Rule(
    zone,
    codes={
        'az-pinned': rules.RejectionCode(
            meaning='The instance was booted into an availability zone, and this is another. From '
                    'Nova 34 on the pin can be taken away: PUT /servers/UUID with '
                    'pinned_availability_zone null, microversion 2.104.',
            remedy='its pin is taken away with microversion 2.104 (Nova 34: PUT /servers/UUID '
                   'with pinned_availability_zone null); before, it is shelved and unshelved into '
                   'another',
            retry=rules.RetryClass.ELSEWHERE),
        'az-differs': rules.RejectionCode(
            meaning='restrict_to_az is set.',
            remedy='[engine] restrict_to_az is off',
            retry=rules.RetryClass.ELSEWHERE)})


def cell(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move to another cell: Nova live-migrates within a cell only.

    The operator names the cells. Answers of Nova that show two cells count even where the names
    show one.
    """
    source, destination = view.find_host(move.from_host), view.find_host(move.to_host)
    if source is None or destination is None:
        return None
    if None not in (source.cell, destination.cell) and source.cell != destination.cell:
        return model.Rejection('cell-differs', f'{move.to_host} is in another cell')
    if not view.are_hosts_apart(move.from_host, move.to_host):
        return None
    advice = ('see [engine] cell_metadata_key' if None in (source.cell, destination.cell)
              else 'metadata of aggregates says that both are in one: correct it')
    return model.Rejection(
        'cell-differs', f'{move.to_host} is in another cell than {move.from_host}, as Nova has '
                        f'shown lately ({advice})')


CELL_RULE = rules.Rule(
    cell,
    codes={
        'cell-differs': rules.RejectionCode(
            meaning='The destination is in another cell: by the names of cells, or, despite the '
                    'names, because Nova did not find it from the source within a day.',
            remedy=None,
            retry=rules.RetryClass.ELSEWHERE)})
