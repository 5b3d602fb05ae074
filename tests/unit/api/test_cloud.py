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
"""Hosts and instances that a real cycle has published, and the states without a usable reading."""

import dataclasses
import threading
import time

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.rebalancer.operations import published_cloud
from kronos_nova.rebalancer.operations import reading_cache
from kronos_nova.rebalancer.store import tables
from tests.scenarios import loader
from tests.unit.api import published
from tests.unit.rebalancer.store import cases


@pytest.fixture
def publisher(store, tmp_path):
    publisher = published.Publisher(store, tmp_path)
    publisher.run_cycle()
    return publisher


def wait_for(client, path, ready):
    """Return the answer of the path as soon as it is ready; a thread decodes the new version."""
    deadline = time.monotonic() + 20
    while True:
        status, document = client.send('GET', path)
        if ready(status, document):
            return document
        assert time.monotonic() < deadline, (status, document)
        time.sleep(0.01)


def list_ids(client, path, kind='instances'):
    """Return the identifiers of all pages."""
    found, key = [], 'name' if kind == 'hosts' else 'id'
    for _page in range(1000):
        status, page = client.send('GET', path)
        assert status == 200, page
        found += [row[key] for row in page[kind]]
        if page['next'] is None:
            return found
        path = page['next']
    raise AssertionError('the pages do not end')


def test_without_a_reading_the_answer_says_how_to_get_one(client, store):
    for path in ('/v1/hosts', '/v1/instances', f'/v1/instances/{published.PINNED}'):
        status, document = client.send('GET', path)
        (error,) = document['errors']
        assert status == 503 and error['code'] == 'kronos.reading_missing'
        assert 'publish_interval' in error['detail']


def test_hosts_have_loads_states_and_the_time_of_the_reading(client, publisher):
    status, page = client.send('GET', '/v1/hosts')
    hosts = {host['name']: host for host in page['hosts']}
    assert status == 200 and list(hosts) == ['a', 'b', 'c', 'd'] and page['next'] is None
    (load,) = hosts['a']['loads']
    assert load['policy'] == 'cpu' and load['score'] == 0.8
    assert load['base'] == pytest.approx(0.2) and load['coverage'] == pytest.approx(0.75)
    assert hosts['a']['instance_count'] == 2 and hosts['a']['scope'] == 'blue'
    assert hosts['a']['resources'][0] == {
        'resource_class': 'MEMORY_MB', 'capacity': 65536.0, 'used': 8192}
    assert hosts['a']['is_enabled'] is True and hosts['d']['is_enabled'] is False
    assert hosts['d']['disabled_reason'] == 'new disks' and hosts['d']['is_up'] is True
    assert hosts['a']['read_at'].endswith('Z')
    assert client.send('GET', '/v1/hosts?scope=blue')[1] == page
    status, detail = client.fail('GET', '/v1/hosts?scope=bleu')
    assert status == 404 and detail.startswith('scope: ') and 'blue' in detail


def test_hosts_come_in_pages_by_name(client, publisher):
    assert list_ids(client, '/v1/hosts?limit=1', 'hosts') == list(published.HOSTS)
    assert list_ids(client, '/v1/hosts?marker=bb&scope=blue', 'hosts') == ['c', 'd']


def test_two_instances_of_one_name_stay_apart(client, publisher):
    status, page = client.send('GET', '/v1/instances', query_string={'name': published.NAME})
    assert status == 200
    assert {row['id'] for row in page['instances']} == set(published.TWINS)
    assert {row['name'] for row in page['instances']} == {published.NAME}
    for host, uuids in (('a', [published.TWINS[0]]), ('b', [published.TWINS[1]]), ('c', [])):
        page = client.send('GET', '/v1/instances', query_string={
            'name': published.NAME, 'host': host, 'scope': 'blue'})[1]
        assert [row['id'] for row in page['instances']] == uuids
    assert list_ids(client, '/v1/instances?name=a') == []


def test_instances_are_filtered_by_scope_host_and_project(client, publisher):
    e0 = loader.uuid_of('e0')
    assert len(list_ids(client, '/v1/instances')) == 5
    assert e0 not in list_ids(client, '/v1/instances?scope=blue')
    assert list_ids(client, '/v1/instances?host=c') == [published.PINNED]
    assert list_ids(client, '/v1/instances?host=a&scope=blue&limit=1') == sorted(
        [loader.uuid_of('a0'), loader.uuid_of('a1')])
    assert list_ids(client, '/v1/instances?project_id=unknown') == []
    assert client.fail('GET', '/v1/instances?scope=red')[0] == 404
    (outside,) = client.send('GET', '/v1/instances?host=e')[1]['instances']
    assert outside['scope'] is None and outside['memory_mib'] == 4096


