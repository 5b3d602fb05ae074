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


"""Local search over the moves of one budget: take some back, choose others.

A start is built greedily on the smooth measure, at several scales. Then the search repeats
one change: it takes back a few of the moves (a *ruin*) and adds as many, each the best by
the smooth measure. It tries several such changes of a plan at once, and keeps the best
changed plan when it is better, or a little worse: how much worse falls to nothing with the
remaining work. When a plan brings every policy to its threshold, the search goes on with
one move less.

Where room is scarce, two instances can often only change places, and the first of the two
finds no room. So now and then the search adds two such moves at once, and a plan may lack
room for a while, for a price that rises and falls until half of the plans do. It keeps only
a plan whose moves can be made in some order. There, it tries changes one by one.
"""

from collections.abc import Callable
from collections.abc import Sequence
import random

import numpy as np

from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import exchanges
from kronos_nova.rebalancer.search import soft_extremes
from kronos_nova.rebalancer.search import variants

#: Scales of greedy starts, as parts of the imbalance at each step.
STARTS = (0.5, 0.2, 0.1, 0.05)
#: Scale of a change, as a part of the best plan's imbalance.
SCALE = 0.15
#: At the beginning plans worse by this part are kept, on average; and the same
#: for the best of several variants, which is seldom worse.
HEAT, HOTTER = 0.1, 0.15
#: Most moves to take back at once: a part of the budget, and some more.
DEPTH, DEEPER = 0.3, 2
#: Candidates that one addition looks at.
WINDOW = 7_000
#: The scale of one change is up to so many times larger or smaller.
WIDE = 2.0
#: Where room is scarce: the cost of one usual instance without room at first, as
#: a part of the imbalance; the factor by which it rises after each change that ends
#: without room, and falls after any other; and its bounds.
PRICE, RISE = 0.1, 1.03
CHEAPEST, DEAREST = 1e-4, 10.0
#: The part of the changes that may lack room on their way; the others never do.
SOFT = 0.8
#: After so many changes without a better plan the search goes on from the best plan.
BACK = 20
#: Where room is scarce: how often the search adds two instances that change places,
#: and how many additions take as long as finding them.
EXCHANGES, EXCHANGE = 0.2, 4.0
#: Variants of a plan to compute at once, and how many of their additions take as
#: long as one that looks at the whole board; fewer with more policies than these.
VARIANTS, CHEAPER, POLICIES = 16, 4.0, 2

#: See :meth:`RuinRecreateSearch._worth`.
Worth = tuple[int, int, float]


def choose_random_moves(board: boards.SearchBoard, rng: random.Random, count: int) -> list[int]:
    """Choose any of the moves."""
    return rng.sample(list(board.plan), min(count, len(board.plan)))


