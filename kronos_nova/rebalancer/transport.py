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

"""oslo.messaging: wakes executors, tells engines what became of a move.

Nothing depends on a message arriving: the task table is the truth, executors
poll it, and a broker that is away costs a warning. Without ``transport_url``
(or Kronos's [messaging]) nothing is sent at all.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import messaging as messaging_conf
from kronos_nova.rebalancer import messages

LOG = logging.getLogger(__name__)

#: Tries to reach the broker before a message is given up.
RETRY = 1
#: oslo.messaging's own default, which means that nobody named a broker.
UNSET = 'rabbit://'


def url(conf: cfg.ConfigOpts) -> str | None:
    """The broker's URL, or None when none is configured.

    :raises ConfigError: it cannot be parsed.
    """
    oslo_messaging.set_transport_defaults('kronos')
    try:
        oslo_messaging.TransportURL.parse(conf)
    except oslo_messaging.InvalidTransportURL as e:
        raise exception.ConfigError(
            path='kronos.conf', field='transport_url', problem=str(e.args[-1]),
            remedy='Write rabbit://user:password@host:port/virtual_host.') from None
    if conf.transport_url and conf.transport_url != UNSET:
        return str(conf.transport_url)
    return messaging_conf.transport_url(conf)


class Caster:
    """Casts ``execute_migration`` for stored tasks. Never raises."""

    def __init__(self, conf: cfg.ConfigOpts, address: str) -> None:
        self._transport = oslo_messaging.get_rpc_transport(conf, url=address)
        self._options = oslo_messaging.TransportOptions(at_least_once=True)
        self._away = False

    def __call__(self, task: model.Task) -> None:
        client = oslo_messaging.get_rpc_client(
            self._transport, oslo_messaging.Target(
                topic=messages.migrations_topic(task.aggregate), version=messages.VERSION),
            transport_options=self._options, retry=RETRY)
        try:
            client.cast({}, 'execute_migration', task=messages.task_to_wire(task))
        except oslo_messaging.MessageUndeliverable:
            LOG.debug('Instance %s: no executor listens for scope %s yet; one that polls finds '
                      'task %s', task.instance_uuid, task.aggregate, task.task_id)
        except Exception as e:  # drivers raise what their libraries raise
            if not self._away:
                LOG.warning('The broker cannot be reached (%s). Executors find their tasks by '
                            'polling, up to [executor] poll_interval later.', type(e).__name__)
            self._away = True
        else:
            self._away = False

    def close(self) -> None:
        self._transport.cleanup()


class _Wakes:
    """RPC endpoint: a valid message for our scope sets the event."""

    target = oslo_messaging.Target(version=messages.VERSION)

    def __init__(self, scope: str, wake: Callable[[], None]) -> None:
        self._scope = scope
        self._wake = wake

    def execute_migration(self, ctxt: Any, task: Any = None) -> None:
        try:
            found = messages.task_from_wire(task)
        except exception.MessageError as e:
            LOG.warning('A message on %s is ignored: %s',
                        messages.migrations_topic(self._scope), e)
            return
        if found.aggregate != self._scope:
            LOG.warning('A message on %s is ignored: it is for another scope',
                        messages.migrations_topic(self._scope))
            return
        self._wake()


class _Results:
    """Notification endpoint: news for the log."""

    def __init__(self, told: Callable[[str, model.Result], None]) -> None:
        self._told = told

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any,
             metadata: Any) -> None:
        if event_type not in (messages.COMPLETED, messages.FAILED):
            return
        try:
            self._told(event_type, messages.result_from_wire(payload))
        except exception.MessageError as e:
            LOG.warning('A notification is ignored: %s', e)


class Listeners:
    """Servers that are started and stopped together."""

    def __init__(self, transport: Any, servers: Sequence[Any]) -> None:
        self._transport = transport
        self._servers = servers

    def start(self) -> None:
        for server in self._servers:
            server.start()

    def stop(self) -> None:
        for server in self._servers:
            server.stop()
        for server in self._servers:
            server.wait()
        self._transport.cleanup()


def wakes(conf: cfg.ConfigOpts, address: str, scopes: Sequence[str], server: str,
          wake: Callable[[], None]) -> Listeners:
    """RPC servers of an executor; competing consumers on each topic."""
    transport = oslo_messaging.get_rpc_transport(conf, url=address)
    return Listeners(transport, [
        oslo_messaging.get_rpc_server(
            transport, oslo_messaging.Target(topic=messages.migrations_topic(s), server=server),
            [_Wakes(s, wake)]) for s in scopes])


def results(conf: cfg.ConfigOpts, address: str, scopes: Sequence[str],
            told: Callable[[str, model.Result], None]) -> Listeners:
    """Notification listeners of an engine. Engines share the messages: what
    follows from a result is in the database already."""
    transport = oslo_messaging.get_notification_transport(conf, url=address)
    return Listeners(transport, [oslo_messaging.get_notification_listener(
        transport, [oslo_messaging.Target(topic=messages.results_topic(s)) for s in scopes],
        [_Results(told)])])


class Notifier:
    """Publishes results on their scope's topic. Never raises."""

    def __init__(self, conf: cfg.ConfigOpts, address: str) -> None:
        self._transport = oslo_messaging.get_notification_transport(conf, url=address)
        self._notifiers: dict[str, oslo_messaging.Notifier] = {}

    def __call__(self, event: str, result: model.Result) -> None:
        scope = result.aggregate
        if scope not in self._notifiers:
            self._notifiers[scope] = oslo_messaging.Notifier(
                self._transport, messages.publisher_id(scope), driver='messagingv2',
                topics=[messages.results_topic(scope)], retry=RETRY)
        try:
            self._notifiers[scope].info({}, event, messages.result_to_wire(result))
        except Exception as e:  # drivers raise what their libraries raise
            LOG.warning('Instance %s: %s could not be published (%s); the result is in the '
                        'database', result.instance_uuid, event, type(e).__name__)

    def close(self) -> None:
        self._transport.cleanup()
