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

"""Listeners to casts and to results.

A message is checked before it wakes a worker or reaches an engine; one that is not valid is logged
and dropped.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import functools
import threading
import time
from typing import Any

from oslo_log import log as logging
import oslo_messaging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.messaging import broker_faults
from kronos_nova.rebalancer.messaging import broker_topology
from kronos_nova.rebalancer.messaging import messages

LOG = logging.getLogger(__name__)

#: Threads of a server for its messages, which it handles in moments.
THREADS = 4

#: Returns why a received task is not one of ours, or None.
Doubt = Callable[[model.Task], str | None]


class _WakeUp:
    """The RPC endpoint: a valid message for our scope wakes the worker, no other does."""

    target = oslo_messaging.Target(version=messages.VERSION)

    def __init__(self, scope: str, wake: Callable[[], None], doubt: Doubt) -> None:
        self._scope = scope
        self._wake = wake
        self._doubt = doubt

    def execute_migration(self, context: Any, task: Any = None) -> None:
        try:
            cast_task = messages.from_wire(task, time.time())
            if cast_task.aggregate != self._scope:
                raise exception.MessageError(field='aggregate', problem='is another scope')
            if (why := self._doubt(cast_task)) is not None:
                raise exception.MessageError(field='task_id', problem=why)
        except exception.MessageError as e:
            LOG.warning('A cast on %s was dropped: %s',
                        messages.migrations_topic(self._scope), e)
            return
        self._wake()


class _NotificationEndpoint:
    """The notification endpoint."""

    def __init__(self, heard: Callable[[str, model.TaskResult], None]) -> None:
        self._heard = heard

    def info(self, context: Any, publisher: str, event: str, payload: Any,
             metadata: Any) -> None:
        if event not in (messages.COMPLETED, messages.FAILED):
            return
        try:
            result = messages.from_payload(payload)
        except exception.MessageError as e:
            LOG.warning('A notification was dropped: %s', e)
            return
        self._heard(event, result)


class _BackgroundServers:
    """Servers that start in the background: a broker may be away for long.

    One that cannot be started is tried again, every broker_faults.PAUSE_SECONDS.
    """

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        self._makers = makers
        self._started: list[Any] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.ready = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._start, daemon=True, name='kronos-broker').start()

    def _start(self) -> None:
        makers_left = list(self._makers)
        is_logged = False
        while makers_left:
            problem = None
            for make in list(makers_left):
                try:
                    server = make()
                    server.start()
                except exception.BrokerConflict as e:
                    broker_faults.CONFLICTS.log_conflict(e)
                    continue
                except Exception as e:  # the drivers raise their libraries' errors
                    problem = e
                    continue
                makers_left.remove(make)
                with self._lock:
                    if not self._stopping.is_set():
                        self._started.append(server)
                        continue
                server.stop()
                server.wait()
                return
            if problem is not None and not is_logged:
                LOG.error('The broker cannot be listened to (%s): executors poll the database '
                          'only. Check transport_url and its rights; it is tried again every '
                          '%g s.', type(problem).__name__, broker_faults.PAUSE_SECONDS)
                is_logged = True
            if makers_left and self._stopping.wait(broker_faults.PAUSE_SECONDS):
                return
        self.ready.set()

    def stop(self) -> None:
        """Stop the servers after the message at hand."""
        with self._lock:
            self._stopping.set()
            started, self._started = self._started, []
        for server in started:
            server.stop()
        for server in started:
            server.wait()


def _limit_threads(server: Any) -> Any:
    """Return a server that handles its messages in :data:`THREADS` threads unless configured.

    oslo.messaging begins a thread with each message, up to 64, and keeps them all. The server
    registers the option.
    """
    server.conf.set_default('executor_thread_pool_size', THREADS)
    return server


class WakeUps(_BackgroundServers):
    """Servers that receive the casts of ``scopes``.

    :param name: name of the host, see :func:`this_host`.
    :param doubt: returns the objection of the task table to a message, or None.
    """

    def __init__(self, transport: Any, scopes: Collection[str], name: str,
                 wake: Callable[[], None], doubt: Doubt = lambda task: None) -> None:
        def make_server(scope: str) -> Any:
            topic = messages.migrations_topic(scope)
            broker_topology.compare_topology(transport, broker_topology.bind_casts(topic, name))
            return _limit_threads(oslo_messaging.get_rpc_server(
                transport, oslo_messaging.Target(topic=topic, server=name),
                [_WakeUp(scope, wake, doubt)]))

        super().__init__([functools.partial(make_server, scope) for scope in scopes])


class ResultServers(_BackgroundServers):
    """Servers that receive the results of ``scopes``.

    :param pool: listeners of one pool share the messages; each pool hears all. Without any, all
        such listeners share them.
    """

    def __init__(self, transport: Any, scopes: Collection[str],
                 heard: Callable[[str, model.TaskResult], None], pool: str | None = None) -> None:
        topics = [messages.results_topic(scope) for scope in scopes]

        def make_listener() -> Any:
            broker_topology.compare_topology(
                transport, broker_topology.bind_notifications(topics, pool))
            return _limit_threads(oslo_messaging.get_notification_listener(
                transport, [oslo_messaging.Target(topic=topic) for topic in topics],
                [_NotificationEndpoint(heard)], pool=pool))

        super().__init__([make_listener])
