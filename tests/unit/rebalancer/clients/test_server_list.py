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

"""A list of servers with a memory, of a Nova whose changes the tests choose.

What a real Nova lists as a change is in tests/functional/test_server_list.py.
"""

from collections.abc import Iterable
import dataclasses
from typing import Any

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import server_list
from tests.unit.rebalancer.clients import answers

#: When the first reading begins, and seconds until all servers are listed again.
START, INTERVAL = 1_000_000.0, 900.0
GONE = answers.Response({'itemNotFound': {'message': 'Gone.'}}, 404)


class Nova:
    """A reader of a Nova, and the queries that it sends."""

    def __init__(self, interval: float = INTERVAL, **hosts: str) -> None:
        self.connection = answers.Answers()
        self.reader = server_list.ServerListReader(nova_api.NovaApi(self.connection), interval)
        self.answer(hosts)

    def answer(self, hosts: dict[str, str], deleted: Iterable[str] = (),
               unknown: Iterable[str] = ()) -> None:
        """Let the list have these servers from now on."""
        self.connection.answers['/servers/detail'] = [self.make_page(hosts, deleted, unknown)]

    @staticmethod
    def make_page(hosts: dict[str, str], deleted: Iterable[str] = (),
                  unknown: Iterable[str] = ()) -> dict[str, Any]:
        return {'servers': [
            *(answers.server(uuid, host) for uuid, host in hosts.items()),
            *(answers.server(uuid, status='DELETED') for uuid in deleted),
            *({'id': uuid, 'status': 'UNKNOWN'} for uuid in unknown)]}

    def read(self, seconds: float) -> server_list.ServerList:
        """Read the list so many seconds after the start, and keep the queries."""
        self.connection.asked.clear()
        return self.reader.read_servers(START + seconds)

    def look_up_doubtful(self, servers: server_list.ServerList, displaced: Iterable[str],
                seconds: float) -> server_list.ServerList:
        self.connection.asked.clear()
        with parallel_reads.ReadingContext(30.0) as reads:
            return self.reader.look_up_doubtful(reads, servers, list(displaced), START + seconds)

    @property
    def since(self) -> list[str | None]:
        """The time of each query of the list; None: of all servers."""
        return [query.get('changes-since') for path, query, _version in self.connection.asked
                if path == '/servers/detail']

    @property
    def looked_up(self) -> list[str]:
        return [path.removeprefix('/servers/') for path, *_ in self.connection.asked
                if path != '/servers/detail']


def map_hosts(servers: server_list.ServerList) -> dict[str, str]:
    return {uuid: instance.host for uuid, instance in servers.instances.items()}


def test_servers_that_nova_does_not_list_as_changed_are_remembered() -> None:
    nova = Nova(a='h1', b='h1', c='h1')
    assert map_hosts(nova.read(0)) == {'a': 'h1', 'b': 'h1', 'c': 'h1'}
    assert nova.since == [None]
    nova.answer({'b': 'h2', 'd': 'h2'}, deleted='c')
    servers = nova.read(60)
    assert map_hosts(servers) == {'a': 'h1', 'b': 'h2', 'd': 'h2'}
    assert (servers.remembered, servers.deleted, servers.missing) == ({'a'}, {'c'}, frozenset())
    nova.answer({})
    assert map_hosts(nova.read(120)) == {'a': 'h1', 'b': 'h2', 'd': 'h2'}


def test_each_change_is_queried_in_two_readings() -> None:
    nova = Nova(a='h1')
    queries = [nova.read(seconds) and nova.since for seconds in (0, 60, 120, 180)]
    # A minute for clocks before the last reading but one; 1,000,000 s are 13:46:40.
    assert queries == [[None], ['1970-01-12T13:45:40Z'], ['1970-01-12T13:45:40Z'],
                       ['1970-01-12T13:46:40Z']]


@pytest.mark.parametrize(('seconds', 'interval', 'every'), [
    (899, 900, False), (900, 900, True), (-1, 900, True), (1, 0, True)])
