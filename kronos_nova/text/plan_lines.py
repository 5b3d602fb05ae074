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

"""Lines about parts of a plan. Names that come from outside are printable already."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from kronos_nova import plurals
from kronos_nova.text import move_effects
from kronos_nova.text import printable

#: For a scope's name, before a full stop.
NO_EXECUTOR = ('no live executor: none that serves scope {} was seen within three minutes, so no '
               'move begins until kronos-executor runs')

#: What happens to an instance that is moved offline, after a verb.
SHUT_DOWN = 'shut down, moved cold and started again'
_METHODS = {'offline': f'offline ({SHUT_DOWN})'}


def format_policy_change(name: str, measured: float | None, predicted: float | None,
                         threshold: float) -> str:
    """Return the measured imbalance of a policy, and the one after the plan."""
    return (f'{name}: {printable.format_printable(measured)} to '
            f'{printable.format_printable(predicted)} (threshold {threshold:.4f})')


def format_measured_policy(name: str, measured: float | None, predicted: float | None,
                           threshold: float) -> str:
    """Return the measured imbalance of a policy and, apart from it, the planned one."""
    planned = '' if predicted == measured else (
        f', planned {printable.format_printable(predicted)}')
    return (f'{name}: measured {printable.format_printable(measured)} '
            f'(threshold {threshold:.4f}){planned}')


def format_skipped_policy(name: str, reason: str | None) -> str:
    """Return why a policy was skipped."""
    return f'{name}: {reason or "skipped"}'


def format_sample_age(seconds: float | None) -> str:
    """Return the age of samples as the end of a line; '' where it is not known."""
    return '' if seconds is None else f', samples {seconds:.0f} s old'


def format_method(method: str | None) -> str:
    """Return the method of a move as the end of a clause; '' for a live migration.

    :param method: None: it is not known.
    """
    return '' if method in (None, 'live') else f', {_METHODS.get(str(method), method)}'


def format_move(move: Mapping[str, Any]) -> str:
    """Return a move and its task, and on a second line its effects.

    :param move: has the keys of :mod:`move_effects`, instance_uuid, phase, wave, task_id and state;
        where it is known, method.
    """
    method = format_method(move.get('method'))
    task = f', task {move["task_id"]} {move["state"]}' if move['task_id'] else ''
    effects = move_effects.describe_effects(move)
    return (f'{move["instance_uuid"]} {move["from_host"]} to {move["to_host"]}: {move["phase"]}'
            f'{method}, wave {move["wave"]}{task}' + (f'\n    {effects}' if effects else ''))


def format_decision(decision: Mapping[str, Any]) -> str:
    """Return an operator's decision: its verb, tasks, decided_by, decided_at and reason."""
    return ('{tasks} {verb} by {decided_by} at {decided_at}'.format_map(decision)
            + (f': {decision["reason"]}' if decision['reason'] else ''))


def format_swap(swap: Mapping[str, Any]) -> str:
    """Return the state of a swap, and the plans that undo it: instances, state and undos."""
    return (f'{" and ".join(swap["instances"])}: {swap["state"]}'
            + (f' (plans {", ".join(swap["undos"])})' if swap['undos'] else ''))


def format_conclusion(causes: Sequence[str], holds: Sequence[str], moves: int | None,
                      reason: str | None) -> str:
    """Return whether the next cycle of a scope moves anything, and why not.

    :param causes: why no move is made, also if one is planned: each with a name before its colon.
    :param moves: of the next plan; None: the first of the holds makes a plan impossible.
    :param reason: why the plan has no moves.
    """
    if moves is None:
        return f'nothing: {holds[0]}'
    count = plurals.count_noun(moves, 'move')
    if causes:
        names = ', '.join(text.partition(':')[0] for text in causes)
        return f'nothing: {names}; ' + (f'a cycle would plan {count}' if moves else str(reason))
    return f'the next cycle would make {count}' if moves else f'nothing: {reason}'


def format_rejections(rejections: Mapping[str, int]) -> str:
    """Return the numbers of refused candidates, by rule."""
    return ', '.join(f'{rule} {number}' for rule, number in rejections.items())
