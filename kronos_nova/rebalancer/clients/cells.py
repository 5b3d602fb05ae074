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

"""The cell of a host, which Nova's API does not show: operators name it.

They name it in the metadata of aggregates, which only operators write and every reading includes.
So engines, executors and operators who add hosts share one truth, in Nova itself.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api

#: Most hosts that a message names.
SHOWN = 5


def map_cells(aggregates: Mapping[str, nova_api.Aggregate], key: str,
              hosts: Collection[str]) -> dict[str, str]:
    """Return the cells of the hosts, as far as an aggregate names one.

    :param aggregates: by name.
    :param key: of their metadata; empty: no cell is named. Nor does an empty value name one.
    :param hosts: names of service hosts.
    :raises ApiError: aggregates of one host name different cells.
    """
    named_cells: dict[str, dict[str, str]] = {}
    for name, aggregate in sorted(aggregates.items()):
        cell = aggregate.metadata.get(key, '').strip() if key else ''
        if cell:
            for host in aggregate.hosts:
                named_cells.setdefault(host, {})[name] = cell
    cells = {}
    for host in sorted(named_cells.keys() & set(hosts)):
        if len(set(named_cells[host].values())) > 1:
            raise _build_cell_conflict(host, named_cells[host], key)
        cells[host] = next(iter(named_cells[host].values()))
    return cells


def _build_cell_conflict(host: str, named_cells: Mapping[str, str], key: str) -> api.ApiError:
    words = ', '.join(f'aggregate {api.format_printable(name)} says {api.format_printable(cell)}'
                      for name, cell in named_cells.items())
    return api.ApiError(
        'Nova', f'the cell of host {host}',
        f'a host is in one cell, but in metadata {key} {words}. Correct the metadata (openstack '
        'aggregate set --property), or take the host out of one of the aggregates')


def find_unreadable_hosts(services: Sequence[Mapping[str, model.Service]],
                          aggregates: Mapping[str, nova_api.Aggregate], key: str) -> dict[str, str]:
    """Return the hosts that cannot be planned as their cells do not answer, and these cells.

    A host that answers and whose cell is not named may be in such a cell, and its servers may be
    missing from the list: while a cell is away it is not planned either, with the cell ''.

    :param services: as Nova listed them, one time after the other.
    :param key: of the aggregates' metadata.
    :raises ApiError: a host that does not answer has no named cell.
    """
    listed = {host: service for by_host in services for host, service in by_host.items()}
    silent = {host for by_host in services for host, service in by_host.items()
              if service.status == model.UNKNOWN}
    if not silent:
        return {}
    cells = map_cells(aggregates, key, listed)
    without = sorted(silent - cells.keys())
    if without:
        raise api.ApiError(
            'Nova', f'compute service on {api.format_printable(without[0])}',
            'its cell does not answer Nova. Scopes in other cells are planned meanwhile if '
            'the metadata of aggregates names the cells of all hosts (see [engine] '
            'cell_metadata_key)')
    away = {cells[host] for host in silent}
    return {host: cells.get(host, '') for host in listed if cells.get(host, '') in {*away, ''}}


def list_cell_warnings(hosts: Iterable[model.Host], key: str) -> list[str]:
    """Return the warning for a cloud where only some hosts have a named cell.

    :param key: of the aggregates' metadata.
    """
    every = sorted(hosts, key=lambda h: h.name)
    missing = [h.name for h in every if h.cell is None]
    if not missing or len(missing) == len(every):
        return []
    some = ', '.join(missing[:SHOWN]) + (', ...' if len(missing) > SHOWN else '')
    return [f'Metadata {key} of aggregates names the cells of some hosts but not of '
            f'{len(missing)} ({some}): moves between these and others may lead to another cell, '
            'and Nova refuses them. Add the hosts to an aggregate that names their cell.']


def hide_services(services: Mapping[str, model.Service],
                  unreadable: Mapping[str, str]) -> dict[str, model.Service]:
    """Return the services, those of unreadable hosts with the status model.UNKNOWN.

    :param unreadable: cells by host.
    """
    hidden = {host: model.Service(host=host, status=model.UNKNOWN, state=model.UNKNOWN)
              for host in unreadable}
    return {**services, **hidden}


def warn_about_unreadable_hosts(unreadable: Mapping[str, str]) -> list[str]:
    """Return the warnings about cells that do not answer and hosts whose cell is not named."""
    warnings = []
    for cell in sorted(set(unreadable.values())):
        hosts = sorted(host for host, of_cell in unreadable.items() if of_cell == cell)
        some = ', '.join(hosts[:SHOWN]) + (', ...' if len(hosts) > SHOWN else '')
        warnings.append(
            (f'Cell {api.format_printable(cell)} does not answer Nova: no scope is planned that '
             f'has one of its hosts ({len(hosts)}: {some}).') if cell else
            (f'While a cell does not answer, no scope is planned that has a host whose '
             f'cell is not named ({len(hosts)}: {some}).'))
    return warnings
