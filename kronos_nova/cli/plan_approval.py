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

"""``kronos plan approve``, ``reject`` and ``cancel``: an operator's decisions on a plan."""

import argparse
import sys
from typing import Any

from kronos_nova import plurals
from kronos_nova.cli import _database


class Decide(_database.DatabaseCommand):
    """A decision on a plan. ``past``: its verb, as a participle."""

    past: str
    #: A clause on the tasks that the decision applies to.
    about = 'waits for approval'
    reason_help: str | None = 'Why; it is kept with the plan.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('plan', metavar='PLAN', help='Its UUID; see kronos plan list.')
        parser.add_argument('--move', action='append', default=[], metavar='INSTANCE',
                            help='Only the move of the instance with this UUID; repeatable.')
        parser.add_argument('--reason', required=self.reason_help is not None, default='',
                            metavar='TEXT', help=self.reason_help or 'Why, if it is to be kept.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def apply_decision(conf: Any, store: Any) -> None:
            from kronos_nova.rebalancer.store import plan_approvals

            plan, moves = parsed_args.plan, parsed_args.move
            said = plan_approvals.Said(
                _database.read_operator_name(), _database.format_single_line(parsed_args.reason),
                moves or None)
            known = {row.task.instance_uuid for row in store.tasks(plan)}
            for uuid in moves:
                if known and uuid not in known:
                    raise _make_config_error(uuid, f'plan {plan} has no move of such an instance',
                                             'kronos plan show lists them.')
            # Use the clock of the database, as executors and engines do.
            tasks = self.decide(conf, store, plan, store.now(), said)
            if not tasks:
                raise _make_no_task_error(store, plan, self.about)
            for task in tasks:
                sys.stdout.write(f'Task {task.task_id} of instance {task.instance_uuid} is '
                                 f'{self.past}.\n')

        self._run(parsed_args, apply_decision)

    def decide(self, conf: Any, store: Any, plan: str, now: float, said: Any) -> list[Any]:
        raise NotImplementedError


class ApprovePlan(Decide):
    """Let a plan begin that waits for approval, or some of its moves.

    Executors take it up within their poll_interval. Each move is checked against what Nova
    and Placement say then.
    """

    past, reason_help = 'approved', None
    examples = ('PLAN', 'PLAN --move INSTANCE --move INSTANCE')

    def decide(self, conf: Any, store: Any, plan: str, now: float, said: Any) -> list[Any]:
        from kronos_nova.cli import _liveness
        from kronos_nova.rebalancer.planning import tasks
        from kronos_nova.wiring import tools

        found: list[Any] = store.approve(
            plan, now, said, begin_within=tasks.begin_within(conf.engine.cooldown),
            cooldown=conf.engine.cooldown, instance_cooldown=conf.engine.instance_cooldown)
        row = store.plan(plan)
        scope = None if row is None else row.plan.scope
        if found and scope is not None and not _liveness.has_executor(store.census(), scope):
            sys.stderr.write(f'{self.prog}: warning: '
                             f'{_liveness.NO_EXECUTOR.format(tools.format_printable(scope))}.\n')
        return found


class RejectPlan(Decide):
    """Drop a plan that waits for approval, or some of its moves.

    What requires a rejected move goes with it. The instances cool down, so that the next
    cycle does not plan the same.
    """

    past = 'rejected'
    examples = ('PLAN --reason "not in office hours"',
                'PLAN --move INSTANCE --reason "its owner asked"')

    def decide(self, conf: Any, store: Any, plan: str, now: float, said: Any) -> list[Any]:
        found: list[Any] = store.reject(plan, now, said, conf.engine.instance_cooldown)
        return found


class CancelPlan(Decide):
    """End all of a plan that Nova has not been asked for, or some of its moves.

    What requires a cancelled move goes with it; the instances cool down. What Nova has been
    asked for is aborted in Nova; that is respected, too.
    """

    past = 'cancelled'
    examples = ('PLAN --reason "the rack is being worked on"',)
    about = 'can be cancelled'

    def decide(self, conf: Any, store: Any, plan: str, now: float, said: Any) -> list[Any]:
        found: list[Any] = store.cancel_plan(plan, now, said, conf.engine.instance_cooldown)
        return found


def _make_no_task_error(store: Any, plan: str, about: str) -> Exception:
    """Return the error for a plan without a task to decide on, with the reason."""
    from kronos_nova.cli import _plans

    row = store.plan(plan)
    waiting = '; '.join(f'{w.plan_id} ({plurals.count_noun(w.moves, "move")})'
                        for w in store.waiting(store.now()))
    remedy = f'For approval wait: {waiting or "none"}. kronos plan list shows the newest plans.'
    if row is None:
        return _make_config_error(plan, 'no such plan', remedy)
    if row.dry_run:
        return _make_config_error(plan, 'it was made in a dry run, of which nothing is carried out',
                                  remedy)
    states = _plans.count_task_states(store.tasks(plan)).get(plan)
    return _make_config_error(plan, 'it has no moves' if states is None else
                              f'it has no move that {about}; its tasks are: {states}', remedy)


def _make_config_error(field: str, problem: str, remedy: str) -> Exception:
    from kronos_nova import exception

    return exception.ConfigError(path='command line', field=field, problem=problem, remedy=remedy)