def test_all_servers_are_listed_after_the_interval_and_when_the_clock_went_back(
        seconds: float, interval: float, every: bool) -> None:
    nova = Nova(interval, a='h1', b='h1')
    nova.read(0)
    nova.answer({'a': 'h1'})
    assert map_hosts(nova.read(seconds)).keys() == ({'a'} if every else {'a', 'b'})
    assert (nova.since == [None]) is every


def test_clock_that_went_back_between_two_lists_of_changes_counts() -> None:
    nova = Nova(a='h1')
    for seconds in (0, 600):
        nova.read(seconds)
    nova.read(300)
    assert nova.since == [None]


def test_reading_that_fails_changes_nothing() -> None:
    nova = Nova(a='h1', b='h1')
    nova.read(0)
    nova.connection.answers['/servers/detail'] = [answers.Response({}, 500)]
    with pytest.raises(api.ApiError):
        nova.read(60)
    nova.answer({'b': 'h2'})
    assert map_hosts(nova.read(3 * 60)) == {'a': 'h1', 'b': 'h2'}
    assert nova.since == ['1970-01-12T13:45:40Z']


def test_list_with_a_server_that_nova_cannot_read_is_not_remembered() -> None:
    nova = Nova()
    nova.answer({'a': 'h1'}, unknown='b')
    assert map_hosts(nova.read(0)) == {'a': 'h1'}
    nova.answer({'a': 'h1', 'b': 'h1'})
    assert map_hosts(nova.read(60)) == {'a': 'h1', 'b': 'h1'}
    assert nova.since == [None]


def test_missing_servers_are_looked_up_after_a_reading_that_failed() -> None:
    """Placement does not answer in the reading that lists all servers."""
    nova = Nova(a='h1', b='h1')
    nova.read(0)
    nova.connection.answers['/servers/b'] = [{'server': answers.server('b', 'h1')}]
    nova.answer({'a': 'h1'})
    nova.read(INTERVAL)
    nova.answer({})
    servers = nova.read(INTERVAL + 60)
    assert servers.missing == {'b'}
    with pytest.raises(api.ApiError, match='its list lacks server b'):
        nova.look_up_doubtful(servers, [], INTERVAL + 60)


def test_instances_of_one_flavor_share_its_extra_specs_with_remembered_ones() -> None:
    nova = Nova()
    pages = [answers.server(uuid) for uuid in 'ab']
    for page in pages:
        page['flavor'] = page['flavor'] | {'extra_specs': {'ssd': 'true'}}
    nova.connection.answers['/servers/detail'] = [{'servers': [page]} for page in pages]
    nova.read(0)
    instances = nova.read(60).instances
    assert instances['a'].extra_specs is instances['b'].extra_specs is not None


def test_remembered_server_without_allocations_on_its_host_is_looked_up() -> None:
    nova = Nova(moved='h1', deleted='h1', bare='h1', still='h1')
    nova.read(0)
    nova.answer({})
    servers = nova.read(60)
    nova.connection.answers |= {
        '/servers/moved': [{'server': answers.server('moved', 'h2')}], '/servers/deleted': [GONE],
        '/servers/bare': [{'server': answers.server('bare', 'h1')}]}
    servers = nova.look_up_doubtful(servers, ['moved', 'deleted', 'bare'], 60)
    assert nova.looked_up == ['bare', 'deleted', 'moved']
    assert map_hosts(servers) == {'moved': 'h2', 'bare': 'h1', 'still': 'h1'}
    servers = nova.read(120)
    assert map_hosts(servers) == {'moved': 'h2', 'bare': 'h1', 'still': 'h1'}
    nova.look_up_doubtful(servers, ['bare'], 120)
    assert nova.looked_up == [], 'it lacks allocations as before'


def test_looked_up_server_that_is_being_deleted_is_gone() -> None:
    nova = Nova(vm='h1')
    nova.read(0)
    nova.answer({})
    nova.connection.answers['/servers/vm'] = [
        {'server': answers.server('vm', 'h1', status='DELETED')}]
    assert map_hosts(nova.look_up_doubtful(nova.read(60), ['vm'], 60)) == {}


