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


"""The message broker: it takes wake-ups to executors, and results to their listeners.

Nothing depends on it: a message that is lost costs one poll interval, and a broker that is away
never holds up a cycle or a migration for long.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import copy
import functools
from importlib import util
import socket
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging
from oslo_messaging import opts as messaging_opts

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import messaging as messaging_conf
from kronos_nova.rebalancer.messaging import broker_topology
from kronos_nova.rebalancer.messaging import messages

LOG = logging.getLogger(__name__)

#: Retries of a message; oslo.messaging would otherwise try for ever.
RETRY = 1
_RABBIT = 'oslo_messaging_rabbit'
#: Seconds without a message to a broker that has failed.
PAUSE_SECONDS = 30.0
#: Seconds that a cast may wait. It only wakes: executors without one poll as often.
CAST_SECONDS = 60.0


def find_broker_url(conf: cfg.ConfigOpts) -> str | None:
    """Return ``transport_url``, or the URL of [messaging]; None: no broker is configured.

    oslo.messaging's default names no host, and counts as no URL.
    """
    (option,) = [opt for group, opts in messaging_opts.list_opts() if group is None
                 for opt in opts if opt.name == 'transport_url']
    conf.register_opts([option])
    if conf.transport_url and conf.transport_url != option.default:
        return str(conf.transport_url)
    return messaging_conf.transport_url(conf)


def parse_broker_url(conf: cfg.ConfigOpts) -> Any:
    """Return oslo.messaging's TransportURL; without a broker, that of its default.

    :raises ConfigError: the URL cannot be parsed. oslo.messaging's own error may hold a part of
        the password, and is not shown.
    """
    try:
        return oslo_messaging.TransportURL.parse(conf, find_broker_url(conf))
    except (oslo_messaging.InvalidTransportURL, ValueError) as e:
        raise _build_url_error(e) from None


def _build_url_error(error: Exception) -> exception.ConfigError:
    return exception.ConfigError(
        path='kronos.conf', field='transport_url',
        problem=f'it cannot be used ({type(error).__name__})',
        remedy='Write it as rabbit://user:password@host:5672/vhost, with special characters of '
               'user and password quoted: %40 for @, %2F for /.')


def count_retries(conf: cfg.ConfigOpts) -> int:
    """Return the number of retries that gives every broker of the URL its turn.

    oslo.messaging begins with any broker and takes the next at each retry.
    """
    return max(RETRY, len(parse_broker_url(conf).hosts) - 1)


def get(conf: cfg.ConfigOpts) -> Any | None:
    """Return the transport for casts and notifications; None: no broker is configured.

    :raises ConfigError: the URL cannot be used, or ``conf`` is not the process-wide configuration:
        oslo.messaging registers options on that one alone and would acknowledge and drop every
        cast, silently.
    """
    found = find_broker_url(conf)
    if found is None:
        return None
    for part in ('metrics', 'tracing'):  # 17.0 has no tracing
        group = f'oslo_messaging_{part}'
        if util.find_spec(f'oslo_messaging._{part}') is not None and group not in conf:
            raise exception.ConfigError(
                path='transport', field=group, problem='this is a private configuration object',
                remedy='Hand the process-wide one to it.')
    choose_queue_type(conf)
    try:
        return oslo_messaging.get_rpc_transport(conf, url=found)
    except (oslo_messaging.InvalidTransportURL, oslo_messaging.DriverLoadFailure,
            ValueError) as e:
        raise _build_url_error(e) from None


def choose_queue_type(conf: cfg.ConfigOpts) -> str | None:
    """Return how RabbitMQ keeps queues over its restart: 'quorum' or 'durable'; None: not at all.

    Set quorum queues as the default, unless the configuration has another kind.
    """
    for group, options in messaging_opts.list_opts():
        if str(group) == _RABBIT:
            conf.register_opts(options, group=_RABBIT)
    rabbit = conf[_RABBIT]
    if not (rabbit.amqp_durable_queues or rabbit.rabbit_ha_queues):
        conf.set_default('rabbit_quorum_queue', True, group=_RABBIT)
    if rabbit.rabbit_quorum_queue:
        return 'quorum'
    return 'durable' if rabbit.amqp_durable_queues else None


def set_defaults() -> None:
    """Set oslo.messaging's defaults as this module does, for oslo-config-generator."""
    from oslo_messaging._drivers import impl_rabbit

    cfg.set_defaults(impl_rabbit.rabbit_opts, rabbit_quorum_queue=True)


def this_host() -> str:
    """Return the name that distinguishes the queues of this host's daemons.

    It is the same after a restart, so that no queue is left behind, and short enough for AMQP.
    """
    return messages.format_slug(socket.gethostname())[-64:]


def results_pool(conf: cfg.ConfigOpts) -> str:
    """Return the queue in which an engine receives results: its own."""
    name = messages.format_slug(conf.engine.name) if conf.engine.name else this_host()
    return f'kronos.engine.{name}'


