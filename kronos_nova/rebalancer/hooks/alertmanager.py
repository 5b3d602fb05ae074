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


"""A hook that silences alerts about an instance, or its hosts, while it is migrated.

It finds a silence again by the key in its comment: a successor needs no more after a crash. A
silence also ends at its own end time. Source: Alertmanager's API v2, ``/silences``, ``/silence``.
"""

from collections.abc import Callable
import datetime
import re
import time
from typing import Any, Self

from oslo_config import cfg
import requests

from kronos_nova import exception
from kronos_nova import http_sessions
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import pool

#: Permitted values of a matcher; none is a text that a tenant wrote.
VALUES = ('instance_uuid', 'from_host', 'to_host')
CREATED_BY = 'kronos-nova'
_LABEL = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*')
_SILENCE = re.compile(r'[0-9A-Za-z-]{1,64}')
#: Octets of the longest answer that the hook reads.
LONGEST = 8 * 1024 * 1024


class AlertmanagerHook(base.Hook):
    """Hook that creates and deletes silences in Alertmanager.

    :param conf: the configuration, with its group ``hook_alertmanager``.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        return cls(conf)

    @classmethod
    def examine(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> str:
        """Read the silences of no instance, to see that Alertmanager answers; create no silence."""
        hook = cls(conf)
        hook.close()
        nobody = [('filter', f'{name}="{CREATED_BY}"') for name in hook._conf.matchers]
        if not isinstance(hook._send_request('GET', '/silences', params=nobody), list):
            raise base.StepFailed(problem='was answered no list of silences: is that Alertmanager?')
        return 'Alertmanager shows its silences'

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf.hook_alertmanager
        self._pool = pool.StepPool('alertmanager')
        wrong = [name for name, value in self._conf.matchers.items()
                 if not _LABEL.fullmatch(name) or value not in VALUES]
        if wrong or not self._conf.matchers:
            raise exception.ConfigError(
                path='kronos.conf', field='[hook_alertmanager] matchers',
                problem=f'{wrong[0]} does not name a label and its value' if wrong
                        else 'it is empty, and would silence all alerts',
                remedy='Write LABEL:VALUE, where VALUE is one of ' + ', '.join(VALUES) + '.')
        if not self._conf.url:
            raise exception.ConfigError(
                path='kronos.conf', field='[hook_alertmanager] url', problem='it is not set',
                remedy='Set it, or take alertmanager out of [hooks] enabled.')

    def before(self, call: base.HookCall) -> base.HookStep:
        return self._pool.start_step(call.key, lambda over: self._create_silence(call))

    def after(self, call: base.HookCall) -> base.HookStep:
        return self._pool.start_step(call.key, lambda over: self._delete(call))

    def remedy(self, call: base.HookCall) -> str:
        return (f'Delete the silence whose comment has {call.key}, or wait '
                f'{self._conf.seconds} s until it ends.')

    def close(self) -> None:
        self._pool.close()

    def _create_silence(self, call: base.HookCall) -> None:
        now = time.time()
        self._send_request('POST', '/silences', {
            'matchers': [{'name': name, 'value': value, 'isRegex': False, 'isEqual': True}
                         for name, value in self._list_matchers(call)],
            'startsAt': _format_time(now), 'endsAt': _format_time(now + self._conf.seconds),
            'createdBy': CREATED_BY, 'comment': _format_comment(call)})

    def _delete(self, call: base.HookCall) -> None:
        filters = [('filter', f'{name}="{_quote_value(value)}"')
                   for name, value in self._list_matchers(call)]
        silences = self._send_request('GET', '/silences', params=filters)
        for silence in silences if isinstance(silences, list) else ():
            if (isinstance(silence, dict) and silence.get('comment') == _format_comment(call)
                    and _find_state(silence) != 'expired'
                    and isinstance(silence.get('id'), str)
                    and _SILENCE.fullmatch(silence['id'])):
                self._send_request('DELETE', f'/silence/{silence["id"]}', may_be_missing=True)

    def _list_matchers(self, call: base.HookCall) -> list[tuple[str, str]]:
        return [(name, getattr(call.task, value))
                for name, value in sorted(self._conf.matchers.items())]

    def _send_request(self, method: str, path: str, body: Any = None, *, params: Any = None,
                      may_be_missing: bool = False) -> Any:
        """Send a request to Alertmanager; return the answer to a GET.

        :param may_be_missing: accept HTTP 404: the silence was deleted before.
        :raises StepFailed: Alertmanager did not answer as expected.
        """
        url = self._conf.url.rstrip('/') + '/api/v2' + path
        try:
            with http_sessions.HttpSession() as session, session.request(
                    method, url, json=body, params=params, timeout=self._conf.timeout,
                    allow_redirects=False, verify=self._conf.ca_cert or True, stream=True,
                    headers={'User-Agent': 'kronos-nova'}) as answer:
                status = answer.status_code
                if 200 <= status < 300 and method == 'GET':
                    text = answer.raw.read(LONGEST + 1, decode_content=True)
                    if len(text) > LONGEST:
                        raise base.StepFailed(problem='was answered more than it reads')
                    answer._content = text
                    return answer.json()
        except (requests.RequestException, ValueError, OSError, RecursionError) as e:
            raise base.StepFailed(problem=secret_mask.mask_text(
                f'could not {method} {path.split("/")[1]} ({type(e).__name__})')) from None
        if not 200 <= status < 300 and not (may_be_missing and status == 404):
            raise base.StepFailed(
                problem=f'was answered HTTP {status} by Alertmanager ({method})')
        return None


def _format_comment(call: base.HookCall) -> str:
    return f'{CREATED_BY}: migration of instance {call.task.instance_uuid} ({call.key})'


def _find_state(silence: dict[str, Any]) -> Any:
    status = silence.get('status')
    return status.get('state') if isinstance(status, dict) else None


def _quote_value(value: str) -> str:
    return value.replace('\\', '\\\\').replace('"', '\\"')


def _format_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
