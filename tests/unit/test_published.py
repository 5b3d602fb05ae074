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
from kronos_nova import published


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    published.register(conf)
    conf([])
    conf.set_override('enabled', True, 'cache')
    conf.set_override('backend', 'dogpile.cache.dbm', 'cache')
    conf.set_override('backend_argument', [f'filename:{tmp_path / "cache"}'], 'cache')
    return conf


def notice_of(now, **fields):
    return published.Published(**{'written_at': now, 'expires_at': now + 60, **fields})


def test_what_is_written_is_read_by_another_process_s_channel(conf):
    now = time.time()
    notice = notice_of(now, draining=frozenset({'cn1'}), quarantined=frozenset({'cn2'}),
                       flights=(model.Flight('u1', 'cn1', 'cn2', 'kronos'),
                                model.Flight('u2', 'cn3', None, 'kronos')))
    published.Channel(conf).write(notice)
    assert published.Channel(conf).read() == notice


def test_nothing_is_nothing(conf):
    assert published.Channel(conf).read() is None


def test_a_cache_that_is_not_enabled_keeps_nothing(conf):
    conf.set_override('enabled', False, 'cache')
    channel = published.Channel(conf)
    channel.write(notice_of(time.time()))
    assert channel.read() is None


@pytest.mark.parametrize(('written', 'expires', 'holds'), [
    (0, 60, True), (-100, -1, False), (-100, 0, False), (-4000, 60, False), (4000, 4060, False),
    (0, 99999, False)])
def test_it_holds_until_it_expires_and_no_clock_makes_it_eternal(conf, written, expires, holds):
    now = 1e9
    channel = published.Channel(conf)
    channel.write(published.Published(written_at=now + written, expires_at=now + expires))
    assert (channel.read(now) is not None) == holds


@pytest.mark.parametrize('value', [
    'nothing', '[]', '{}', json.dumps({'version': 2}), json.dumps({'version': 1}),
    json.dumps({'version': 1, 'draining': 'cn1', 'quarantined': [], 'flights': [],
                'written_at': 0, 'expires_at': 1}),
    json.dumps({'version': 1, 'draining': [], 'quarantined': [], 'flights': [['u1', None, 'x']],
                'written_at': 0, 'expires_at': 1})])
def test_what_is_not_ours_is_an_error_for_the_reader_to_swallow(conf, value):
    channel = published.Channel(conf)
    channel._region.set(published.KEY, value)
    with pytest.raises((ValueError, KeyError)):
        channel.read()
