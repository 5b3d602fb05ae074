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

"""The connection to the message broker, and the names of our queues.

Nothing depends on the broker: a message that is lost costs one poll interval, and a broker that is
away never holds up a cycle or a migration for long.
"""

from importlib import util
import socket
from typing import Any

from oslo_config import cfg
import oslo_messaging
from oslo_messaging import opts as messaging_opts
from oslo_messaging._drivers import impl_rabbit

from kronos_nova import exception
from kronos_nova.conf import messaging as messaging_conf
from kronos_nova.rebalancer.messaging import broker_faults
from kronos_nova.rebalancer.messaging import messages

_RABBIT = 'oslo_messaging_rabbit'


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
    return max(broker_faults.RETRY, len(parse_broker_url(conf).hosts) - 1)


def get_transport(conf: cfg.ConfigOpts) -> Any | None:
    """Return the transport for casts and notifications; None: no broker is configured.

    :raises ConfigError: the URL cannot be used, or ``conf`` is not the process-wide configuration:
        oslo.messaging registers options on that one alone and would acknowledge and drop every
        cast, silently.
    """
    url = find_broker_url(conf)
    if url is None:
        return None
    for part in ('metrics', 'tracing'):  # 17.0 has no tracing
        group = f'oslo_messaging_{part}'
        if util.find_spec(f'oslo_messaging._{part}') is not None and group not in conf:
            raise exception.ConfigError(
                path='transport', field=group, problem='this is a private configuration object',
                remedy='Hand the process-wide one to it.')
    choose_queue_type(conf)
    try:
        return oslo_messaging.get_rpc_transport(conf, url=url)
    except (oslo_messaging.InvalidTransportURL, oslo_messaging.DriverLoadFailure,
            ValueError) as e:
        raise _build_url_error(e) from None


def cast_ping(transport: Any, topic: str, retry: int) -> None:
    """Send a message to a topic; the broker drops it where the topic has no listener."""
    oslo_messaging.get_rpc_client(
        transport, oslo_messaging.Target(topic=topic), retry=retry).cast({}, 'ping')


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
