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

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.sources import deadline

LOG = logging.getLogger(__name__)
#: Seconds that a drain waits at most for the rates of an instance that it has not seen before, and
#: for which the last known present rate of an instance serves.
PATIENCE = 300.0
#: Seconds between two questions for a scope, at least.
PAUSE = 120.0
#: Seconds after which an answer is too old to decide by.
KEEP_SECONDS = 86400.0


@dataclasses.dataclass(slots=True)
class _LoudInstance:
    """The rates of one instance of a drain, as far as they are known.

    ``seen``: when a cycle first expected it not to converge. ``needed_at``: when one did so last.
    ``rate``: the present rate of ``measured_at``. ``asked_at``: the time of the question that was
    answered; None: none was.
    """

    scope: str
    seen: float
    needed_at: float
    rate: float
    measured_at: float
    asked_at: float | None = None
    rates: write_rates.HourlyRates = ()

    def is_current(self, now: float) -> bool:
        """Return whether the answer is of this hour."""
        return self.asked_at is not None and (
            quiet_hours.begin_hour(self.asked_at) == quiet_hours.begin_hour(now))


class WriteRateReader:
    """A reader that asks for each scope in a thread of its own, one question at a time.

    An answer serves until a later one comes; the reader repeats a question that fails. Each
    question has a source of its own: one that hangs holds up no query of a cycle.

    :param stopping: set when the engine stops; then the reader asks no more.
    :param single_cycle: no cycle follows: the reader waits for its answers, and no drain waits for
        one.
    """

    def __init__(self, conf: cfg.ConfigOpts, stopping: threading.Event, *,
                 single_cycle: bool) -> None:
        self._conf = conf
        self._stopping = stopping
        self._single_cycle = single_cycle
        self._calls = deadline.BoundedCalls()
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._known: dict[str, _LoudInstance] = {}
        self._asked_at: dict[str, float] = {}
        self._failed = False
        self._questions: dict[str, threading.Thread] = {}

    def add_rates(self, history: model.MoveHistory, cluster: model.Cluster,
                  samples: Mapping[str, model.PolicySamples], policy_set: policies.PolicySet,
                  now: float) -> model.MoveHistory:
        """Return the history with what decides which instances wait for a quieter hour.

        Wait for nothing, unless this is the only cycle.

        :param cluster: with its scope set.
        """
        scope, hosts = cluster.scope, write_rates.list_waiting_hosts(self._conf, cluster)
        missing = [] if not hosts else self._note_loud_instances(
            cluster, history, write_rates.map_present_rates(policy_set, cluster, samples), hosts,
            now)
        with self._lock:
            self._known = {uuid: loud for uuid, loud in self._known.items()
                           if abs(now - loud.needed_at) < quiet_hours.HOUR}
        if self._single_cycle:
            if missing and not self._failed:
                self._begin_question(cluster, policy_set, missing, now)
                self.wait_for_answers()
            return self.add_known_rates(history, scope, now)
        history = self.add_known_rates(history, scope, now)
        if missing and abs(now - self._asked_at.get(scope, -PAUSE)) >= PAUSE:
            self._begin_question(cluster, policy_set, missing, now)
        return history

    def add_known_rates(self, history: model.MoveHistory, scope: str,
                        now: float) -> model.MoveHistory:
        """Return the history of a scope with the rates that are known."""
        with self._lock:
            known = {uuid: loud for uuid, loud in sorted(self._known.items())
                     if loud.scope == scope}
            if not known:
                return history
            rates = {uuid: loud.rates for uuid, loud in known.items()
                     if loud.asked_at is not None and abs(now - loud.asked_at) < KEEP_SECONDS}
            awaited = {uuid: loud.seen + PATIENCE for uuid, loud in known.items()
                       if loud.asked_at is None and loud.seen <= now < loud.seen + PATIENCE}
            last = {uuid: loud.rate for uuid, loud in known.items()
                    if abs(now - loud.measured_at) < PATIENCE}
        return dataclasses.replace(
            write_rates.replace_rates(self._conf, history, rates, now),
            awaited_write_rates={} if self._single_cycle else awaited, last_write_rates=last)

    def wait_for_answers(self) -> None:
        """Wait until the present questions have ended, at most their time."""
        for question in self._questions.values():
            question.join(2 * write_rates.ANSWER_SECONDS)

    def _note_loud_instances(self, cluster: model.Cluster, history: model.MoveHistory,
                             present: Mapping[str, float], hosts: Sequence[str],
                             now: float) -> list[str]:
        """Note the instances that are not expected to converge; return those without an answer.

        An instance whose present rate is missing keeps its last one for some minutes.
        """
        with self._lock:
            last = {uuid: loud.rate for uuid, loud in self._known.items()
                    if uuid not in present and abs(now - loud.measured_at) < PATIENCE}
            risky = write_rates.list_risky_instances(self._conf, cluster, {**present, **last},
                                                     history, hosts)
            for uuid in risky:
                loud = self._known.setdefault(uuid, _LoudInstance(
                    cluster.scope, now, now, present.get(uuid, 0.0), now))
                loud.scope, loud.needed_at = cluster.scope, now
                if uuid in present:
                    loud.rate, loud.measured_at = present[uuid], now
            return [uuid for uuid in risky if not self._known[uuid].is_current(now)]

    def _begin_question(self, cluster: model.Cluster, policy_set: policies.PolicySet,
                        uuids: Sequence[str], now: float) -> None:
        """Ask in a thread, unless an earlier question of the scope is open or the engine stops."""
        earlier = self._questions.get(cluster.scope)
        if self._stopping.is_set() or (earlier is not None and earlier.is_alive()):
            return
        self._asked_at[cluster.scope] = now
        question = self._questions[cluster.scope] = threading.Thread(
            target=self._ask, args=(cluster, policy_set, uuids, now), name='kronos-write-rates',
            daemon=True)
        question.start()

    def _ask(self, cluster: model.Cluster, policy_set: policies.PolicySet, uuids: Sequence[str],
             now: float) -> None:
        with self._turn:
            if self._stopping.is_set():
                return
            try:
                answer = self._read_rates(policy_set, cluster, uuids, now)
            except exception.KronosException as e:
                answer = write_rates.RateAnswer(error=str(e))
            except Exception as e:
                answer = write_rates.RateAnswer(error=f'{type(e).__name__}, a defect of ours')
                LOG.exception('Past write rates could not be read, for a reason that is a defect '
                              'of ours')
        if not self._stopping.is_set():
            self._keep_answer(cluster.scope, answer, now)

    def _read_rates(self, policy_set: policies.PolicySet, cluster: model.Cluster,
                    uuids: Sequence[str], now: float) -> write_rates.RateAnswer:
        source = plugins.load_plugin(plugins.SOURCES, self._conf.engine.source)(self._conf)
        try:
            return write_rates.read_rates(source, policy_set, cluster, uuids, now,
                                          calls=self._calls, is_stopping=self._stopping.is_set)
        finally:
            source.close()

    def _keep_answer(self, scope: str, answer: write_rates.RateAnswer, now: float) -> None:
        with self._lock:
            for uuid, rates in answer.rates.items():
                if (loud := self._known.get(uuid)) is not None:
                    loud.asked_at, loud.rates = now, rates
        if answer.error is not None:
            self._failed = True
            LOG.warning('Scope %s: vm_dirty_rate_query over the last day failed: %s', scope,
                        answer.error)
        unknown = sum(not rates for rates in answer.rates.values())
        if unknown:
            LOG.info('Scope %s: %s of drains wait for no quieter hour: vm_dirty_rate_query has no '
                     'samples of the last day', scope, plurals.count_noun(unknown, 'instance'))
