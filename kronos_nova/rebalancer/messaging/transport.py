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


"""The broker: wake-ups to executors, results to whoever wants to hear them.

Nothing depends on it: a message that is lost costs one poll interval, and a
broker that is away never holds up a cycle or a migration for long.
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

#: oslo.messaging would otherwise try for ever.
RETRY = 1
_RABBIT = 'oslo_messaging_rabbit'
#: After a failure the broker is left alone for so long.
PAUSE_SECONDS = 30.0
#: A cast only wakes: executors that hear none look into the database as often.
CAST_SECONDS = 60.0


def url(conf: cfg.ConfigOpts) -> str | None:
    """``transport_url``, or what [messaging] says, or None: no broker.

    oslo.messaging's default names no host; it means that nobody named one.
    """
    (option,) = [opt for group, opts in messaging_opts.list_opts() if group is None
                 for opt in opts if opt.name == 'transport_url']
    conf.register_opts([option])
    if conf.transport_url and conf.transport_url != option.default:
        return str(conf.transport_url)
    return messaging_conf.transport_url(conf)


def address(conf: cfg.ConfigOpts) -> Any:
    """oslo.messaging's TransportURL; without a broker, of its default.

    :raises ConfigError: the URL cannot be understood. What oslo.messaging
        says of it may hold a part of the password.
    """
    try:
        return oslo_messaging.TransportURL.parse(conf, url(conf))
    except (oslo_messaging.InvalidTransportURL, ValueError) as e:
        raise _unusable(e) from None


def _unusable(error: Exception) -> exception.ConfigError:
    return exception.ConfigError(
        path='kronos.conf', field='transport_url',
        problem=f'it cannot be used ({type(error).__name__})',
        remedy='Write it as rabbit://user:password@host:5672/vhost, with special characters of '
               'user and password quoted: %40 for @, %2F for /.')


def retries(conf: cfg.ConfigOpts) -> int:
    """How often to try again, so that every broker of the URL gets its turn:
    oslo.messaging begins with any of them and takes the next at each retry.
    """
    return max(RETRY, len(address(conf).hosts) - 1)


def get(conf: cfg.ConfigOpts) -> Any | None:
    """The transport for casts and notifications; None: no broker is configured.

    :raises ConfigError: the URL cannot be used, or ``conf`` is not the
        process-wide configuration: oslo.messaging registers options on that
        one alone and would acknowledge and drop every cast, silently.
    """
    found = url(conf)
    if found is None:
        return None
    for part in ('metrics', 'tracing'):  # 17.0 has no tracing
        group = f'oslo_messaging_{part}'
        if util.find_spec(f'oslo_messaging._{part}') is not None and group not in conf:
            raise exception.ConfigError(
                path='transport', field=group, problem='this is a private configuration object',
                remedy='Hand the process-wide one to it.')
    queues(conf)
    try:
        return oslo_messaging.get_rpc_transport(conf, url=found)
    except (oslo_messaging.InvalidTransportURL, oslo_messaging.DriverLoadFailure,
            ValueError) as e:
        raise _unusable(e) from None


def queues(conf: cfg.ConfigOpts) -> str | None:
    """How RabbitMQ keeps queues over its restart: 'quorum' or 'durable'; None: it
    does not. Quorum queues unless the configuration says something else."""
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
    """For oslo-config-generator: oslo.messaging's options as :func:`queues` has them."""
    from oslo_messaging._drivers import impl_rabbit

    cfg.set_defaults(impl_rabbit.rabbit_opts, rabbit_quorum_queue=True)


def this_host() -> str:
    """What queues of this host's daemons are told apart by: the same after a
    restart, so that no queue is left behind, and short enough for AMQP."""
    return messages.slug(socket.gethostname())[-64:]


def results_pool(conf: cfg.ConfigOpts) -> str:
    """The queue in which an engine hears of results: its own."""
    name = messages.slug(conf.engine.name) if conf.engine.name else this_host()
    return f'kronos.engine.{name}'


class _Conflicts:
    """Logs each conflict with the broker's exchanges and queues once in a process."""

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
                  'poll the database. The broker is asked again every %g s.', error, PAUSE_SECONDS)


_CONFLICTS = _Conflicts()


class _Breaker:
    """Leaves a broker alone that has just failed.

    :param instead: what becomes of what it did not take, a clause.
    """

    def __init__(self, clock: Callable[[], float], instead: str) -> None:
        self._clock = clock
        self._instead = instead
        self._until = float('-inf')

    def send(self, what: str, action: Callable[[], None]) -> bool:
        """False: not sent, and logged once per pause."""
        if self._clock() < self._until:
            return False
        try:
            action()
        except oslo_messaging.MessageUndeliverable:
            LOG.debug('%s: nobody listens; %s', what, self._instead)
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


class _Sender:
    """Compares exchanges and queues with ours before the first message to each topic."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._compared: set[broker_topology.Binding] = set()

    def compare(self, bindings: Sequence[broker_topology.Binding]) -> None:
        """:raises BrokerConflict: one has other properties."""
        left = [binding for binding in bindings if binding not in self._compared]
        if left:
            broker_topology.compare_topology(self._transport, left)
            self._compared.update(left)


class Caster(_Sender):
    """Tells executors that a task is in the table."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = RETRY, now: Callable[[], float] = time.time) -> None:
        super().__init__(transport)
        self._now = now
        self._breaker = _Breaker(clock, 'executors poll the database, so nothing is lost')
        self._retry = retry
        self._clients: dict[str, Any] = {}

    def __call__(self, task: model.Task) -> bool:
        """Never raises; False: the message was not delivered to anybody.

        The broker drops a cast that waits for longer than CAST_SECONDS, or until its
        task's deadline: an executor of 0.2.0 that is started later would carry it out.
        """
        seconds = CAST_SECONDS
        if task.deadline is not None:
            seconds = min(seconds, task.deadline - self._now())
        if seconds < 1:
            return False

        def cast() -> None:
            self.compare([broker_topology.Binding(messages.migrations_topic(task.aggregate))])
            self._client(task.aggregate, seconds).cast(
                {}, messages.METHOD, task=messages.to_wire(task))

        return self._breaker.send(f'Task {task.task_id}', cast)

    def _client(self, scope: str, seconds: float) -> Any:
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
    """A transport whose messages the broker drops after its ``seconds``.

    oslo.messaging has this for calls and not for casts.
    """
    expiring = copy.copy(transport)

    def send(target: Any, context: Any, message: Any, **options: Any) -> Any:
        return transport._send(target, context, message,
                               **{**options, 'timeout': expiring.seconds})

    expiring._send = send
    return expiring


