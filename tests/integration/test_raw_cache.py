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

"""A memcached that lies: no answer runs code, fills the memory or holds up the reader."""

import contextlib
import os
import pickle
import socketserver
import subprocess
import sys
import threading
import time

from oslo_cache import core
from oslo_config import cfg
import pytest

from kronos_nova.feed import byte_stores
from kronos_nova.feed import raw_cache
from tests.integration import servers

KEY = 'k' * 32


class Evil:
    def __reduce__(self):
        return os.system, ('touch /nonexistent/owned',)


def value(payload, flags=0, length=None):
    return b'VALUE %%s %d %d\r\n%s\r\nEND\r\n' % (
        flags, len(payload) if length is None else length, payload)


#: What the server answers to a get; %s is the key that was asked for.
ANSWERS = {
    **{f'pickle, flags {flags}, protocol {protocol}': value(
        pickle.dumps(Evil(), protocol).replace(b'%', b'%%'), flags)
       for flags in (0, 1, 2, 16) for protocol in (0, 2, 5)},
    'unsigned record': value(b'kronos-nova 1 \n{}'),
    'wrong signature': value(b'kronos-nova 1 ' + b'0' * 64 + b'\n{}'),
    'huge length': value(b'x', length=10 ** 12),
    'negative length': b'VALUE %s 0 -1\r\nEND\r\n',
    'no numbers': b'VALUE %s a b\r\nEND\r\n',
    'another key': b'VALUE other 0 1\r\nx\r\nEND\r\n',
    'garbage': b'\x00\xff\r\n' * 10,
    'nothing': b'',
}


#: What it answers to other commands.
DONE = {b'set': b'STORED\r\n', b'delete': b'DELETED\r\n'}


