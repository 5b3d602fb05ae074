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


"""The MQTT side of the pscom hook: what was said, and by whom.

The connection's thread calls back; everything that is shared is under one lock.
"""

from collections.abc import Callable
from collections.abc import Collection
import re
import threading
from typing import Any

from oslo_config import cfg
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova.rebalancer.hooks import base

_LEVEL = re.compile('[^+#/\\x00-\\x1f\\x7f\\ud800-\\udfff]{1,255}')
MOST = 100_000


def is_level(text: str) -> bool:
    """Whether it may stand between two slashes of a topic that is published to."""
    return _LEVEL.fullmatch(text) is not None and not text.startswith('$')


class Client:
    """:param conf: the groups ``mqtt`` and ``hook_pscom``.

    :raises ConfigError: paho-mqtt is not installed, or an option cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        try:
            from kronos_nova.rebalancer import mqtt
        except ModuleNotFoundError:
            raise exception.ConfigError(
                path='kronos.conf', field='[hooks] enabled', problem='pscom needs paho-mqtt',
                remedy='Install it: pip install "kronos-nova[rebalancer,mqtt]".') from None
        if not conf.mqtt.host:
            raise exception.ConfigError(
                path='kronos.conf', field='[mqtt] host', problem='pscom speaks to a broker, and '
                'none is named', remedy='Name the broker of the processes.')
        self.prefix = f'{conf.mqtt.prefix}/pscom'
        self._lock = threading.Lock()
        #: (host, process) -> number of its last answer; 0: it was only seen.
        self._answers: dict[tuple[str, str], int] = {}
        self._count = 0
        # What was said while we were away answers nothing of ours.
        self._connection = mqtt.Connection(
            conf, f'kronos-pscom-{uuidutils.generate_uuid()[:8]}', self._heard, kept=False)
        self._connection.subscribe([f'{self.prefix}/+/+/response'])

    def start(self) -> None:
        """Connect, and go on trying; returns at once."""
        self._connection.start()

    def stop(self) -> None:
        self._connection.stop()

    @property
    def ready(self) -> bool:
        """The broker would send us an answer that comes now."""
        return self._connection.hearing.is_set()

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
        taken: list[bool] = []
        self._connection.publish(f'{self.prefix}/{host}/{process}/request', f'task: {task}\n',
                                 taken.append)

        def arrived() -> bool:
            if False in taken:
                raise base.Failed(problem='could not publish: the broker has not taken it; see its '
                                          'access control')
            return bool(taken)
        return arrived

    # In the connection's thread.

    def _heard(self, heard: Any) -> None:
        heard.acknowledge()
        parts = heard.topic.removeprefix(f'{self.prefix}/').split('/')
        if len(parts) != 3 or not all(map(is_level, parts)):
            return
        key = parts[0], parts[1]
        with self._lock:
            if heard.retained:
                # Said some time ago: it is there, and answers nothing of ours. Empty: it is
                # not there any more.
                if heard.payload:
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