class _ConflictLog:
    """Log of conflicts with the broker's exchanges and queues, each once in a process."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._lock = threading.Lock()

    def report(self, error: exception.BrokerConflict) -> None:
        name = str(error.kwargs['name'])
        with self._lock:
            if name in self._logged:
                return
            self._logged.add(name)
        LOG.error('%s Until then no message is sent or received where it is needed; executors '
                  'poll the database. The connection is retried every %g s.', error, PAUSE_SECONDS)


_CONFLICTS = _ConflictLog()


class _BrokerBreaker:
    """Circuit breaker that spares a broker which has just failed.

    :param instead: a clause that tells the consequence of an unsent message.
    """

    def __init__(self, clock: Callable[[], float], instead: str) -> None:
        self._clock = clock
        self._instead = instead
        self._until = float('-inf')

    def send(self, what: str, action: Callable[[], None]) -> bool:
        """Send a message unless the breaker is open; False: not sent, logged once per pause."""
        if self._clock() < self._until:
            return False
        try:
            action()
        except oslo_messaging.MessageUndeliverable:
            LOG.debug('%s: no listener; %s', what, self._instead)
            return False
        except exception.BrokerConflict as e:
            self._until = self._clock() + PAUSE_SECONDS
            _CONFLICTS.report(e)
            return False
        except Exception as e:
            self._until = self._clock() + PAUSE_SECONDS
            LOG.warning('%s: the broker did not take it (%s); %s. Check transport_url.', what,
                        type(e).__name__, self._instead)
            return False
        return True


class _CheckedSender:
    """Sender that compares exchanges and queues before its first message to each topic."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._compared: set[broker_topology.QueueBinding] = set()

    def compare(self, bindings: Sequence[broker_topology.QueueBinding]) -> None:
        """Compare those of ``bindings`` that have not been compared yet.

        :raises BrokerConflict: an exchange or a queue has other properties.
        """
        left = [binding for binding in bindings if binding not in self._compared]
        if left:
            broker_topology.compare_topology(self._transport, left)
            self._compared.update(left)


class TaskCaster(_CheckedSender):
    """Sender that tells executors of a task in the table."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = RETRY, now: Callable[[], float] = time.time) -> None:
        super().__init__(transport)
        self._now = now
        self._breaker = _BrokerBreaker(clock, 'executors poll the database, so nothing is lost')
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
            self.compare([broker_topology.QueueBinding(messages.migrations_topic(task.aggregate))])
            self._get_client(task.aggregate, seconds).cast(
                {}, messages.METHOD, task=messages.to_wire(task))

        return self._breaker.send(f'Task {task.task_id}', send_cast)

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
        self._breaker = _BrokerBreaker(clock, 'listeners miss it, kronos shows it')
        self._retry = retry
        self._notifiers: dict[str, tuple[list[Exception], Any]] = {}

    def _publish_event(self, what: str, scope: str, event: str, payload: dict[str, Any]) -> bool:
        """Publish an event; never raise. False: it was not published."""
        def send_notification() -> None:
            self.compare(broker_topology.bind_notifications([self._names[1](scope)]))
            failures, notifier = self._get_notifier(scope)
            failures.clear()
            notifier.info({}, event, payload)
            if failures:
                raise failures.pop()

        return self._breaker.send(what, send_notification)

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
                 retry: int = RETRY) -> None:
        super().__init__(messages.publisher_id, messages.results_topic, transport, clock, retry)

    def __call__(self, event: str, result: model.TaskResult) -> bool:
        """Publish a result; never raise. False: it was not published."""
        return self._publish_event(f'Result of task {result.task_id}', result.aggregate, event,
                                   messages.to_payload(result))

    def announce(self, event: str, scope: str, payload: dict[str, Any]) -> bool:
        """Publish an event that is no result; never raise. False: it was not published."""
        return self._publish_event(f'{event} of scope {scope}', scope, event, payload)


class PlanNotifier(_NotificationPublisher):
    """Publisher of the engines' decisions: (event, scope, payload)."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = RETRY) -> None:
        super().__init__(messages.planner_id, messages.plans_topic, transport, clock, retry)

    def __call__(self, event: str, scope: str, payload: dict[str, Any]) -> bool:
        """Publish a decision; never raise. False: it was not published."""
        return self._publish_event(f'{event} of scope {scope}', scope, event, payload)


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
            found = messages.from_wire(task, time.time())
            if found.aggregate != self._scope:
                raise exception.MessageError(field='aggregate', problem='is another scope')
            if (why := self._doubt(found)) is not None:
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

    One that cannot be started is tried again, every PAUSE_SECONDS.
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
        left = list(self._makers)
        told = False
        while left:
            problem = None
            for make in list(left):
                try:
                    server = make()
                    server.start()
                except exception.BrokerConflict as e:
                    _CONFLICTS.report(e)
                    continue
                except Exception as e:  # the drivers raise their libraries' errors
                    problem = e
                    continue
                left.remove(make)
                with self._lock:
                    if not self._stopping.is_set():
                        self._started.append(server)
                        continue
                server.stop()
                server.wait()
                return
            if problem is not None and not told:
                LOG.error('The broker cannot be listened to (%s): executors poll the database '
                          'only. Check transport_url and its rights; it is tried again every '
                          '%g s.', type(problem).__name__, PAUSE_SECONDS)
                told = True
            if left and self._stopping.wait(PAUSE_SECONDS):
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
            return oslo_messaging.get_rpc_server(
                transport, oslo_messaging.Target(topic=topic, server=name),
                [_WakeUp(scope, wake, doubt)])

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
            return oslo_messaging.get_notification_listener(
                transport, [oslo_messaging.Target(topic=topic) for topic in topics],
                [_NotificationEndpoint(heard)], pool=pool)

        super().__init__([make_listener])
