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


"""Scores from the Prometheus HTTP API (Thanos, Mimir and VictoriaMetrics too).

A result has the complete answer, or says why not; nothing in between. Every query has one
deadline for all its attempts, a cap on bytes and on series, and follows no redirect. No message
contains a secret.
"""

import base64
from collections.abc import Mapping
import dataclasses
import statistics
import time
from typing import Any
import urllib.parse

from oslo_config import cfg
from oslo_log import log as logging
import requests
import tenacity

from kronos_nova import exception
from kronos_nova import http_sessions
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import secret_mask
from kronos_nova.sources import answer
from kronos_nova.sources import base
from kronos_nova.sources import deadline
from kronos_nova.sources import ranges

LOG = logging.getLogger(__name__)

CHUNK = 65536


class _AttemptFailed(Exception):
    """A failed attempt; another attempt would fail the same way."""

    health = model.SourceHealth.PARTIAL


class _ServerUnreachable(_AttemptFailed):
    """A failed attempt: no Prometheus is at the address, or it refuses our login."""

    health = model.SourceHealth.UNREACHABLE


class _PassingFailure(_ServerUnreachable):
    """A failed attempt; the next one may succeed."""


class _TooMuch(_AttemptFailed):
    """An answer that is too large; one over less time may not be."""


class _AnswerLate(_ServerUnreachable):
    """An answer that did not come in time; one over less time may come."""


class _ServerBusy(_PassingFailure):
    """An error answer: Prometheus gave up on the query."""


