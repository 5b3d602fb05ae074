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

from collections.abc import Mapping
import dataclasses
import enum
import math
import re
from typing import NamedTuple

from kronos_nova.model import movement_hours

#: Most characters of a value.
LONGEST = 128
DISRUPTION, HOURS, MAX_MOVES = 'disruption', 'hours', 'max_moves'
NOTIFY, RELEASE = 'notify', 'release'
#: The longest notice, in seconds.
LONGEST_NOTICE = 30 * 86400
#: Start of the keys in metadata, tags and extra specs.
PREFIX = 'kronos:'
_UNITS = {'m': 60, 'h': 3600, 'd': 86400}
#: A tag cannot have a slash, so a colon stands for it.
_QUOTA = re.compile(r'([0-9]{1,4})[/:]([0-9]{1,4})([mhd])')
_PERIOD = re.compile(r'([0-9]{1,5})([mhd])')


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
        return f'{self.moves}/{_format_period(self.seconds)}'


@dataclasses.dataclass(frozen=True, slots=True)
class NoticePeriod:
    """The ``seconds`` between a notice and the move that it announces, at least."""

    seconds: int

    def __str__(self) -> str:
        return _format_period(self.seconds)


class NoticeReason(enum.StrEnum):
    """The reason for the move that a notice announces."""

    DRAIN = 'drain'
    BALANCE = 'balance'


@dataclasses.dataclass(frozen=True, slots=True)
class MoveNotice:
    """A notice to the owner of an instance that Kronos is about to move it off ``host``.

    Times in epoch seconds. The move begins at ``movable_from`` at the earliest, as far as contracts
    say today, and before ``valid_until``; then the notice has lapsed. A move off the host, and
    ``used_at``, when one completed, use it up. ``may_shut_down``: it says that a drain shuts the
    instance down if its live migration is late.
    """

    instance_uuid: str
    project_id: str
    host: str
    reason: NoticeReason
    noticed_at: float
    movable_from: float
    valid_until: float
    used_at: float | None = None
    may_shut_down: bool = False


class ContractRecords(NamedTuple):
    """The fields of a MoveHistory that contracts of instances count, by instance UUID."""

    move_times: Mapping[str, tuple[float, ...]]
    notices: Mapping[str, MoveNotice]


@dataclasses.dataclass(frozen=True, slots=True)
class Contract:
    """What one source states about an instance; None: it does not say.

    ``release``: until then (epoch seconds) its owner waives notices. ``unreadable``: those of the
    keys, without their prefix, whose values cannot be read. ``ineffective``: the number of keys
    with the prefix that have no effect; their text is not kept.
    """

    source: ContractSource
    disruption: Disruption | None = None
    hours: movement_hours.MovementHours | None = None
    max_moves: MoveQuota | None = None
    unreadable: tuple[str, ...] = ()
    notify: NoticePeriod | None = None
    release: float | None = None
    ineffective: int = 0

    def __str__(self) -> str:
        stated = [f'{key} {value}' for key, value in (
            (DISRUPTION, self.disruption), (HOURS, self.hours), (MAX_MOVES, self.max_moves),
            (NOTIFY, self.notify)) if value is not None]
        return f'{", ".join([*stated, *(f"{key} unreadable" for key in self.unreadable)])}' \
               f' ({self.source})'


@dataclasses.dataclass(frozen=True, slots=True)
class ContractOptions:
    """The options of [contracts] that rules read; names are the options' names.

    ``strongest_for_tenants``: statements of tenants forbid no more than it does. ``ignore_after``:
    from then on (epoch seconds) statements of tenants hold no drain and no requested move; None:
    they always hold. ``opt_out``: what an instance that is opted out forbids. ``timezone``: by
    whose clocks hours count. ``begin_within``: seconds between a plan and the begin of its moves,
    for which hours must be open; 0 at the move itself.
    """

    strongest_for_tenants: Disruption = Disruption.POWEROFF_OK
    ignore_after: float | None = None
    opt_out: Disruption = Disruption.NEVER
    timezone: str = 'UTC'
    begin_within: float = movement_hours.BEGIN_WITHIN


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


def parse_notice(text: str) -> NoticePeriod:
    """Read a value of ``notify``, such as 24h.

    :raises ValueError: the text is no time, or longer than 30 days.
    """
    match = _PERIOD.fullmatch(text.strip())
    seconds = 0 if match is None else int(match[1]) * _UNITS[match[2]]
    if not 0 < seconds <= LONGEST_NOTICE:
        raise ValueError('it is no time from 1m to 30d, such as 24h (m, h, d)')
    return NoticePeriod(seconds)


def _format_period(seconds: int) -> str:
    for unit, length in (('d', 86400), ('h', 3600)):
        if seconds % length == 0:
            return f'{seconds // length}{unit}'
    return f'{seconds // 60}m'
