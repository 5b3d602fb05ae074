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

"""Parse PromQL offline for ``kronos policy lint``, and find the place of an error.

promql-parser does not report the place. It is found by parsing: the shortest beginning of the query
that cannot be completed ends with the wrong token.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import os
import re
from typing import Any

import promql_parser

_TEXT = r'''"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`'''
_TOKEN = re.compile(rf'''\#[^\n]*|{_TEXT}|\[(?:{_TEXT}|[^\]])*\]|[a-zA-Z_:][a-zA-Z0-9_:]*
                     |[0-9.][0-9a-zA-Z.]*|==|!=|>=|<=|=~|!~|\S''', re.VERBOSE)
_CLOSING = {'(': ')', '{': '}', '[': ']'}
#: Texts that may complete a beginning, inside parentheses or not, and inside braces.
_ENDS = ('', ' x', '(x)', '(x) x', '(x)(x)', '[5m]', ' 5m')
_MATCHERS = ('', 'x="x"', '="x"', '"x"')
#: Beginnings of the parser's messages on the order of tokens, not on their meaning.
_ORDER = ('invalid promql query', 'unexpected', 'unclosed', 'unterminated', 'bad number',
          'missing unit', 'unknown escape', 'no expression', 'expected string')
_FAILED = 'promql-parser failed on it'
_UNKNOWN = re.compile(r"unknown function with name '(\w+)'")
_NAMED = re.compile(r"(?:function with name|call to(?: function)?) '(\w+)'")
_OPERATOR = re.compile(r'[-+*/%^(<>]|==|!=|>=|<=|and|or|unless|atan2')
#: The parser is recursive: some thousands of operators end the process.
MOST_OPERATORS = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class QueryError:
    """An error in a query.

    ``offset``: its place in characters from the beginning, None when unknown. ``certain``: False
    where a server may know better, as the parser does not know each function. ``parsed``: False
    where the query was not parsed, or the parser itself failed.
    """

    problem: str
    offset: int | None = None
    certain: bool = True
    parsed: bool = True


class ParserFailed(Exception):
    """The parser itself failed, on a query that may be right."""


def parse_query(query: str) -> Any:
    """Parse a query.

    :returns: the root of its syntax tree.
    :raises ValueError: it is not PromQL; see :func:`find_fault`.
    :raises ParserFailed: the parser itself failed, so the query may be right.
    """
    try:
        with _silence_stderr():
            return promql_parser.parse(query)
    except BaseException as e:
        # A panic in Rust is no Exception, and its class can be imported from nowhere.
        if type(e).__name__ != 'PanicException':
            raise
        problem = str(e)
    raise ParserFailed(f'{_FAILED} ({problem})')


@contextlib.contextmanager
def _silence_stderr() -> Iterator[None]:
    """Discard standard error: Rust itself writes there on a panic, for developers."""
    try:
        stderr_copy = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    try:
        with open(os.devnull, 'wb') as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)


def is_too_large(query: str) -> bool:
    """Return True if the query has too many operators to parse it in this process."""
    return sum(1 for token in _TOKEN.finditer(query)
               if _OPERATOR.fullmatch(token.group())) > MOST_OPERATORS


def find_fault(query: str) -> QueryError | None:
    """Return the query's error of syntax, or None."""
    if is_too_large(query):
        return QueryError(f'it has more than {MOST_OPERATORS} operators', certain=False,
                          parsed=False)
    fault = _find_problem(query)
    if fault is None:
        return None
    if fault.startswith(_FAILED):
        return QueryError(fault, certain=False, parsed=False)
    return QueryError(fault, _find_place(query, fault), certain=_UNKNOWN.match(fault) is None)


def _find_problem(query: str) -> str | None:
    try:
        parse_query(query)
    except (ValueError, ParserFailed) as e:
        return ' '.join(str(e).split()) or 'it is not PromQL'
    return None


def _find_place(query: str, problem: str) -> int | None:
    tokens = [t for t in _TOKEN.finditer(query) if not t.group().startswith('#')]
    if not problem.startswith(_ORDER):
        return _find_call(query, problem)
    # If a beginning can be completed, so can all shorter ones.
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high + 1) // 2
        end = tokens[middle - 1].end()
        if _is_completable(query[:end], [t.group() for t in tokens[:middle]]):
            low = middle
        else:
            high = middle - 1
    if low < len(tokens):
        return tokens[low].start()
    # The end is missing: the place is the last open bracket.
    opened = list(_open(tokens))
    return opened[-1].start() if opened else len(query.rstrip())


def _open(tokens: Iterable[re.Match[str]]) -> Iterator[re.Match[str]]:
    open_brackets: list[re.Match[str]] = []
    for token in tokens:
        if token.group() in _CLOSING:
            open_brackets.append(token)
        elif open_brackets and token.group() == _CLOSING[open_brackets[-1].group()]:
            open_brackets.pop()
    return iter(open_brackets)


def _is_completable(begin: str, tokens: list[str]) -> bool:
    """Return True if a beginning can continue to a query with a right order of tokens."""
    opened: list[str] = []
    for token in tokens:
        if token in _CLOSING:
            opened.append(token)
        elif opened and token == _CLOSING[opened[-1]]:
            opened.pop()
    closers = [_CLOSING[token] for token in reversed(opened)]
    inner, outer = ''.join(closers[:1]), ''.join(closers[1:])
    ends = _MATCHERS if inner == '}' else _ENDS
    for end in ends:
        for after in ('', '(x)', ' x'):
            problem = _find_problem(begin + end + inner + after + outer)
            if problem is None or not problem.startswith(_ORDER):
                return True
    return False


def _find_call(query: str, problem: str) -> int | None:
    """Return the offset of the call that a problem is about, or None.

    It is the only call of that name, or the one that has the problem when parsed alone.
    """
    named = _NAMED.search(problem)
    if named is None:
        return None
    calls = [(t.start(), end) for t in _TOKEN.finditer(query) if t.group() == named[1]
             and (end := _call_end(query, t.end())) is not None]
    if len(calls) > 1:
        calls = [(start, end) for start, end in calls if _find_problem(query[start:end]) == problem]
    # Of nested calls, the innermost one has the problem.
    return max(calls)[0] if calls else None


def _call_end(query: str, position: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(query, position):
        if token.group() == '(':
            depth += 1
        elif token.group() == ')':
            depth -= 1
        if depth == 0:
            return token.end() if token.group() == ')' else None
    return None


def format_place(query: str, offset: int, width: int = 30) -> str:
    """Return the place, such as ``line 2, column 7 of the query, at *** z), 0, 1)``."""
    line = query.count('\n', 0, offset) + 1
    column = offset - (query.rfind('\n', 0, offset) + 1) + 1
    rest = ' '.join(query[offset:offset + 4 * width].split())
    at = (f'at {rest[:width]}' + ('...' if len(rest) > width else '')) if rest else 'at its end'
    return f'line {line}, column {column} of the query, {at}'