class PrometheusSource(base.ScoreSource):
    """A source that asks instant queries at the server's own time.

    :param conf: with the group [prometheus].
    :raises ConfigError: the URL or a credential cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf.prometheus
        self._base, self._shown, self._login = _parse_address(_read_url(conf))
        if self._conf.username:
            self._login = (self._conf.username, self._conf.password or '')
        self._session = http_sessions.HttpSession()
        self._bound = deadline.BoundedCalls()
        self._token = ''

    # The contract.

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        """Ask every query of one policy; see the base class.

        ``age`` is the median age, by ``age_query``, of the hosts that are not stale. A host whose
        own samples are older than ``staleness_threshold``, or of unknown age, is left out of
        ``imbalance`` as if it had not answered: one dead exporter must not make the others stale.
        An ``age_query`` that returns one series without ``host_label`` gives the age of all hosts
        together.
        """
        taken_at = time.time()
        imbalance = self.query(policy.imbalance_query, policy.host_label)
        asked: dict[str, model.QueryResult | None] = {}
        for name, query, label in (
                ('profile', policy.vm_profile_query if profile else None,
                 policy.vm_profile_label),
                ('capacity', policy.capacity_query if profile or policy.boot_ceiling is not None
                 else None, policy.host_label),
                ('host_capacity', policy.host_capacity_query if profile else None,
                 policy.host_label),
                ('mean', policy.vm_mean_query if profile else None, policy.vm_profile_label),
                ('deviation', policy.vm_deviation_query if profile else None,
                 policy.vm_profile_label),
                ('dirty_rate', policy.vm_dirty_rate_query if profile else None,
                 policy.vm_profile_label),
                ('ages', policy.age_query, policy.host_label)):
            if query is None:
                asked[name] = None
            elif imbalance.health is model.SourceHealth.UNREACHABLE:
                asked[name] = model.QueryResult(query, imbalance.health, error=imbalance.error)
            else:
                asked[name] = self.query(query, label, sole=name == 'ages')
        age = None
        if (ages := asked.pop('ages')) is not None and imbalance.error is None:
            imbalance, age = apply_ages(imbalance, ages, self._conf.staleness_threshold)
        return model.PolicySamples(
            policy=policy.name, imbalance=imbalance, age=age, taken_at=taken_at, asked_ago=0.0,
            **asked)

    def health(self) -> tuple[model.SourceHealth, str]:
        try:
            body = self._ask('GET', '/api/v1/status/runtimeinfo', None)
        except _ServerUnreachable as e:
            return e.health, str(e)
        except _AttemptFailed:
            # Thanos, Mimir and VictoriaMetrics have no such page.
            result = self.query('vector(1)', '')
            if result.error is None:
                return model.SourceHealth.HEALTHY, f'{self._shown} answers queries'
            return result.health, result.error
        try:
            data = answer.parse_success_data(body)
        except answer.MalformedAnswer as e:
            return model.SourceHealth.PARTIAL, self._hide_credentials(f'{self._shown}: {e}')
        text = f'{self._shown} answers'
        if isinstance(data, dict) and data.get('reloadConfigSuccess') is False:
            text += ', but its last configuration reload failed'
        return model.SourceHealth.HEALTHY, text

    def close(self) -> None:
        self._session.close()

    # One query.

    def query(self, query: str, label: str, sole: bool = False,
              at: float | None = None) -> model.QueryResult:
        """Ask one instant query; faults of the server raise nothing.

        :param label: the label whose value becomes the key; '' keeps no series and only checks
            that the server answers.
        :param sole: one series without the label is allowed; its key is ''.
        :param at: epoch seconds; None: the server's own time.
        """
        try:
            body = self._ask('POST', '/api/v1/query', {
                'query': query, **({} if at is None else {'time': f'{at:.3f}'})})
        except _AttemptFailed as e:
            return model.QueryResult(query, e.health, error=str(e))
        try:
            return self._hide_in_result(
                answer.parse_vector(query, label, body, self._conf.max_series, sole))
        except answer.MalformedAnswer as e:
            return model.QueryResult(query, model.SourceHealth.PARTIAL,
                                     error=self._hide_credentials(str(e)))

    def check_syntax(self, query: str) -> model.QueryResult:
        """Evaluate one query at the beginning of time, where no samples are; see the base class.

        Not every server has another way to parse a query.
        """
        return self.query(query, '', at=0.0)

    # One query over time.

    def query_range(self, query: str, label: str, mark: str, window: ranges.QueryWindow,
                    progress: ranges.Progress = ranges.ignore_progress) -> ranges.RangeResult:
        """Ask one query over time, in parts; see the base class.

        Each part keeps the limits of one query (time, retries, bytes, series). A part that
        exceeds them is halved.
        """
        def fetch_part(part: ranges.QueryWindow) -> bytes:
            return self._ask('POST', '/api/v1/query_range', {
                'query': query, 'start': f'{part.start:.3f}', 'end': f'{part.end:.3f}',
                'step': f'{part.step:.3f}'})

        collected = ranges.RangeCollector(query, label, mark, window, self._conf.max_series)
        try:
            for part, body in ranges.fetch_parts(window, fetch_part, self._conf.max_body_bytes,
                                                 (_TooMuch, _AnswerLate, _ServerBusy)):
                collected.add(answer.parse_matrix(body, self._conf.max_series))
                progress(part.count)
        except (_AttemptFailed, answer.MalformedAnswer) as e:
            return ranges.RangeResult(query, window, error=self._hide_credentials(str(e)))
        except ranges.TooManySeries:
            return ranges.RangeResult(query, window, error=(
                f'it has more than max_series ({self._conf.max_series}) series from first to '
                'last; aggregate the query, raise the option or ask for less time'))
        return collected.result()

    def _ask(self, method: str, path: str, form: dict[str, str] | None) -> bytes:
        """Return the body of a successful answer.

        :raises _AttemptFailed: says why, fit for an operator.
        """
        seconds = self._conf.timeout
        end = time.monotonic() + seconds
        try:
            return self._bound.call(
                lambda: self._fetch_with_retries(method, path, form, end), end - time.monotonic())
        except deadline.DeadlineExceeded:
            # The hanging call keeps its connection; the next query gets a new one.
            self._session = http_sessions.HttpSession()
            raise _AnswerLate(f'{self._shown} did not answer within {seconds:g} s') from None
        except deadline.TooManyHanging as e:
            raise _ServerUnreachable(f'{self._shown}: {e}') from None

    def _fetch_with_retries(self, method: str, path: str, form: dict[str, str] | None,
                            end: float) -> bytes:
        often_enough = tenacity.stop_after_attempt(self._conf.max_retries + 1)

        def in_vain(state: tenacity.RetryCallState) -> bool:
            """Return whether to give up; also when the wait would outlast the query."""
            return often_enough(state) or time.monotonic() + state.upcoming_sleep >= end

        retrying = tenacity.Retrying(
            stop=in_vain, wait=tenacity.wait_exponential(multiplier=self._conf.retry_backoff),
            retry=tenacity.retry_if_exception_type(_PassingFailure), reraise=True)

        def fetch_once() -> bytes:
            left = max(0.001, end - time.monotonic())
            return self._send_request(method, path, form, left, end)

        return retrying(fetch_once)

    def _send_request(self, method: str, path: str, form: dict[str, str] | None, left: float,
                      end: float) -> bytes:
        headers = {'Accept': 'application/json', 'Accept-Encoding': 'identity',
                   **self._build_auth_header()}
        if form is not None:
            form = {**form, 'timeout': f'{max(1, int(left * 1000))}ms'}
        try:
            with self._session.request(
                    method, self._base + path, data=form, headers=headers,
                    auth=None if 'Authorization' in headers else self._encode_login(),
                    timeout=left, stream=True, allow_redirects=False,
                    verify=self._choose_verification()) as response:
                return self._read_answer(response, end)
        except requests.exceptions.SSLError as e:
            raise _ServerUnreachable(
                f'{self._shown}: TLS failed ({_find_failure_reason(e)}); check ca_cert and the '
                'certificate') from None
        except requests.Timeout:
            raise _PassingFailure(f'{self._shown} did not answer within {left:.1f} s') from None
        except requests.RequestException as e:
            raise _PassingFailure(f'{self._shown} cannot be reached '
                                  f'({_find_failure_reason(e)})') from None
        except OSError as e:
            raise _ServerUnreachable(f'{self._shown}: {e.strerror or type(e).__name__} '
                                     '(is ca_cert a readable file?)') from None

    def _read_answer(self, response: requests.Response, end: float) -> bytes:
        status = response.status_code
        if 300 <= status < 400:
            raise _ServerUnreachable(f'{self._shown} redirects ({status}), which is not followed; '
                                     'set url in [prometheus] to the final address')
        if status in (401, 403):
            raise _ServerUnreachable(f'{self._shown} refuses our credentials ({status}); check '
                                     'username, password and bearer token in [prometheus]')
        if response.headers.get('Content-Encoding', 'identity') != 'identity':
            raise _AttemptFailed(f'{self._shown} compresses its answer although not asked to')
        is_json = response.headers.get('Content-Type', '').split(';')[0].strip().lower() \
            == 'application/json'
        body = self._read(response, end) if is_json else b''
        problem = self._hide_credentials(answer.find_error_text(body))
        if status == 503 and 'timed out' in problem:
            raise _ServerBusy(f'{self._shown} answers {status} {problem}')
        if status >= 500 or status == 429:
            raise _PassingFailure(f'{self._shown} answers {status} {problem}'.rstrip())
        if status == 422 and 'too many samples' in problem:
            raise _TooMuch(f'{self._shown} answers {status} {problem}')
        if status >= 400:
            raise _AttemptFailed(f'{self._shown} answers {status} {problem}'.rstrip())
        if status != 200 or not is_json:
            raise _AttemptFailed(f'{self._shown} does not answer in JSON ({status}); is url the '
                                 'address of a Prometheus?')
        return body

    def _read(self, response: requests.Response, end: float) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(CHUNK):
            body += chunk
            if len(body) > self._conf.max_body_bytes:
                raise _TooMuch(f'{self._shown}: the answer is larger than max_body_bytes '
                              f'({self._conf.max_body_bytes}); aggregate the query')
            if time.monotonic() > end:
                raise _AnswerLate(f'{self._shown} did not finish its answer in time')
        return bytes(body)

    def _choose_verification(self) -> bool | str:
        return self._conf.ca_cert or True if self._conf.verify_ssl else False

    def _encode_login(self) -> Any:
        return tuple(part.encode() for part in self._login) if self._login else None

    def _hide_credentials(self, text: str) -> str:
        """Mask our credentials: a server, or a proxy before it, may repeat a request."""
        known = {self._token}
        if self._login:
            known |= {self._login[1], ':'.join(self._login), base64.b64encode(
                ':'.join(self._login).encode()).decode()}
        return secret_mask.hide_secrets(text, known)

    def _hide_in_result(self, result: model.QueryResult) -> model.QueryResult:
        return dataclasses.replace(
            result, error=None if result.error is None else self._hide_credentials(result.error),
            warnings=tuple(map(self._hide_credentials, result.warnings)),
            missing_labels=tuple(map(self._hide_credentials, result.missing_labels)))

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
                raise _ServerUnreachable(f'bearer_token_file cannot be read ({why})') from None
        token = (token or '').strip()
        self._token = token
        if not token:
            if name == 'bearer_token_file':
                raise _ServerUnreachable('bearer_token_file is empty')
            return {}
        if not all('!' <= c <= '~' for c in token):
            raise _ServerUnreachable(f'{name} holds characters that no HTTP header may carry')
        return {'Authorization': f'Bearer {token}'}


def apply_ages(imbalance: model.QueryResult, ages: model.QueryResult,
               staleness: float) -> tuple[model.QueryResult, float | None]:
    """Leave stale hosts out, and compute the age of the others.

    :returns: ``imbalance`` without hosts older than ``staleness`` seconds or of unknown age (an
        error when the ages themselves are not known), and the median age of the hosts that stay.
        When none would stay, all stay and the age is the youngest host's: the policy is stale.
    """
    def make_failure(why: str, health: model.SourceHealth) -> tuple[model.QueryResult, None]:
        return model.QueryResult(imbalance.query, health, error=f'age_query: {why}',
                                 warnings=imbalance.warnings), None

    if ages.error is not None:
        return make_failure(ages.error, ages.health)
    if set(ages.series) == {''}:
        ages = dataclasses.replace(ages, series=dict.fromkeys(imbalance.series, ages.series['']))
    known = {label: max(0.0, age) for label, age in ages.series.items()
             if label in imbalance.series}
    if not known:
        if not imbalance.series:
            return imbalance, None
        return make_failure('it names no host of imbalance_query; both must return the same label',
                            model.SourceHealth.PARTIAL)
    fresh = {label: age for label, age in known.items() if age <= staleness}
    if not fresh:
        youngest = min(known.values())
        return _replace_series(imbalance, imbalance.series, model.SourceHealth.STALE,
                               f'every host\'s samples are older than {staleness:g} s'), youngest
    left_out = sorted(label for label in imbalance.series if label not in fresh)
    if left_out:
        shown = ', '.join(answer.clean_text(label, 64) for label in left_out[:5])
        imbalance = _replace_series(
            imbalance, {k: v for k, v in imbalance.series.items() if k in fresh},
            model.SourceHealth.PARTIAL,
            f'{len(left_out)} hosts have stale samples or none of known age, treated as '
            f'missing: {shown}')
    return imbalance, statistics.median(fresh.values())


def _replace_series(result: model.QueryResult, series: Mapping[str, float],
                    health: model.SourceHealth,
                    warning: str) -> model.QueryResult:
    return dataclasses.replace(result, series=series, health=health,
                               warnings=(*result.warnings, warning))


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
    seen: list[Any] = [error]
    for item in seen:
        if isinstance(item, OSError) and not isinstance(item, requests.RequestException) \
                and item.strerror:
            return answer.clean_text(item.strerror, 120)
        for inner in (*getattr(item, 'args', ()), getattr(item, 'reason', None),
                      getattr(item, '__cause__', None), getattr(item, '__context__', None)):
            if isinstance(inner, BaseException) and inner not in seen and len(seen) < 20:
                seen.append(inner)
    return type(seen[-1]).__name__
