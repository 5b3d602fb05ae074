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


"""A call has a deadline at any place where it can hang."""

import threading
import time

import pytest

from kronos_nova.sources import deadline


def test_the_result_or_exception_of_a_call_is_passed_on():
    bound = deadline.BoundedCalls()
    assert bound.run_bounded(lambda: 7, 10) == 7
    with pytest.raises(ZeroDivisionError):
        bound.run_bounded(lambda: 1 // 0, 10)
    with pytest.raises(TimeoutError, match='its own'):
        bound.run_bounded(lambda: (_ for _ in ()).throw(TimeoutError('its own')), 10)


def test_a_call_that_hangs_is_left_behind_and_too_many_are_not_begun():
    bound, gate = deadline.BoundedCalls(), threading.Event()
    begin = time.monotonic()
    for _ in range(deadline.MAX_HANGING):
        with pytest.raises(deadline.DeadlineExceeded):
            bound.run_bounded(gate.wait, 0.01)
    with pytest.raises(deadline.TooManyHanging, match='4 earlier queries'):
        bound.run_bounded(lambda: 7, 10)
    assert time.monotonic() - begin < 10
    gate.set()
    for _ in range(500):
        try:
            assert bound.run_bounded(lambda: 7, 10) == 7
            return
        except deadline.TooManyHanging:
            time.sleep(0.01)
    raise AssertionError('calls that have ended still count')
