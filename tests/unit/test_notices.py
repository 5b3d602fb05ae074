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

import threading
import time
from unittest import mock

import pytest

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
    notices._newest = feed_channel.PublishedState(scopes=frozenset(scopes))
    notices._limits = notices._merge_limits(LimitChannel(**answers))
    return notices.read_boot_limits()


def test_limits_of_all_scopes_hold_together():
    notices, until = board(), time.time() + 60
    other = {'h2': model.BootLimit(memory_mb=512.0)}
    assert merge(notices, 'blue', 'red', blue=(LIMITS, until), red=(other, until)) == {
        **LIMITS, **other}


@pytest.mark.parametrize('answer', [ConnectionError(), None])
def test_limits_hold_until_their_expiry_without_the_cache(answer):
    """A dead server of two, and one that was restarted, answer without a record."""
    notices, now = board(), time.time()
    assert merge(notices, 'blue', blue=(LIMITS, now + 60)) == LIMITS
    assert merge(notices, 'blue', blue=answer) == LIMITS
    assert list(notices._faults.counts) == (
        ['limits of the failover certificates: ConnectionError'] if answer else [])
    with mock.patch.object(time, 'time', autospec=True, return_value=now + 61):
        assert notices.read_boot_limits() == {}, 'no refresh has come'
        assert merge(notices, 'blue', blue=answer) == {}


def test_scope_whose_limits_have_expired_leaves_those_of_others():
    notices, now = board(), time.time()
    other = {'h2': model.BootLimit(4.0)}
    merge(notices, 'blue', 'red', blue=(LIMITS, now + 60), red=(other, now + 600))
    with mock.patch.object(time, 'time', autospec=True, return_value=now + 61):
        assert merge(notices, 'blue', 'red', blue=ConnectionError(),
                     red=(other, now + 600)) == other


def test_publication_that_does_not_name_a_scope_leaves_its_limits():
    """That of an engine of the release before, or a cache that has lost it."""
    notices, until = board(), time.time() + 60
    newer = {'h1': model.BootLimit(4.0)}
    assert merge(notices, 'blue', blue=(LIMITS, until)) == LIMITS
    assert merge(notices, blue=(newer, until)) == newer
    notices._newest = None
    assert notices._merge_limits(LimitChannel()) == (newer, until)
    assert merge(board(), blue=(LIMITS, until)) == {}, 'a worker reads the scopes it knows'


def test_empty_record_ends_the_limits_of_its_scope_alone():
    notices, until = board(), time.time() + 60
    other = {'h2': model.BootLimit(4.0)}
    merge(notices, 'blue', 'red', blue=(LIMITS, until), red=(other, until))
    assert merge(notices, 'blue', 'red', blue=({}, until), red=(other, until)) == other
    assert merge(notices, 'red') == other, 'a record that has ended does not come back'
    merge(notices, 'blue', 'red', blue=({}, until - 30), red=(other, until))
    with mock.patch.object(time, 'time', autospec=True, return_value=until - 20):
        assert notices.read_boot_limits() == other, 'nor does it end others when it expires'


def test_failed_read_of_the_publication_renews_the_limits():
    notices, until = board(), time.time() + 60
    merge(notices, 'blue', blue=(LIMITS, until))
    newer = {'h1': model.BootLimit(4.0)}
    channel = mock.Mock(spec=feed_channel.FeedChannel, cache=None)
    channel.read.side_effect = ConnectionError
    channel.read_boot_limits.return_value = newer, until
    notices._channel = threading.current_thread(), channel
    notices._scores.usage_keys = ()
    with pytest.raises(ConnectionError):
        notices.refresh_publication()
    assert notices.read_boot_limits() == newer


def test_scopes_that_a_worker_reads_are_bounded():
    notices, until = board(), time.time() + 60
    names = [f's{n:04}' for n in range(2 * feed_channel.MAX_SCOPES)]
    merge(notices, *names, **{name: ({name: model.BootLimit(1.0)}, until) for name in names})
    assert len(notices.read_boot_limits()) == feed_channel.MAX_SCOPES