def _raise_failures(transport: Any, failures: list[Exception]) -> Any:
    """A transport that notes why a notification was not sent.

    oslo.messaging's notifier writes a traceback instead, and returns as if it had been.
    """
    noting = copy.copy(transport)

    def send(*args: Any, **options: Any) -> None:
        try:
            transport._send_notification(*args, **options)
        except Exception as e:
            failures.append(e)

    noting._send_notification = send
    return noting


class _Notifying(_Sender):
    """Publishes notifications of scopes, from each one's publisher on its own topic."""

    def __init__(self, publisher: Callable[[str], str], topic: Callable[[str], str],
                 transport: Any, clock: Callable[[], float], retry: int) -> None:
        super().__init__(transport)
        self._names = publisher, topic
        self._breaker = _Breaker(clock, 'whoever listens misses it, kronos shows it')
        self._retry = retry
        self._notifiers: dict[str, tuple[list[Exception], Any]] = {}

    def _publish(self, what: str, scope: str, event: str, payload: dict[str, Any]) -> bool:
        """Never raises; False: it was not published."""
        def publish() -> None:
            self.compare(broker_topology.bind_notifications([self._names[1](scope)]))
            failures, notifier = self._of(scope)
            failures.clear()
            notifier.info({}, event, payload)
            if failures:
                raise failures.pop()

        return self._breaker.send(what, publish)

    def _of(self, scope: str) -> tuple[list[Exception], Any]:
        if scope not in self._notifiers:
            publisher, topic = self._names
            failures: list[Exception] = []
            self._notifiers[scope] = failures, oslo_messaging.Notifier(
                _raise_failures(self._transport, failures), publisher(scope),
                driver='messagingv2', topics=[topic(scope)], retry=self._retry)
        return self._notifiers[scope]


class Notifier(_Notifying):
    """Publishes results, as a worker's ``notify``."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = RETRY) -> None:
        super().__init__(messages.publisher_id, messages.results_topic, transport, clock, retry)

    def __call__(self, event: str, result: model.Result) -> bool:
        """Never raises; False: it was not published."""
        return self._publish(f'Result of task {result.task_id}', result.aggregate, event,
                             messages.to_payload(result))

    def announce(self, event: str, scope: str, payload: dict[str, Any]) -> bool:
        """Publish an event that is no result. Never raises; False: it was not published."""
        return self._publish(f'{event} of scope {scope}', scope, event, payload)


class PlanNotifier(_Notifying):
    """Publishes what engines decide: (event, scope, payload)."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = RETRY) -> None:
        super().__init__(messages.planner_id, messages.plans_topic, transport, clock, retry)

    def __call__(self, event: str, scope: str, payload: dict[str, Any]) -> bool:
        """Never raises; False: it was not published."""
        return self._publish(f'{event} of scope {scope}', scope, event, payload)


#: Why a task that somebody sent is not one of ours, or None.
Doubt = Callable[[model.Task], str | None]


class _WakeUp:
    """The RPC endpoint: a valid message for our scope wakes, no other does."""

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


class _Heard:
    """The notification endpoint."""

    def __init__(self, heard: Callable[[str, model.Result], None]) -> None:
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


class _Servers:
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
        """Ends after the message at hand."""
        with self._lock:
            self._stopping.set()
            started, self._started = self._started, []
        for server in started:
            server.stop()
        for server in started:
            server.wait()


class WakeUps(_Servers):
    """Listens to the casts of ``scopes``.

    :param name: of the host, see :func:`this_host`.
    :param doubt: what the task table has against a message.
    """

    def __init__(self, transport: Any, scopes: Collection[str], name: str,
                 wake: Callable[[], None], doubt: Doubt = lambda task: None) -> None:
        def server(scope: str) -> Any:
            topic = messages.migrations_topic(scope)
            broker_topology.compare_topology(transport, broker_topology.bind_casts(topic, name))
            return oslo_messaging.get_rpc_server(
                transport, oslo_messaging.Target(topic=topic, server=name),
                [_WakeUp(scope, wake, doubt)])

        super().__init__([functools.partial(server, scope) for scope in scopes])


class Results(_Servers):
    """Listens to the results of ``scopes``.

    :param pool: listeners of one pool share the messages; each pool hears
        all. Without any, all such listeners share them.
    """

    def __init__(self, transport: Any, scopes: Collection[str],
                 heard: Callable[[str, model.Result], None], pool: str | None = None) -> None:
        topics = [messages.results_topic(scope) for scope in scopes]

        def listener() -> Any:
            broker_topology.compare_topology(
                transport, broker_topology.bind_notifications(topics, pool))
            return oslo_messaging.get_notification_listener(
                transport, [oslo_messaging.Target(topic=topic) for topic in topics],
                [_Heard(heard)], pool=pool)

        super().__init__([listener])
