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


"""Asks Placement for the few moves that a plan has chosen, as Nova will.

Rules judge what they know; Placement knows all that a scheduler would ask it.
Where it has no allocation candidate the pair of instance and host is refused,
and the scope is planned again without it; how often is bounded. What it still
refuses then is taken out of the plan.

A move that requires others is not asked for: the room that they free is not
there yet. Pre-flight and Nova's scheduler judge it, as they judge every move.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.rebalancer import cycle
from kronos_nova.rebalancer import requested
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import candidates_api
from kronos_nova.rebalancer.clients import reading

LOG = logging.getLogger(__name__)

#: For so many seconds a no of Placement counts: rooms and traits change.
REFUSED_SECONDS = 900.0

Pair = tuple[str, str]


class Refusals:
    """The pairs of instance and host that Placement has refused lately."""

    def __init__(self) -> None:
        self._until: dict[Pair, float] = {}

    def add(self, pairs: Iterable[Pair], now: float) -> None:
        for pair in pairs:
            self._until[pair] = now + REFUSED_SECONDS

    def current(self, now: float) -> Mapping[str, frozenset[str]]:
        """Hosts by instance, as History.refused."""
        # A clock that was set back makes none of them last for ever.
        self._until = {pair: until for pair, until in self._until.items()
                       if now < until <= now + REFUSED_SECONDS}
        found: dict[str, set[str]] = {}
        for uuid, host in self._until:
            found.setdefault(uuid, set()).add(host)
        return {uuid: frozenset(hosts) for uuid, hosts in sorted(found.items())}


class Confirming:
    """Holds plans to what Placement says.

    :param connection: an openstacksdk connection.
    """

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        self._candidates = candidates_api.CandidatesApi(connection)
        self.refusals = Refusals()

    def confirmed(self, outcome: cycle.Outcome, now: float,
                  replan: Callable[[Mapping[str, frozenset[str]]], cycle.Outcome],
                  ) -> cycle.Outcome:
        """The outcome, or another one, of whose moves Placement refuses none.

        :param replan: plans the scope again without these pairs.
        :raises CollectError: Placement could not be asked; nothing is moved.
        """
        conf = self._conf.engine
        asked: set[Pair] = set()
        for left in range(conf.confirm_max_replans if conf.confirm_moves else -1, -1, -1):
            queries = _queries(outcome, asked)
            over = len(asked) + len(queries) - conf.confirm_max_asks
            if over > 0:
                queries = dict(list(queries.items())[:len(queries) - over])
            asked |= queries.keys()
            refused = self._refused(queries)
            for uuid, host in refused:
                LOG.info('Instance %s: Placement has no allocation candidate for it on host %s, '
                         'which is left out for %.0f s', uuid, host, REFUSED_SECONDS)
            self.refusals.add(refused, now)
            if over > 0:
                outcome = _unasked(outcome, over, conf.confirm_max_asks)
            if not refused:
                return outcome
            if left:
                outcome = replan(self.refusals.current(now))
            else:
                return cycle.without(
                    outcome, [uuid for uuid, _ in refused],
                    f'{len(refused)} moves that Placement refuses are left out (planned again '
                    f'{conf.confirm_max_replans} times, [engine] confirm_max_replans); the next '
                    'cycle goes on')
        return outcome

    def _refused(self, queries: Mapping[Pair, requested.Pairs]) -> list[Pair]:
        if not queries:
            return []
        names = {f'{uuid} {host}': (uuid, host) for uuid, host in queries}
        try:
            with reading.Reading(self._conf.nova.collect_timeout) as reads:
                found = reads.each('Placement', candidates_api.WHAT,
                                   lambda name: self._candidates.any(queries[names[name]]), names)
        except api.ApiError as exc:
            raise exception.CollectError(
                service=exc.service, what=exc.what, problem=exc.problem) from None
        return [names[name] for name, any_ in found.items() if not any_]


def _queries(outcome: cycle.Outcome, asked: set[Pair]) -> dict[Pair, requested.Pairs]:
    """What is to be asked, by instance and destination, in the plan's order."""
    cluster, found = outcome.cluster, {}
    for move in outcome.plan.moves:
        pair = move.instance_uuid, move.to_host
        provider = cluster.hosts[move.to_host].provider
        if move.requires or pair in asked or provider is None:
            continue
        query = requested.query(cluster.instances[move.instance_uuid], provider.uuid)
        if query is not None:
            found[pair] = query
    return found


def _unasked(outcome: cycle.Outcome, count: int, limit: int) -> cycle.Outcome:
    text = (f'{count} moves are not confirmed in Placement: {limit} are asked for per cycle '
            '([engine] confirm_max_asks)')
    return dataclasses.replace(outcome, plan=dataclasses.replace(
        outcome.plan, warnings=(*outcome.plan.warnings, text)))
