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

"""Sentences on what a move does to its two hosts and to the imbalance of its scope.

They read a move as reports have it: a mapping with from_host, to_host, changes and gain.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any


def describe_effects(move: Mapping[str, Any]) -> str:
    """Join both sentences; empty where scores were not trusted, or not recorded."""
    return '; '.join(text for text in (describe_hosts(move), describe_gain(move)) if text)


def describe_hosts(move: Mapping[str, Any]) -> str:
    """Write ``compute-01 0.50 to 0.38, compute-02 0.10 to 0.22 (cpu)``, for each policy."""
    return '; '.join(_describe_changes(move))


def describe_gain(move: Mapping[str, Any]) -> str:
    """Say which gain is lost when this move alone is left out."""
    gain = move['gain']
    if gain is None:
        return ''
    if round(gain, 4) < 0:
        return f'without it the imbalance would be lower by {-gain:.4f}'
    return f'without it {max(gain, 0.0):.4f} of the gain is lost'


def _describe_changes(move: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes of scores, without policies whose written scores stay the same."""
    for change in move['changes']:
        ends = [(move['from_host'], change['from_before'], change['from_after']),
                (move['to_host'], change['to_before'], change['to_after'])]
        host_changes = [f'{host} {before:.2f} to {after:.2f}' for host, before, after in ends
                        if before is not None and after is not None]
        if any(before is not None and after is not None and f'{before:.2f}' != f'{after:.2f}'
               for _, before, after in ends):
            yield f'{", ".join(host_changes)} ({change["policy"]})'
