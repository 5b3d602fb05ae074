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

"""Servers that Nova's list lacks: found by their allocations in Placement."""

from collections.abc import Iterator
import contextlib
from typing import Any

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import hidden_servers
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from tests.unit.rebalancer.clients import answers

LAUNCHED = '2026-11-26T10:00:00.000000'
#: The list was read an hour later.
READ_AT = 1795690800.0
GONE = answers.Response({'itemNotFound': {'message': 'Gone.'}}, 404)
EMPTY = {'servers': []}


class Nova:
    """Nova with answers, and the requests to it."""

    def __init__(self, **servers: Any) -> None:
        self.connection = answers.Answers()
        self.connection.answers = {f'/servers/{uuid}': [server] for uuid, server in servers.items()}
        self.connection.answers['/servers/detail'] = [EMPTY]
        self.hidden = hidden_servers.HiddenServers(nova_api.NovaApi(self.connection))

    def check(self, *consumers: str) -> list[str]:
        """Check a list, and return the consumers that were looked up."""
        self.connection.asked.clear()
        with parallel_reads.ReadingContext(30.0) as reads:
            self.hidden.refuse_incomplete_list(reads, consumers, READ_AT)
        return [path.removeprefix('/servers/') for path, *_ in self.connection.asked
                if path != '/servers/detail']


def show(uuid: str, launched: str | None = LAUNCHED, host: str | None = 'h1') -> dict[str, Any]:
    return {'server': answers.server(uuid, host, **{'OS-SRV-USG:launched_at': launched})}


def test_server_that_the_list_lacks_is_refused_with_its_host() -> None:
    nova = Nova(vm=show('vm'))
    with pytest.raises(api.ApiError, match='its list lacks server vm, which is on h1'):
        nova.check('vm')


@pytest.mark.parametrize('server', [
    show('vm', launched='2026-11-26T10:59:30.000000'), show('vm', launched=None),
    show('vm', host=None), {'server': answers.server('vm', 'h1', status='SOFT_DELETED', **{
        'OS-SRV-USG:launched_at': LAUNCHED})}])
def test_server_that_came_since_or_waits_for_its_deletion_is_no_gap(server: Any) -> None:
    assert Nova(vm=server).check('vm') == ['vm']


def test_consumer_that_is_no_server_is_looked_up_once() -> None:
    nova = Nova(left=GONE, other=GONE)
    assert nova.check('left') == ['left']
    assert nova.check('left', 'other') == ['other']
    assert nova.check() == []
    assert nova.check('left') == ['left'], 'its allocations came again'


def test_few_of_many_consumers_are_looked_up_at_a_time() -> None:
    left = {f'c{number:02}': GONE for number in range(25)}
    nova = Nova(**left)
    assert [len(nova.check(*left)) for _ in range(4)] == [10, 10, 5, 0]


def test_consumer_that_cannot_be_looked_up_is_an_error() -> None:
    with pytest.raises(api.ApiError, match='server vm'):
        Nova(vm=answers.Response({}, 500)).check('vm')


@contextlib.contextmanager
def empty_host(consumers: dict[str, Any]) -> Iterator[answers.Answers]:
    connection = answers.Answers()
    connection.answers = {f'/servers/{uuid}': [server] for uuid, server in consumers.items()}
    connection.answers |= {
        '/servers/detail': [EMPTY],
        '/resource_providers': [{'resource_providers': [
            {'uuid': uuid, 'name': uuid, 'generation': 1, 'root_provider_uuid': 'root',
             'parent_provider_uuid': parent} for uuid, parent in (('root', None),
                                                                  ('numa', 'root'))]}],
        '/resource_providers/root/allocations': [
            {'allocations': {}, 'resource_provider_generation': 1}],
        '/resource_providers/numa/allocations': [
            {'allocations': {uuid: {'resources': {'VCPU': 1}} for uuid in consumers},
             'resource_provider_generation': 1}]}
    yield connection


@pytest.mark.parametrize(('consumers', 'hides'), [
    ({}, False), ({'left': GONE}, False), ({'vm': show('vm')}, True),
    ({'left': GONE, 'vm': show('vm')}, True), ({'vm': show('vm', host='h2')}, False)])
def test_empty_host_has_no_server_in_placement_either(
        consumers: dict[str, Any], hides: bool) -> None:
    with empty_host(consumers) as connection:
        with pytest.raises(api.ApiError, match='lacks server vm') if hides else (
                contextlib.nullcontext()):
            hidden_servers.refuse_hidden_servers(
                nova_api.NovaApi(connection), placement_api.PlacementApi(connection), 'h1',
                ['root'])
