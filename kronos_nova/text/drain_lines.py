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

"""The effect of starting or stopping a drain, in sentences."""

from collections.abc import Sequence

from kronos_nova import plurals
from kronos_nova.text import plan_lines
from kronos_nova.text import times


def format_approval(plan_ids: Sequence[str], missing: int, problem: str | None) -> str:
    """Return the effect of an approval of a drain; each sentence follows a blank.

    :param plan_ids: the plans with its moves.
    :param missing: the number of other people who must approve them.
    :param problem: why some moves wait for another approval.
    """
    text = ''
    if plan_ids:
        plans, have, wait = (('Plan', 'has', 'waits') if len(plan_ids) == 1 else
                             ('Plans', 'have', 'wait'))
        others = plurals.count_noun(missing, 'other person', 'other people')
        text = (f' {plans} {", ".join(plan_ids)} {have} your approval'
                + (f', and {wait} for that of {others}.' if missing else '.'))
    elif problem is None:
        text = ' Its moves wait for no approval.'
    return text if problem is None else (
        f'{text} Not all of its moves are approved: {problem.rstrip(".")}.')


def describe_shutdown(is_late: bool, obstacle: str | None, remedy: str | None,
                      waits: bool) -> str:
    """Return whether a drain shuts an instance down, moves it cold and starts it again.

    :param is_late: its live migration was late; else the text supposes that.
    :param obstacle: why the drain may not do that, with the remedy; None: it may.
    :param waits: the obstacle passes, and then it may.
    """
    change = '' if remedy is None else f'; remedy: {remedy}'
    if waits or obstacle is None:
        done = plan_lines.SHUT_DOWN + (
            (', but later' if waits else '') + ': its live migration was late' if is_late
            else ', if its live migration is late' + (', but later' if waits else ''))
        return done if obstacle is None else f'{done}{"; " if is_late else ": "}{obstacle}{change}'
    return ('not shut down'
            + (' after its late live migration' if is_late else ', if its live migration is late')
            + f': {obstacle}{change}')


def format_shutdowns(count: int, waiting: int, possible: int) -> str:
    """Return how many instances a drain shuts down, as sentences that follow a blank each.

    :param count: instances whose live migration was late, and that may be shut down.
    :param waiting: those that are shut down once an obstacle has passed, such as closed hours.
    :param possible: those that are shut down if their live migrations are late.
    """
    sentences = []
    if count:
        sentences.append(f'{plurals.count_with_verb(count, "instance")} {plan_lines.SHUT_DOWN}.')
    if waiting:
        sentences.append(f'{plurals.count_with_verb(waiting, "instance")} shut down once nothing '
                         f'holds {plurals.choose_form(waiting, "it", "them")}.')
    if possible:
        sentences.append(f'{plurals.count_with_verb(possible, "instance")} shut down if the live '
                         f'migration {plurals.choose_form(possible, "", "of each ")}is late.')
    return ''.join(f' {sentence}' for sentence in sentences)


def format_arrival(seconds: float) -> str:
    """Return how much time each migration has, where a deadline shortens it, as a clause."""
    return (f'executors with drain_escalation give each live migration {seconds:.0f} s to arrive, '
            'less than drain_arrival_seconds')


def format_late_count(deadline: str, late: int, arrival_seconds: float | None) -> str:
    """Return the deadline of a drain, as sentences that follow a blank each.

    :param deadline: the time as text.
    :param late: number of instances that are not expected to leave in time.
    :param arrival_seconds: those of each migration, if the deadline shortens them.
    """
    arrival = '' if arrival_seconds is None else format_arrival(arrival_seconds)
    return f' Its deadline is {deadline}.' + (
        f' {arrival[0].upper()}{arrival[1:]}.' if arrival else '') + (
        f' {plurals.count_with_verb(late, "instance")} not expected to leave in time; the check of '
        'the drain with this deadline names them.' if late else '')


def format_deadline_state(deadline: float | None, now: float) -> str:
    """Return the deadline of a drain that goes on as a sentence; '': it has none.

    :param deadline: in epoch seconds, as ``now``.
    """
    if deadline is None:
        return ''
    at = times.format_time(deadline)
    return (f'The drain is late: its deadline was {at}.' if now > deadline else
            f'The deadline of the drain is {at}.')


def format_stop(host: str, changed: bool, cancelled: int, running: int) -> str:
    """Return the effect of stopping a drain.

    :param changed: the host was enabled by this.
    :param cancelled: the number of moves that were cancelled.
    :param running: the number of migrations that go on.
    """
    parts = [f'Host {host} is enabled.' if changed else f'Host {host} was enabled already.']
    if cancelled:
        parts.append(f'{plurals.count_noun(cancelled, "move")} that had not begun '
                     f'{plurals.choose_form(cancelled, "is", "are")} cancelled.')
    if running:
        parts.append(f'{plurals.count_noun(running, "migration")} that Nova has begun '
                     f'{plurals.choose_form(running, "goes", "go")} on.')
    return ' '.join(parts)
