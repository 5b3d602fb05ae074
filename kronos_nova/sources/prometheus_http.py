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

"""Requests to the Prometheus HTTP API.

Every request has one deadline for all its attempts and a cap on bytes, and follows no redirect. No
message contains a secret.
"""

import base64
import time
from typing import Any
import urllib.parse

from oslo_config import cfg
import requests
import tenacity

from kronos_nova import exception
from kronos_nova import http_sessions
from kronos_nova import model
from kronos_nova.conf import secret_mask
from kronos_nova.sources import answer
from kronos_nova.sources import deadline

CHUNK = 65536


class AttemptFailed(Exception):
    """A failed attempt; another attempt would fail the same way."""

    health = model.SourceHealth.PARTIAL


class ServerUnreachable(AttemptFailed):
    """A failed attempt: no Prometheus is at the address, or it refuses our login."""

    health = model.SourceHealth.UNREACHABLE


class PassingFailure(ServerUnreachable):
    """A failed attempt; the next one may succeed."""


class TooMuch(AttemptFailed):
    """An answer that is too large; one over less time may not be."""


class AnswerLate(ServerUnreachable):
    """An answer that did not come in time; one over less time may come."""


class ServerBusy(PassingFailure):
    """An error answer: Prometheus gave up on the query."""


class PrometheusConnection:
    """The connection to one server.

    :param conf: with the group [prometheus].
    :raises ConfigError: the URL or a credential cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf.prometheus
        #: ``shown`` names the server in messages.
        self._base, self.shown, self._login = _parse_address(_read_url(conf))
        if self._conf.username:
            self._login = (self._conf.username, self._conf.password or '')
        self._session = http_sessions.HttpSession()
        self._bound = deadline.BoundedCalls()
        self._token = ''

    def close(self) -> None:
        self._session.close()

    def fetch_answer(self, method: str, path: str, form: dict[str, str] | None) -> bytes:
        """Return the body of a successful answer.

        :raises AttemptFailed: says why, fit for an operator.
        """
        seconds = self._conf.timeout
        end = time.monotonic() + seconds
        try:
            return self._bound.run_bounded(
                lambda: self._fetch_with_retries(method, path, form, end), end - time.monotonic())
        except deadline.DeadlineExceeded:
            # The hanging call keeps its connection; the next query gets a new one.
            self._session = http_sessions.HttpSession()
            raise AnswerLate(f'{self.shown} did not answer within {seconds:g} s') from None
        except deadline.TooManyHanging as e:
            raise ServerUnreachable(f'{self.shown}: {e}') from None

    def _fetch_with_retries(self, method: str, path: str, form: dict[str, str] | None,
                            end: float) -> bytes:
        often_enough = tenacity.stop_after_attempt(self._conf.max_retries + 1)

        def in_vain(state: tenacity.RetryCallState) -> bool:
            """Return whether to give up; also when the wait would outlast the query."""
            return often_enough(state) or time.monotonic() + state.upcoming_sleep >= end

        retrying = tenacity.Retrying(
            stop=in_vain, wait=tenacity.wait_exponential(multiplier=self._conf.retry_backoff),
            retry=tenacity.retry_if_exception_type(PassingFailure), reraise=True)

        def fetch_once() -> bytes:
            seconds_left = max(0.001, end - time.monotonic())
            return self._send_request(method, path, form, seconds_left, end)

        return retrying(fetch_once)

    def _send_request(self, method: str, path: str, form: dict[str, str] | None,
                      seconds_left: float, end: float) -> bytes:
        headers = {'Accept': 'application/json', 'Accept-Encoding': 'identity',
                   **self._build_auth_header()}
        if form is not None:
            form = {**form, 'timeout': f'{max(1, int(seconds_left * 1000))}ms'}
        try:
            with self._session.request(
                    method, self._base + path, data=form, headers=headers,
                    auth=None if 'Authorization' in headers else self._encode_login(),
                    timeout=seconds_left, stream=True, allow_redirects=False,
                    verify=self._choose_verification()) as response:
                return self._read_answer(response, end)
        except requests.exceptions.SSLError as e:
            raise ServerUnreachable(
                f'{self.shown}: TLS failed ({_find_failure_reason(e)}); check ca_cert and the '
                'certificate') from None
        except requests.Timeout:
            raise PassingFailure(
                f'{self.shown} did not answer within {seconds_left:.1f} s') from None
        except requests.RequestException as e:
            raise PassingFailure(f'{self.shown} cannot be reached '
                                  f'({_find_failure_reason(e)})') from None
        except OSError as e:
            raise ServerUnreachable(f'{self.shown}: {e.strerror or type(e).__name__} '
                                     '(is ca_cert a readable file?)') from None

    def _read_answer(self, response: requests.Response, end: float) -> bytes:
        status = response.status_code
        if 300 <= status < 400:
            raise ServerUnreachable(f'{self.shown} redirects ({status}), which is not followed; '
                                     'set url in [prometheus] to the final address')
        if status in (401, 403):
            raise ServerUnreachable(f'{self.shown} refuses our credentials ({status}); check '
                                     'username, password and bearer token in [prometheus]')
        if response.headers.get('Content-Encoding', 'identity') != 'identity':
            raise AttemptFailed(f'{self.shown} compresses its answer although not asked to')
        is_json = response.headers.get('Content-Type', '').split(';')[0].strip().lower() \
            == 'application/json'
        body = self._read(response, end) if is_json else b''
        problem = self.hide_credentials(answer.find_error_text(body))
        if status == 503 and 'timed out' in problem:
            raise ServerBusy(f'{self.shown} answers {status} {problem}')
        if status >= 500 or status == 429:
            raise PassingFailure(f'{self.shown} answers {status} {problem}'.rstrip())
        if status == 422 and 'too many samples' in problem:
            raise TooMuch(f'{self.shown} answers {status} {problem}')
        if status >= 400:
            raise AttemptFailed(f'{self.shown} answers {status} {problem}'.rstrip())
        if status != 200 or not is_json:
            raise AttemptFailed(f'{self.shown} does not answer in JSON ({status}); is url the '
                                 'address of a Prometheus?')
        return body

    def _read(self, response: requests.Response, end: float) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(CHUNK):
            body += chunk
            if len(body) > self._conf.max_body_bytes:
                raise TooMuch(f'{self.shown}: the answer is larger than max_body_bytes '
                              f'({self._conf.max_body_bytes}); aggregate the query')
            if time.monotonic() > end:
                raise AnswerLate(f'{self.shown} did not finish its answer in time')
        return bytes(body)

    def _choose_verification(self) -> bool | str:
        return self._conf.ca_cert or True if self._conf.verify_ssl else False

    def _encode_login(self) -> Any:
        return tuple(part.encode() for part in self._login) if self._login else None

    def hide_credentials(self, text: str) -> str:
        """Mask our credentials: a server, or a proxy before it, may repeat a request."""
        known = {self._token}
        if self._login:
            known |= {self._login[1], ':'.join(self._login), base64.b64encode(
                ':'.join(self._login).encode()).decode()}
        return secret_mask.hide_secrets(text, known)

    def _build_auth_header(self) -> dict[str, str]:
        """Return the bearer header, if any; read the file again each time."""
        name, token = 'bearer_token', self._conf.bearer_token
        if self._conf.bearer_token_file:
            name = 'bearer_token_file'
            try:
                with open(self._conf.bearer_token_file, encoding='utf-8') as f:
                    token = f.read(CHUNK)
            except (OSError, UnicodeDecodeError) as e:
                why = e.strerror if isinstance(e, OSError) else 'it is not text'
                raise ServerUnreachable(f'bearer_token_file cannot be read ({why})') from None
        token = (token or '').strip()
        self._token = token
        if not token:
            if name == 'bearer_token_file':
                raise ServerUnreachable('bearer_token_file is empty')
            return {}
        if not all('!' <= c <= '~' for c in token):
            raise ServerUnreachable(f'{name} holds characters that no HTTP header may carry')
        return {'Authorization': f'Bearer {token}'}


def _read_url(conf: cfg.ConfigOpts) -> str:
    """Return the configured URL.

    The error of oslo.config would show a login in the URL; ours does not.

    :raises ConfigError: the value is not such a URL.
    """
    try:
        return str(conf.prometheus.url)
    except cfg.ConfigSourceValueError:
        raise exception.ConfigError(
            path='[prometheus]', field='url', problem='it is no URL of http or https',
            remedy='Quote special characters of user and password, such as %40 for @.') from None


def _parse_address(url: str) -> tuple[str, str, tuple[str, str] | None]:
    """Return the base URL without its login, its name for messages, and the login."""
    parts = urllib.parse.urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if not parts.hostname or parts.query or parts.fragment or port == -1:
        raise exception.ConfigError(
            path='[prometheus]', field='url', problem='it is not a base URL',
            remedy='Write scheme, host, port and path prefix only.')
    host = f'[{parts.hostname}]' if ':' in parts.hostname else parts.hostname
    netloc = f'{host}:{port}' if port else host
    login = None
    if parts.username:
        login = (urllib.parse.unquote(parts.username),
                 urllib.parse.unquote(parts.password or ''))
    base_url = f'{parts.scheme}://{netloc}{parts.path.rstrip("/")}'
    return base_url, f'Prometheus at {base_url}', login


def _find_failure_reason(error: BaseException) -> str:
    """Return why a connection failed, in a few words and without addresses."""
    causes: list[Any] = [error]
    for item in causes:
        if isinstance(item, OSError) and not isinstance(item, requests.RequestException) \
                and item.strerror:
            return answer.clean_text(item.strerror, 120)
        for inner in (*getattr(item, 'args', ()), getattr(item, 'reason', None),
                      getattr(item, '__cause__', None), getattr(item, '__context__', None)):
            if isinstance(inner, BaseException) and inner not in causes and len(causes) < 20:
                causes.append(inner)
    return type(causes[-1]).__name__
