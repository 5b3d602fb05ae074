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

"""A section in sentences."""

from collections.abc import Iterator

from kronos_nova import plurals
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words


def list_sentences(section: values.ScopeSection) -> tuple[str, ...]:
    """List sentences about the decision, its effect, and policies above their thresholds."""
    if section.failed is not None:
        return (f'No plan: {section.failed}',)
    return tuple(_yield_sentences(section))


def _yield_sentences(section: values.ScopeSection) -> Iterator[str]:
    if not section.moves:
        yield f'Nothing is moved: {section.reason or "no reason was given"}.'
    else:
        waves = len({move.wave for move in section.moves})
        gives = len({move.from_host for move in section.moves})
        takes = len({move.to_host for move in section.moves})
        yield (f'{plurals.count_noun(len(section.moves), "instance")} of '
               f'{plurals.count_noun(gives, "host")} '
               f'{plurals.choose_form(len(section.moves), "moves", "move")} to '
               f'{plurals.count_noun(takes, "host")}, in {plurals.count_noun(waves, "wave")}.')
    if section.before is None:
        yield 'The combined imbalance is not known.'
    elif section.moves and section.after is not None:
        yield (f'The combined imbalance goes from {words.format_fine_number(section.before)} to '
               f'{words.format_fine_number(section.after)}, if every move succeeds.')
    else:
        yield f'The combined imbalance is {words.format_fine_number(section.before)}.'
    if section.realised is not None:
        yield f'Afterwards scores showed {words.format_fine_number(section.realised)}.'
    above = [p.name for p in section.policies if p.after is not None and p.after > p.threshold]
    left_out = [p.name for p in section.policies if p.left_out is not None]
    known = len(section.policies) - len(left_out)
    if above:
        yield f'Above {"its threshold" if len(above) == 1 else "their thresholds"} then: ' \
              f'{", ".join(above)}.'
    elif known:
        yield 'No policy is above its threshold then.'
    if left_out:
        yield f'Not believed: {", ".join(left_out)}.'
    if section.dry_run:
        yield 'It is the plan of a dry run: no move is carried out.'
    states = [move.state.partition(' ')[0] for move in section.moves if move.state]
    if states:
        yield 'Tasks: ' + ', '.join(
            f'{states.count(state)} {state}' for state in sorted(set(states))) + '.'
