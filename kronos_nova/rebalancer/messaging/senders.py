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

"""Senders of casts, which wake executors, and of notifications.

A message that is lost costs one poll interval.
"""

from collections.abc import Callable
from collections.abc import Sequence
import copy
import time
from typing import Any

import oslo_messaging

from kronos_nova import model
from kronos_nova.rebalancer.messaging import broker_faults
from kronos_nova.rebalancer.messaging import broker_topology
from kronos_nova.rebalancer.messaging import messages

#: Seconds that a cast may wait. It only wakes: executors without one poll as often.
CAST_SECONDS = 60.0


class _CheckedSender:
    """Sender that compares exchanges and queues before its first message to each topic."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._compared: set[broker_topology.QueueBinding] = set()

    def compare_bindings(self, bindings: Sequence[broker_topology.QueueBinding]) -> None:
        """Compare those of ``bindings`` that have not been compared yet.

        :raises BrokerConflict: an exchange or a queue has other properties.
        """
        uncompared = [binding for binding in bindings if binding not in self._compared]
        if uncompared:
            broker_topology.compare_topology(self._transport, uncompared)
            self._compared.update(uncompared)


class TaskCaster(_CheckedSender):
    """Sender that tells executors of a task in the table."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = broker_faults.RETRY, now: Callable[[], float] = time.time) -> None:
        super().__init__(transport)
        self._now = now
        self._breaker = broker_faults.BrokerBreaker(
            clock, 'executors poll the database, so nothing is lost')
        self._retry = retry
        self._clients: dict[str, Any] = {}

    def __call__(self, task: model.Task) -> bool:
        """Cast the task; never raise. False: the message was delivered to no executor.

        The broker drops a cast that waits for longer than CAST_SECONDS, or until its task's
        deadline: an executor of 0.2.0 that is started later would carry it out.
        """
        seconds = CAST_SECONDS
        if task.deadline is not None:
            seconds = min(seconds, task.deadline - self._now())
        if seconds < 1:
            return False

        def send_cast() -> None:
            self.compare_bindings(
                [broker_topology.QueueBinding(messages.migrations_topic(task.aggregate))])
            self._get_client(task.aggregate, seconds).cast(
                {}, messages.METHOD, task=messages.to_wire(task))

        return self._breaker.send_message(f'Task {task.task_id}', send_cast)

    def _get_client(self, scope: str, seconds: float) -> Any:
        if scope not in self._clients:
            target = oslo_messaging.Target(
                topic=messages.migrations_topic(scope), version=messages.VERSION)
            expiring = _expire_messages(self._transport)
            self._clients[scope] = expiring, oslo_messaging.get_rpc_client(
                expiring, target, retry=self._retry,
                transport_options=oslo_messaging.TransportOptions(at_least_once=True))
        expiring, client = self._clients[scope]
        expiring.seconds = seconds
        return client


def _expire_messages(transport: Any) -> Any:
    """Return a transport whose messages the broker drops after its ``seconds``.

    oslo.messaging has this for calls and not for casts.
    """
    expiring = copy.copy(transport)

    def send_expiring(target: Any, context: Any, message: Any, **options: Any) -> Any:
        return transport._send(target, context, message,
                               **{**options, 'timeout': expiring.seconds})

    expiring._send = send_expiring
    return expiring


def _raise_failures(transport: Any, failures: list[Exception]) -> Any:
    """Return a transport that notes why a notification was not sent.

    oslo.messaging's notifier logs a traceback instead, and returns as if it had sent the
    notification.
    """
    noting = copy.copy(transport)

    def send_noting_failure(*args: Any, **options: Any) -> None:
        try:
            transport._send_notification(*args, **options)
        except Exception as e:
            failures.append(e)

    noting._send_notification = send_noting_failure
    return noting


class _NotificationPublisher(_CheckedSender):
    """Publisher of notifications, from each scope's publisher on its own topic."""

    def __init__(self, publisher: Callable[[str], str], topic: Callable[[str], str],
                 transport: Any, clock: Callable[[], float], retry: int) -> None:
        super().__init__(transport)
        self._names = publisher, topic
        self._breaker = broker_faults.BrokerBreaker(clock, 'listeners miss it, kronos shows it')
        self._retry = retry
        self._notifiers: dict[str, tuple[list[Exception], Any]] = {}

    def _publish_event(self, what: str, scope: str, event: str, payload: dict[str, Any]) -> bool:
        """Publish an event; never raise. False: it was not published."""
        def send_notification() -> None:
            self.compare_bindings(broker_topology.bind_notifications([self._names[1](scope)]))
            failures, notifier = self._get_notifier(scope)
            failures.clear()
            notifier.info({}, event, payload)
            if failures:
                raise failures.pop()

        return self._breaker.send_message(what, send_notification)

    def _get_notifier(self, scope: str) -> tuple[list[Exception], Any]:
        if scope not in self._notifiers:
            publisher, topic = self._names
            failures: list[Exception] = []
            self._notifiers[scope] = failures, oslo_messaging.Notifier(
                _raise_failures(self._transport, failures), publisher(scope),
                driver='messagingv2', topics=[topic(scope)], retry=self._retry)
        return self._notifiers[scope]


class ResultNotifier(_NotificationPublisher):
    """Publisher of results, as a worker's ``notify``."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = broker_faults.RETRY) -> None:
        super().__init__(messages.publisher_id, messages.results_topic, transport, clock, retry)

    def __call__(self, event: str, result: model.TaskResult) -> bool:
        """Publish a result; never raise. False: it was not published."""
        return self._publish_event(f'Result of task {result.task_id}', result.aggregate, event,
                                   messages.to_payload(result))

    def announce_event(self, event: str, scope: str, payload: dict[str, Any]) -> bool:
        """Publish an event that is no result; never raise. False: it was not published."""
        return self._publish_event(f'{event} of scope {scope}', scope, event, payload)


class PlanNotifier(_NotificationPublisher):
    """Publisher of the engines' decisions: (event, scope, payload)."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = broker_faults.RETRY) -> None:
        super().__init__(messages.planner_id, messages.plans_topic, transport, clock, retry)

    def __call__(self, event: str, scope: str, payload: dict[str, Any]) -> bool:
        """Publish a decision; never raise. False: it was not published."""
        return self._publish_event(f'{event} of scope {scope}', scope, event, payload)