def test_pages_show_each_of_many_instances_once(client, store, tmp_path):
    publisher = published.Publisher(store, tmp_path, published.make_cluster(extra=1000))
    publisher.run_cycle()
    for query in ('', '&scope=blue', '&host=b'):
        found = list_ids(client, f'/v1/instances?limit=170{query}')
        cluster = publisher.collector.cluster
        wanted = [uuid for uuid, instance in cluster.instances.items()
                  if instance.host in ({'': 'abcde', '&scope=blue': 'abcd'}.get(query, 'b'))]
        assert found == sorted(wanted)


def test_instance_shows_its_share_its_holds_and_its_groups(client, publisher):
    status, twin = client.send('GET', f'/v1/instances/{published.TWINS[0]}')
    assert status == 200 and twin['shares'] == [
        {'policy': 'cpu', 'usage': pytest.approx(9.6), 'host_ratio': 0.3}]
    assert twin['server_groups'] == [{
        'id': '9' * 36, 'policy': 'anti-affinity', 'member_counts': {'a': 1, 'b': 1}}]
    assert twin['tasks'] == [] and twin['rejections'] == []
    pinned = client.send('GET', f'/v1/instances/{published.PINNED}')[1]
    assert pinned['rejections'][0]['rule'] == 'pinned' and pinned['held_for_seconds'] is None
    outside = client.send('GET', f'/v1/instances/{loader.uuid_of("e0")}')[1]
    assert outside['scope'] is None and 'no scope' in outside['holds'][0]
    assert outside['contracts'] == [
        {'source': 'flavor', 'disruption': 'drain-only', 'hours': None, 'max_moves': '2/7d',
         'notify': None, 'released_until': None, 'unreadable': []},
        {'source': 'tag', 'disruption': None, 'hours': '* 1-4 * * *', 'max_moves': None,
         'notify': '1d', 'released_until': '2026-11-01T00:00:00Z', 'unreadable': ['disruption']}]
    assert twin['contracts'] == []
    assert client.fail('GET', f'/v1/instances/{loader.uuid_of("gone")}')[0] == 404


def test_instance_is_held_by_what_the_database_has_learned_since(client, store, publisher):
    path = f'/v1/instances/{published.TWINS[0]}'
    assert client.send('GET', path)[1]['holds'] == []
    client.send('POST', '/v1/pauses', json={'scope': 'blue', 'reason': 'storm'})
    held = wait_for(client, path, lambda status, instance: instance['holds'])
    assert 'storm' in held['holds'][0]


def test_later_version_replaces_the_one_before(client, publisher):
    before = client.send('GET', '/v1/instances?host=b')[1]['instances'][0]
    cluster = publisher.collector.cluster
    publisher.collector.cluster = dataclasses.replace(cluster, instances={
        uuid: dataclasses.replace(instance, host='b' if uuid == loader.uuid_of('a1')
                                  else instance.host)
        for uuid, instance in cluster.instances.items()})
    publisher.run_cycle()
    page = wait_for(client, '/v1/instances?host=b', lambda status, page: len(
        page['instances']) == 2)
    assert before['id'] in {row['id'] for row in page['instances']}
    assert page['instances'][0]['read_at'] > before['read_at']
    assert client.send('GET', '/v1/hosts')[1]['hosts'][0]['instance_count'] == 1


def test_request_after_a_time_without_any_waits_for_the_newest_version(
        client, publisher, monkeypatch):
    """A process that had no request for an hour would show the cloud of an hour ago."""
    assert len(client.send('GET', '/v1/instances?host=b')[1]['instances']) == 1
    decode = reading_cache.ReadingCache._decode

    def decode_slowly(cache, *more):
        time.sleep(0.3)
        return decode(cache, *more)

    monkeypatch.setattr(reading_cache.ReadingCache, '_decode', decode_slowly)
    monkeypatch.setattr(reading_cache, 'IDLE_SECONDS', 0.0)
    monkeypatch.setattr(published_cloud, 'CHECK_SECONDS', 0.0)
    cluster = publisher.collector.cluster
    publisher.collector.cluster = dataclasses.replace(cluster, instances={
        uuid: dataclasses.replace(instance, host='b') if uuid == loader.uuid_of('a1')
        else instance for uuid, instance in cluster.instances.items()})
    publisher.run_cycle()
    assert len(client.send('GET', '/v1/instances?host=b')[1]['instances']) == 2


def test_next_engine_of_the_scope_takes_over(client, store, tmp_path, publisher):
    assert client.send('GET', '/v1/hosts')[0] == 200
    other = published.Publisher(store, tmp_path, owner='other')
    other.collector.cluster = dataclasses.replace(other.collector.cluster, instances={})
    other.run_cycle()
    wait_for(client, '/v1/instances', lambda status, page: page['instances'] == [])
    publisher.run_cycle()
    wait_for(client, '/v1/instances', lambda status, page: len(page['instances']) == 5)


