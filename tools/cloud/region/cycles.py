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

"""``python -m tools.cloud.region.cycles --config-file FILE``: one cycle for each line of stdin.

It is kronos-engine without its loop, so that each cycle can be timed by phase. Each cycle ends with
a line of JSON on stdout: seconds by the clock and of processor time for each phase; number and
seconds of the requests by service and path; resident memory in MiB. A cycle that could not plan a
scope ends the program with the reason, because its time would be that of an error.
"""

from collections.abc import Callable
import json
import pathlib
import re
import sys
import threading
import time
from typing import Any

#: A UUID in a path.
_UUID = re.compile('[0-9a-f]{8}-[0-9a-f-]{27}')


class PhaseClock:
    """Seconds of each phase, by the clock and of this process's processor time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def measure(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call with its time added to the phase."""
        def timed(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                for where, spent in ((self.seconds, time.perf_counter() - wall),
                                     (self.cpu_seconds, time.process_time() - cpu)):
                    where[phase] = where.get(phase, 0.0) + spent

        return timed


class RequestCounter:
    """Number and seconds by the clock of requests, by service and path."""

    def __init__(self) -> None:
        self.by_path: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def count(self, service: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the ``get`` of a service, counted."""
        def counted(path: str, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(path, *args, **kwargs)
            finally:
                shape = f'{service} {_UUID.sub("*", path.partition("?")[0])}'
                with self._lock:
                    entry = self.by_path.setdefault(shape, [0, 0.0])
                    entry[0] += 1
                    entry[1] += time.perf_counter() - began

        return counted


def read_memory() -> dict[str, float]:
    """Return resident memory now and at its highest, in MiB."""
    status = pathlib.Path('/proc/self/status').read_text()
    return {name: int(re.search(rf'{field}:\s+(\d+)', status)[1]) / 1024  # type: ignore[index]
            for name, field in (('now', 'VmRSS'), ('highest', 'VmHWM'))}


def main() -> None:
    from oslo_config import cfg

    from kronos_nova.rebalancer.monitoring import stats
    from kronos_nova.wiring import daemon_configuration
    from kronos_nova.wiring import daemons
    from kronos_nova.wiring import tools

    tools.native_threads()
    conf = daemon_configuration.configure_daemon('kronos-engine', sys.argv[1:], [
        cfg.BoolOpt('once', default=True)])
    # Any: a type checker refuses timed functions in the place of its methods.
    engine: Any
    engine, close = daemons.make_engine(conf, stats.DaemonTally())
    collector = engine._collector
    gets = {'Nova': collector._nova._api, 'Placement': collector._placement._api}
    original = {service: api.get for service, api in gets.items()}
    untimed = {'collect_cluster': collector.collect_cluster, 'fetch': engine._source.fetch,
               'plan_scope': engine._scopes.plan_scope,
               'publish_limits': engine._scheduler.publish_limits,
               'publish_moves': engine._scheduler.publish_moves,
               'publish_usage': engine._scheduler.publish_usage}
    for _line in sys.stdin:
        clock, requests = PhaseClock(), RequestCounter()
        for service, api in gets.items():
            api.get = requests.count(service, original[service])
        collector.collect_cluster = clock.measure('collect', untimed['collect_cluster'])
        engine._source.fetch = clock.measure('score', untimed['fetch'])
        engine._scopes.plan_scope = clock.measure('plan', untimed['plan_scope'])
        for name in ('publish_limits', 'publish_moves', 'publish_usage'):
            setattr(engine._scheduler, name, clock.measure('publish', untimed[name]))
        wall, cpu = time.perf_counter(), time.process_time()
        rows = engine.run_cycle()
        spent = time.perf_counter() - wall, time.process_time() - cpu
        for row in rows:
            if row['hosts'] is None:
                sys.exit(f'scope {row["name"]}: {row["reason"]}')
        print(json.dumps({
            'seconds': spent[0], 'cpu_seconds': spent[1],
            'phases': clock.seconds, 'cpu_phases': clock.cpu_seconds,
            'requests': requests.by_path, 'memory': read_memory(),
            'scopes': [{name: row.get(name) for name in ('name', 'hosts', 'instances', 'reason')}
                       | {'moves': len(row.get('moves') or ())} for row in rows],
        }), flush=True)
    close()


if __name__ == '__main__':
    main()
