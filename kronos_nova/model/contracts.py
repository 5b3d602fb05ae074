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

"""Disruption contracts: what may be done to an instance, and where that was written.

Tenants write some of the values. Each is read into a value of its own here, or refused; no text of
a tenant is kept.
"""

import dataclasses
import enum
import math
import re

from kronos_nova.model import movement_hours

#: Most characters of a value.
LONGEST = 128
DISRUPTION, HOURS, MAX_MOVES = 'disruption', 'hours', 'max_moves'
#: Start of the keys in metadata, tags and extra specs.
PREFIX = 'kronos:'
_UNITS = {'m': 60, 'h': 3600, 'd': 86400}
#: A tag cannot have a slash, so a colon stands for it.
_QUOTA = re.compile(r'([0-9]{1,4})[/:]([0-9]{1,4})([mhd])')


class Disruption(enum.StrEnum):
    """What may be done to an instance, the most first: each value forbids more.

    ``poweroff-ok``: it may be off until its host is back. ``cold-ok``: it may be shut down, moved
    and started again. ``live``: it may be moved while it runs. ``drain-only``: only off a host that
    is to be emptied, or at an operator's request. ``never``: it stays.
    """

    POWEROFF_OK = 'poweroff-ok'
    COLD_OK = 'cold-ok'
    LIVE = 'live'
    DRAIN_ONLY = 'drain-only'
    NEVER = 'never'

    @property
    def rank(self) -> int:
        """The strictness: 0 forbids nothing."""
        return _RANKS[self]


_RANKS = {value: rank for rank, value in enumerate(Disruption)}


class ContractSource(enum.StrEnum):
    """The place of a statement about an instance."""

    METADATA = 'metadata'
    TAG = 'tag'
    FLAVOR = 'flavor'
    #: The operator's file.
    PROJECT = 'project'

    @property
    def is_tenants(self) -> bool:
        """True where the owner of an instance writes; administrators write the others."""
        return self in (ContractSource.METADATA, ContractSource.TAG)


@dataclasses.dataclass(frozen=True, slots=True)
class MoveQuota:
    """At most so many ``moves`` in any ``seconds``."""

    moves: int
    seconds: int

    def __str__(self) -> str:
        for unit, length in (('d', 86400), ('h', 3600)):
            if self.seconds % length == 0:
                return f'{self.moves}/{self.seconds // length}{unit}'
        return f'{self.moves}/{self.seconds // 60}m'


@dataclasses.dataclass(frozen=True, slots=True)
class Contract:
    """What one source states about an instance; None: it does not say.

    ``unreadable``: those of the keys, without their prefix, whose values cannot be read.
    """

    source: ContractSource
    disruption: Disruption | None = None
    hours: movement_hours.MovementHours | None = None
    max_moves: MoveQuota | None = None
    unreadable: tuple[str, ...] = ()

    def __str__(self) -> str:
        stated = [f'{key} {value}' for key, value in (
            (DISRUPTION, self.disruption), (HOURS, self.hours), (MAX_MOVES, self.max_moves))
            if value is not None]
        return f'{", ".join([*stated, *(f"{key} unreadable" for key in self.unreadable)])}' \
               f' ({self.source})'


@dataclasses.dataclass(frozen=True, slots=True)
class ContractOptions:
    """The options of [contracts] that rules read; names are the options' names.

    ``strongest_for_tenants``: statements of tenants forbid no more than it does. ``ignore_after``:
    from then on (epoch seconds) statements of tenants hold no drain and no requested move; None:
    they always hold. ``opt_out``: what an instance that is opted out forbids. ``timezone``: by
    whose clocks hours count.
    """

    strongest_for_tenants: Disruption = Disruption.POWEROFF_OK
    ignore_after: float | None = None
    opt_out: Disruption = Disruption.NEVER
    timezone: str = 'UTC'


def parse_disruption(text: str) -> Disruption:
    """Read a value of ``disruption``.

    :raises ValueError: the text is no grade.
    """
    try:
        return Disruption(text.strip().lower())
    except ValueError:
        raise ValueError('it is not one of ' + ', '.join(Disruption)) from None


def parse_quota(text: str, longest: float = math.inf) -> MoveQuota:
    """Read a value of ``max_moves``, such as 2/7d.

    :param longest: seconds for which moves are remembered.
    :raises ValueError: the text is no quota, or counts moves for a longer time.
    """
    match = _QUOTA.fullmatch(text.strip())
    if match is None or not int(match[1]) or not int(match[2]):
        raise ValueError('it is no number of moves and time, such as 2/7d (m, h, d)')
    quota = MoveQuota(int(match[1]), int(match[2]) * _UNITS[match[3]])
    if quota.seconds > longest:
        raise ValueError('it counts moves for longer than [engine] keep_days keeps them: '
                         f'{longest / 86400:g}')
    return quota