def make_red_publisher(store, directory):
    """Return the engine of another scope, with one host."""
    cluster = dataclasses.replace(published.make_cluster(), aggregates={
        'blue': published.HOSTS, 'red': ('e',)})
    red = published.Publisher(store, directory, cluster, owner='red', scope='red')
    red.source._hosts = {'e': 0.5}
    return red


def test_each_scope_is_shown_by_the_reading_of_its_own_engine(client, store, tmp_path, publisher):
    make_red_publisher(store, tmp_path).run_cycle()
    hosts = wait_for(client, '/v1/hosts', lambda status, page: len(page['hosts']) == 5)['hosts']
    assert {host['name']: host['scope'] for host in hosts} == {
        **dict.fromkeys(published.HOSTS, 'blue'), 'e': 'red'}
    instance = client.send('GET', f'/v1/instances/{loader.uuid_of("e0")}')[1]
    assert instance['scope'] == 'red'


def delay_decoding(monkeypatch):
    """Let decodings wait; return the events that one has begun, and that all go on."""
    begun, go_on = threading.Event(), threading.Event()
    decode = reading_cache.ReadingCache._decode

    def decode_late(cache, *more):
        begun.set()
        assert go_on.wait(20)
        return decode(cache, *more)

    monkeypatch.setattr(reading_cache.ReadingCache, '_decode', decode_late)
    return begun, go_on


def test_view_of_a_scope_waits_for_the_first_reading_of_the_scope(
        client, store, tmp_path, publisher, monkeypatch):
    """The live page would show no hosts until its next refresh."""
    assert client.send('GET', '/v1/hosts')[0] == 200
    begun, go_on = delay_decoding(monkeypatch)
    make_red_publisher(store, tmp_path).run_cycle()
    cases.save(store, 0, scope='red', now=store.now())
    answers = []
    thread = threading.Thread(target=lambda: answers.append(
        client.send('GET', '/v1/views/scope?scope=red')), daemon=True)
    thread.start()
    assert begun.wait(20), answers
    # Another scope has its reading, and does not wait.
    assert len(client.send('GET', '/v1/views/scope?scope=blue')[1]['hosts']) == 4
    assert answers == []
    go_on.set()
    thread.join(20)
    [(status, view)] = answers
    assert status == 200 and [host['name'] for host in view['hosts']] == ['e']


def test_view_of_a_scope_waits_beyond_the_decoding_of_a_version_without_the_scope(
        client, store, tmp_path, publisher, monkeypatch):
    assert client.send('GET', '/v1/hosts')[0] == 200
    begun, go_on = delay_decoding(monkeypatch)
    publisher.run_cycle()
    # Until the cache looks at the database again.
    wait_for(client, '/v1/hosts', lambda status, page: begun.is_set())
    make_red_publisher(store, tmp_path).run_cycle()
    cases.save(store, 0, scope='red', now=store.now())
    answers = []
    thread = threading.Thread(target=lambda: answers.append(
        client.send('GET', '/v1/views/scope?scope=red')), daemon=True)
    thread.start()
    time.sleep(0.5)
    assert answers == []
    go_on.set()
    thread.join(20)
    [(status, view)] = answers
    assert status == 200 and [host['name'] for host in view['hosts']] == ['e']


@pytest.mark.parametrize(('table', 'values'), [
    (tables.reading, {'format': '2'}), (tables.reading_part, {'data': b'damaged'})])
def test_reading_that_cannot_be_decoded_is_503_and_the_log_has_the_reason(
        client, store, publisher, caplog, table, values):
    with store.engine.begin() as connection:
        connection.execute(sa.update(table).values(values))
    for _request in range(2):
        status, document = client.send('GET', '/v1/hosts')
        (error,) = document['errors']
        assert status == 503 and error['code'] == 'kronos.snapshot'
        assert 'log has the reason' in error['detail']
    assert 'format' in caplog.text or 'cannot be decoded' in caplog.text
    with store.engine.begin() as connection:
        connection.execute(sa.delete(tables.reading))
    publisher.run_cycle()
    wait_for(client, '/v1/hosts', lambda status, page: status == 200)


def test_reading_stays_while_the_database_is_away(client, store, publisher, monkeypatch):
    assert client.send('GET', '/v1/hosts')[0] == 200

    def fail(*args):
        raise exception.StoreError(problem='is gone', remedy='Wait')

    publisher.run_cycle()
    real = type(store.readings).load_reading
    monkeypatch.setattr(type(store.readings), 'load_reading', fail)
    assert client.send('GET', '/v1/hosts')[0] == 200, 'the version before is shown'
    monkeypatch.setattr(type(store.readings), 'load_reading', real)
    assert client.send('GET', '/v1/hosts')[0] == 200
