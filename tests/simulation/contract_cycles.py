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

"""Many cycles of small clouds whose instances have contracts of all kinds, judged by other code.

``python -m tests.simulation.contract_cycles --cycles 100000`` counts moves that a contract forbids.
A cycle plans, checks the plan, gives notices, and begins the moves a while later, each after the
rules have judged it again, as an executor asks them. The judge here shares no code with the rule:
it reads the drawn numbers, and has records of its own of moves and notices.
"""

import argparse
import collections
import dataclasses
import datetime
import random
import sys
import time

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.clients import contract_statements
from kronos_nova.rebalancer.clients import records
from kronos_nova.rebalancer.planning import move_notices
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from tests.simulation.world import contracts as drawn_contracts
from tests.unit import clouds

GRADES, DRAINS = drawn_contracts.GRADES, drawn_contracts.DRAINS
#: Seconds between two cycles.
CYCLE = 300.0
#: Cycles of one cloud.
CYCLES = 12
#: Seconds until a move begins after its plan; some begin after hours have closed.
DELAYS = (0.0, 60.0, 200.0, 900.0)
#: Notices lapse while a cloud runs.
VALID_FOR = 900.0


@dataclasses.dataclass(frozen=True)
class Stated:
    """A contract as drawn, and whether a tenant has written it."""

    drawn: drawn_contracts.Drawn
    is_tenants: bool


def draw_contract(rng: random.Random) -> drawn_contracts.Drawn:
    first = rng.randint(0, 50)
    return drawn_contracts.Drawn(
        rng.choice([None, None, *GRADES]),
        rng.choice([None, None, (first, first + rng.randint(5, 9))]),
        rng.choice([None, None, (1, 900), (1, 3600), (2, 3600)]), rng.random() < 0.05,
        rng.choice([None, None, 1, 5, 30, 120]),
        rng.choice([None, None, None, clouds.NOW - 60.0, clouds.NOW + 1200.0]))


