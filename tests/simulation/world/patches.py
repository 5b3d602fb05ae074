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

"""What reaches around the arguments of the real code: time, threads, chance."""

from collections.abc import Callable
from collections.abc import Iterator
from concurrent import futures
import contextlib
import functools
import types
from typing import Any, TYPE_CHECKING
from unittest import mock

import tenacity.nap

from kronos_nova import plugins
from kronos_nova.conf import policies
from kronos_nova.conf import policy_watch
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.engine import scope_planner
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.store import swaps
from kronos_nova.sources import prometheus

if TYPE_CHECKING:
    from tests.simulation.world import run as runs


class Reading(parallel_reads.ReadingContext):
    """Reads at once and in order, as a pool of one thread without delay."""

    def __init__(self, seconds: float, option: str = '') -> None:
        self._seconds, self._end = seconds, float('inf')

    def __exit__(self, *_exc: object) -> None:
        """There is no pool."""

    def start(self, read: Callable[[], Any]) -> 'futures.Future[Any]':
        return _done(lambda: parallel_reads.read_with_retry(read))

    def collect_result(self, future: 'futures.Future[Any]', service: str, what: str) -> Any:
        return future.result(0)

    def read_each(self, service: str, what: str, read: Callable[[str], Any], keys: Any) -> Any:
        return {key: read(key) for key in keys}


def _done(read: Callable[[], Any]) -> 'futures.Future[Any]':
    future: futures.Future[Any] = futures.Future()
    try:
        future.set_result(read())
    except Exception as e:
        future.set_exception(e)
    return future


_load = functools.cache(plugins.load_plugin)
_names = functools.cache(plugins.list_names)


def _cached_policies(real: Callable[[str], Any]) -> Callable[[str], Any]:
    known: dict[bytes, Any] = {}

    def load(path: str) -> Any:
        with open(path, 'rb') as f:
            text = f.read()
        if text not in known:
            known[text] = real(path)
        return known[text]
    return load


_load_policies = _cached_policies(policies.load_policies)


@contextlib.contextmanager
def around(run: 'runs.Run') -> Iterator[None]:
    time = types.SimpleNamespace(time=run.time, monotonic=lambda: run.now)
    with contextlib.ExitStack() as stack:
        for target, name, value in (
                (prometheus, 'time', time), (listeners, 'time', time),
                (parallel_reads, 'ReadingContext', Reading),
                (tenacity.nap, 'time', types.SimpleNamespace(sleep=lambda _s: None)),
                (scope_planner, 'uuidutils', types.SimpleNamespace(generate_uuid=run.cloud.uuid)),
                (planning_settings, 'plugins', types.SimpleNamespace(
                    load_plugin=_load, list_names=_names, STRATEGIES=plugins.STRATEGIES)),
                (hook_runner, 'uuidutils', types.SimpleNamespace(generate_uuid=run.hooks.new_id)),
                (swaps, 'uuid', types.SimpleNamespace(uuid4=run.hooks.new_id)),
                (policy_watch, 'policies', types.SimpleNamespace(load_policies=_load_policies))):
            stack.enter_context(mock.patch.object(target, name, value))
        yield
