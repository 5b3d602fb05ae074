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


"""The check of the broker: it accepts messages and queues as the daemons will declare them.

The check leaves nothing on the broker. A dry run needs no broker: then a fault is a warning.
"""

from collections.abc import Iterator
import threading
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.checks import base
from kronos_nova.rebalancer.messaging import broker_topology
from kronos_nova.rebalancer.messaging import messages
from kronos_nova.rebalancer.messaging import transport

#: Seconds for each broker of the URL.
SECONDS = 5.0

#: A topic without a listener: the broker drops its messages.
TOPIC = 'kronos.test_config'
_CONNECTION = (
    'See that it runs, and correct host, port, user, password and virtual host in '
    'transport_url. For TLS set ssl = true and ssl_ca_file in [oslo_messaging_rabbit].')


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    url = parse_transport_url(context.conf)
    if url is None:
        yield base.report_skip('broker', 'transport_url is not set: executors find their tasks by '
                                     'looking into the database')
        return
    where = ', '.join(f'{host.hostname}:{host.port}' for host in url.hosts)
    problem = _find_send_problem(context.conf, SECONDS * len(url.hosts))
    if problem is None:
        yield _check_queues(context.conf, f'{url.transport} at {where}', url.transport)
        return
    text = f'{url.transport} at {where}: {problem}'
    if 'PRECONDITION_FAILED' in text:
        remedy = ('Give Kronos a virtual host of its own in transport_url, or the queue options of '
                  '[oslo_messaging_rabbit] that the other programs have; Kronos 0.2.0 has '
                  'rabbit_quorum_queue = false and rabbit_transient_quorum_queue = false.')
    else:
        remedy = _CONNECTION
    if context.conf.engine.dry_run:
        yield base.report_warning('broker', f'{text}; a dry run does without', remedy)
    else:
        yield base.report_failure('broker', text, remedy)


def _check_queues(conf: Any, text: str, driver: str) -> base.CheckItem:
    if driver not in ('rabbit', 'kombu'):
        return base.report_ok('broker', text)
    kind = transport.choose_queue_type(conf)
    if kind is None:
        return base.report_warning(
            'broker', f'{text}: its queues are neither quorum queues nor durable, and the broker '
            'loses their messages when it restarts',
            'Set rabbit_quorum_queue = true in [oslo_messaging_rabbit], as for other services.')
    return base.report_ok('broker', f'{text}, {kind} queues')


def parse_transport_url(conf: Any) -> Any:
    """Return oslo.messaging's TransportURL; None where no broker is configured.

    :raises ConfigError: transport_url is not a URL.
    """
    return None if transport.find_broker_url(conf) is None else transport.parse_broker_url(conf)


def _find_send_problem(conf: Any, seconds: float) -> str | None:
    """Return why no message can be sent within ``seconds``, or None."""
    outcome: list[str | None] = []

    def send_message() -> None:
        try:
            opened = transport.get_transport(conf)
            assert opened is not None, 'address() has found a broker'
            several = len(transport.parse_broker_url(conf).hosts) > 1
            retry = transport.count_retries(conf) if several else 0
            scopes = sorted({*conf.engine.aggregates, model.UNASSIGNED})
            results = [messages.results_topic(scope) for scope in scopes]
            bindings = [
                *(binding for scope in scopes for binding in broker_topology.bind_casts(
                    messages.migrations_topic(scope), transport.this_host())),
                *broker_topology.bind_notifications(results),
                *broker_topology.bind_notifications(results, transport.results_pool(conf))]
            if conf.messaging.plan_notifications:
                bindings += broker_topology.bind_notifications(
                    [messages.plans_topic(scope) for scope in scopes])
            if broker_topology.uses_rabbitmq(opened):
                broker_topology.try_round_trip(opened, retry)
                broker_topology.compare_topology(opened, bindings)
            else:
                transport.cast_ping(opened, TOPIC, retry)
            outcome.append(None)
            opened.cleanup()
        except exception.BrokerConflict as e:
            outcome.append('another program has declared {kind} {name} with other properties '
                           '({problem})'.format(**e.kwargs))
        except Exception as e:  # the drivers raise their libraries' errors
            outcome.append(' '.join(str(e).split())[:300] or type(e).__name__)

    thread = threading.Thread(target=send_message, daemon=True, name='broker-check')
    thread.start()
    thread.join(seconds)
    if not outcome:
        return f'no connection within {seconds:.0f} s'
    return outcome[0]
