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