def test_list_of_all_servers_that_lacks_a_remembered_one_is_refused() -> None:
    nova = Nova(a='h1', b='h1', c='h1')
    nova.read(0)
    nova.connection.answers |= {
        '/servers/b': [{'server': answers.server('b', 'h1')}], '/servers/c': [GONE]}
    nova.answer({'a': 'h1'})
    servers = nova.read(INTERVAL)
    assert servers.missing == {'b', 'c'}
    with pytest.raises(api.ApiError, match='its list lacks server b, which is on h1'):
        nova.look_up_doubtful(servers, [], INTERVAL)
    nova.answer({'a': 'h1', 'b': 'h1'})
    assert map_hosts(nova.read(INTERVAL + 60)) == {'a': 'h1', 'b': 'h1'}
    assert nova.since == [None]


@pytest.mark.parametrize(('number', 'again'), [(100, False), (101, True)])
def test_list_that_lacks_many_servers_is_read_again(number: int, again: bool) -> None:
    uuids = [f's{n:03}' for n in range(number)]
    nova = Nova(**dict.fromkeys(uuids, 'h1'))
    nova.read(0)
    nova.connection.answers |= {f'/servers/{uuid}': [GONE] for uuid in uuids}
    nova.answer({})
    servers = nova.read(INTERVAL)
    assert map_hosts(nova.look_up_doubtful(servers, [], INTERVAL)) == {}
    assert len(nova.looked_up) == (0 if again else number)
    nova.read(INTERVAL + 60)
    assert (nova.since == [None]) is again


def test_server_that_has_them_again_and_loses_them_again_is_looked_up_again() -> None:
    nova = Nova(vm='h1')
    nova.connection.answers['/servers/vm'] = [{'server': answers.server('vm', 'h1')}]
    for seconds, displaced, looked_up in ((0, ['vm'], []), (60, ['vm'], []), (120, [], []),
                                          (180, ['vm'], ['vm'])):
        servers = nova.read(seconds)
        nova.answer({})
        nova.look_up_doubtful(servers, displaced, seconds)
        assert nova.looked_up == looked_up, seconds


def test_changed_server_without_allocations_is_as_nova_says() -> None:
    nova = Nova(vm='h1')
    nova.read(0)
    servers = nova.read(60)
    assert nova.look_up_doubtful(servers, ['vm'], 60) is not None
    assert nova.looked_up == []


def test_change_in_a_reading_that_failed_later_is_not_forgotten() -> None:
    """The server lacked allocations on its first host, moved, and then lost those as well."""
    nova = Nova(vm='h1')
    nova.connection.answers['/servers/vm'] = [GONE]
    nova.look_up_doubtful(nova.read(0), ['vm'], 0)
    nova.answer({'vm': 'h2'})
    nova.read(60)  # Placement did not answer then: nothing was confirmed.
    nova.answer({})
    assert map_hosts(nova.look_up_doubtful(nova.read(120), ['vm'], 120)) == {}
    assert nova.looked_up == ['vm']


@pytest.mark.parametrize(('number', 'lists_all'), [(10, False), (11, True)])
def test_all_servers_are_listed_when_many_are_doubtful(number: int, lists_all: bool) -> None:
    uuids = [f's{n:02}' for n in range(20)]
    nova = Nova(**dict.fromkeys(uuids, 'h1'))
    nova.connection.answers |= {
        f'/servers/{uuid}': [{'server': answers.server(uuid, 'h1')}] for uuid in uuids}
    nova.read(0)
    servers = nova.read(60)
    servers = dataclasses.replace(servers, remembered=frozenset(uuids))
    nova.answer(dict.fromkeys(uuids[5:], 'h1'))
    servers = nova.look_up_doubtful(servers, uuids[:number], 60)
    assert nova.since == ([None] if lists_all else [])
    assert nova.looked_up == ([] if lists_all else uuids[:number])
    assert len(servers.instances) == (15 if lists_all else 20)
    nova.answer({})
    nova.look_up_doubtful(nova.read(120), uuids[:number], 120)
    assert nova.looked_up == []
