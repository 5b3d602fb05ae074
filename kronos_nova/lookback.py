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

"""The lookback of PromQL queries: how far back they look, and how they show a change.

This is not a parser of PromQL: it follows calls, parentheses, ranges, subqueries and offsets, and
leaves everything else to Prometheus. A parser would be one more binary package inside
nova-scheduler; the tests compare with one.
"""

from collections.abc import Sequence
import dataclasses
import re

_UNITS = {'ms': 0.001, 's': 1.0, 'm': 60.0, 'h': 3600.0, 'd': 86400.0, 'w': 604800.0,
          'y': 31536000.0}
#: Seconds; the longest duration of Prometheus (2**63 ns).
LONGEST = 9.2e9
_TEXT = r'''"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*`'''
_TOKEN = re.compile(rf'''
      \#[^\n]*                                               # to the end of the line
    | (?P<selector>\{{ (?: {_TEXT} | [^}}"'`] )* \}})
    | {_TEXT}
    | @ \s* (?: (?:start|end) \s* \( \s* \) | [-+]?[0-9.e]+ )  # a fixed time of evaluation
    | \b offset \s* (?P<sign>[-+]?) \s* (?P<offset>[0-9][0-9a-z.]*)
    | \b (?:by|without|on|ignoring|group_left|group_right) \s* \( [^)]* \)
    | \b (?:and|or|unless|atan2|bool|by|without|on|ignoring|group_left|group_right) \b
    | (?P<call>[a-zA-Z_:][a-zA-Z0-9_:]*) \s* \(
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<number>[0-9.][0-9a-zA-Z.]*)
    | \[ \s* (?P<range>[^\]:]*?) \s* (?: : [^\]]* )? \]
    | (?P<open>\() | (?P<close>\))
    ''', re.VERBOSE)
_PART = re.compile(r'([0-9.]+)(ms|[smhdwy])')

#: Functions that show a change in proportion to the time since.
_MEANS = frozenset({'avg_over_time', 'sum_over_time', 'count_over_time', 'rate', 'increase',
                    'delta'})
#: Function -> the quantile of the range that it returns; quantile_over_time names its own.
_QUANTILES = {'max_over_time': 1.0, 'min_over_time': 0.0}
_QUANTILE = 'quantile_over_time'


@dataclasses.dataclass(frozen=True, slots=True)
class LookbackWindow:
    """The way in which a query shows a change.

    It shows nothing before ``delay`` seconds have passed; then it follows the change as a mean
    over ``ramp`` seconds does, or later by an unknown part of ``slack`` seconds; of that, it
    takes the ``quantile`` of ``span`` seconds (1: the peak). ``pending`` is a range that no
    function has been applied to yet.
    """

    delay: float = 0.0
    ramp: float = 0.0
    slack: float = 0.0
    span: float = 0.0
    quantile: float = 1.0
    pending: float | None = None

    @property
    def total_seconds(self) -> float:
        """Seconds before its evaluation from which a query still uses samples."""
        return self.delay + self.ramp + self.slack + self.span + (self.pending or 0.0)

    def apply_function(self, function: str, number: float | None) -> 'LookbackWindow':
        """Return the lookback after ``function`` is applied to the pending range.

        :param number: the first argument of the function when it is a number.
        """
        if self.pending is None:
            return self
        seconds = self.pending
        quantile = _QUANTILES.get(function)
        if function == _QUANTILE:
            quantile = 1.0 if number is None else min(1.0, max(0.0, number))
        if quantile is not None:
            longer = seconds >= self.span
            return dataclasses.replace(self, pending=None, span=self.span + seconds,
                                       quantile=quantile if longer else self.quantile)
        if function in _MEANS:
            return dataclasses.replace(self, pending=None, ramp=self.ramp + seconds)
        return dataclasses.replace(self, pending=None, slack=self.slack + seconds)

    def compute_unseen_part(self, elapsed: float, ramp: float, *, arriving: bool) -> float:
        """Compute the part, 0 to 1, of a load's change that a query does not show.

        The load is steady before and after the change. The p-quantile of a span shows a load that
        came once (1 - p) of the span has passed, and shows a load that went until p of the span
        has passed: a peak rises at once, and falls when the whole span lies after the change.

        :param elapsed: seconds since the change, by the clock of the samples.
        :param ramp: seconds, at least those of the query.
        """
        part = 1.0 - self.quantile if arriving else self.quantile
        since = elapsed - self.delay - part * self.span
        if since <= 0:
            return 1.0
        return max(0.0, 1.0 - since / ramp) if ramp > 0 else 0.0


@dataclasses.dataclass
class _OpenCall:
    """An open parenthesis: that of ``function``, or a plain one when this is empty."""

    function: str = ''
    operands: list[LookbackWindow] = dataclasses.field(default_factory=list)
    number: float | None = None

    def add(self, look: LookbackWindow) -> None:
        self.operands.append(look)

    def change_operand(self, **fields: float) -> None:
        """Change fields of the operand that has just ended."""
        if self.operands:
            self.operands[-1] = dataclasses.replace(self.operands[-1], **fields)

    @property
    def last(self) -> LookbackWindow:
        return self.operands[-1] if self.operands else LookbackWindow()

    def close(self) -> LookbackWindow:
        """Apply the function, and return the operand that looks back farthest."""
        looks = self.operands
        if self.function:
            looks = [look.apply_function(self.function, self.number) for look in looks]
        return _choose_farthest(looks)


def _choose_farthest(looks: Sequence[LookbackWindow]) -> LookbackWindow:
    return max(looks, key=lambda look: look.total_seconds, default=LookbackWindow())


def parse_query(query: str) -> LookbackWindow:
    """Return how the part of a query that looks back farthest shows a change.

    A subquery looks back over its own range and that of its inner query: the subquery of
    ``max_over_time(rate(x[5m])[30m:1m])`` over 35 minutes. The query does not tell the range of a
    recording rule.
    """
    calls = [_OpenCall()]
    named = False
    for token in _TOKEN.finditer(query):
        here = calls[-1]
        if token['call'] or token['open']:
            calls.append(_OpenCall(token['call'] or ''))
        elif token['close']:
            ended = calls.pop()
            if not calls:  # one that was never opened
                calls.append(_OpenCall())
            calls[-1].add(ended.close())
        elif token['range'] is not None:
            if not here.operands:
                here.add(LookbackWindow())
            here.change_operand(pending=parse_duration(token['range']))
        elif token['offset']:
            sign = -1.0 if token['sign'] == '-' else 1.0
            here.change_operand(delay=max(0.0,
                                          here.last.delay + sign * parse_duration(token['offset'])))
        elif token['number']:
            if here.number is None and not here.operands:
                here.number = parse_duration(token['number'])
            here.add(LookbackWindow())
        elif token['name'] or (token['selector'] and not named):
            here.add(LookbackWindow())
        named = bool(token['name'])
    while len(calls) > 1:
        ended = calls.pop()
        calls[-1].add(ended.close())
    return calls[0].close().apply_function('avg_over_time', None)


def compute_reach(query: str) -> float:
    """Return the seconds before its evaluation from which a query still uses samples."""
    return parse_query(query).total_seconds


def parse_duration(duration: str) -> float:
    """Parse a PromQL duration such as ``5m``, ``1h30m``, or a number of seconds.

    Return 0 for any other text, and for more than LONGEST: Prometheus refuses it too.
    """
    parts = _PART.findall(duration)
    try:
        seconds = (sum(float(number) * _UNITS[unit] for number, unit in parts) if parts
                   else float(duration))
    except ValueError:
        return 0.0
    return seconds if abs(seconds) <= LONGEST else 0.0
