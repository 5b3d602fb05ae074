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


"""What the engine publishes, as a scheduler process holds it."""

import time
from unittest import mock

from kronos_nova import model
from kronos_nova.feed import feed_channel
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import periodic
from kronos_nova.scheduler import runtime

USAGE = flavor_usages.FlavorUsages({flavor_usages.FlavorShape(1, 512): 0.25})


class Channel:
    """Return the scripted answers."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def read_usage(self, key):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def board():
    return runtime.NoticeBoard(mock.Mock(), periodic.FaultCounters(), mock.Mock(usage_keys={'k'}))


def test_read_usages_hold_until_their_expiry_without_the_cache():
    notices, now = board(), time.time()
    channel = Channel((USAGE, now + 60), ConnectionError(), None)
    for _ in range(3):
        assert notices._read_usages(channel) == {'k': USAGE}
    with mock.patch.object(time, 'time', autospec=True, return_value=now + 61):
        assert notices._read_usages(Channel(None)) == {}


def test_newer_usages_replace_older_ones():
    notices, now = board(), time.time()
    newer = flavor_usages.FlavorUsages({flavor_usages.FlavorShape(1, 512): 0.5})
    channel = Channel((USAGE, now + 60), (newer, now + 60))
    assert notices._read_usages(channel) == {'k': USAGE}
    assert notices._read_usages(channel) == {'k': newer}


def test_usages_that_no_policy_uses_are_dropped():
    notices = board()
    assert notices._read_usages(Channel((USAGE, time.time() + 60))) == {'k': USAGE}
    notices._scores.usage_keys = set()
    assert notices._read_usages(Channel()) == {} and not notices._usage


LIMITS = {'h1': model.BootLimit(8.0)}


class LimitChannel:
    """Return the scripted answers by scope; an exception is raised."""

    def __init__(self, **answers):
        self.answers = answers

    def read_boot_limits(self, scope):
        answer = self.answers.get(scope)
        if isinstance(answer, Exception):
            raise answer
        return answer


def merge(notices, *scopes, **answers):
    """Let the engine's publication name these scopes; return the limits that hold then."""
    notices._newest = feed_channel.PublishedState(limited_scopes=frozenset(scopes))
    notices._limits = notices._merge_limits(LimitChannel(**answers))
    return notices.read_boot_limits()


def test_limits_of_all_scopes_hold_together():
    notices, until = board(), time.time() + 60
    other = {'h2': model.BootLimit(memory_mb=512.0)}
    assert merge(notices, 'blue', 'red', blue=(LIMITS, until), red=(other, until)) == {
        **LIMITS, **other}
    assert merge(notices, 'red', blue=(LIMITS, until), red=(other, until)) == other
    assert merge(notices) == {}


def test_limits_hold_until_their_expiry_without_the_cache():
    notices, now = board(), time.time()
    assert merge(notices, 'blue', blue=(LIMITS, now + 60)) == LIMITS
    assert merge(notices, 'blue', blue=ConnectionError()) == LIMITS
    assert list(notices._faults.counts) == ['limits of the failover certificates: ConnectionError']
    with mock.patch.object(time, 'time', autospec=True, return_value=now + 61):
        assert notices.read_boot_limits() == {}, 'no refresh has come'
        assert merge(notices, 'blue', blue=ConnectionError()) == {}


def test_scope_whose_limits_have_expired_leaves_those_of_others():
    notices, now = board(), time.time()
    other = {'h2': model.BootLimit(4.0)}
    merge(notices, 'blue', 'red', blue=(LIMITS, now + 60), red=(other, now + 600))
    with mock.patch.object(time, 'time', autospec=True, return_value=now + 61):
        assert merge(notices, 'blue', 'red', blue=ConnectionError(),
                     red=(other, now + 600)) == other


def test_record_that_is_gone_ends_its_limits():
    notices = board()
    assert merge(notices, 'blue', blue=(LIMITS, time.time() + 60)) == LIMITS
    assert merge(notices, 'blue') == {}


def test_limits_end_with_the_publication_that_names_them():
    notices = board()
    assert merge(notices, 'blue', blue=(LIMITS, time.time() + 60)) == LIMITS
    notices._newest = None
    assert notices._merge_limits(LimitChannel(blue=(LIMITS, time.time() + 60))) == ({}, 0.0)
