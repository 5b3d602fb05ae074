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

"""Claims are renewed while the worker waits for Nova, and not while it hangs."""

import threading

import pytest

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.monitoring import health as healths
from tests.fixtures import stores
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.store import cases


class Store:
    """Each renewal runs the next errand; after the last one the thread ends."""

    def __init__(self, *errands):
        self.tasks = self
        self.errands, self.renewed, self.done = list(errands), [], threading.Event()

    def renew_task_claim(self, worker, now):
        self.renewed.append((worker, now))
        errand = self.errands.pop(0)
        if not self.errands:
            self.done.set()
        if isinstance(errand, BaseException):
            raise errand


def run(store, health=None):
    keeper = claim_keeper.TaskClaimKeeper(store, 'w1', 0.06, lambda: 7.0)
    keeper.start(health)
    assert store.done.wait(30)
    keeper.stop()


def test_claims_are_renewed_six_times_within_their_time():
    store = Store(None, None)
    assert claim_keeper.TaskClaimKeeper(store, 'w1', 60, lambda: 7.0).interval == 10
    run(store)
    assert store.renewed[:2] == [('w1', 7.0)] * 2


AWAY = exception.StoreError(problem='is away', remedy='Start it.')


@pytest.mark.parametrize(('error', 'said'), [(AWAY, 'is away'), (KeyError('x'), 'KeyError')])
def test_failed_renewals_are_tried_again_and_logged_once(caplog, error, said):
    health, noted = healths.DaemonHealth(), []
    health.record_part = lambda part, troubles: noted.append((part, troubles.get('', '')))
    store = Store(None, error, error, None, error)
    store.errands += [AWAY] * 1000  # further ones until the thread has seen the end
    store.done.clear()
    keeper = claim_keeper.TaskClaimKeeper(store, 'w1', 0.06, lambda: 7.0)
    keeper.start(health)
    while len(noted) < 5:
        store.done.wait(0.01)
    keeper.stop()
    assert [part for part, _ in noted[:5]] == ['claims'] * 5
    assert [said in text for _, text in noted[:5]] == [False, True, True, False, True]
    warnings = [r.getMessage() for r in caplog.records if 'were not renewed' in r.getMessage()]
    assert len(warnings) == 2 and all('Another executor may take them' in w for w in warnings)


def test_claims_of_a_worker_that_hangs_run_out():
    now = 0.0
    store = Store(None, None, None)
    keeper = claim_keeper.TaskClaimKeeper(store, 'w1', 60, lambda: 7.0, lambda: now)
    now = claim_keeper.HUNG_SECONDS
    assert keeper.renew_task_claims()
    now += 1
    assert not keeper.renew_task_claims() and len(store.renewed) == 1
    keeper.record_step()
    assert keeper.renew_task_claims()


def test_a_running_worker_renews_its_claim_in_the_middle_of_a_pre_flight(tmp_path):
    bench = benches.Bench()
    bench.store = stores.in_file(tmp_path / 'kronos.sqlite', lambda: bench.now)
    bench.plan()
    worker = bench.new_worker('w1')
    worker.keeper.interval = 0.01
    seen = []

    def slow(task):
        before = bench.row().heartbeat_at
        bench.now += 59
        for _ in range(3000):
            if bench.row().heartbeat_at >= before + 59:
                break
            worker._stopping.wait(0.01)
        seen.append((bench.state, bench.row().heartbeat_at - before))
        worker.stop()
        return 'marker'

    bench.driver.answers['pre_flight'] = [slow]
    worker.run()
    assert seen == [(TaskState.CLAIMED, 59.0)]
    assert cases.NOW + 59 == bench.now
    assert not any(t.name == 'kronos-claims' for t in threading.enumerate())
    bench.store.close()
