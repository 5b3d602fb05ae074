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

"""The webhook of kronos-engine: events of plans and drains as signed POSTs.

The engine hands an event over and goes on; a thread posts it. The signature is that of the hook
``webhook``. Text that a tenant has written is not in the events.
"""

import collections
import hashlib
import json
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
import requests

from kronos_nova import exception
from kronos_nova import http_sessions
from kronos_nova.rebalancer.hooks import webhook
from kronos_nova.rebalancer.messaging import plan_events

LOG = logging.getLogger(__name__)

#: Events that wait to be posted; further ones are dropped.
MAX_WAITING = 100
#: Events that wait, from which on no notice is taken: notices come again, other events do not.
MAX_BEFORE_NOTICE = 50
#: Seconds before each further try to post an event.
WAITS = (2.0, 10.0)


class PlanWebhook:
    """Posts (event, scope, payload) to a program of the operator.

    :param conf: with its group ``plan_webhook``.
    :raises ConfigError: the secret cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf.plan_webhook
        if not self._conf.secret_file:
            raise exception.ConfigError(
                path='kronos.conf', field='[plan_webhook] secret_file', problem='it is not set',
                remedy='Set it, or remove [plan_webhook] url.')
        try:
            self._read_secret()
        except (OSError, ValueError) as e:
            raise exception.ConfigError(
                path=self._conf.secret_file, field='[plan_webhook] secret_file', problem=str(e),
                remedy=f'Give it {webhook.SHORTEST} octets or more, which only kronos-engine '
                       'can read.') from None
        self._waiting: collections.deque[tuple[str, dict[str, Any]]] = collections.deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._session = http_sessions.HttpSession()

    def __call__(self, event: str, scope: str, payload: dict[str, Any]) -> bool:
        """Queue an event without waiting; return False when too many wait already."""
        with self._changed:
            if event == plan_events.ANNOUNCED and len(self._waiting) >= MAX_BEFORE_NOTICE:
                return False
            if len(self._waiting) >= MAX_WAITING or self._stopping.is_set():
                LOG.warning('[plan_webhook]: %s of scope %s is dropped: %d events wait already',
                            event, scope, len(self._waiting))
                return False
            self._waiting.append((event, payload))
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name='kronos-plan-webhook', daemon=True)
                self._thread.start()
        return True

    def close(self) -> None:
        """Give the events that wait one more try each, within one timeout in all."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._conf.timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._stopping.is_set():
                        return
                    self._changed.wait()
                event, payload = self._waiting[0]
            try:
                self._post_with_retries(event, payload)
            except Exception as e:  # the thread lives on
                LOG.warning('[plan_webhook]: %s is not posted: %s', event, type(e).__name__)
            with self._changed:
                self._waiting.popleft()

    def _post_with_retries(self, event: str, payload: dict[str, Any]) -> None:
        """Post an event, several times if need be."""
        for wait in (*WAITS, None):
            problem = self._post(event, payload)
            if problem is None:
                return
            if wait is None or self._stopping.is_set():
                LOG.warning('[plan_webhook]: %s of scope %s is not posted: %s',
                            event, payload.get('aggregate'), problem)
                return
            self._stopping.wait(wait)

    def _post(self, event: str, payload: dict[str, Any]) -> str | None:
        """Return None, or why the program did not take the event."""
        body = json.dumps({**payload, 'event': event}, sort_keys=True).encode()
        stamp = str(int(time.time()))
        try:
            status = self._send_request('POST', {
                'Content-Type': 'application/json', 'User-Agent': 'kronos-nova',
                'Kronos-Timestamp': stamp,
                'Kronos-Signature': webhook.sign_body(self._read_secret(), stamp, body),
                # The body is the same in each try.
                'Idempotency-Key': hashlib.sha256(body).hexdigest()[:32]}, body)
        except (requests.RequestException, OSError, ValueError) as e:
            return f'the program was not reached ({type(e).__name__})'
        return None if 200 <= status < 300 else f'the program answered HTTP {status}'

    def find_problem(self) -> str | None:
        """Send the program an OPTIONS request, which changes nothing; return why it is not there.
        """
        try:
            status = self._send_request('OPTIONS', {})
        except (requests.RequestException, OSError) as e:
            return f'the program was not reached ({type(e).__name__})'
        if 300 <= status < 400 or status in webhook.UNREACHABLE:
            return f'the program answered HTTP {status}'
        return None

    def _send_request(self, method: str, headers: dict[str, str], body: bytes | None = None) -> int:
        with self._session.request(
                method, self._conf.url, data=body, headers=headers, timeout=self._conf.timeout,
                allow_redirects=False, verify=self._conf.ca_cert or True,
                stream=True) as answer:
            return answer.status_code

    def _read_secret(self) -> bytes:
        """Read the secret each time: it may be rotated.

        :raises OSError, ValueError: it cannot be used.
        """
        with open(self._conf.secret_file, 'rb') as file:
            secret = file.read().strip()
        if len(secret) < webhook.SHORTEST:
            raise ValueError(f'it has fewer than {webhook.SHORTEST} octets')
        return secret
