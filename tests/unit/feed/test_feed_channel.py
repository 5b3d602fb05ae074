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


"""What the engine publishes is read as it was written, or is nothing."""

import json
import time

from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.feed import feed_channel
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import raw_cache


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    raw_cache.register(conf)
    conf([])
    conf.set_override('directory', str(tmp_path), 'kronos_channel')
    return conf


def notice_of(now, **fields):
    return feed_channel.PublishedState(**{'written_at': now, 'expires_at': now + 60, **fields})


def test_another_processs_channel_reads_the_written_notice(conf):
    now = time.time()
    notice = notice_of(now, draining=frozenset({'cn1'}), quarantined=frozenset({'cn2'}),
                       flights=(model.InFlightMove('u1', 'cn1', 'cn2', 'kronos'),
                                model.InFlightMove('u2', 'cn3', None, 'kronos')),
                       scopes=frozenset({'blue', 'red'}))
    feed_channel.FeedChannel(conf).write(notice)
    assert feed_channel.FeedChannel(conf).read() == notice


def test_flights_of_group_members_and_of_hints_come_first(monkeypatch):
    flights = [model.InFlightMove(uuid, 'cn1', 'cn2') for uuid in ('any', 'hinted', 'member')]
    cluster = model.Cluster(
        hosts={}, services={}, flights=tuple(flights),
        instances={'x': model.Instance('x', 'cn1', scheduler_hints={'same_host': ('hinted',)})},
        groups=(model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset({'member'})),))
    assert feed_channel.choose_flights(cluster) == tuple(reversed(flights))
    monkeypatch.setattr(feed_channel, 'MAX_MOVES', 1)
    assert feed_channel.choose_flights(cluster) == (flights[2],)


def test_a_move_that_has_just_ended_is_published_at_its_destination():
    """Nova's scheduler believes for minutes that the instance is on its source."""
    moves = [(model.Move(uuid, 'cn1', 'cn2', model.Phase.SPREAD), ended) for uuid, ended in (
        ('landed', 900.0), ('old', 800.0), ('back', 900.0), ('again', 900.0), ('gone', 900.0))]
    again = model.InFlightMove('again', 'cn2', 'cn3')
    cluster = model.Cluster(
        hosts={}, services={}, flights=(again,), instances={
            uuid: model.Instance(uuid, host) for uuid, host in (
                ('landed', 'cn2'), ('old', 'cn2'), ('back', 'cn1'), ('again', 'cn2'))})
    assert feed_channel.choose_flights(cluster, moves, 1000.0) == (
        again, model.InFlightMove('landed', 'cn2', 'cn2'))


def test_nothing_is_nothing(conf):
    assert feed_channel.FeedChannel(conf).read() is None


def test_without_a_cache_nothing_is_kept(conf):
    conf.set_override('directory', None, 'kronos_channel')
    channel = feed_channel.FeedChannel(conf)
    channel.write(notice_of(time.time()))
    assert channel.read() is None


@pytest.mark.parametrize(('written', 'expires', 'holds'), [
    (0, 60, True), (-100, -1, False), (-100, 0, False), (-4000, 60, False), (4000, 4060, False),
    (-3600, 60, False), (3601, 7200, False)])
def test_it_holds_until_it_expires_and_no_clock_makes_it_eternal(conf, written, expires, holds):
    now = 1e9
    channel = feed_channel.FeedChannel(conf)
    channel.write(feed_channel.PublishedState(written_at=now + written, expires_at=now + expires))
    assert (channel.read(now) is not None) == holds


@pytest.mark.parametrize('value', [
    'nothing', '[]', '{}', json.dumps({'version': 2}), json.dumps({'version': 1}),
    json.dumps({'version': 1, 'draining': 'cn1', 'quarantined': [], 'flights': [],
                'written_at': 0, 'expires_at': 1}),
    json.dumps({'version': 1, 'draining': [], 'quarantined': [], 'flights': [['u1', None, 'x']],
                'written_at': 0, 'expires_at': 1}),
    *(json.dumps({'version': 1, 'draining': [], 'quarantined': [], 'flights': [],
                  'written_at': 0, 'expires_at': 1, **wrong}) for wrong in (
        {'draining': [1]}, {'quarantined': [None]}, {'flights': [1]}, {'flights': [['u1']]},
        {'flights': [['u1', 'a', {}]]}, {'written_at': None}, {'written_at': [1]},
        {'expires_at': 'now'}, {'written_at': 10 ** 400}, {'expires_at': float('nan')}))])
def test_a_foreign_record_raises_a_value_error(conf, value):
    channel = feed_channel.FeedChannel(conf)
    channel._cache.set(feed_channel.KEY, value)
    with pytest.raises(ValueError):
        channel.read()


