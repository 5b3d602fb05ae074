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

"""An engine's reader of past write rates, beside its cycles.

A cycle uses the answers that have come, and asks for those that are missing.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import threading

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.sources import base
from kronos_nova.sources import deadline

LOG = logging.getLogger(__name__)
#: Seconds that a drain waits at most for the rates of an instance that it has not seen before.
PATIENCE = 300.0
#: Seconds between two questions for a scope, at least.
PAUSE = 120.0
#: Seconds after which an answer is too old to decide by.
KEEP_SECONDS = 86400.0


@dataclasses.dataclass(slots=True)
class _PastRates:
    """The rates of one instance, as far as they are known.

    ``seen``: when a cycle first expected it not to converge. ``needed_at``: when one did so last.
    ``asked_at``: the time of the question that was answered; None: none was.
    """

    seen: float
    needed_at: float
    asked_at: float | None = None
    rates: write_rates.HourlyRates = ()

    def is_current(self, now: float) -> bool:
        """Return whether the answer is of this hour."""
        return self.asked_at is not None and (
            quiet_hours.begin_hour(self.asked_at) == quiet_hours.begin_hour(now))


class WriteRateReader:
    """A reader that asks one question at a time, in a thread of its own.

    An answer serves until a later one comes; the reader repeats a question that fails.

    :param stopping: set when the engine stops; then the reader asks no more.
    """

    def __init__(self, conf: cfg.ConfigOpts, source: base.MetricsSource,
                 stopping: threading.Event) -> None:
        self._conf = conf
        self._source = source
        self._stopping = stopping
        self._calls = deadline.BoundedCalls()
        self._lock = threading.Lock()
        self._known: dict[str, _PastRates] = {}
        self._asked_at: dict[str, float] = {}
        self._question: threading.Thread | None = None

    def add_rates(self, history: model.MoveHistory, cluster: model.Cluster,
                  samples: Mapping[str, model.PolicySamples], policy_set: policies.PolicySet,
                  now: float) -> model.MoveHistory:
        """Return the history with what decides which instances wait for a quieter hour.

        Wait for nothing.

        :param cluster: with its scope set.
        """
        risky = write_rates.list_risky_instances(self._conf, policy_set, cluster, samples, history)
        with self._lock:
            for uuid in risky:
                self._known.setdefault(uuid, _PastRates(now, now)).needed_at = now
            self._known = {uuid: past for uuid, past in self._known.items()
                           if abs(now - past.needed_at) < quiet_hours.HOUR}
            missing = [uuid for uuid in risky if not self._known[uuid].is_current(now)]
        history = self.add_known_rates(history, now)
        if missing and abs(now - self._asked_at.get(cluster.scope, -PAUSE)) >= PAUSE:
            self._begin_question(cluster, policy_set, missing, now)
        return history

    def add_known_rates(self, history: model.MoveHistory, now: float) -> model.MoveHistory:
        """Return the history with the answers that have come."""
        with self._lock:
            if not self._known:
                return history
            rates = {uuid: past.rates for uuid, past in self._known.items()
                     if past.asked_at is not None and abs(now - past.asked_at) < KEEP_SECONDS}
            awaited = {uuid: past.seen + PATIENCE for uuid, past in sorted(self._known.items())
                       if past.asked_at is None and past.seen <= now < past.seen + PATIENCE}
        return write_rates.replace_rates(self._conf, history, rates, now, awaited)

    def wait_for_answer(self) -> None:
        """Wait until the present question has ended, at most its time."""
        question = self._question
        if question is not None:
            question.join(2 * write_rates.ANSWER_SECONDS)

    def _begin_question(self, cluster: model.Cluster, policy_set: policies.PolicySet,
                        uuids: Sequence[str], now: float) -> None:
        """Ask in a thread, unless an earlier question is still open or the engine stops."""
        if self._stopping.is_set() or (self._question is not None and self._question.is_alive()):
            return
        self._asked_at[cluster.scope] = now
        self._question = threading.Thread(
            target=self._ask, args=(cluster, policy_set, uuids, now), name='kronos-write-rates',
            daemon=True)
        self._question.start()

    def _ask(self, cluster: model.Cluster, policy_set: policies.PolicySet, uuids: Sequence[str],
             now: float) -> None:
        try:
            answer = write_rates.read_rates(self._source, policy_set, cluster, uuids, now,
                                            calls=self._calls, is_stopping=self._stopping.is_set)
        except Exception:
            if not self._stopping.is_set():  # else the engine has closed its source
                LOG.exception('Past write rates could not be read, for a reason that is a defect '
                              'of ours')
            return
        if self._stopping.is_set():
            return
        with self._lock:
            for uuid, rates in answer.rates.items():
                if (past := self._known.get(uuid)) is not None:
                    past.asked_at, past.rates = now, rates
        if answer.error is not None:
            LOG.warning('Scope %s: vm_dirty_rate_query over the last day failed, another '
                        'question follows: %s', cluster.scope, answer.error)
        unknown = sum(not rates for rates in answer.rates.values())
        if unknown:
            LOG.info('Scope %s: %s of drains wait for no quieter hour: vm_dirty_rate_query has no '
                     'samples of the last day', cluster.scope,
                     plurals.count_noun(unknown, 'instance'))
