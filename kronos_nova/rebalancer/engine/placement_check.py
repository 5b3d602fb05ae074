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


"""Placement's confirmation of the few moves that a plan has chosen, as Nova will request it.

Rules judge by their own data; Placement knows everything that a scheduler would request. Where it
has no allocation candidate the pair of instance and host is refused, and the scope is planned again
without the pair; how often is bounded. Moves that Placement still refuses then are taken out of the
plan. Planning is deterministic: a refusal that is not remembered is chosen again. So an instance
that is refused on several hosts is left out itself, for others to have the budget, and a request
that twice gets no answer counts as refused.

A move that the rules allow only after other moves is not checked: the room that these free is not
there yet. Pre-flight and Nova's scheduler judge it, as they judge every move.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any, TypeVar

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import relevant_cluster
from kronos_nova.rebalancer.clients import allocation_request
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import candidates_api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.planning import planning_pipeline

LOG = logging.getLogger(__name__)

#: Seconds that a refusal by Placement counts: capacity and traits change.
REFUSED_SECONDS = 900.0
#: Refusals after which an instance is left out itself.
STRIKES = 3
#: Most doublings of the time that an instance is left out. Without them the holds of
#: the first instances would end before the last had had their turn.
DOUBLINGS = 3
_LONGEST = REFUSED_SECONDS * 2 ** DOUBLINGS
#: Seconds that a refusal counts as a strike.
_STRIKE_SECONDS = 4 * REFUSED_SECONDS

Pair = tuple[str, str]
K = TypeVar('K')


class RecentRefusals:
    """Recent refusals by Placement: pairs of instance and host, and instances held on every host.

    All times are in seconds.
    """

    def __init__(self) -> None:
        self._until: dict[Pair, float] = {}
        self._held_until: dict[str, float] = {}
        #: By instance, the times of its refusals since it was last held.
        self._strikes: dict[str, list[float]] = {}
        #: By instance, the number of its holds in a row, and until when that counts.
        self._times: dict[str, tuple[int, float]] = {}

    def add_refusals(self, pairs: Iterable[Pair], now: float, answered: bool = True) -> dict[str,
                                                                                             float]:
        """Remember refused pairs.

        :param answered: Placement refused; False: it did not answer, and an instance gets one
            strike at a time.
        :returns: the instances that are held from now on, and for how long.
        """
        hold_seconds: dict[str, float] = {}
        for uuid, host in pairs:
            self._until[uuid, host] = now + REFUSED_SECONDS
            strikes = self._strikes.setdefault(uuid, [])
            strikes[:] = [at for at in strikes if now - _STRIKE_SECONDS < at <= now]
            if answered or now not in strikes:
                strikes.append(now)
            if len(strikes) >= STRIKES:
                hold_seconds[uuid] = self._hold_instance(uuid, now)
        return hold_seconds

    def _hold_instance(self, uuid: str, now: float) -> float:
        times, counts_until = self._times.get(uuid, (0, 0.0))
        if now >= counts_until:
            times = 0
        seconds = REFUSED_SECONDS * float(2 ** min(times, DOUBLINGS))
        until = now + seconds
        self._held_until[uuid] = until
        self._times[uuid] = times + 1, until + _LONGEST
        del self._strikes[uuid]
        # Other hosts are tried then.
        for pair in self._until:
            if pair[0] == uuid:
                self._until[pair] = until + REFUSED_SECONDS
        return seconds

    def forget_pairs(self, pairs: Iterable[Pair]) -> None:
        """Forget pairs, because the hosts are not to blame.

        The strikes stay: an instance whose requests alone never get an answer is held in the end.
        """
        for pair in pairs:
            self._until.pop(pair, None)

    def clear_strikes(self, uuids: Iterable[str]) -> None:
        """Remove the strikes of instances for which Placement has a candidate."""
        for uuid in uuids:
            self._strikes.pop(uuid, None)
            self._times.pop(uuid, None)

    def map_refused_hosts(self, now: float) -> Mapping[str, frozenset[str]]:
        """Return the refused hosts by instance, for History.refused."""
        self._until = _drop_expired(self._until, now, _LONGEST + REFUSED_SECONDS)
        hosts_by_uuid: dict[str, set[str]] = {}
        for uuid, host in self._until:
            hosts_by_uuid.setdefault(uuid, set()).add(host)
        return {uuid: frozenset(hosts) for uuid, hosts in sorted(hosts_by_uuid.items())}

    def list_refused_everywhere(self, now: float) -> frozenset[str]:
        """Return the held instances, for History.refused_everywhere."""
        self._held_until = _drop_expired(self._held_until, now, _LONGEST)
        self._times = {uuid: known for uuid, known in self._times.items()
                       if now < known[1] <= now + 2 * _LONGEST}
        self._strikes = {uuid: strikes for uuid, strikes in self._strikes.items()
                         if now - _STRIKE_SECONDS < strikes[-1] <= now}
        return frozenset(self._held_until)

    def update_history(self, history: model.MoveHistory, now: float) -> model.MoveHistory:
        return dataclasses.replace(history, refused=self.map_refused_hosts(now),
                                   refused_everywhere=self.list_refused_everywhere(now))


def _drop_expired(until: Mapping[K, float], now: float, longest: float) -> dict[K, float]:
    """Return the entries that still last, even if the clock was set back."""
    return {key: end for key, end in until.items() if now < end <= now + longest}


@dataclasses.dataclass(slots=True)
class _RoundAnswers:
    """Answers to one round of requests: refused pairs with the reason, and unanswered ones.

    Placement confirmed all others.
    """

    refused: dict[Pair, str] = dataclasses.field(default_factory=dict)
    unanswered: dict[Pair, api.ApiError] = dataclasses.field(default_factory=dict)


class _CycleAnswers:
    """The answers of a whole cycle, to judge whether Placement answers at all."""

    def __init__(self) -> None:
        self._asked_uuids: set[str] = set()
        self._unanswered: dict[str, api.ApiError] = {}
        self.pairs: list[Pair] = []

    def count_answers(self, pairs: Iterable[Pair], round_answers: _RoundAnswers) -> None:
        """Count the answers of one round.

        :raises CollectError: of several instances, most have no answer.
        """
        for uuid, _ in pairs:
            self._asked_uuids.add(uuid)
            self._unanswered.pop(uuid, None)
        for (uuid, host), error in round_answers.unanswered.items():
            self._unanswered[uuid] = error
            self.pairs.append((uuid, host))
        if len(self._unanswered) > 1 and 2 * len(self._unanswered) > len(self._asked_uuids):
            self._stop()

    def judge_cycle(self) -> None:
        """Judge the whole cycle.

        :raises CollectError: Placement has answered for no instance.
        """
        if self._asked_uuids and len(self._unanswered) == len(self._asked_uuids):
            self._stop()

    def _stop(self) -> None:
        raise _make_collect_error(next(iter(self._unanswered.values())))


class PlanConfirmation:
    """The confirmation of plans by Placement.

    :param connection: an openstacksdk connection.
    """

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        self._candidates = candidates_api.CandidatesApi(connection)
        self.refusals = RecentRefusals()

    def confirm_outcome(
            self, outcome: planning_pipeline.PassOutcome, now: float,
            replan: Callable[[], planning_pipeline.PassOutcome]) -> planning_pipeline.PassOutcome:
        """Return the outcome, or another one without moves that Placement refuses.

        :param replan: plans the scope again with the present ``refusals``.
        :raises CollectError: Placement cannot be read, or does not answer for most of the moves;
            nothing is moved.
        """
        if not self._conf.engine.confirm_moves:
            return outcome
        answers = _CycleAnswers()
        try:
            outcome = self._confirm_in_rounds(outcome, now, replan, answers)
            answers.judge_cycle()
        except exception.CollectError:
            self.refusals.forget_pairs(answers.pairs)
            raise
        return outcome

    def _confirm_in_rounds(self, outcome: planning_pipeline.PassOutcome, now: float,
                           replan: Callable[[], planning_pipeline.PassOutcome],
                           answers: _CycleAnswers) -> planning_pipeline.PassOutcome:
        conf = self._conf.engine
        asked_pairs: set[Pair] = set()
        warnings: list[str] = []
        for replans_left in range(conf.confirm_max_replans, -1, -1):
            queries = _build_queries(outcome, asked_pairs)
            over = len(asked_pairs) + len(queries) - conf.confirm_max_asks
            if over > 0:
                queries = dict(list(queries.items())[:len(queries) - over])
            asked_pairs |= queries.keys()
            round_answers = self._request_candidates(outcome.cluster, queries)
            dropped = [*round_answers.refused, *round_answers.unanswered]
            self._remember_refusals(round_answers,
                                    [uuid for uuid, _ in queries.keys() - set(dropped)], now)
            answers.count_answers(queries, round_answers)
            warnings += [f'instance {uuid} is not moved to host {host}: Placement was asked for '
                         f'allocation candidates twice and did not answer ({error.problem})'
                         for (uuid, host), error in round_answers.unanswered.items()]
            if over > 0:
                outcome = _add_warnings(outcome, [
                    f'Placement does not confirm {plurals.count_noun(over, "move")}: '
                    f'{conf.confirm_max_asks} are confirmed per cycle ([engine] '
                    'confirm_max_asks)'])
            if not dropped:
                break
            if replans_left:
                outcome = replan()
                continue
            outcome = planning_pipeline.drop_moves(
                outcome, [uuid for uuid, _ in dropped],
                f'{plurals.count_noun(len(dropped), "move")} that Placement refuses '
                f'{plurals.choose_form(len(dropped), "is", "are")} left out (planned again '
                f'{conf.confirm_max_replans} times, [engine] confirm_max_replans); the next '
                'cycle goes on')
        return _add_warnings(outcome, warnings)

    def _request_candidates(self, cluster: model.Cluster,
                            queries: Mapping[Pair, allocation_request.Pairs]) -> _RoundAnswers:
        """Request allocation candidates for each pair.

        :raises CollectError: no request would fare better.
        """
        result = _RoundAnswers()
        if not queries:
            return result
        names = {f'{uuid} {host}': (uuid, host) for uuid, host in queries}

        def read_refusal(name: str) -> str | None:
            pair = names[name]
            own = allocation_request.list_flavor_traits(cluster.instances[pair[0]])
            try:
                return self._candidates.find_refusal(queries[pair], own)
            except api.ApiError as exc:
                if _is_hopeless(exc):
                    raise
            return self._candidates.find_refusal(queries[pair], own)

        with parallel_reads.ReadingContext(self._conf.nova.collect_timeout) as reads:
            answers = reads.read_all('Placement', candidates_api.WHAT, read_refusal, names)
        for name, answer in answers.items():
            if isinstance(answer, api.ApiError):
                if _is_hopeless(answer):
                    raise _make_collect_error(answer)
                result.unanswered[names[name]] = answer
            elif answer is not None:
                result.refused[names[name]] = answer
        return result

    def _remember_refusals(self, round_answers: _RoundAnswers, confirmed: Iterable[str],
                           now: float) -> None:
        for (uuid, host), why in round_answers.refused.items():
            LOG.info('Instance %s: Placement does not confirm host %s, which is left out for '
                     '%.0f s: %s', uuid, host, REFUSED_SECONDS, why)
        for (uuid, host), error in round_answers.unanswered.items():
            LOG.warning('Instance %s: Placement did not answer two requests for allocation '
                        'candidates on host %s; the host is left out for %.0f s, unless '
                        'most requests get no answer: %s', uuid, host, REFUSED_SECONDS,
                        error.problem)
        self.refusals.clear_strikes(confirmed)
        hold_seconds = (self.refusals.add_refusals(round_answers.refused, now)
                        | self.refusals.add_refusals(round_answers.unanswered, now, answered=False))
        for uuid, seconds in hold_seconds.items():
            LOG.warning('Instance %s: Placement has confirmed none of %s that were '
                        'tried last. It is left where it is for %.0f s, and others have their '
                        'turn (rule placement-refuses-everywhere)', uuid,
                        plurals.count_noun(STRIKES, 'host'), seconds)


def _is_hopeless(error: api.ApiError) -> bool:
    """Return whether every other request would fail as well."""
    return error.unreachable or error.status in (401, 403)


def _make_collect_error(error: api.ApiError) -> exception.CollectError:
    return exception.CollectError(service=error.service, what=error.what, problem=error.problem)


def _build_queries(outcome: planning_pipeline.PassOutcome,
                   asked_pairs: set[Pair]) -> dict[Pair, allocation_request.Pairs]:
    """Build the requests to send, by instance and destination, in the plan's order."""
    cluster, queries = outcome.cluster, {}
    traits = allocation_request.reported_traits(cluster)
    later = _find_blocked_instances(outcome)
    for move in outcome.plan.moves:
        pair = move.instance_uuid, move.to_host
        provider = cluster.hosts[move.to_host].provider
        if move.instance_uuid in later or pair in asked_pairs or provider is None:
            continue
        query = allocation_request.build_candidates_query(
            cluster.instances[move.instance_uuid], provider.uuid, traits)
        if query is not None:
            queries[pair] = query
    return queries


def _find_blocked_instances(outcome: planning_pipeline.PassOutcome) -> set[str]:
    """Return instances whose moves must follow others; without claims, all that wait for others."""
    waiting = [m for m in outcome.plan.moves if m.requires]
    request = outcome.request
    if not (waiting and request.options.enforce_placement_claims
            and outcome.cluster.placement_known):
        return {m.instance_uuid for m in waiting}
    view = cluster_view.ClusterView(
        relevant_cluster.reduce_cluster(outcome.cluster, waiting, request.history), request.options,
        request.history, draining=outcome.plan.draining)
    return {m.instance_uuid for m in waiting if constraints.judge_move(view, m) is not None}


def _add_warnings(outcome: planning_pipeline.PassOutcome,
                  texts: Sequence[str]) -> planning_pipeline.PassOutcome:
    if not texts:
        return outcome
    plan = outcome.plan
    return dataclasses.replace(outcome, plan=dataclasses.replace(
        plan, warnings=(*plan.warnings, *texts)))
