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
from kronos_nova.rebalancer import messages

LOG = logging.getLogger(__name__)

#: oslo.messaging would otherwise try for ever.
RETRY = 1
_RABBIT = 'oslo_messaging_rabbit'
#: After a failure the broker is left alone for so long.
PAUSE_SECONDS = 30.0


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
        except Exception as e:
            self._until = self._clock() + PAUSE_SECONDS
            LOG.warning('%s: the broker did not take it (%s); %s. Check transport_url.', what,
                        type(e).__name__, self._instead)
            return False
        return True


class Caster:
    """Tells executors that a task is in the table."""

    def __init__(self, transport: Any, clock: Callable[[], float] = time.monotonic,
                 retry: int = RETRY) -> None:
        self._transport = transport
        self._breaker = _Breaker(clock, 'executors poll the database, so nothing is lost')
        self._retry = retry
        self._clients: dict[str, Any] = {}

    def __call__(self, task: model.Task) -> bool:
        """Never raises; False: the message was not delivered to anybody."""
        return self._breaker.send(
            f'Task {task.task_id}',
            lambda: self._client(task.aggregate).cast(
                {}, messages.METHOD, task=messages.to_wire(task)))

    def _client(self, scope: str) -> Any:
        if scope not in self._clients:
            target = oslo_messaging.Target(
                topic=messages.migrations_topic(scope), version=messages.VERSION)
            self._clients[scope] = oslo_messaging.get_rpc_client(
                self._transport, target, retry=self._retry,
                transport_options=oslo_messaging.TransportOptions(at_least_once=True))
        return self._clients[scope]


class _Notifying:
    """Publishes notifications of scopes, from each one's publisher on its own topic."""

    def __init__(self, publisher: Callable[[str], str], topic: Callable[[str], str],
                 transport: Any, clock: Callable[[], float], retry: int) -> None:
        self._names = publisher, topic
        self._transport = transport
        self._breaker = _Breaker(clock, 'whoever listens misses it, kronos shows it')
        self._retry = retry
        self._notifiers: dict[str, Any] = {}

    def _publish(self, what: str, scope: str, event: str, payload: dict[str, Any]) -> bool:
        """Never raises; False: it was not published."""
        return self._breaker.send(what, lambda: self._of(scope).info({}, event, payload))

    def _of(self, scope: str) -> Any:
        if scope not in self._notifiers:
            publisher, topic = self._names
            self._notifiers[scope] = oslo_messaging.Notifier(
                self._transport, publisher(scope), driver='messagingv2', topics=[topic(scope)],
                retry=self._retry)
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
            return oslo_messaging.get_rpc_server(
                transport, oslo_messaging.Target(
                    topic=messages.migrations_topic(scope), server=name),
                [_WakeUp(scope, wake, doubt)])

        super().__init__([functools.partial(server, scope) for scope in scopes])


class Results(_Servers):
    """Listens to the results of ``scopes``.

    :param pool: listeners of one pool share the messages; each pool hears
        all. Without any, all such listeners share them.
    """

    def __init__(self, transport: Any, scopes: Collection[str],
                 heard: Callable[[str, model.Result], None], pool: str | None = None) -> None:
        super().__init__([lambda: oslo_messaging.get_notification_listener(
            transport, [oslo_messaging.Target(topic=messages.results_topic(scope))
                        for scope in scopes],
            [_Heard(heard)], pool=pool)])
