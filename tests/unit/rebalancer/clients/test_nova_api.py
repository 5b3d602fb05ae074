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

from typing import Any

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import server_group_pages
from tests.unit.rebalancer.clients import answers

group = answers.server_group


@pytest.fixture
def nova() -> answers.Answers:
    return answers.Answers()


@pytest.mark.parametrize('policy', [None, '', 'legacy'])
def test_a_group_with_a_policy_unknown_to_nova_is_ignored(nova: answers.Answers,
                                                          policy: str | None) -> None:
    nova.answers['/os-server-groups'] = [
        {'server_groups': [group('g1', policy=policy, rules=None), group('g2')]},
        {'server_groups': [group('g2'), group('g3', policy=policy)]},
        {'server_groups': [group('g3', policy=policy)]}]
    nova.answers['/os-server-groups/g1'] = [{'server_group': group('g1', policy=policy)}]
    api_of = nova_api.NovaApi(nova)
    assert [g.uuid for g in api_of.server_groups()] == ['g2']
    assert api_of.server_group('g1') is None


def test_migrations_are_read_by_active_status_and_by_recent_change(
        nova: answers.Answers) -> None:
    nova.answers['/os-migrations'] = [{'migrations': [
        answers.migration(2, status='a status of tomorrow'),
        answers.migration(1, status='completed')]}]
    found = nova_api.NovaApi(nova).migrations_under_way(now=100000.0)
    assert [m.id for m in found] == [2]
    assert {p.get('status') for _path, p, _version in nova.asked} == {
        None, *nova_api.UNDER_WAY}
    assert {'changes-since': '1970-01-01T03:46:40Z'} in [p for _path, p, _v in nova.asked]


def test_migrations_of_a_host_have_the_time_of_their_last_update(nova: answers.Answers) -> None:
    nova.answers['/os-migrations'] = [{'migrations': [
        answers.migration(2, status='completed', updated_at='1970-01-01T00:01:00.000000'),
        answers.migration(1)]}]
    found = nova_api.NovaApi(nova).migrations_of_host('h1', 100000.0)
    assert [(m.id, m.updated_at) for m in found] == [(1, 10.5), (2, 60.0)]
    assert nova.asked[-1][1] == {'host': 'h1', 'changes-since': '1970-01-01T03:46:40Z'}


def test_pages_follow_links_by_their_query_only(nova: answers.Answers) -> None:
    link = {'rel': 'next', 'href': 'http://wrong.example.org:1/v9/servers/detail?marker=b&limit=2'}
    nova.answers['/servers/detail'] = [
        {'servers': [answers.server('a'), answers.server('b')], 'servers_links': [link]},
        {'servers': [answers.server('b'), answers.server('c')]}]
    assert list(nova_api.NovaApi(nova).list_servers().instances) == ['a', 'b', 'c']
    assert nova.asked[1] == ('/servers/detail', {'marker': 'b', 'limit': '2'}, '2.96')


def test_changed_servers_are_listed_apart_from_deleted_and_unreadable_ones(
        nova: answers.Answers) -> None:
    nova.answers['/servers/detail'] = [{'servers': [
        answers.server('a'), answers.server('b', host=None, status='DELETED'),
        answers.server('d', status='SOFT_DELETED'), {'id': 'c', 'status': 'UNKNOWN'}]},
        {'servers': [answers.server('a')]}]
    changes = nova_api.NovaApi(nova).list_servers(100.7)
    assert nova.asked[-1][1] == {'all_tenants': '1', 'changes-since': '1970-01-01T00:01:40Z'}
    assert list(changes.instances) == ['a']
    assert (changes.deleted, changes.has_unknown) == ({'b', 'd'}, True)
    servers = nova_api.NovaApi(nova).list_servers()
    assert nova.asked[-1][1] == {'all_tenants': '1'}
    assert (servers.deleted, servers.has_unknown) == (frozenset(), False)


def test_pages_without_an_end_are_an_error(nova: answers.Answers) -> None:
    link = {'rel': 'next', 'href': '/servers/detail?marker=a'}
    nova.answers['/servers/detail'] = [{'servers': [answers.server('a')], 'servers_links': [link]}]
    with pytest.raises(api.ApiError, match='do not come to an end'):
        nova_api.NovaApi(nova).list_servers()


def test_a_group_deleted_between_two_pages_hides_no_other(nova: answers.Answers) -> None:
    nova.answers['/os-server-groups'] = [
        {'server_groups': [group('a'), group('b')]}, {'server_groups': [group('d')]}]
    with pytest.raises(api.ApiError, match='changed while it was read') as caught:
        nova_api.NovaApi(nova).server_groups()
    assert caught.value.status in api.PASSING


def test_servers_on_a_host_leave_out_others_and_unreadable_records(nova: answers.Answers) -> None:
    """A Nova that ignores the filter, and stubs of a cell that does not answer."""
    nova.answers['/servers/detail'] = [{'servers': [
        answers.server('a') | {'addresses': {'net': [{'addr': '192.0.2.7'}]}},
        answers.server('b', host='host2'), answers.server('c', host=None),
        {'id': 'd', 'status': 'UNKNOWN'}, answers.server('e', locked=None)]}]
    found = nova_api.NovaApi(nova).list_servers_on('host1')
    assert {uuid: server.addresses for uuid, server in found.items()} == {'a': ('192.0.2.7',)}
    assert nova.asked[-1][1] == {'all_tenants': '1', 'host': 'host1'}