@pytest.mark.parametrize('opening', ['[', '{"a":', '["]",{"\\\"":'])
@pytest.mark.parametrize('depth', [100, 100_000])
def test_a_deeply_nested_answer_is_a_value_error(conf, opening, depth):
    channel = feed_channel.FeedChannel(conf)
    for key, read in ((feed_channel.KEY, channel.read),
                      (feed_channel.USAGE_KEY + 'k', lambda: channel.read_usage('k'))):
        channel._cache.set(key, opening * depth)
        with pytest.raises(ValueError, match='nested more than 8 deep'):
            read()


def test_an_unclosed_string_is_read_once(conf):
    """Reading the string again at each quote would take hours."""
    channel = feed_channel.FeedChannel(conf)
    channel._cache.set(feed_channel.KEY, '"' + '\\"' * 1_000_000)
    with pytest.raises(ValueError):
        channel.read()


def test_brackets_in_a_name_are_no_nesting(conf):
    now, host = time.time(), '["[{' * 20
    feed_channel.FeedChannel(conf).write(notice_of(now, draining=frozenset({host})))
    assert feed_channel.FeedChannel(conf).read().draining == {host}


USAGE = flavor_usages.FlavorUsages(
    {flavor_usages.FlavorShape(1, 512): 0.25, flavor_usages.FlavorShape(4, 8192): 3.0},
    (flavor_usages.IncomingMove('u1', 'cn1', flavor_usages.FlavorShape(1, 512), 5.0, 0.5),
     flavor_usages.IncomingMove('u2', 'cn2', flavor_usages.FlavorShape(4, 8192), 0.0, None)))


def test_usage_that_is_written_is_read_and_in_the_order_of_the_flavors(conf):
    now = time.time()
    feed_channel.FeedChannel(conf).write_usage('k', USAGE, now, now + 60)
    channel = feed_channel.FeedChannel(conf)
    usage, expires_at = channel.read_usage('k')
    assert (usage, expires_at) == (USAGE, now + 60)
    assert list(usage.shapes) == list(USAGE.shapes)
    assert channel.read_usage('another') is None
    # The other message knows nothing of it, nor it of the other.
    assert channel.read() is None


@pytest.mark.parametrize(('written', 'expires', 'holds'), [
    (0, 60, True), (-100, -1, False), (-4000, 60, False), (4000, 4060, False)])
def test_usage_holds_until_it_expires(conf, written, expires, holds):
    now = 1e9
    channel = feed_channel.FeedChannel(conf)
    channel.write_usage('k', USAGE, now + written, now + expires)
    assert (channel.read_usage('k', now) is not None) == holds


def usage_of(**fields):
    return json.dumps({'version': 1, 'shapes': [], 'moves': [], 'written_at': 1e9,
                       'expires_at': 1e9 + 60, **fields})


@pytest.mark.parametrize('value', [
    'nothing', '[]', '{}', usage_of(version=2), usage_of(shapes='x'), usage_of(shapes=[[1, 2]]),
    usage_of(shapes=[[0, 512, 1.0]]), usage_of(shapes=[[1, -1, 1.0]]),
    usage_of(shapes=[[True, 512, 1.0]]), usage_of(shapes=[[1.5, 512, 1.0]]),
    usage_of(shapes=[[1, 512, -1.0]]), usage_of(shapes=[[1, 512, float('nan')]]),
    usage_of(shapes=[[1, 512, 1e308]]), usage_of(shapes=[[1, 512, 10 ** 400]]),
    usage_of(moves=[['u', 'cn1', 1, 512, 0.0, 1e300]]),
    usage_of(shapes=[[1, 512, '1']]), usage_of(shapes=['abc']), usage_of(moves=None),
    usage_of(moves=[['u', 'cn1', 1, 512, 0.0]]), usage_of(moves=[[1, 'cn1', 1, 512, 0.0, None]]),
    usage_of(moves=[['u', None, 1, 512, 0.0, None]]),
    usage_of(moves=[['u', 'cn1', 1, 512, None, None]]),
    usage_of(moves=[['u', 'cn1', 1, 512, 0.0, float('inf')]]), usage_of(written_at='x'),
    usage_of(expires_at=None)])
def test_usage_that_is_not_ours_is_an_error_for_the_reader_to_swallow(conf, value):
    channel = feed_channel.FeedChannel(conf)
    channel._cache.set(feed_channel.USAGE_KEY + 'k', value)
    with pytest.raises(ValueError):
        channel.read_usage('k', 1e9 + 1)


def test_published_usage_is_bounded(conf):
    channel = feed_channel.FeedChannel(conf)
    shapes = {flavor_usages.FlavorShape(n, 512): 1.0
              for n in range(1, 2 * flavor_usages.MAX_SHAPES)}
    moves = [flavor_usages.IncomingMove(f'u{n}', 'cn1', flavor_usages.FlavorShape(1, 512))
             for n in range(2 * feed_channel.MAX_MOVES)]
    channel.write_usage('k', flavor_usages.FlavorUsages(shapes, tuple(moves)), 1e9, 1e9 + 60)
    assert len(channel._cache.get(feed_channel.USAGE_KEY + 'k')) < 250_000
    channel._cache.set(feed_channel.USAGE_KEY + 'k', usage_of(
        shapes=[[*shape, 1.0] for shape in shapes],
        moves=[[f'u{n}', 'cn1', 1, 512, 0.0, None] for n in range(2 * feed_channel.MAX_MOVES)]))
    usage, _ = channel.read_usage('k', 1e9 + 1)
    assert len(usage.shapes) == flavor_usages.MAX_SHAPES
    assert len(usage.moves) == feed_channel.MAX_MOVES


