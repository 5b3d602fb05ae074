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

"""Find errors in a PromQL syntax tree that do not depend on the metrics."""

from collections.abc import Iterator
import dataclasses
from typing import Any

import promql_parser as pp

from kronos_nova import policy
from kronos_nova.checks import promql_labels

#: Functions that need two samples in their range, and are useful from four on.
_OF_CHANGES = frozenset({'rate', 'irate', 'increase', 'delta', 'idelta', 'deriv'})
#: Scrapes that a range should hold.
SCRAPES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class QueryFinding:
    """A finding; ``wrong`` if no metrics make the query right, else it may be intended."""

    problem: str
    remedy: str
    wrong: bool


def list_findings(root: Any, label: str | None, *, unlabelled: bool,
                  interval: float) -> Iterator[QueryFinding]:
    """Yield the findings on a query.

    :param label: the label that every series of the result must carry; None: not known.
    :param unlabelled: one series without the label is allowed.
    :param interval: seconds between two scrapes.
    """
    nodes = promql_labels.list_nodes(root)
    top = nodes[0]
    if top.kind != 'vector':
        by = '' if label is None else f' by ({policy.quote_label(label)})'
        yield QueryFinding(f'it returns a {top.kind}, not an instant vector',
                           'Apply a function such as '
                           f'rate() to it, or aggregate{by}.', True)
    elif label is not None and label not in top.labels and not unlabelled:
        yield QueryFinding(f'no series of its result can have the label {label}: it is aggregated '
                           'away', f'Aggregate by ({policy.quote_label(label)}), or join it with '
                           f'group_left ({policy.quote_label(label)}).', True)
    for node in nodes:
        if isinstance(node.expr, pp.BinaryExpr) and node.expr.modifier is not None:
            yield from _check_join(node)
        elif isinstance(node.expr, pp.Call) and node.expr.func.name in _OF_CHANGES:
            yield from _check_range(node.expr, interval)


def _check_join(node: promql_labels.SyntaxNode) -> Iterator[QueryFinding]:
    sides = tuple(zip(('left', 'right'), node.inner, strict=True))
    modifier = node.expr.modifier
    matching = modifier.matching
    if matching is not None and matching.type == pp.LabelModifierType.Include:
        for name in matching.labels:
            without = [side for side, operand in sides if name not in operand.labels]
            if len(without) == 1:
                yield QueryFinding(
                    f'it joins on {name}, which the {without[0]} side cannot have: nothing '
                    'matches, unless the other side never has it either',
                    f'Keep {name} in the aggregation of that side, or leave it out of on (...).',
                    False)
    card = modifier.card
    if card in (pp.VectorMatchCardinality.ManyToOne, pp.VectorMatchCardinality.OneToMany):
        side, one = sides[1] if card == pp.VectorMatchCardinality.ManyToOne else sides[0]
        for name in getattr(modifier, 'group_labels', None) or ():
            if name not in one.labels:
                yield QueryFinding(
                    f'it takes {name} from the {side} side, which cannot have it',
                    f'Keep {name} in the aggregation of that side.', False)


def _check_range(call: Any, interval: float) -> Iterator[QueryFinding]:
    for argument in call.args:
        if not isinstance(argument, pp.MatrixSelector):
            continue
        seconds = argument.range.total_seconds()
        if seconds < SCRAPES * interval:
            yield QueryFinding(
                f'{call.func.name}() over {seconds:g} s holds fewer than {SCRAPES} scrapes, '
                f'{interval:g} s apart: a scrape that fails leaves a gap',
                f'Make the range {SCRAPES * interval:g} s or longer, or say how often is '
                'scraped with --scrape-interval.', False)