def test_servers_are_read_without_pinned_zones_where_there_are_none() -> None:
    nova = answers.Answers(maximum='2.90')
    data = answers.server('a')
    del data['pinned_availability_zone']
    nova.answers['/servers/detail'] = [{'servers': [data]}]
    assert nova_api.NovaApi(nova).list_servers().instances['a'].pinned_zone is None
    assert nova.asked[0][2] == '2.72'


def test_a_nova_too_old_is_refused() -> None:
    with pytest.raises(api.ApiError, match=r'offers microversion 2\.71, 2\.72 \(Stein\)'):
        nova_api.NovaApi(answers.Answers(maximum='2.71')).list_servers()


def test_hypervisors_of_a_host_falls_back_to_the_whole_list(nova: answers.Answers) -> None:
    record = {'id': 'u', 'hypervisor_hostname': 'other-name', 'hypervisor_type': 'QEMU',
              'service': {'host': 'host1'}}
    nova.answers['/os-hypervisors/detail'] = [
        answers.Response({'itemNotFound': {'message': 'none', 'code': 404}}, 404),
        {'hypervisors': [record]}]
    assert [h.uuid for h in nova_api.NovaApi(nova).hypervisors_of('host1')] == ['u']


def test_a_hostile_message_stays_one_short_line(nova: answers.Answers) -> None:
    nova.answers['/os-aggregates'] = [answers.Response(
        {'forbidden': {'message': 'no\n\x1b[31m' + 'x' * 5000, 'code': 403}}, 403)]
    with pytest.raises(api.ApiError) as caught:
        nova_api.NovaApi(nova).read_aggregates()
    assert caught.value.problem.isprintable()
    assert len(caught.value.problem) < 500


def test_a_server_that_is_denied_is_not_taken_for_deleted(nova: answers.Answers) -> None:
    nova.answers['/servers/vm'] = [answers.Response({}, 404)]
    nova.answers['/servers/detail'] = [{'servers': [answers.server('vm')]}, {'servers': []}]
    with pytest.raises(api.ApiError, match='policy context_is_admin') as caught:
        nova_api.NovaApi(nova).read_server('vm')
    assert caught.value.status is None
    with pytest.raises(api.ApiError) as caught:
        nova_api.NovaApi(nova).read_server('vm')
    assert caught.value.status == 404


class GroupPages:
    """Nova's list of server groups, where a page fails that has one of the hidden groups."""

    def __init__(self, count: int, hidden: set[int], fails: bool = False) -> None:
        self.groups, self.hidden, self.fails = list(range(count)), hidden, fails
        self.asked = 0

    def read(self, path: str, what: str, policy: str, params: dict[str, str]) -> dict[str, Any]:
        self.asked += 1
        offset, limit = int(params['offset']), int(params['limit'])
        page = self.groups[offset:offset + limit]
        if self.fails or self.hidden.intersection(page):
            raise api.ApiError('Nova', what, 'HTTP 500', 500)
        return {'server_groups': [
            group(f'g{number}', policy='legacy' if number == 3 else 'affinity')
            for number in page]}


def read_groups(nova: answers.Answers, monkeypatch: pytest.MonkeyPatch,
                pages: GroupPages) -> server_group_pages.ReadableGroups:
    reader = nova_api.NovaApi(nova)
    monkeypatch.setattr(reader, '_get', pages.read)
    return reader.readable_server_groups()


@pytest.mark.parametrize('count', [0, 1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize('hidden', [set(), {0}, {0, 1}, {62, 63, 64}, {199}, {5, 70, 131}])
def test_groups_without_a_member_in_a_silent_cell_are_read_all_the_same(
        nova: answers.Answers, monkeypatch: pytest.MonkeyPatch, count: int,
        hidden: set[int]) -> None:
    pages = GroupPages(count, hidden)
    found = read_groups(nova, monkeypatch, pages)
    shown = [number for number in range(count) if number not in hidden]
    assert found.uuids == {f'g{number}' for number in shown}
    assert [g.uuid for g in found.groups] == [f'g{n}' for n in shown if n != 3]
    assert found.unreadable == count - len(shown)
    assert pages.asked <= 2 * (count / 64 + 1 + 13 * len(hidden))


def test_a_page_of_hidden_groups_alone_does_not_end_the_list(
        nova: answers.Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_groups(nova, monkeypatch, GroupPages(130, set(range(128))))
    assert found.unreadable == 128 and found.uuids == {'g128', 'g129'}


def test_reading_groups_ends_when_every_page_fails(nova: answers.Answers,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(api.ApiError, match='HTTP 500'):
        read_groups(nova, monkeypatch, GroupPages(5, set(), fails=True))


def test_a_list_of_groups_that_changes_while_it_is_read_is_refused(
        nova: answers.Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = GroupPages(70, {69})
    read = pages.read

    def shrink(*arguments: Any) -> dict[str, Any]:
        found = read(*arguments)
        pages.groups = pages.groups[1:]
        return found
    monkeypatch.setattr(pages, 'read', shrink)
    with pytest.raises(api.ApiError, match='the list changed while it was read'):
        read_groups(nova, monkeypatch, pages)