@pytest.mark.parametrize(('fields', 'same'), [
    ({'threshold': 0.5}, True), ({'name': 'other'}, True), ({'weight': 0.5}, True),
    ({'boot_ceiling': 0.5}, True), ({'imbalance_query': 'y'}, False),
    ({'vm_profile_query': 'y'}, False), ({'host_capacity': 'VCPU'}, False)])
def test_the_key_of_usage_depends_on_the_measured_query(fields, same):
    one = {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'x'}
    keys = {feed_channel.usage_key(policy.Policy(**{**one, **more})) for more in ({}, fields)}
    assert (len(keys) == 1) == same


LIMITS = {'cn1': model.BootLimit(16.0, 8192.0, 100.0), 'cn2': model.BootLimit(memory_mb=512.0)}


def test_another_processs_channel_reads_the_written_limits(conf):
    now = time.time()
    channel = feed_channel.FeedChannel(conf)
    channel.write_boot_limits('blue', LIMITS, now, now + 60)
    assert feed_channel.FeedChannel(conf).read_boot_limits('blue') == (LIMITS, now + 60)
    assert channel.read_boot_limits('red') is None
    assert channel.read_boot_limits('blue', now + 61) is None


@pytest.mark.parametrize('ahead', [0, 3000])
def test_records_of_rare_cycles_hold_for_an_hour(conf, ahead):
    """Five cycles of 900 seconds are more. The clock of the engine may be ahead."""
    now, channel = 1e9, feed_channel.FeedChannel(conf)
    written, expires = now + ahead, now + ahead + 5 * 900
    channel.write(feed_channel.PublishedState(draining=frozenset({'cn1'}), written_at=written,
                                              expires_at=expires))
    channel.write_usage('k', USAGE, written, expires)
    channel.write_boot_limits('blue', LIMITS, written, expires)
    for later in (0, 900, 3599):
        until = min(written, now + later) + feed_channel.MAX_AGE
        published = channel.read(now + later)
        assert (published.draining, published.expires_at) == ({'cn1'}, until)
        assert channel.read_usage('k', now + later) == (USAGE, until)
        assert channel.read_boot_limits('blue', now + later) == (LIMITS, until)
    assert channel.read(written + 3600) is None
    assert channel.read_usage('k', written + 3600) is None
    assert channel.read_boot_limits('blue', written + 3600) is None


def test_scope_of_any_name_has_a_key_of_its_own(conf):
    now = time.time()
    channel = feed_channel.FeedChannel(conf)
    for number, scope in enumerate(('../x', 'a b', 'a\nb', 'ü' * 200)):
        limits = {'cn1': model.BootLimit(float(number))}
        channel.write_boot_limits(scope, limits, now, now + 60)
        assert channel.read_boot_limits(scope) == (limits, now + 60)


@pytest.mark.parametrize('change', [
    {'version': 0}, {'limits': None}, {'limits': [['cn1', 1, 1]]}, {'limits': [[1, 1, 1, 1]]},
    {'limits': [['cn1', '1', 1, 1]]}, {'limits': [['cn1', -1, 1, 1]]},
    {'limits': [['cn1', 1e300, 1, 1]]}, {'limits': [['cn1', True, 1, 1]]},
    {'written_at': None}, {'expires_at': 'x'}])
def test_limits_that_are_not_ours_are_refused(conf, change):
    now = time.time()
    channel = feed_channel.FeedChannel(conf)
    good = {'version': feed_channel.LIMITS_VERSION, 'limits': [['cn1', 1, None, 1]],
            'written_at': now, 'expires_at': now + 60}
    channel.cache.set(feed_channel._make_limits_key('blue'), json.dumps(good))
    limits, _ = channel.read_boot_limits('blue')
    assert limits == {'cn1': model.BootLimit(1.0, disk_gb=1.0)}
    channel.cache.set(feed_channel._make_limits_key('blue'), json.dumps({**good, **change}))
    with pytest.raises(ValueError, match='in the cache'):
        channel.read_boot_limits('blue')


def test_publication_of_an_engine_that_knows_no_limits_names_no_scope(conf):
    now = time.time()
    channel = feed_channel.FeedChannel(conf)
    channel.write(notice_of(now, scopes=frozenset({'blue'})))
    document = json.loads(channel.cache.get(feed_channel.KEY))
    del document['scopes']
    channel.cache.set(feed_channel.KEY, json.dumps(document))
    assert channel.read() == notice_of(now)
