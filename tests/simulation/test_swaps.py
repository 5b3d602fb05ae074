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

"""Swaps among executors that crash, freeze and compete, and a Nova that refuses and fails."""

import collections
import types

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import task_endings
from tests.simulation import executor_world as world
from tests.unit import clouds

SAID = plan_decisions.OperatorDecision('me', 'why not')


class SwapRun(world.Run):
    """Each scope has two swaps, some by a parking host; operators cancel halves of some swaps."""

    def plan(self, scope):
        for _ in range(2):
            here, there, third = self.rng.sample(world.HOSTS, 3)
            parking = self.rng.choice([None, third])
            plan_id, (one, other) = self.uuid(), (self.uuid(), self.uuid())
            self.nova.host |= {one: here, other: there}
            common = {'plan_id': plan_id, 'aggregate': scope, 'max_retries': 1,
                      'phase': model.Phase.REQUESTED, 'not_before': self.now}
            made = [
                model.Task(task_id=self.uuid(), instance_uuid=one, from_host=here,
                           to_host=parking or there, **common),
                model.Task(task_id=self.uuid(), instance_uuid=other, from_host=there,
                           to_host=here, requires=(one,), wave=1, **common)]
            moves = tuple(model.Move(t.instance_uuid, t.from_host, t.to_host, t.phase,
                                     wave=t.wave, requires=t.requires) for t in made)
            self.store.plans.save_requested_plan(
                self.store.plans.read_live_work(), model.Plan(scope, moves, swaps=(
                    model.Swap(one, other, parking),)), made, plan_id=plan_id, now=self.now,
                instance_cooldown=900, decision=SAID, verb='swapped')
            self.plan_ids.append(plan_id)

    def found(self):
        return [swap for plan_id in self.plan_ids for swap in self.store.tasks.list_swaps(plan_id)]

    def rows(self):
        return [row for swap in self.found() for row in swap.tasks]

    def step(self):
        if self.chance(0.01, 'somebody cancels'):
            row = self.rng.choice(sorted(self.rows(), key=lambda r: r.task.task_id))
            self.store.tasks.cancel_task(row.task.task_id, self.now, cancelled_by='me', reason='no',
                                         instance_cooldown=900)
        super().step()
        self.check_places()

    def check_places(self):
        """Assert that tasks in flight hold a place on each host that an instance may go to."""
        held = {f.instance_uuid: {f.from_host, f.to_host, *f.alternates}
                for f in self.store.tasks.list_in_flight_moves()}
        for swap in self.found():
            for member in swap.members if swap.state in swaps.OPEN else ():
                here = swap.where[member.instance_uuid]
                live = any(r.task.instance_uuid == member.instance_uuid
                           and not r.task.state.is_terminal for r in swap.tasks)
                if live or here != member.home:
                    assert {member.home, member.target} <= held[member.instance_uuid]

    def go(self, steps=60, quiet_steps=900):
        with pytest.MonkeyPatch.context() as patch:
            # By the seed, as all else: swaps are settled in the order of their ids.
            patch.setattr(swaps, 'uuid', types.SimpleNamespace(uuid4=self.uuid))
            self._go(steps, quiet_steps)

    def _go(self, steps, quiet_steps):
        for scope in world.SCOPES:
            self.plan(scope)
        for _ in range(steps):
            self.step()
        self.faulty = False
        for _ in range(quiet_steps):
            self.step()
            if not self.store.tasks.list_in_flight_moves() and not self.nova.late:
                break
        self.check_end()

    def check_end(self):
        """A swap ends with both or neither, or with an alarm."""
        for swap in self.found():
            at = [self.nova.host[m.instance_uuid] for m in swap.members]
            assert swap.state not in swaps.OPEN, f'{swap.plan_id} is {swap.state}'
            assert at == [swap.where[m.instance_uuid] for m in swap.members], 'not what Nova says'
            if swap.state == swaps.SWAPPED:
                assert at == [m.target for m in swap.members]
            elif swap.state != swaps.STUCK:
                assert at == [m.home for m in swap.members], f'half a swap is {swap.state}'
            else:
                said = self.store.approvals.list_decisions(swap.plan_id)[-1]
                assert said.verb == swaps.STUCK and swap.members_away
            self.count(swap.state)
        assert not self.broken and not self.nova.active()


PARTS = 4
#: Fewer do not show every end.
SEEDS = max(40, clouds.many(40))


@pytest.mark.parametrize('part', [
    0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
def test_swap_ends_with_both_moves_neither_or_alarm(part):
    ends = collections.Counter()
    for seed in range(part, SEEDS, PARTS):
        run = SwapRun(seed)
        run.go()
        ends.update(run.counts)
    assert all(ends[state] for state in (swaps.SWAPPED, swaps.UNDONE, swaps.CALLED_OFF))
    assert sum(n for what, n in ends.items() if what.startswith('crash')) > 10


def never_undone(patch):
    patch.setattr(swaps, '_undo', lambda connection, swap, *args: swaps._update_state(
        connection, swap, swaps.CALLED_OFF))


def never_settled(patch):
    patch.setattr(task_endings, '_settle_task_swaps', lambda *args: [])
    patch.setattr(task_endings, 'settle_swaps', lambda *args: [])


def never_goes_on(patch):
    patch.setattr(swaps, '_go_on', lambda connection, swap, now: swaps._update_state(
        connection, swap, swaps.SWAPPED))


def never_held(patch):
    patch.setattr(swaps, 'add_held_hosts', lambda connection, flights: tuple(flights))


def never_said(patch):
    patch.setattr(swaps, '_record_decision', lambda *args: None)


@pytest.mark.turns(3)
@pytest.mark.parametrize('bug', [never_undone, never_settled, never_goes_on, never_held,
                                 never_said])
def test_seeded_bug_is_caught(bug, monkeypatch):
    bug(monkeypatch)
    caught = 0
    for seed in range(60):
        try:
            SwapRun(seed).go()
        except (AssertionError, KeyError, IndexError):
            caught += 1
            break
    assert caught
