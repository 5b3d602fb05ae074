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

"""Records in the cache are signed text; nothing else is read, and nothing is unpickled."""

import os

from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova.feed import byte_stores
from kronos_nova.feed import raw_cache

KEY, OTHER = 'a' * 32, 'b' * 32


def conf_of(**options):
    """:param options: GROUP__OPTION, or an option of [kronos_channel]."""
    conf = cfg.ConfigOpts()
    raw_cache.register(conf)
    conf([], default_config_files=[])
    for name, value in options.items():
        group, _, option = name.rpartition('__')
        conf.set_override(option, value, group or 'kronos_channel')
    return conf


def cache_of(directory, *keys):
    return raw_cache.RawCache(conf_of(directory=str(directory), hmac_keys=list(keys)))


@pytest.mark.parametrize('keys', [(), (KEY,), (KEY, OTHER)])
def test_a_text_comes_back_and_another_key_has_none(tmp_path, keys):
    cache_of(tmp_path, *keys).set('k', '{"a": "\u00e4\\n"}')
    assert cache_of(tmp_path, *keys).get('k') == '{"a": "\u00e4\\n"}'
    assert cache_of(tmp_path, *keys).get('other') is None
    cache_of(tmp_path, *keys).delete('k')
    assert cache_of(tmp_path, *keys).get('k') is None


@pytest.mark.parametrize(('written', 'read', 'accepted'), [
    ((KEY,), (KEY,), True), ((KEY,), (OTHER, KEY), True), ((KEY, OTHER), (KEY,), True),
    ((), (), True), ((KEY,), (), True),
    ((), (KEY,), False), ((OTHER,), (KEY,), False), ((OTHER, KEY), (KEY,), False)])
def test_only_records_of_known_keys_are_accepted(tmp_path, written, read, accepted):
    cache_of(tmp_path, *written).set('k', 'text')
    if accepted:
        assert cache_of(tmp_path, *read).get('k') == 'text'
    else:
        with pytest.raises(byte_stores.RecordRefused, match=r'signature.*\[kronos_channel\]'):
            cache_of(tmp_path, *read).get('k')


def test_a_record_does_not_count_under_another_key(tmp_path):
    cache = cache_of(tmp_path, KEY)
    cache.set('k', 'text')
    cache._store.set('other', cache._store.get('k'))
    with pytest.raises(byte_stores.RecordRefused, match='signature'):
        cache.get('other')


@given(place=st.integers(0, 200), bit=st.integers(0, 7))
def test_a_changed_bit_is_noticed(tmp_path_factory, place, bit):
    cache = cache_of(tmp_path_factory.getbasetemp(), KEY)
    cache.set('k', 'x' * 100)
    record = bytearray(cache._store.get('k'))
    record[place % len(record)] ^= 1 << bit
    cache._store.set('k', bytes(record))
    with pytest.raises(byte_stores.RecordRefused):
        cache.get('k')


@pytest.mark.parametrize('record', [
    b'', b'{}', b'kronos-nova 2 \ntext', b'kronos-nova 1 ' + b'a' * 65 + b'\ntext',
    b'\x80\x04\x95', b'kronos-nova 1 \n\xff\xfe'])
@pytest.mark.parametrize('keys', [(), (KEY,)])
def test_an_invalid_record_is_refused(tmp_path, keys, record):
    cache = cache_of(tmp_path, *keys)
    cache._store.set('k', record)
    with pytest.raises(byte_stores.RecordRefused):
        cache.get('k')


def test_a_record_that_is_too_large_is_refused(tmp_path):
    conf = conf_of(directory=str(tmp_path), max_bytes=65536)
    raw_cache.RawCache(conf).set('k', 'x' * 70000)
    with pytest.raises(byte_stores.RecordRefused, match='65536 bytes'):
        raw_cache.RawCache(conf).get('k')


def test_a_short_key_is_refused(tmp_path):
    with pytest.raises(exception.ConfigError, match=r'hmac_keys.*fewer than 32.*openssl rand'):
        cache_of(tmp_path, 'short')


@pytest.mark.parametrize('mode', [0o777, 0o1777])
def test_a_directory_that_all_may_write_into_is_refused(tmp_path, mode):
    os.chmod(tmp_path, mode)
    with pytest.raises(exception.ConfigError, match='every user may write'):
        cache_of(tmp_path)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(exception.ConfigError, match='directory .*none.*cannot be used'):
        cache_of(tmp_path / 'none')


@pytest.mark.parametrize(('options', 'configured'), [
    ({}, False), ({'servers': ['h:1']}, True), ({'directory': '/x'}, True),
    ({'cache__enabled': True, 'cache__backend': 'oslo_cache.memcache_pool'}, True),
    ({'cache__enabled': False, 'cache__backend': 'oslo_cache.memcache_pool'}, False),
    ({'cache__enabled': True, 'cache__backend': 'dogpile.cache.redis'}, False),
    ({'cache__enabled': True, 'cache__backend': 'dogpile.cache.dbm'}, False)])
def test_the_channel_uses_memcached_or_its_own_options(options, configured, caplog):
    conf = conf_of(**options)
    assert raw_cache.is_configured(conf) is configured
    raw_cache.warn_of_unread_backend(conf)
    warned = [record for record in caplog.records if 'because it unpickles' in record.message]
    assert bool(warned) is (not configured and conf.cache.enabled)


def test_without_a_cache_nothing_is_kept():
    cache = raw_cache.RawCache(conf_of())
    cache.set('k', 'text')
    assert not cache and cache.get('k') is None


@pytest.mark.parametrize(('text', 'server'), [
    ('h:11', ('h', 11)), ('h', ('h', 11211)), ('[::1]:11', ('::1', 11)),
    ('[::1]', ('::1', 11211)), ('inet6:[2001:db8::1]:11', ('2001:db8::1', 11)),
    ('inet:10.0.0.1:11', ('10.0.0.1', 11)), ('unix:/run/m', '/run/m'), ('/run/m', '/run/m')])
def test_servers_are_written_as_for_other_services(text, server):
    assert byte_stores.parse_server(conf_of(), text) == server


@pytest.mark.parametrize('text', ['', ':11', 'h:eleven', '[]:11'])
def test_an_invalid_server_is_refused(text):
    with pytest.raises(exception.ConfigError, match='is no server.*HOST:PORT'):
        byte_stores.parse_server(conf_of(), text)


@pytest.mark.parametrize(('options', 'field'), [
    ({'cache__memcache_sasl_enabled': True}, 'memcache_sasl_enabled'),
    ({'cache__tls_enabled': True, 'cache__tls_cafile': '/none'}, 'tls_cafile')])
def test_options_that_the_channel_cannot_honour_are_refused(options, field):
    with pytest.raises(exception.ConfigError, match=field):
        raw_cache.RawCache(conf_of(servers=['127.0.0.1:1'], **options))
