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


"""The MQTT side of the pscom hook: one connection of the executor, kept up by paho.

Its thread calls back; everything that is shared is under one lock.
"""

from collections.abc import Callable
from collections.abc import Collection
import re
import threading
from typing import Any

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.conf import masking
from kronos_nova.rebalancer.hooks import base

LOG = logging.getLogger(__name__)

RESPONSES = 'fast/pscom/+/+/response'
#: A level of a topic: a host, or the id of a process.
_LEVEL = re.compile('[^+#/\\x00-\\x1f\\x7f]{1,255}')
_TOPIC = re.compile('fast/pscom/([^/]+)/([^/]+)/response')
#: So many processes are remembered, and no more.
MOST = 100_000


def is_level(text: str) -> bool:
    """Whether it may stand between two slashes of a topic that is published to."""
    return _LEVEL.fullmatch(text) is not None and not text.startswith('$')


class Client:
    """:param conf: the group ``hook_pscom``.

    :raises ConfigError: paho-mqtt is not installed, or an option cannot be used.
    """

    def __init__(self, conf: Any) -> None:
        try:
            from paho.mqtt import client as mqtt
            from paho.mqtt import enums
        except ModuleNotFoundError:
            raise exception.ConfigError(
                path='kronos.conf', field='[hooks] enabled', problem='pscom needs paho-mqtt',
                remedy='Install it: pip install "kronos-nova[rebalancer,mqtt]".') from None
        self._conf = conf
        self._lock = threading.Lock()
        self._ready = False
        #: (host, process) -> number of its last answer; 0: it was only seen.
        self._answers: dict[tuple[str, str], int] = {}
        self._count = 0
        self._client = mqtt.Client(
            enums.CallbackAPIVersion.VERSION2, client_id=conf.client_id or '',
            protocol=(enums.MQTTProtocolVersion.MQTTv5 if conf.protocol == '5'
                      else enums.MQTTProtocolVersion.MQTTv311))
        if conf.username:
            self._client.username_pw_set(conf.username, conf.password)
        if conf.tls:
            try:
                self._client.tls_set(conf.ca_cert, conf.certificate, conf.key)
            except (OSError, ValueError) as e:
                raise exception.ConfigError(
                    path='kronos.conf', field='[hook_pscom] ca_cert, certificate, key',
                    problem=f'TLS cannot be set up ({type(e).__name__}: {e})',
                    remedy='Name files that kronos-executor can read.') from None
        self._client.reconnect_delay_set(1, 30)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_disconnect = self._disconnected
        self._client.on_message = self._heard

    def start(self) -> None:
        """Connect, and go on trying; returns at once."""
        self._client.connect_async(self._conf.host, self._conf.port, keepalive=30)
        self._client.loop_start()

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def ready(self) -> bool:
        """The broker would send us an answer that comes now."""
        with self._lock:
            return self._ready

    def seen(self, host: str) -> set[str]:
        """The processes of a host that have said something, or left it with the broker."""
        with self._lock:
            return {process for name, process in self._answers if name == host}

    def answers(self) -> int:
        """How many have come so far: what counts later comes after it."""
        with self._lock:
            return self._count

    def answered(self, host: str, processes: Collection[str], since: int) -> set[str]:
        """Those that have answered after so many answers."""
        with self._lock:
            return {p for p in processes if self._answers.get((host, p), 0) > since}

    def ask(self, host: str, process: str, task: str) -> Callable[[], bool]:
        """Publish a request, at least once.

        :returns: tells whether the broker has it.
        :raises Failed: it cannot be sent now.
        """
        if not (is_level(host) and is_level(process)):
            raise base.Failed(problem=f'cannot have {host!r} or {process!r} in an MQTT topic')
        try:
            sent = self._client.publish(f'fast/pscom/{host}/{process}/request',
                                        f'task: {task}\n', qos=1)
        except (ValueError, RuntimeError) as e:
            raise base.Failed(problem=f'could not publish ({e})') from None

        def arrived() -> bool:
            try:
                return sent.is_published()
            except (ValueError, RuntimeError) as e:
                raise base.Failed(problem=f'could not publish ({e})') from None
        return arrived

    # In paho's thread.

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any,
                   properties: Any) -> None:
        if reason.is_failure:
            LOG.warning('Hook pscom: the broker at %s:%d refuses us (%s); it is tried again',
                        self._conf.host, self._conf.port, masking.masked(str(reason)))
            return
        LOG.info('Hook pscom: connected to the broker at %s:%d', self._conf.host, self._conf.port)
        client.subscribe(RESPONSES, qos=1)

    def _subscribed(self, client: Any, userdata: Any, mid: Any, reasons: Any,
                    properties: Any) -> None:
        refused = [reason for reason in reasons if reason.is_failure]
        if refused:
            LOG.error('Hook pscom: the broker does not let us subscribe to %s (%s); allow that '
                      'to its user', RESPONSES, refused[0])
        with self._lock:
            self._ready = not refused

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any,
                      properties: Any) -> None:
        with self._lock:
            self._ready = False
        if reason.is_failure:
            LOG.warning('Hook pscom: the connection to the broker at %s:%d is lost (%s); it is '
                        'made again', self._conf.host, self._conf.port, reason)

    def _heard(self, client: Any, userdata: Any, message: Any) -> None:
        found = _TOPIC.fullmatch(message.topic)
        if found is None or not all(map(is_level, found.groups())):
            return
        key = found[1], found[2]
        with self._lock:
            if message.retain:
                # Said some time ago: it is there, and answers nothing of ours. Empty: it is
                # not there any more.
                if message.payload:
                    self._remember(key, self._answers.get(key, 0))
                else:
                    self._answers.pop(key, None)
                return
            self._count += 1
            self._remember(key, self._count)

    def _remember(self, key: tuple[str, str], number: int) -> None:
        self._answers.pop(key, None)
        if len(self._answers) >= MOST:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = number
