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

"""The reader of hypervisors while a cell does not answer."""

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import hypervisors
from kronos_nova.rebalancer.clients import nova_api

ONE, TWO = (nova_api.Hypervisor(h, f'{h}.example.org', h, 'QEMU') for h in ('host1', 'host2'))


class Nova:
    status: int | None = None
    silent = True
    lists = 0

    def read_hypervisors(self) -> list[nova_api.Hypervisor]:
        self.lists += 1
        return self._answer()

    def hypervisors_of(self, host: str) -> list[nova_api.Hypervisor]:
        return [h for h in self._answer() if h.host == host]

    def _answer(self) -> list[nova_api.Hypervisor]:
        if self.status is not None:
            raise api.ApiError('Nova', 'hypervisors', 'it fails', self.status)
        return [ONE, TWO]

    def services_of_all_cells(self) -> dict[str, model.Service]:
        return {'host9': model.Service('host9', status=model.UNKNOWN if self.silent else 'enabled')}


@pytest.fixture
def nova() -> Nova:
    return Nova()


@pytest.fixture
def reader(nova: Nova) -> hypervisors.HypervisorReader:
    return hypervisors.HypervisorReader(nova)  # type: ignore[arg-type]


def test_a_silent_cell_keeps_its_earlier_hypervisors(nova: Nova,
                                                     reader: hypervisors.HypervisorReader) -> None:
    assert reader.read() == [ONE, TWO]
    nova.status = 500
    assert reader.read() == [ONE, TWO] and reader.read_host_hypervisors('host1') == [ONE]
    with pytest.raises(api.ApiError):
        reader.read_host_hypervisors('host3')


def test_known_hypervisors_serve_while_the_hosts_are_the_same_for_a_time(
        nova: Nova, reader: hypervisors.HypervisorReader) -> None:
    hosts = ['host1', 'host2']
    for now, names, interval, lists in (
            (1000.0, hosts, 900.0, 1), (1899.0, hosts[::-1], 900.0, 1), (1900.0, hosts, 900.0, 2),
            (1901.0, hosts, 900.0, 2), (1902.0, [*hosts, 'host3'], 900.0, 3),
            (1903.0, hosts, 900.0, 4), (1902.0, hosts, 900.0, 5), (1902.0, hosts, 0.0, 6)):
        assert reader.read_again(names, now, interval) == [ONE, TWO]
        assert nova.lists == lists, (now, names)
    assert reader.read_again(hosts, 1903.0, 900.0) == [ONE, TWO] and nova.lists == 6
    reader.forget_list()
    reader.read_again(hosts, 1904.0, 900.0)
    assert nova.lists == 7


def test_failed_list_is_tried_again_in_the_next_reading(
        nova: Nova, reader: hypervisors.HypervisorReader) -> None:
    nova.status = 403
    with pytest.raises(api.ApiError):
        reader.read_again(['host1'], 1000.0, 900.0)
    nova.status = None
    assert reader.read_again(['host1'], 1060.0, 900.0) == [ONE, TWO]


def test_first_read_of_a_host_reads_all_once(
        nova: Nova, reader: hypervisors.HypervisorReader) -> None:
    nova.status = 500
    with pytest.raises(api.ApiError):
        reader.read_host_hypervisors('host2')
    nova.status, nova.lists = None, 0
    assert reader.read_host_hypervisors('host2') == [TWO] and nova.lists == 1
    assert reader.read_host_hypervisors('host2') == [TWO] and nova.lists == 1
    nova.status = 500
    assert reader.read_host_hypervisors('host1') == [
        ONE], 'the cell of host1 fell silent before its first read'


def test_read_of_a_host_lists_nothing_again_after_a_read_of_all(
        nova: Nova, reader: hypervisors.HypervisorReader) -> None:
    reader.read()
    assert reader.read_host_hypervisors('host2') == [TWO] and nova.lists == 1
    nova.status = 500
    assert reader.read_host_hypervisors('host1') == [ONE] and nova.lists == 1


def test_failed_read_of_all_is_repeated_by_the_first_read_of_a_host(
        nova: Nova, reader: hypervisors.HypervisorReader) -> None:
    nova.status = 500
    with pytest.raises(api.ApiError):
        reader.read()
    nova.status = None
    assert reader.read_host_hypervisors('host2') == [TWO] and nova.lists == 2


@pytest.mark.parametrize(('status', 'silent'), [(500, False), (403, True), (404, True)])
def test_every_other_failure_of_nova_stays_one(
        nova: Nova, reader: hypervisors.HypervisorReader, status: int, silent: bool) -> None:
    reader.read()
    nova.status, nova.silent = status, silent
    for read in (reader.read, lambda: reader.read_host_hypervisors('host1')):
        with pytest.raises(api.ApiError):
            read()


def test_nothing_is_made_up_where_nothing_was_read(
        nova: Nova, reader: hypervisors.HypervisorReader) -> None:
    nova.status = 500
    with pytest.raises(api.ApiError):
        reader.read()