class RuinRecreateSearch:
    """Search on one board, with one budget and a number of additions to spend."""

    def __init__(self, board: boards.SearchBoard, budget: int, seed: int, additions: int,
                 stop: Callable[[], bool]) -> None:
        self._board, self._budget = board, budget
        self._smooth = soft_extremes.SmoothValues(board, board.shape[0] * board.shape[1] > WINDOW)
        self._rng = random.Random(seed)
        self._total = self._work_left = float(additions)
        self._stop = stop
        self.best: dict[int, int] = {}
        self._best = self._compute_worth()
        self._combined = board.measure.compute_combined(board.score)
        self._price = PRICE * self._combined if board.scarce else None
        self._exchanges = (exchanges.ExchangeSearch(board, self._rng) if board.scarce else None)
        self._soft = False

    @property
    def used_steps(self) -> float:
        """Additions made, or their like in additions to variants."""
        return self._total - self._work_left

    def run(self) -> dict[int, int]:
        """Return the best plan found: row -> column."""
        self._build_greedy_starts(STARTS)
        self._board.replace_plan(self.best)
        if self._price is None:
            self._search_variants()
        else:
            self._search_single_plans()
        return self.best

    def _search_variants(self) -> None:
        """Try several variants of a plan at once; keep the best one, if it is good enough."""
        board, rng = self._board, self._rng
        several = variants.PlanVariants(board)
        addition_cost = max(1.0, len(board.score) / POLICIES) / CHEAPER
        size = self._shrink_best_plan(len(self.best))
        value = self._compute_worth()
        while self._work_left > 0 and size > 0 and not self._stop():
            count = rng.randint(1, DEEPER + int(DEPTH * size))
            ruins = [choose_random_moves(board, rng, count) for _ in range(VARIANTS)]
            added = max(1, size - len(board.plan) + len(ruins[0]))
            if addition_cost * VARIANTS * added > self._work_left:
                return
            self._work_left -= addition_cost * VARIANTS * added
            scales = SCALE * self._combined * WIDE ** np.array(
                [rng.uniform(-1.0, 1.0) for _ in ruins])
            heat = HOTTER * abs(value[2]) * self._work_left / self._total
            best: tuple[Worth, dict[int, int]] | None = None
            for variant in several.try_ruins(ruins, size, scales):
                new = int(not variant.reached), len(variant.plan) * variant.reached, variant.value
                most = value[2] + heat * rng.expovariate(1.0)
                if (variant.plan != board.plan and new <= (*value[:2], most)
                        and (best is None or new < best[0])):
                    best = new, variant.plan
            if best is None:
                continue
            value = best[0]
            board.replace_plan(best[1])
            if self._keep_if_best() and self._has_reached_thresholds():
                size = self._shrink_best_plan(len(self.best))
                value = self._compute_worth()

    def _search_single_plans(self) -> None:
        """Try one plan after the other; a plan may lack room for a while."""
        size = self._shrink_best_plan(len(self.best))
        value, idle = self._compute_worth(), 0
        while self._work_left > 0 and size > 0 and not self._stop():
            before, score = dict(self._board.plan), self._board.score.copy()
            self._soft = self._price is not None and self._rng.random() < SOFT
            if self._soft:
                value = self._compute_worth()
            self._change_plan(size)
            new = self._compute_worth()
            if self._price is not None:
                price = self._price * (RISE if self._board.is_crowded() else 1.0 / RISE)
                self._price = min(max(price, CHEAPEST), DEAREST)
            heat = HEAT * abs(value[2]) * self._work_left / self._total
            if new[2] <= value[2] + heat * self._rng.expovariate(1.0):
                value = new
                if self._keep_if_best():
                    idle = -1
                    if self._has_reached_thresholds():
                        size = self._shrink_best_plan(len(self.best))
                        value = self._compute_worth()
            else:
                self._board.replace_plan(before)
                self._board.score[:] = score
            idle += 1
            if idle == BACK:
                self._board.replace_plan(self.best)
                value, idle = self._compute_worth(), 0

    def find_greedy_start(self, parts: Sequence[float]) -> dict[int, int]:
        """Return the best of greedy plans, one for each scale."""
        self._build_greedy_starts(parts)
        return self.best

    def _build_greedy_starts(self, parts: Sequence[float]) -> None:
        for part in parts:
            self._board.replace_plan({})
            self._add_until_reached(part)
            self._keep_if_best()

    def _compute_worth(self) -> Worth:
        """Return the value of the plan; lower is better.

        Plans that reach every threshold come first, those with fewer moves before others;
        then the value decides.
        """
        if self._board.is_crowded():
            if self._price is None:
                return 1, 0, np.inf
            return 1, 0, self._board.compute_value() + self._price * self._board.compute_overflow()
        reached = self._has_reached_thresholds()
        return int(not reached), len(
            self._board.plan) if reached else 0, self._board.compute_value()

    def _has_reached_thresholds(self) -> bool:
        measure, score = self._board.measure, self._board.score
        return not measure.compute_excess(score) and not measure.mark_refused(score)

    def _keep_if_best(self) -> bool:
        """Remember the plan if it is the best."""
        worth = self._compute_worth()
        if (worth < self._best and not self._board.is_crowded()
                and self._board.order_rows() is not None):
            self._best, self.best = worth, dict(self._board.plan)
            self._combined = self._board.measure.compute_combined(self._board.score)
            return True
        return False

    def _add_until_reached(self, part: float) -> None:
        """Add moves until every threshold is reached or the budget is used."""
        while len(self._board.plan) < self._budget and not self._has_reached_thresholds():
            imbalance = self._board.measure.compute_imbalances(self._board.score)
            if not self._add_best_move(part * float(imbalance.max())):
                return

    def _shrink_best_plan(self, size: int) -> int:
        """Return the number of moves of the next plans.

        This is the budget, until a plan has reached every threshold; then it is one less
        than ``size``, and the board holds the best plan without its least useful move.
        """
        if self._best[0]:
            return self._budget
        self._board.replace_plan(self.best)
        values = []
        for row in list(self._board.plan):
            column = self._board.remove_row(row)
            values.append((self._compute_worth()[2], row))
            self._board.place_row(row, column)
        if values:
            self._board.remove_row(min(values)[1])
        return size - 1

    def _change_plan(self, size: int) -> None:
        board, rng = self._board, self._rng
        for row in choose_random_moves(board, rng, rng.randint(1, DEEPER + int(DEPTH * size))):
            board.remove_row(row)
        scale = SCALE * self._combined * WIDE ** rng.uniform(-1.0, 1.0)
        while len(board.plan) < size and self._work_left > 0:
            if not self._add_exchange(size, scale) and not self._add_best_move(scale):
                return

    def _add_exchange(self, size: int, scale: float) -> bool:
        """Add the best exchange now and then; return whether it was added.

        An exchange is two additions, so a plan of that size must have room for both.
        """
        if (self._exchanges is None or not self._exchanges.possible  # costs nothing then
                or len(self._board.plan) + 2 > size or self._rng.random() >= EXCHANGES):
            return False
        self._work_left -= EXCHANGE
        exchange = self._exchanges.choose_exchange(scale)
        if exchange is None:
            return False
        self._board.place_row(*exchange[:2])
        self._board.place_row(*exchange[2:])
        return True

    def _add_best_move(self, scale: float) -> bool:
        """Add the best move by the smooth measure; return whether one was found."""
        self._work_left -= 1
        addition = self._smooth.choose_addition(scale, self._choose_rows(scale),
                                                self._price if self._soft else None)
        if addition is None:
            return False
        self._board.place_row(*addition)
        return True

    def _choose_rows(self, scale: float) -> sim.Ints | slice:
        """Return the rows to look at: all, or those on the hosts that count most."""
        board = self._board
        rows, columns = board.shape
        if rows * columns <= WINDOW:
            return slice(None)
        score = board.score
        high = board.measure.compute_highest(score)[:, None]
        share = np.exp(np.maximum((score - high) / max(scale, 1e-9), -500.0))
        count = board.measure.weights @ (share / share.sum(axis=1, keepdims=True))
        order = np.argsort(-count[board.source], kind='stable')
        return np.asarray(order[:max(1, WINDOW // columns)])