class Liar(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            words = line.split()
            if words and words[0] in DONE:
                self.wfile.write(DONE[words[0]])
            if not words or words[0] != b'get':
                continue
            answer = ANSWERS.get(self.server.answer)
            with contextlib.suppress(OSError):
                if self.server.answer == 'endless':
                    self.wfile.write(value(b'', length=10 ** 12)[:-7] % words[1])
                    while not self.server.stopping.is_set():
                        self.wfile.write(b'x' * 65536)
                elif self.server.answer == 'drip':
                    while not self.server.stopping.wait(0.2):
                        self.wfile.write(b'V')
                elif self.server.answer == 'silence':
                    self.server.stopping.wait(60)
                else:
                    self.wfile.write(answer.replace(b'%s', words[1]).replace(b'%%', b'%'))
            return


@pytest.fixture
def liar():
    with socketserver.ThreadingTCPServer(('127.0.0.1', 0), Liar) as server:
        server.daemon_threads = True
        server.stopping = threading.Event()
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.stopping.set()
        server.shutdown()
        thread.join()


def cache_of(port, *keys, **options):
    conf = cfg.ConfigOpts()
    raw_cache.register(conf)
    conf([], default_config_files=[])
    conf.set_override('servers', [f'127.0.0.1:{port}'], 'kronos_channel')
    conf.set_override('hmac_keys', list(keys), 'kronos_channel')
    conf.set_override('timeout', 2.0, 'kronos_channel')
    for name, given in options.items():
        conf.set_override(name, given, 'kronos_channel')
    return raw_cache.RawCache(conf)


#: Reads and writes each kind of record in a process of its own, in which unpickling is noticed,
#: with the servers in [kronos_channel], or in [cache] with each backend that oslo.cache has.
READER = '''
import sys
seen = []
def hook(event, arguments):
    if event in ('pickle.find_class', 'os.system', 'subprocess.Popen'):
        seen.append((event, arguments))
from oslo_config import cfg
from kronos_nova.feed import feed_channel, raw_cache, worker_records
from kronos_nova.scheduler import shared_source
from kronos_nova import policy as policies
from kronos_nova.conf import scheduler
from tests.integration.test_raw_cache import NoAnswer, find_backends
server, keys = '127.0.0.1:' + sys.argv[1], sys.argv[2:]
policy = policies.Policy(name='p', weight=1.0, imbalance_query='cpu')
for backend in (None, *find_backends()):
    conf = cfg.ConfigOpts()
    scheduler.register(conf)
    raw_cache.register(conf)
    conf([], default_config_files=[])
    if backend is None:
        conf.set_override('servers', [server], 'kronos_channel')
    else:
        for name, value in (('enabled', True), ('backend', backend),
                            ('memcache_servers', [server])):
            conf.set_override(name, value, 'cache')
    conf.set_override('hmac_keys', keys, 'kronos_channel')
    conf.set_override('timeout', 2.0, 'kronos_channel')
    conf.set_override('timeout', 1.0, 'prometheus')
    channel = feed_channel.FeedChannel(conf)
    if backend is None:
        sys.addaudithook(hook)
    record = worker_records.WorkerIdentity().make_record()
    for act in (channel.read, lambda: channel.read_usage('k'),
                lambda: channel.write(feed_channel.PublishedState()),
                lambda: worker_records.read_record(channel.cache, 0),
                lambda: worker_records.RecordSlot(channel.cache).write(record),
                lambda: shared_source.SharedMetricsSource(conf, NoAnswer()).fetch(policy,
                profile=False)):
        try:
            found = act()
        except Exception as e:
            print(backend, type(e).__name__)
        else:
            print(backend, 'returned', found)
assert not seen, seen
'''


class NoAnswer:
    """A score source for a worker that must query the source directly."""

    def fetch(self, policy, *, profile=True):
        raise LookupError('asked by itself')


def find_backends():
    """Return every backend that oslo.cache offers."""
    option, = (option for _, options in core._opts.list_opts() for option in options
               if option.name == 'backend')
    return sorted(str(choice) for choice in option.type.choices)


@pytest.mark.parametrize('keys', [(), (KEY,)])
@pytest.mark.parametrize('answer', [a for a in ANSWERS if a.startswith('pickle')])
def test_pickle_in_memcached_is_never_loaded(liar, answer, keys):
    liar.answer = answer
    cache = cache_of(liar.server_address[1], *keys)
    with pytest.raises(byte_stores.RecordRefused):
        cache.get('kronos_nova.published')


@pytest.mark.parametrize('keys', [(), (KEY,)])
def test_forged_server_runs_no_code_with_any_backend(liar, keys):
    liar.answer = 'pickle, flags 1, protocol 2'
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', READER, str(liar.server_address[1]), *keys],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # It has really come as far as the forged record, by [kronos_channel] and by [cache].
    refused = {line.split()[0] for line in lines if line.endswith(' RecordRefused')}
    assert refused == {'None', *raw_cache.MEMCACHED_BACKENDS} & {'None', *find_backends()}
    assert {line.split()[0] for line in lines} == {'None', *find_backends()}
    assert not any('returned' in line and not line.endswith(' None') for line in lines), lines


def test_audit_hook_notices_unpickling():
    """The cache backends of dogpile do unpickle: the same hook sees it there."""
    code = READER.partition('from oslo_config')[0] + '''
import pickle, os, collections
sys.addaudithook(hook)
pickle.loads(pickle.dumps(collections.OrderedDict()))
assert seen
'''
    subprocess.run([sys.executable, '-c', code], check=True)


@pytest.mark.parametrize('answer', [a for a in ANSWERS if not a.startswith('pickle')])
def test_foreign_answer_gives_error_or_none(liar, answer):
    liar.answer = answer
    cache = cache_of(liar.server_address[1], KEY)
    try:
        assert cache.get('kronos_nova.published') is None
    except Exception as error:
        assert not isinstance(error, (MemoryError, RecursionError))


@pytest.mark.parametrize('answer', ['endless', 'drip', 'silence'])
def test_endless_answer_is_abandoned(liar, answer):
    liar.answer = answer
    cache = cache_of(liar.server_address[1], KEY, max_bytes=1_000_000)
    began = time.monotonic()
    with pytest.raises((ValueError, OSError)):
        cache.get('kronos_nova.published')
    assert time.monotonic() - began < 30


def test_real_memcached_keeps_signed_records(tmp_path):
    with servers.memcached(tmp_path) as port:
        cache_of(port, KEY).set('k', '{"a": 1}')
        assert cache_of(port, KEY).get('k') == '{"a": 1}'
        with pytest.raises(byte_stores.RecordRefused):
            cache_of(port, 'o' * 32).get('k')
        cache_of(port, KEY).delete('k')
        assert cache_of(port, KEY).get('k') is None


def test_pickle_in_real_memcached_is_refused(tmp_path):
    from pymemcache import serde
    from pymemcache.client import base

    with servers.memcached(tmp_path) as port:
        client = base.Client(('127.0.0.1', port), serde=serde.pickle_serde)
        client.set('k', Evil(), noreply=False)
        for keys in ((), (KEY,)):
            with pytest.raises(byte_stores.RecordRefused, match='flags'):
                cache_of(port, *keys).get('k')


def test_server_order_does_not_change_key_placement(tmp_path):
    for name in 'ab':
        (tmp_path / name).mkdir()
    with servers.memcached(tmp_path / 'a') as one, servers.memcached(tmp_path / 'b') as two:
        names = [f'127.0.0.1:{one}', f'127.0.0.1:{two}']
        writer = cache_of(one, KEY, servers=names)
        for number in range(20):
            writer.set(f'k{number}', str(number))
        reader = cache_of(one, KEY, servers=names[::-1])
        assert [reader.get(f'k{number}') for number in range(20)] == [
            str(number) for number in range(20)]
