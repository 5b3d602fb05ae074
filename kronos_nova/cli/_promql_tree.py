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

"""What a syntax tree of PromQL shows to be wrong whatever the metrics are.

Labels that an aggregation has dropped are certainly gone; a selector may have any.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any

import promql_parser as pp

#: They need two samples in their range, and are of use with four.
_OF_CHANGES = frozenset({'rate', 'irate', 'increase', 'delta', 'idelta', 'deriv'})
#: They return some of the series that they are given, whole.
_OF_SERIES = frozenset({'topk', 'bottomk', 'limitk', 'limit_ratio'})
_LABELLING = frozenset({'label_replace', 'label_join'})
#: Scrapes that a range should hold.
SCRAPES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """``wrong``: no metrics make the query right; else it may be meant."""

    problem: str
    remedy: str
    wrong: bool


def findings(root: Any, label: str, *, unlabelled: bool, interval: float) -> Iterator[Finding]:
    """
    :param label: that every series of the result must carry.
    :param unlabelled: one series without it is allowed.
    :param interval: seconds between two scrapes.
    """
    kind = _kind(root)
    if kind != 'vector':
        yield Finding(f'it returns a {kind}, not an instant vector', 'Apply a function such as '
                      f'rate() to it, or aggregate by ({label}).', True)
    elif not carries(root, label) and not unlabelled:
        yield Finding(f'no series of its result can have the label {label}: it is aggregated '
                      'away', f'Aggregate by ({label}), or join it with group_left ({label}).',
                      True)
    for node in _nodes(root):
        if isinstance(node, pp.BinaryExpr) and node.modifier is not None:
            yield from _join(node)
        elif isinstance(node, pp.Call) and node.func.name in _OF_CHANGES:
            yield from _range(node, interval)


def _join(node: Any) -> Iterator[Finding]:
    sides = (('left', node.lhs), ('right', node.rhs))
    matching = node.modifier.matching
    if matching is not None and matching.type == pp.LabelModifierType.Include:
        for name in matching.labels:
            without = [side for side, operand in sides if not carries(operand, name)]
            if len(without) == 1:
                yield Finding(
                    f'it joins on {name}, which the {without[0]} side cannot have: nothing '
                    'matches, unless the other side never has it either',
                    f'Keep {name} in the aggregation of that side, or leave it out of on (...).',
                    False)
    card = node.modifier.card
    if card in (pp.VectorMatchCardinality.ManyToOne, pp.VectorMatchCardinality.OneToMany):
        side, one = sides[1] if card == pp.VectorMatchCardinality.ManyToOne else sides[0]
        for name in getattr(node.modifier, 'group_labels', None) or ():
            if not carries(one, name):
                yield Finding(
                    f'it takes {name} from the {side} side, which cannot have it',
                    f'Keep {name} in the aggregation of that side.', False)


def _range(call: Any, interval: float) -> Iterator[Finding]:
    for argument in call.args:
        if not isinstance(argument, pp.MatrixSelector):
            continue
        seconds = argument.range.total_seconds()
        if seconds < SCRAPES * interval:
            yield Finding(
                f'{call.func.name}() over {seconds:g} s holds fewer than {SCRAPES} scrapes, '
                f'{interval:g} s apart: a scrape that fails leaves a gap',
                f'Make the range {SCRAPES * interval:g} s or longer, or say how often is '
                'scraped with --scrape-interval.', False)


def carries(node: Any, label: str) -> bool:
    """False when no series of a result can have the label."""
    if isinstance(node, pp.AggregateExpr):
        return _aggregate_carries(node, label)
    if isinstance(node, pp.BinaryExpr):
        return _binary_carries(node, label)
    if isinstance(node, pp.Call):
        vectors = [a for a in node.args if _kind(a) in ('vector', 'matrix')]
        if node.func.name in _LABELLING and len(node.args) > 1 \
                and getattr(node.args[1], 'val', None) == label:
            return True
        # Of no vector, such as vector(1), the result has no labels.
        return carries(vectors[0], label) if len(vectors) == 1 else bool(vectors)
    inner = getattr(node, 'expr', None)
    return carries(inner, label) if inner is not None else True


def _aggregate_carries(node: Any, label: str) -> bool:
    operator, modifier = str(node.op), node.modifier
    if operator in _OF_SERIES:
        return carries(node.expr, label)
    if operator == 'count_values' and getattr(node.param, 'val', None) == label:
        return True
    if modifier is None:
        return False
    if (label in modifier.labels) != (modifier.type == pp.AggModifierType.By):
        return False
    return carries(node.expr, label)


def _binary_carries(node: Any, label: str) -> bool:
    vectors = [side for side in (node.lhs, node.rhs) if _kind(side) != 'scalar']
    if len(vectors) < 2 or node.modifier is None:
        return any(carries(side, label) for side in vectors[:1])
    card, matching = node.modifier.card, node.modifier.matching
    if card == pp.VectorMatchCardinality.ManyToMany:  # and, or, unless
        return carries(node.lhs, label) or carries(node.rhs, label)
    if card == pp.VectorMatchCardinality.OneToOne:
        if matching is not None:
            kept = matching.type == pp.LabelModifierType.Include
            if (label in matching.labels) != kept:
                return False
        return carries(node.lhs, label)
    many, one = ((node.lhs, node.rhs) if card == pp.VectorMatchCardinality.ManyToOne
                 else (node.rhs, node.lhs))
    taken = getattr(node.modifier, 'group_labels', None)
    return carries(one if label in (taken or ()) else many, label)


def _kind(node: Any) -> str:
    """``vector``, ``matrix``, ``scalar`` or ``string``."""
    if isinstance(node, pp.VectorSelector | pp.AggregateExpr):
        return 'vector'
    if isinstance(node, pp.MatrixSelector | pp.SubqueryExpr):
        return 'matrix'
    if isinstance(node, pp.NumberLiteral):
        return 'scalar'
    if isinstance(node, pp.StringLiteral):
        return 'string'
    if isinstance(node, pp.Call):
        return str(node.func.return_type).rpartition('.')[2].lower()
    if isinstance(node, pp.BinaryExpr):
        return 'vector' if 'vector' in (_kind(node.lhs), _kind(node.rhs)) else 'scalar'
    return _kind(node.expr)


def _nodes(root: Any) -> Iterator[Any]:
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo += [child for name in ('expr', 'param', 'lhs', 'rhs')
                 if isinstance(child := getattr(node, name, None), pp.Expr)]
        todo += list(getattr(node, 'args', ()))
