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

"""A source that all workers of a host share: its answers go through the cache.

Every worker of nova-scheduler has this source before its own. A worker that finds no answer of this
interval takes the lease, queries, and puts the answer into the cache; the others wait for the
answer. A lease that is not ended expires, so that another worker queries when the holder has died.
When the cache fails, each worker queries its own source in the end.

Times in the cache are those of the monotonic clock, which all processes of a host share since it
booted. Keys hold the boot's id, so that hosts which share a memcached do not read each other's
answers. Steps of the wall clock do not matter.
"""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import time
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.feed import byte_stores
from kronos_nova.feed import raw_cache
from kronos_nova.sources import answer
from kronos_nova.sources import base

LOG = logging.getLogger(__name__)

PREFIX = 'kronos_nova.samples'
VERSION = 1
BOOT_ID = pathlib.Path('/proc/sys/kernel/random/boot_id')
#: Seconds between two reads for the answer of another worker; and seconds within
#: which workers that take the lease at the same time see the holder.
POLL = 0.2
SETTLE = 0.25
#: Characters of a text in an answer; the text gets into the log.
MAX_TEXT = 1000
RESULTS = ('imbalance', 'capacity', 'host_capacity')


class SharedMetricsSource(base.MetricsSource):
    """A source that takes another worker's answer on this host, else its own source's.

    :param conf: with the groups [kronos], [prometheus], [cache] and [kronos_channel].
    :param source: this worker's own.
    """

    def __init__(self, conf: cfg.ConfigOpts, source: base.MetricsSource) -> None:
        self._source = source
        self._interval = float(conf.kronos.refresh_interval)
        self._patience = float(conf.prometheus.timeout)
        self._max_series = int(conf.prometheus.max_series)
        # Each Prometheus has an answer of its own.
        self._of = f'{conf.kronos.source} {conf.prometheus.url}'
        self._boot = _read_boot_id()
        self._conf = conf
        self._has_warned = False

    @functools.cached_property
    def _cache(self) -> raw_cache.RawCache:
        """The cache, opened at the first use: a server may be unavailable."""
        return raw_cache.RawCache(self._conf)

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        """Return samples as the base class does; with ``profile`` never a shared answer."""
        if profile or not self._boot:
            return self._source.fetch(policy, profile=profile)
        since, key = time.monotonic(), self._build_cache_key(policy)
        try:
            if (shared_samples := self._wait(key, policy, since)) is not None:
                return shared_samples
        except Exception as e:
            # A failing cache must not cost the scores.
            self._warn_once(e)
        asked_at, text = time.monotonic(), None
        try:
            samples = self._source.fetch(policy, profile=False)
            text = dump_samples(samples, asked_at)
            return samples
        finally:
            self._publish_answer(key, text)

    def health(self) -> tuple[model.SourceHealth, str]:
        return self._source.health()

    def close(self) -> None:
        self._source.close()

    def _wait(self, key: str, policy: policies.Policy,
              since: float) -> model.PolicySamples | None:
        """Return the answer of another worker; None: this worker must query."""
        while time.monotonic() < since + self._patience:
            if (samples := self._read(key, policy, since)) is not None:
                return samples
            holder = self._find_lease_holder(key)
            if holder is None:
                holder, token = self._take_lease(key)
                if holder is None:
                    raise LookupError('it keeps nothing; set [kronos_channel] servers')
                if holder == token:
                    # A worker that was slow to take it may find the answer there.
                    return self._read(key, policy, since)
            time.sleep(POLL)
        return None

    def _publish_answer(self, key: str, text: str | None) -> None:
        """Put the answer, if any, into the cache, and end the lease."""
        try:
            if text is not None:
                self._write_answer(key, text)
        except Exception as e:
            self._warn_once(e)
        try:
            # Also without an answer: the others wait for the lease to end.
            self._cache.delete(_build_lease_key(key))
        except Exception as e:
            self._warn_once(e)

    def _write_answer(self, key: str, text: str) -> None:
        self._cache.set(key, text)
        if self._cache.get(key) != text:
            # Some clients of memcached drop a value that is too large, without an error.
            raise LookupError(f'it does not keep an answer of {len(text)} bytes; let it keep '
                              'larger items (memcached -I 8m)')

    def _read(self, key: str, policy: policies.Policy,
              since: float) -> model.PolicySamples | None:
        try:
            value = self._cache.get(key)
        except byte_stores.RecordRefused as e:
            LOG.debug('kronos: %s', e)
            return None
        if value is None:
            return None
        try:
            return read_answer(value, policy, since, time.monotonic(), self._interval,
                               self._max_series)
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError, OverflowError):
            return None  # not ours: this worker will overwrite it

    def _find_lease_holder(self, key: str) -> str | None:
        """Return the token of the worker that holds the lease; None without one."""
        try:
            value = self._cache.get(_build_lease_key(key))
        except byte_stores.RecordRefused as e:
            LOG.debug('kronos: %s', e)
            return None
        if value is None:
            return None
        token, _, until = value.partition(' ')
        try:
            seconds_left = float(until) - time.monotonic()
        except ValueError:
            return None
        return token if 0.0 < seconds_left <= self._patience else None

    def _take_lease(self, key: str) -> tuple[str | None, str]:
        """Try to take the lease; return its holder's token, and our own token."""
        token = uuid.uuid4().hex
        until = time.monotonic() + min(self._patience, self._interval)
        self._cache.set(_build_lease_key(key), f'{token} {until:.3f}')
        time.sleep(SETTLE)
        return self._find_lease_holder(key), token

    def _build_cache_key(self, policy: policies.Policy) -> str:
        text = f'{VERSION} {self._boot} {self._of} {policy.model_dump_json()}'
        return f'{PREFIX}.{hashlib.sha256(text.encode()).hexdigest()}'

    def _warn_once(self, why: Exception) -> None:
        if not self._has_warned:
            LOG.warning('kronos: share_scores is set, but the cache cannot be used, and each '
                        'worker asks the source: %s: %s', type(why).__name__, why)
        self._has_warned = True


