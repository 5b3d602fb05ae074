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


"""A hook that notifies a program of the operator, by a signed POST of JSON.

The signature is ``v1=`` and the hexadecimal HMAC-SHA256, with the secret as its key, of the
timestamp, a full stop and the body as it was sent. The body has no text that a tenant wrote.
"""

from collections.abc import Callable
import hashlib
import hmac
import json
import time
from typing import Any, Self

from oslo_config import cfg
import requests

from kronos_nova import exception
from kronos_nova import http_sessions
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import pool

BEFORE, AFTER = 'migration.before', 'migration.after'
#: Octets of the shortest secret: a shorter one can be guessed.
SHORTEST = 16
#: HTTP statuses of a proxy whose program is away.
UNREACHABLE = frozenset({502, 503, 504})


class WebhookHook(base.Hook):
    """Hook that posts to a program of the operator.

    :param conf: the configuration, with its group ``hook_webhook``.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        return cls(conf)

    @classmethod
    def examine(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> str:
        """Send OPTIONS, which requests nothing: a program need not know the method to answer."""
        hook = cls(conf)
        hook.close()
        status = hook._send_request('OPTIONS', {})
        if status in UNREACHABLE:
            raise base.StepFailed(problem=f'was answered HTTP {status}: no service is behind it')
        _refuse_redirect(status)
        return f'its program answers (HTTP {status} to OPTIONS; nothing was posted)'

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf.hook_webhook
        self._pool = pool.StepPool('webhook')
        for name in ('url', 'secret_file'):
            if not getattr(self._conf, name):
                raise exception.ConfigError(
                    path='kronos.conf', field=f'[hook_webhook] {name}', problem='it is not set',
                    remedy='Set it, or take webhook out of [hooks] enabled.')
        try:
            self._read_secret()
        except base.StepFailed as e:
            raise exception.ConfigError(
                path=self._conf.secret_file, field='[hook_webhook] secret_file', problem=str(e),
                remedy=f'Give it {SHORTEST} octets or more, which only kronos-executor '
                       'can read.') from None

    def before(self, call: base.HookCall) -> base.HookStep:
        return self._pool.start_step(call.key, lambda over: self._post(call, BEFORE))

    def after(self, call: base.HookCall) -> base.HookStep:
        return self._pool.start_step(call.key, lambda over: self._post(call, AFTER))

    def remedy(self, call: base.HookCall) -> str:
        return (f'Tell the service at [hook_webhook] url that {call.key} is over.')

    def close(self) -> None:
        self._pool.close()

    def _post(self, call: base.HookCall, event: str) -> None:
        body = json.dumps(build_document(call, event), sort_keys=True).encode()
        stamp = str(int(time.time()))
        headers = {
            'Content-Type': 'application/json', 'User-Agent': 'kronos-nova',
            'Kronos-Timestamp': stamp,
            'Kronos-Signature': sign_body(self._read_secret(), stamp, body),
            'Idempotency-Key': f'{call.key}:{event.rpartition(".")[2]}'}
        status = self._send_request('POST', headers, body)
        _refuse_redirect(status)
        if not 200 <= status < 300:
            raise base.StepFailed(problem=f'was answered HTTP {status}')

    def _send_request(self, method: str, headers: dict[str, str], body: bytes | None = None) -> int:
        """Send a request; return the HTTP status of the answer."""
        try:
            with http_sessions.HttpSession() as session, session.request(
                    method, self._conf.url, data=body, headers=headers,
                    timeout=self._conf.timeout, allow_redirects=False,
                    verify=self._conf.ca_cert or True, stream=True) as answer:
                return answer.status_code
        except (requests.RequestException, OSError) as e:
            raise base.StepFailed(problem=secret_mask.mask_text(
                f'did not reach its program ({type(e).__name__})')) from None

    def _read_secret(self) -> bytes:
        """Read the secret, at each call: an operator may rotate it.

        :raises StepFailed: it cannot be used.
        """
        try:
            with open(self._conf.secret_file, 'rb') as f:
                secret = f.read().strip()
        except OSError as e:
            raise base.StepFailed(problem=f'cannot read its secret ({e.strerror})') from None
        if len(secret) < SHORTEST:
            raise base.StepFailed(problem=f'has a secret of fewer than {SHORTEST} octets')
        return secret


def _refuse_redirect(status: int) -> None:
    if 300 <= status < 400:
        raise base.StepFailed(problem=f'was redirected (HTTP {status}), which it never follows')


def build_document(call: base.HookCall, event: str) -> dict[str, Any]:
    """Build the body; ``success`` and ``error_type`` are null where they are not known."""
    task, ended = call.task, call.ended
    return {
        'version': '1', 'event': event, 'key': call.key, 'task_id': task.task_id,
        'plan_id': task.plan_id, 'aggregate': task.aggregate,
        'instance_uuid': task.instance_uuid, 'from_host': task.from_host,
        'to_host': task.to_host, 'phase': task.phase.value, 'method': task.method.value,
        'success': None if ended is None else ended.error_type is None,
        'error_type': None if ended is None else ended.error_type}


def sign_body(secret: bytes, stamp: str, body: bytes) -> str:
    """Return the value of the header ``Kronos-Signature``."""
    return 'v1=' + hmac.new(secret, stamp.encode() + b'.' + body, hashlib.sha256).hexdigest()
