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

"""How far back a PromQL query looks.

Not a parser of PromQL: it follows parentheses, ranges, subqueries and
offsets, and leaves everything else to Prometheus.
"""

import re

_UNITS = {'ms': 0.001, 's': 1.0, 'm': 60.0, 'h': 3600.0, 'd': 86400.0, 'w': 604800.0,
          'y': 31536000.0}
_TOKEN = re.compile(r'''"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*` | \#[^\n]*
                        | (?P<open>\() | (?P<close>\))
                        | \[ \s* (?P<range>[0-9a-z.]+) \s* (?P<sub>:)? [^\]]* \]
                        | \b offset \s+ (?P<offset>[0-9][0-9a-z.]*)''', re.VERBOSE)
_PART = re.compile(r'([0-9.]+)(ms|[smhdwy])')


def longest(query: str) -> float:
    """Seconds before its evaluation from which a query still uses samples.

    A subquery looks back over its own range and that of what it evaluates:
    ``max_over_time(rate(x[5m])[30m:1m])`` 35 minutes. What a recording rule
    looks back over is not in the query and not known.
    """
    outer: list[float] = []
    most = last = 0.0  # of the current parentheses, and of what has just ended
    for token in _TOKEN.finditer(query):
        if token['open']:
            outer.append(most)
            most = last = 0.0
        elif token['close']:
            last = most
            most = max(last, outer.pop() if outer else 0.0)
        elif token['range']:
            last = seconds(token['range']) + (last if token['sub'] else 0.0)
            most = max(most, last)
        elif token['offset']:
            last += seconds(token['offset'])
            most = max(most, last)
    return max([most, *outer])


def seconds(duration: str) -> float:
    """A PromQL duration such as ``5m``, ``1h30m``, or a number of seconds."""
    parts = _PART.findall(duration)
    if parts:
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return float(duration)
    except ValueError:
        return 0.0
