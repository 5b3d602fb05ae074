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

"""Moves laid out over a view, with the moves that each one waits for.

Every placed move is in flight: it counts at its source, its destination and its alternates. To
judge a move, its requirements are landed and the moves that wait for it are taken back; only others
that share a host or a server group with it, or that a scheduler hint ties to it, make a difference.
"""

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import domain_spread
from kronos_nova.constraints import metrics
from kronos_nova.constraints import rules
from kronos_nova.constraints import service_state

SPREAD_CODES = domain_spread.WORSENS_SPREAD_RULE.codes
#: For alternates: whether others are in flight does not depend on the host.
_RULES = tuple(r for r in constraints.RULES if r.kind is not rules.RuleKind.IN_FLIGHT)


class MoveBoard:
    """A view with every placed move in flight, and the requirements of each.

    ``needs``: by instance UUID, all moves that must have completed, to the end of the chain.
    """

    def __init__(self, view: cluster_view.ClusterView, moves: Iterable[model.Move]) -> None:
        self.view = view
        self.moves: dict[str, model.Move] = {}
        self.needs: dict[str, set[str]] = {}
        self.groups: dict[str, frozenset[str]] = {}
        #: By instance UUID: its server groups and its spread sets.
        self._shared: dict[str, frozenset[str]] = {}
        self._before = {h: view.map_known_fills(h) for h in {m.from_host for m in moves}}
        self._members: dict[str, list[str]] = defaultdict(list)
        self._leaving: dict[str, list[str]] = defaultdict(list)
        self._coming: dict[str, list[str]] = defaultdict(list)

    @contextlib.contextmanager
    def recall_at_end(self) -> Iterator['MoveBoard']:
        try:
            yield self
        finally:
            for move in self.moves.values():
                self._recall_move(move)

    def adopt_moves(self, moves: Iterable[model.Move]) -> None:
        """Place moves as they are: in waves, with their requirements and alternates."""
        for move in moves:
            uuid = move.instance_uuid
            self._note_sets(uuid)
            self._add_move(move, self._with_needs(move.requires))
            for host in move.alternates:
                self.view.begin_departure(move, host)

    def list_fullness(self) -> list[tuple[float, str]]:
        """List (fullness, host) for every host of the scope that is not frozen."""
        return [(self.view.load.compute_fullness(h), h)
                for h in sorted(self.view.cluster.scope_hosts)
                if self.view.judge_frozen_host(h) is None]

    def place_move(self, move: model.Move) -> model.Rejection | None:
        """Place a move, and require the fewest moves that must have completed before it.

        It requires the moves of the same groups and hints, those of its spread sets if these hinder
        it, then as many moves that free the destination as it needs, then the moves whose room it
        would take.

        :returns: why no order makes the move legal; then nothing has changed.
        """
        uuid = move.instance_uuid
        self._note_sets(uuid)
        mates = {u for group in self.groups[uuid] for u in self._members[group]}
        mates |= self.moves.keys() & self.view.list_hinted_instances(uuid)
        required = self._with_needs(mates)
        freeing = sorted((u for u in self._leaving[move.to_host] if u not in required),
                         key=lambda u: self.moves[u].wave)
        with self._simulate_start(move, required) as land:
            rejection = self._judge_move(move)
            if rejection is not None and rejection.rule in SPREAD_CODES:
                required |= land(self._with_needs(self._list_spread_mates(uuid)) - required)
                rejection = self._judge_move(move)
            for other in freeing:
                if rejection is None:
                    break
                required |= land(self._with_needs([other]) - required)
                rejection = self._judge_move(move)
        if rejection is not None:
            return rejection
        self._add_move(move, required)
        late = self._find_hindered_moves(move, required) - required
        if late:
            with self._simulate_start(move, required | late):
                rejection = self._judge_move(move)
            self._remove_move(move)
            if rejection is not None:
                return rejection
            self._add_move(move, required | late)
        return None

    def _find_hindered_moves(self, move: model.Move, required: set[str]) -> set[str]:
        """Return the earlier moves that this one would make illegal, and all their requirements.

        They go to the same host: this move takes room that another one freed for it, and they may
        start before that room is free. Or they are of the same spread set.
        """
        total = self.view.map_known_fills(move.to_host)
        coming = self._coming[move.to_host]
        if (not any(self.moves[u].from_host == move.to_host for u in required)
                and all(total[name] <= limit
                        for name, (_, limit) in self.view.map_projected_fills(move).items())):
            coming = []
        mates = self._list_spread_mates(move.instance_uuid)
        last_first = sorted(mates, key=lambda u: self.moves[u].wave, reverse=True)
        hindered: set[str] = set()
        # The last may require the others.
        for uuid in dict.fromkeys((*last_first, *reversed(coming))):
            if uuid not in required and uuid not in hindered and uuid != move.instance_uuid:
                other = self.moves[uuid]
                with self._simulate_start(other, self.needs[uuid]):
                    if self._judge_move(other) is not None:
                        hindered |= self._with_needs([uuid])
        return hindered

    @contextlib.contextmanager
    def _simulate_start(self, move: model.Move,
                        required: set[str]) -> Iterator[Callable[[set[str]], set[str]]]:
        """Set the view to the time when ``move`` starts.

        Its requirements have landed, the moves that wait for it have not begun, all others are in
        flight. Moves that share no end, group or hint with it make no difference and stay as they
        are.

        Yields a function that lands more moves and returns their UUIDs.
        """
        uuid, ends = move.instance_uuid, (move.from_host, move.to_host)
        mine, tied = self._shared[uuid], self.view.list_hinted_instances(uuid)
        landed: list[model.Move] = []
        absent: list[model.Move] = []

        def land_moves(uuids: set[str]) -> set[str]:
            for need in sorted(uuids):
                other = self.moves[need]
                if (other.from_host in ends or need in tied
                        or not mine.isdisjoint(self._shared[need])):
                    self.view.revert_departure(other)
                    self.view.land_move(other)
                    landed.append(other)
            return uuids

        if uuid in self.moves:
            absent = [m for u, m in self.moves.items() if u == uuid or uuid in self.needs[u]]
        for other in absent:
            self.view.revert_departure(other)
        land_moves(required)
        try:
            yield land_moves
        finally:
            for other in reversed(landed):
                self.view.undo_landing(other)
                self.view.begin_departure(other)
            for other in reversed(absent):
                self.view.begin_departure(other)

    def may_return(self, uuid: str, failed: str, needs: Mapping[str, set[str]]) -> bool:
        """Return whether an instance may go back to its source after ``failed`` has failed.

        Its own move has landed, and ``failed`` was to follow. The requirements of both have landed,
        the moves that wait for ``failed`` have not begun, all others are in flight.

        :param needs: requirements by instance, in place of the placed ones.
        """
        returning, other = self.moves[uuid], self.moves[failed]
        ends = {returning.from_host, returning.to_host, other.from_host, other.to_host}
        mine = self._shared[uuid] | self._shared[failed]
        tied = {*self.view.list_hinted_instances(uuid), *self.view.list_hinted_instances(failed)}
        required = needs[uuid] | needs[failed]
        absent = [m for u, m in self.moves.items() if u == failed or failed in needs[u]]
        landed = [m for u, m in self.moves.items() if u == uuid or u in required and (
            m.from_host in ends or u in tied or not mine.isdisjoint(self._shared[u]))]
        for move in (*absent, *landed):
            self._recall_move(move)
        for move in landed:
            self.view.land_move(move)
        try:
            return constraints.judge_move(self.view, dataclasses.replace(
                returning, from_host=returning.to_host, to_host=returning.from_host),
                constraints.BACK) is None
        finally:
            for move in reversed(landed):
                self.view.undo_landing(move)
            for move in (*absent, *landed):
                for host in (move.to_host, *move.alternates):
                    self.view.begin_departure(move, host)

    def _judge_move(self, move: model.Move) -> model.Rejection | None:
        rejection = constraints.judge_move(self.view, move)
        if rejection is None and move.phase is model.Phase.SPREAD:
            return refuse_overfilling(self.view, move, self._before[move.from_host])
        return rejection

    def _note_sets(self, uuid: str) -> None:
        self.groups[uuid] = frozenset(g.uuid for g in self.view.list_groups_of(uuid))
        self._shared[uuid] = self.groups[uuid] | {
            s.key for s in self.view.list_spread_sets_of(uuid)}

    def _list_spread_mates(self, uuid: str) -> set[str]:
        """Return the placed instances that share a spread set with the instance."""
        return {u for spread_set in self.view.list_spread_sets_of(uuid)
                for u in self._members[spread_set.key] if u != uuid}

    def _with_needs(self, uuids: Iterable[str]) -> set[str]:
        return {need for u in uuids for need in (u, *self.needs[u])}

    def _add_move(self, move: model.Move, required: set[str]) -> None:
        uuid = move.instance_uuid
        waves = [self.moves[u].wave for u in required]
        self.moves[uuid] = move = dataclasses.replace(
            move, requires=tuple(sorted(required)), wave=max(waves) + 1 if waves else 0)
        self.needs[uuid] = required
        for group in self._shared[uuid]:
            self._members[group].append(uuid)
        self._leaving[move.from_host].append(uuid)
        self._coming[move.to_host].append(uuid)
        self.view.begin_departure(move)

    def _remove_move(self, move: model.Move) -> None:
        """Take back the last ``_add_move``."""
        uuid = move.instance_uuid
        self.view.revert_departure(self.moves.pop(uuid))
        del self.needs[uuid]
        for group in self._shared[uuid]:
            self._members[group].pop()
        self._leaving[move.from_host].pop()
        self._coming[move.to_host].pop()

    def _recall_move(self, move: model.Move) -> None:
        for host in (move.to_host, *move.alternates):
            self.view.revert_departure(move, host)

    # Alternates.

    def may_have_alternates(self, move: model.Move) -> bool:
        """Return whether the move may have other destinations.

        It may not where other moves of the plan count on its destination: for members of a hard
        affinity group, and for instances that a hint ties together. Nor may an instance with claims
        on a sharing provider, which would count there once for each destination. A repair of soft
        groups or of spreads is done at its destination only. An alternate may hinder a move of the
        same spread set, unless the rule lets both move freely.
        """
        uuid = move.instance_uuid
        if self.view.occupancy.needs_sharing_provider(
                uuid) or self.moves.keys() & self.view.list_hinted_instances(uuid):
            return False
        for group in self.view.list_groups_of(move.instance_uuid):
            if group.policy is model.GroupPolicy.AFFINITY and len(self._members[group.uuid]) > 1:
                return False
            if move.phase is model.Phase.AFFINITY and not group.policy.is_hard:
                return False
        if move.phase is model.Phase.AFFINITY and self.view.list_spread_sets_of(uuid):
            return False
        return not any(
            move.phase not in service_state.LEAVING
            or self.moves[mate].phase not in service_state.LEAVING
            for mate in self._list_spread_mates(uuid))

    def try_alternate(self, move: model.Move, host: str) -> bool:
        """Return whether the move may end at the host, too.

        Every move counts at its source and at every host where it may end, and no move has freed
        any room: so no move can stand in another's way. ``move`` itself is recalled.
        """
        other = dataclasses.replace(move, to_host=host)
        if host in (move.from_host, move.to_host, *move.alternates):
            return False
        if any(fill > limit + metrics.ROUNDING
               for fill, limit in self.view.map_projected_fills(other).values()):
            return False
        return constraints.judge_move(self.view, other, _RULES) is None

    def add_alternate(self, move: model.Move, host: str) -> model.Move:
        self.view.begin_departure(move, host)
        move = dataclasses.replace(move, alternates=(*move.alternates, host))
        self.moves[move.instance_uuid] = move
        return move


def refuse_overfilling(view: cluster_view.ClusterView, move: model.Move,
                       before: Mapping[str, float]) -> model.Rejection | None:
    """Reject a spread that lifts a host above its ceiling on the way.

    It may do so if its source was fuller when the plan was made.

    :param before: the source's fill then, by policy.
    """
    for name, (fill, limit) in view.map_projected_fills(move).items():
        if fill > max(limit, before.get(name, limit)) + metrics.ROUNDING:
            return model.Rejection('ceiling', f'host {move.to_host} would reach {fill:.2f} of '
                                              f'{name} while others are on their way')
    return None
