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

"""Nova's bus in memory, on which a message wakes its listeners.

oslo.messaging's driver for tests looks for messages every 50 ms: each of the many
calls of one boot waits for that, and each of the many listeners of a cloud looks.
"""

from collections.abc import Callable
import threading
import time
from typing import Any
import weakref

import fixtures
from oslo_messaging._drivers import base
from oslo_messaging._drivers import impl_fake

#: Whoever is to be stopped, or was not told for some reason, looks after so many seconds.
LONGEST = 1.0


class PromptBus(fixtures.Fixture):

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._bells: dict[str, weakref.WeakSet[threading.Event]] = {}

    def _setUp(self) -> None:
        deliver = impl_fake.FakeExchange.deliver_message
        stop = impl_fake.FakeListener.stop
        bus = self

        def deliver_message(self: Any, topic: str, *args: Any, **kwargs: Any) -> None:
            deliver(self, topic, *args, **kwargs)
            bus._ring(topic)

        def stopped(self: Any) -> None:
            stop(self)
            for target in self._targets:
                bus._ring(target.topic)

        poll = base.batch_poll_helper(
            lambda listener, timeout=None: self._poll(listener, timeout))
        for name, function in (('FakeExchange.deliver_message', deliver_message),
                               ('FakeListener.stop', stopped), ('FakeListener.poll', poll)):
            self._patch(name, function)

    def _patch(self, name: str, function: Callable[..., Any]) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            f'oslo_messaging._drivers.impl_fake.{name}', function))

    def _bell(self, listener: Any) -> threading.Event:
        bell = vars(listener).get('bell')
        if bell is None:
            bell = listener.bell = threading.Event()
            with self._lock:
                for target in listener._targets:
                    self._bells.setdefault(target.topic, weakref.WeakSet()).add(bell)
        return bell

    def _ring(self, topic: str) -> None:
        with self._lock:
            bells = list(self._bells.get(topic, ()))
        for bell in bells:
            bell.set()

    def _poll(self, listener: Any, timeout: float | None) -> Any:
        """What the driver's does, but for its sleep."""
        end = float('inf') if timeout is None else time.monotonic() + timeout
        bell = self._bell(listener)
        while not listener._stopped.is_set():
            bell.clear()
            for target in listener._targets:
                exchange = listener._exchange_manager.get_exchange(target.exchange)
                ctxt, message, reply_q, requeue = exchange.poll(target, listener._pool)
                if message is not None:
                    return impl_fake.FakeIncomingMessage(ctxt, message, reply_q, requeue)
            left = end - time.monotonic()
            if left < 0:
                break
            bell.wait(min(left, LONGEST))
        return None