class ContractCycles:
    """The cycles of one cloud.

    :param seed: decides all random choices.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f'contract cycles {seed}')
        self.seed = seed
        self.now = clouds.NOW
        self.counts: collections.Counter[str] = collections.Counter()
        self.breaches: list[str] = []
        self.cap = rng.choice(GRADES)
        request = clouds.request(clouds.Knobs(
            seed, hosts=rng.randint(3, 5), instances=rng.randint(6, 12), drains=True,
            mode=rng.choice(['spread', 'spread', 'pack']), budget=rng.randint(2, 6)))
        self.stated: dict[str, list[Stated]] = collections.defaultdict(list)
        self.moved: dict[str, list[float]] = collections.defaultdict(list)
        self.noticed: dict[str, tuple[str, float, float]] = {}
        known = contract_statements.StatementValues()
        instances = {uuid: dataclasses.replace(instance, contracts=self._draw(uuid, known))
                     for uuid, instance in request.cluster.instances.items()}
        self.request = dataclasses.replace(
            request, cluster=dataclasses.replace(request.cluster, instances=instances),
            options=dataclasses.replace(request.options, contracts=model.ContractOptions(
                model.Disruption(self.cap))))

    def _draw(self, uuid: str,
              known: contract_statements.StatementValues) -> tuple[model.Contract, ...]:
        """Draw metadata and extra specs of an instance, and read them as those of Nova."""
        texts: dict[bool, dict[str, str]] = {}
        for is_tenants in (True, False):
            if self.rng.random() < 0.4:
                drawn = draw_contract(self.rng)
                if not is_tenants:
                    drawn = dataclasses.replace(drawn, released=None)
                texts[is_tenants] = drawn.metadata()
                self.stated[uuid].append(Stated(drawn, is_tenants))
        return contract_statements.read_contracts(
            records.JsonRecord('Nova', 'server', {'metadata': texts.get(True, {})}),
            texts.get(False), '', contracts_conf.ProjectContracts(), 30 * 86400, known)

    def run(self) -> None:
        for _cycle in range(CYCLES):
            self.counts['cycles'] += 1
            self._change_drains()
            self._run_cycle()
            self.now += CYCLE

    def _change_drains(self) -> None:
        """Let an operator disable a host at times, and enable it later."""
        services = dict(self.request.cluster.services)
        for host in sorted(self.request.cluster.scope_hosts):
            disabled = not services[host].enabled
            others = sum(not service.enabled for service in services.values())
            if self.rng.random() < (0.15 if disabled else 0.1) and (disabled or not others):
                services[host] = dataclasses.replace(
                    services[host], status='enabled' if disabled else 'disabled',
                    disabled_reason=None if disabled else 'maintenance')
        self.request = dataclasses.replace(self.request, cluster=dataclasses.replace(
            self.request.cluster, services=services))

    def _run_cycle(self) -> None:
        request = self._at(self.request, self.now)
        plan = planner.plan(request)
        planning_pipeline.check_plan(plan, request)
        self.counts['plans with moves'] += bool(plan.moves)
        for move in plan.moves:
            self._judge('planned', move, self.now)
        given = move_notices.make_notices(request, [
            *move_notices.list_drain_notices(request),
            *move_notices.list_balance_notices(request, plan, lambda history: planner.plan(
                dataclasses.replace(request, history=history)))], self.now, VALID_FOR)
        notices = dict(request.history.notices)
        for notice in (*given, *move_notices.list_extended_notices(request, VALID_FOR)):
            notices[notice.instance_uuid] = notice
            self.noticed[notice.instance_uuid] = (
                notice.host, notice.noticed_at, notice.valid_until)
        self.counts['notices'] += len(given)
        begun = [move for move in plan.moves if self._begins(request, move)]
        self.request = clouds.moved(self.request, dataclasses.replace(plan, moves=tuple(begun)))
        for move in begun:
            notices.pop(move.instance_uuid, None)
            self.noticed.pop(move.instance_uuid, None)
            self.moved[move.instance_uuid].append(self.now)
        self.request = dataclasses.replace(self.request, history=dataclasses.replace(
            self.request.history, notices=notices,
            move_times={uuid: tuple(at) for uuid, at in self.moved.items()}))

    def _at(self, request: planner.PlanningInput, now: float) -> planner.PlanningInput:
        return dataclasses.replace(
            request, now=now, cluster=dataclasses.replace(request.cluster, taken_at=now),
            scores=dataclasses.replace(request.scores, taken_at=now))

    def _begins(self, request: planner.PlanningInput, move: model.Move) -> bool:
        """Return whether the move begins, which the rules allow, as an executor asks them."""
        at = self.now + self.rng.choice(DELAYS)
        options = dataclasses.replace(request.options, contracts=dataclasses.replace(
            request.options.contracts, begin_within=0.0))
        late = self._at(request, at)
        view = cluster_view.ClusterView(late.cluster, options, late.history)
        own = constraints.list_rejections(view, move, constraints.ALONE)
        if any(rejection.rule.startswith('contract-') for rejection in own):
            self.counts['moves that pre-flight refuses'] += 1
            return False
        self.counts['moves'] += 1
        self._judge('begun', move, at)
        return True

    # The judge.

    def _judge(self, when: str, move: model.Move, at: float) -> None:
        for stated in self.stated[move.instance_uuid]:
            self.counts[f'moves judged, {when}'] += 1
            grade = self._find_grade(move, stated, at)
            if grade == 'never' or (grade == 'drain-only' and move.phase not in DRAINS):
                self.breaches.append(f'seed {self.seed}, {at:.0f}: {move.instance_uuid} {when} for '
                                     f'{move.phase}, cap {self.cap}: {stated}')

    def _find_grade(self, move: model.Move, stated: Stated, at: float) -> str:
        drawn, uuid = stated.drawn, move.instance_uuid
        rank = 0 if drawn.garbled or drawn.grade is None else GRADES.index(drawn.grade)
        minute = datetime.datetime.fromtimestamp(at, datetime.UTC).minute
        closed = drawn.minutes is not None and not (
            drawn.minutes[0] <= minute <= drawn.minutes[1])
        used_up = drawn.quota is not None and sum(
            moved > at - drawn.quota[1] for moved in self.moved[uuid]) >= drawn.quota[0]
        if (drawn.garbled or closed or used_up
                or (drawn.notice is not None and self._is_unannounced(move, drawn.notice, at))):
            rank = GRADES.index('never')
        return GRADES[min(rank, GRADES.index(self.cap)) if stated.is_tenants else rank]

    def _is_unannounced(self, move: model.Move, minutes: int, at: float) -> bool:
        released = max((stated.drawn.released or 0.0 for stated in self.stated[move.instance_uuid]),
                       default=0.0)
        if released > at:
            self.counts['moves released by owners'] += 1
            return False
        self.counts['moves that need notice'] += 1
        host, since, until = self.noticed.get(move.instance_uuid, ('', at, 0.0))
        return host != move.from_host or at - since < minutes * 60 or at >= until


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--cycles', type=int, default=1000, help='how many at least')
    parser.add_argument('--first', type=int, default=0, help='the first seed')
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    breaches: list[str] = []
    began, seed = time.process_time(), args.first
    while counts['cycles'] < args.cycles:
        cycles = ContractCycles(seed)
        cycles.run()
        counts.update(cycles.counts)
        breaches += cycles.breaches
        for breach in cycles.breaches:
            print(breach, flush=True)
        seed += 1
        if seed % 200 == 0:
            print(dict(counts), len(breaches), flush=True)
    print(f'{len(breaches)} breaches in {counts["cycles"]:,} cycles of {seed - args.first:,} '
          f'clouds, {time.process_time() - began:.0f} s of processor time: {dict(counts)}')
    return int(bool(breaches))


if __name__ == '__main__':
    sys.exit(main())