def dump_samples(samples: model.PolicySamples, asked_at: float) -> str:
    """Return an answer as text for the cache.

    :param asked_at: time of the query, on the monotonic clock.
    """
    return json.dumps({
        'version': VERSION, 'asked_at': asked_at, 'policy': samples.policy,
        'age': samples.age, 'taken_at': samples.taken_at,
        **{name: _dump_result(getattr(samples, name)) for name in RESULTS}})


def read_answer(value: Any, policy: policies.Policy, since: float, now: float,
                interval: float, max_series: int) -> model.PolicySamples | None:
    """Return the answer in the cache; None if it is not of this interval.

    :param since: time from which the answer is wanted: ``asked_ago`` counts from there.
    :param max_series: limit of one answer, as of one of Prometheus.
    :raises ValueError, KeyError, TypeError, AttributeError, OverflowError: the value is not one of
        ours.
    """
    document = json.loads(value, parse_constant=_refuse_constant)
    if document['version'] != VERSION or document['policy'] != policy.name:
        raise ValueError('written by another version, or for another policy')
    asked_at = _parse_number(document['asked_at'])
    if not 0.0 <= now - asked_at < interval:
        return None
    results = {name: _parse_result(document[name], max_series) for name in RESULTS}
    imbalance = results['imbalance']
    if imbalance is None or imbalance.query != policy.imbalance_query:
        raise ValueError('it answers another query')
    age = None if document['age'] is None else _parse_number(document['age'])
    if age is not None and age < 0:
        # A negative age would make the scores last for ever.
        raise ValueError('samples are not from the future')
    return model.PolicySamples(
        policy.name, imbalance, capacity=results['capacity'],
        host_capacity=results['host_capacity'], age=age,
        taken_at=_parse_number(document['taken_at']), asked_ago=max(0.0, since - asked_at))


def _dump_result(result: model.QueryResult | None) -> dict[str, Any] | None:
    return None if result is None else {
        field.name: value if isinstance(value := getattr(result, field.name), (str, tuple))
        or value is None else dict(value) for field in dataclasses.fields(result)}


def _parse_result(document: Any, max_series: int) -> model.QueryResult | None:
    if document is None:
        return None
    query, error = document['query'], document['error']
    if not isinstance(query, str) or not (error is None or isinstance(error, str)):
        raise ValueError('a result is malformed')
    if len(document['series']) > max_series or (error is not None and document['series']):
        raise ValueError('a result has more series than it may have')
    return model.QueryResult(
        query, model.SourceHealth(document['health']),
        series={name: _parse_number(value) for name, value in document['series'].items()},
        error=None if error is None else answer.clean_text(error, MAX_TEXT),
        warnings=_parse_clean_texts(document['warnings']),
        missing_labels=_parse_clean_texts(document['missing_labels']),
        duplicates=_parse_texts(document['duplicates']))


def _parse_texts(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError('a list of texts is malformed')
    return tuple(texts)


def _parse_clean_texts(texts: Any) -> tuple[str, ...]:
    return tuple(answer.clean_text(text, MAX_TEXT) for text in _parse_texts(texts))


def _parse_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) \
            or not math.isfinite(value):
        raise ValueError('it is not a finite number')
    return float(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _build_lease_key(key: str) -> str:
    return f'{key}.lease'


def _read_boot_id() -> str:
    """Return the id of the host's boot, or '' where the system has no such file."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ''
