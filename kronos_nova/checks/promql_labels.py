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

"""Find the result type and the possible labels of each node of a PromQL syntax tree.

An aggregation certainly removes the labels that it drops; a selector may have any.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any

import promql_parser as pp

#: Operators that return some of their input series, with all labels.
_OF_SERIES = frozenset({'topk', 'bottomk', 'limitk', 'limit_ratio'})
_LABELLING = frozenset({'label_replace', 'label_join'})


@dataclasses.dataclass(frozen=True, slots=True)
class LabelSet:
    """A set of label names: the given ones, or with ``but`` all others."""

    names: frozenset[str] = frozenset()
    but: bool = False

    def __contains__(self, name: str) -> bool:
        return (name in self.names) != self.but

    def __invert__(self) -> 'LabelSet':
        return LabelSet(self.names, not self.but)

    def __or__(self, other: 'LabelSet') -> 'LabelSet':
        if self.but:
            return LabelSet(self.names & other.names if other.but else self.names - other.names,
                            True)
        return other | self if other.but else LabelSet(self.names | other.names)

    def __and__(self, other: 'LabelSet') -> 'LabelSet':
        return ~(~self | ~other)


ANY = LabelSet(but=True)
NONE = LabelSet()


@dataclasses.dataclass(slots=True)
class SyntaxNode:
    """A node of the syntax tree.

    ``inner``: its operands in order; of a binary operator the left and the right side. ``kind``:
    ``vector``, ``matrix``, ``scalar`` or ``string``.
    """

    expr: Any
    inner: list['SyntaxNode'] = dataclasses.field(default_factory=list)
    kind: str = ''
    labels: LabelSet = ANY


def list_nodes(root: Any) -> list[SyntaxNode]:
    """Return all nodes, the root first.

    This does not recurse, and reads each node once: a query may be as deep as it is long.
    """
    nodes = [SyntaxNode(root)]
    for node in nodes:  # it grows
        node.inner = [SyntaxNode(expr) for expr in _list_operands(node.expr)]
        nodes += node.inner
    for node in reversed(nodes):
        node.kind = _find_result_kind(node)
        node.labels = _find_labels(node)
    return nodes


def _list_operands(expr: Any) -> Iterator[Any]:
    for name in ('lhs', 'rhs', 'expr', 'param'):
        if isinstance(operand := getattr(expr, name, None), pp.Expr):
            yield operand
    yield from getattr(expr, 'args', ())


def _find_result_kind(node: SyntaxNode) -> str:
    expr = node.expr
    if isinstance(expr, pp.VectorSelector | pp.AggregateExpr):
        return 'vector'
    if isinstance(expr, pp.MatrixSelector | pp.SubqueryExpr):
        return 'matrix'
    if isinstance(expr, pp.NumberLiteral):
        return 'scalar'
    if isinstance(expr, pp.StringLiteral):
        return 'string'
    if isinstance(expr, pp.Call):
        return str(expr.func.return_type).rpartition('.')[2].lower()
    if isinstance(expr, pp.BinaryExpr):
        return 'vector' if 'vector' in [side.kind for side in node.inner] else 'scalar'
    return node.inner[0].kind


def _find_labels(node: SyntaxNode) -> LabelSet:
    if isinstance(node.expr, pp.AggregateExpr):
        return _of_aggregate(node)
    if isinstance(node.expr, pp.BinaryExpr):
        return _read_binary_labels(node)
    if isinstance(node.expr, pp.Call):
        return _read_call_labels(node)
    return node.inner[0].labels if node.inner else ANY


def _of_aggregate(node: SyntaxNode) -> LabelSet:
    operator, modifier, labels = str(node.expr.op), node.expr.modifier, node.inner[0].labels
    if operator in _OF_SERIES:
        return labels
    kept_labels = NONE
    if modifier is not None:
        kept_labels = labels & _build_labels(modifier.labels,
                                             modifier.type == pp.AggModifierType.By)
    if operator == 'count_values':
        kept_labels |= _build_literal_label(node.expr.param)
    return kept_labels


def _read_binary_labels(node: SyntaxNode) -> LabelSet:
    (left, right), modifier = node.inner, node.expr.modifier
    vectors = [side.labels for side in node.inner if side.kind != 'scalar']
    if len(vectors) < 2 or modifier is None:
        return vectors[0] if vectors else NONE
    card, matching = modifier.card, modifier.matching
    if card == pp.VectorMatchCardinality.ManyToMany:
        # "and" and "unless" return series of the left side, whole.
        return left.labels | right.labels if str(node.expr.op) == 'or' else left.labels
    if card == pp.VectorMatchCardinality.OneToOne:
        return left.labels if matching is None else left.labels & build_matched_labels(matching)
    many, one = ((left, right) if card == pp.VectorMatchCardinality.ManyToOne
                 else (right, left))
    group_labels = LabelSet(frozenset(getattr(modifier, 'group_labels', None) or ()))
    return many.labels & ~group_labels | one.labels & group_labels


def _read_call_labels(node: SyntaxNode) -> LabelSet:
    vectors = [a.labels for a in node.inner if a.kind in ('vector', 'matrix')]
    # The result of a call without a vector, such as vector(1), has no labels.
    labels = ANY if len(vectors) > 1 else [NONE, *vectors][-1]
    if node.expr.func.name in _LABELLING and len(node.inner) > 1:
        labels |= _build_literal_label(node.inner[1].expr)
    return labels


def build_matched_labels(matching: Any) -> LabelSet:
    """Return the labels that ``on (...)`` names, or that ``ignoring (...)`` does not."""
    return _build_labels(matching.labels, matching.type == pp.LabelModifierType.Include)


def _build_labels(names: Any, included: bool) -> LabelSet:
    return LabelSet(frozenset(names), not included)


def _build_literal_label(literal: Any) -> LabelSet:
    name = getattr(literal, 'val', None)
    return LabelSet(frozenset({name})) if isinstance(name, str) else NONE
