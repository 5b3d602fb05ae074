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


"""Daemons that fall at named points; run as a process by the harness.

It imports what daemons need, once, and then forks one for each command that it
is given, as JSON, one a line, on standard input. The child runs the console
entry point of its daemon. When the n-th passage of its point comes, it kills
(``kill``) or stops (``stop``) itself. Production code has no points: the
functions of a point are wrapped here. What takes a minute in production takes
seconds. Ends, with all its children, at the end of its input.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import functools
import importlib
import json
import os
import signal
import sys
import threading
from typing import Any

BEFORE, AFTER = 'before', 'after'

#: Seconds, in place of 30, 8, 60, 60, 60 and 30.
LEASE, BEAT, CLAIM, ABSENT, INTERVAL, BROKER_PAUSE = 3, 0.8, 3, 3.0, 3, 3.0
#: In place of 20: how long a frozen process keeps a transaction open.
IDLE = 3


def _any(arguments: tuple[Any, ...], result: Any) -> bool:
    return True


def _found(arguments: tuple[Any, ...], result: Any) -> bool:
    return result is not None


def _has_tasks(arguments: tuple[Any, ...], result: Any) -> bool:
    return bool(arguments[3])


def _to(state: str) -> Callable[[tuple[Any, ...], Any], bool]:
    return lambda arguments, result: arguments[4] == state


def _asks_nova(arguments: tuple[Any, ...], result: Any) -> bool:
    sent = arguments[0]._response_options
    return sent.request_method == 'POST' and sent.request_url.endswith('/action')


@dataclasses.dataclass(frozen=True)
class Point:
    """``where`` is module:attribute; ``counts`` sees arguments and result."""

    where: str
    when: str
    counts: Callable[[tuple[Any, ...], Any], bool] = _any
    nth: int = 1
    #: Inside a transaction: what it has locked stays locked while it is frozen.
    in_transaction: bool = False


_LEASES = 'kronos_nova.rebalancer.store.leases:LeaseRepository'
_PLANS = 'kronos_nova.rebalancer.store.plan_repository:PlanRepository'
_TASK_ROWS = 'kronos_nova.rebalancer.store.task_repository:TaskRepository'
_TASKS = 'kronos_nova.rebalancer.store.tasks'
_CLAIMS = 'kronos_nova.rebalancer.store.task_claims'
_ENDINGS = 'kronos_nova.rebalancer.store.task_endings'
_DRIVER = 'kronos_nova.rebalancer.executors.nova:NovaExecutor'
_BUS = 'kronos_nova.rebalancer.messaging.senders'

#: An engine's first cycle only looks, and each cycle leases twice: the third
#: lease begins the first cycle that may move.
ENGINE = {
    'before-lease': Point(f'{_LEASES}.acquire_lease', BEFORE, nth=3),
    'after-lease': Point(f'{_LEASES}.acquire_lease', AFTER, _found, nth=3),
    'in-renewal': Point('kronos_nova.rebalancer.store.leases:renew_lease', AFTER,
                        in_transaction=True),
    'after-collect': Point(
        'kronos_nova.rebalancer.clients.collector:CloudCollector.collect_cluster', AFTER, nth=2),
    'before-plan': Point(f'{_PLANS}.save_plan', BEFORE, _has_tasks),
    'in-plan': Point('kronos_nova.rebalancer.store.plans:save_plan', AFTER, _has_tasks,
                     in_transaction=True),
    'after-plan': Point(f'{_PLANS}.save_plan', AFTER, _has_tasks),
    'after-first-cast': Point(f'{_BUS}:TaskCaster.__call__', AFTER),
}
EXECUTOR = {
    'before-claim': Point(f'{_CLAIMS}:claim_task', BEFORE, in_transaction=True),
    'in-claim': Point(f'{_CLAIMS}:claim_task', AFTER, _found, in_transaction=True),
    'after-claim': Point(f'{_TASK_ROWS}.claim_task', AFTER, _found),
    'after-pre-flight': Point(f'{_DRIVER}.pre_flight', AFTER),
    'in-submitting': Point(f'{_TASKS}:update_state', AFTER, _to('submitting'), in_transaction=True),
    'after-submitting': Point(f'{_TASK_ROWS}.update_state', AFTER, _to('submitting')),
    'before-post': Point(f'{_DRIVER}.submit', BEFORE),
    'post-sent': Point('urllib3.connection:HTTPConnection.getresponse', BEFORE, _asks_nova),
    'after-post': Point(f'{_DRIVER}.submit', AFTER),
    'in-submitted': Point(f'{_TASKS}:update_state', AFTER, _to('submitted'), in_transaction=True),
    'after-submitted': Point(f'{_TASK_ROWS}.update_state', AFTER, _to('submitted')),
    'watching': Point(f'{_DRIVER}.read_progress', BEFORE),
    'before-post-flight': Point(f'{_DRIVER}.post_flight', BEFORE),
    'after-post-flight': Point(f'{_DRIVER}.post_flight', AFTER),
    'in-end': Point(f'{_ENDINGS}:finish_task', AFTER, _found, in_transaction=True),
    'after-end': Point(f'{_TASK_ROWS}.finish_task', AFTER, _found),
    'after-news': Point(f'{_BUS}:ResultNotifier.__call__', AFTER),
}
POINTS = {'engine': ENGINE, 'executor': EXECUTOR}


def drop(how: str) -> None:
    """Go no further: a stop that is sent to the process may be taken by another thread,
    and this one would run on until that one has had its turn."""
    if how == 'kill':
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def arm(point: Point, nth: int, how: str, one_lock: bool) -> None:
    """Wrap the point's function.

    :param one_lock: the database has one lock, as SQLite: the process stops while no other
        thread is in a transaction; else no process could write until it thaws.
    """
    module, _, path = point.where.partition(':')
    *owners, name = path.split('.')
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    real = getattr(owner, name)
    passages = 0
    others = transactions() if one_lock and how == 'stop' else contextlib.nullcontext()

    def passed(arguments: tuple[Any, ...], result: Any) -> None:
        nonlocal passages
        if point.counts(arguments, result):
            passages += 1
            if passages == nth:
                with others:
                    drop(how)

    @functools.wraps(real)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if point.when == BEFORE:
            passed(arguments, None)
        result = real(*arguments, **named)
        if point.when == AFTER:
            passed(arguments, result)
        return result

    setattr(owner, name, wrapper)


def transactions() -> contextlib.AbstractContextManager[Any]:
    """Make each transaction of the store hold a lock, and return that lock."""
    from kronos_nova.rebalancer.store import api

    lock = threading.RLock()
    real = api.Store._run

    @functools.wraps(real)
    def alone(*arguments: Any, **named: Any) -> Any:
        with lock:
            return real(*arguments, **named)

    api.Store._run = alone
    return lock


def hurry() -> None:
    """Make what takes minutes take seconds."""
    from kronos_nova.conf import engine as engine_conf
    from kronos_nova.conf import executor as executor_conf
    from kronos_nova.rebalancer.engine import daemon
    from kronos_nova.rebalancer.engine import lease_keeper
    from kronos_nova.rebalancer.executors import retry
    from kronos_nova.rebalancer.messaging import broker_faults
    from kronos_nova.rebalancer.store import database

    lease_keeper.LEASE_SECONDS = LEASE
    daemon.EngineDaemon.__init__.__defaults__ = (BEAT, None)
    retry.RetrySettings.absent_seconds = property(lambda self: ABSENT)
    broker_faults.PAUSE_SECONDS = BROKER_PAUSE
    database.IDLE_SECONDS = IDLE
    for opt in (*engine_conf.OPTS, *executor_conf.OPTS):
        if opt.name in ('evaluation_interval', 'claim_seconds'):
            opt.type.min = 1


def load() -> None:
    """Import what daemons need, without starting a thread."""
    from kronos_nova.wiring import signals

    signals.block_signals()  # before NumPy is imported, as the daemons do
    from kronos_nova.wiring import tools

    tools.native_threads()
    for name in ('cmd.engine', 'cmd.executor', 'wiring.daemons',
                 'rebalancer.clients.collector', 'rebalancer.engine.engine',
                 'rebalancer.executors.nova', 'sources.prometheus'):
        importlib.import_module(f'kronos_nova.{name}')
    hurry()


def run(role: str, log: str, arguments: list[str], fall: list[Any]) -> int:
    """The child."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(number, target)
    if fall:
        name, nth, how, one_lock = fall
        arm(POINTS[role][name], nth, how, one_lock)
    return int(importlib.import_module(f'kronos_nova.cmd.{role}').main(arguments))


def leave(**command: Any) -> None:
    """Run, and leave nothing of this process to the child."""
    status = 1
    try:
        status = run(**command)
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    load()
    children = set()
    try:
        for line in sys.stdin:
            command = json.loads(line)
            if 'look_at' in command:
                pid, status = os.waitpid(command['look_at'], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
                children.discard(pid)
            else:
                answer = os.fork()
                if not answer:
                    leave(**command)
                children.add(answer)
            print(json.dumps(answer), flush=True)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


if __name__ == '__main__':
    main()
