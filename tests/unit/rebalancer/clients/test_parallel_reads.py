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

import threading

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import parallel_reads


def test_a_read_that_takes_too_long_raises() -> None:
    gate = threading.Event()
    try:
        with parallel_reads.ReadingContext(0.2) as reads, pytest.raises(
                api.ApiError, match=r'Nova: servers: not read within 0 s \(\[nova\] collect_tim'):
            reads.read_one('Nova', 'servers', gate.wait)
    finally:
        gate.set()


def test_each_reads_at_most_eight_at_a_time() -> None:
    lock, running, most = threading.Lock(), 0, 0
    everyone = threading.Barrier(parallel_reads.CONCURRENCY)

    def read(key: str) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        everyone.wait(30)
        with lock:
            running -= 1
        return key.upper()

    keys = [f'k{i}' for i in range(3 * parallel_reads.CONCURRENCY)]
    with parallel_reads.ReadingContext(60) as reads:
        assert reads.read_each('Nova', 'x', read, keys) == {k: k.upper() for k in keys}
    assert most == parallel_reads.CONCURRENCY


@pytest.mark.parametrize(('status', 'reads'), [(404, 2), (409, 2), (400, 2), (500, 1), (None, 1)])
def test_only_temporary_errors_are_retried_and_once(status: int | None, reads: int) -> None:
    count = 0

    def read() -> None:
        nonlocal count
        count += 1
        raise api.ApiError('Nova', 'x', 'y', status)

    with pytest.raises(api.ApiError):
        parallel_reads.read_with_retry(read)
    assert count == reads


def test_all_reads_every_key_although_others_fail() -> None:
    gate = threading.Event()

    def read(key: str) -> str:
        if key == 'bad':
            raise api.ApiError('Nova', 'x', 'y', 503)
        if key == 'slow':
            gate.wait(60)
        return key.upper()

    try:
        with parallel_reads.ReadingContext(0.5) as reads:
            found = reads.read_all('Nova', 'x', read, ['slow', 'bad', 'good'])
    finally:
        gate.set()
    slow, bad = found['slow'], found['bad']
    assert isinstance(slow, api.ApiError) and 'not read within' in slow.problem
    assert isinstance(bad, api.ApiError) and bad.status == 503
    assert found['good'] == 'GOOD'
