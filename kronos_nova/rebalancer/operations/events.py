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
"""Events: plans, changes of tasks, and commands of operators, from the rows of the database.

No table keeps events. A row tells the newest state, so states between two calls may be missed.
Clocks of processes differ, and a transaction may be committed after a later one: so a call reads
the last :data:`OVERLAP` seconds again, and its marker names the events that the caller has.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import re
import time
import zlib

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import events as store_events
from kronos_nova.rebalancer.store import rows

#: Seconds before the marker that each call reads again: more than clocks may differ.
OVERLAP = 60.0
#: Events that a marker names, at most. Of more than these in the overlap, those that a late
#: transaction brings may be missed.
MARKED = 500
#: Rows of each kind that a call reads, at most.
READ = 5000
#: Seconds between two looks at the database while a request waits.
LOOK_SECONDS = 1.0
MARKER_PATTERN = (rf'^[0-9]{{1,16}}\.[0-9]{{1,16}}-[0-9a-f]{{8}}\.'
                  rf'([0-9a-f]{{8}}){{0,{MARKED}}}$')
_SECOND = 1_000_000
#: Time in microseconds, and digest: events are in this order.
_Key = tuple[int, str]


@dataclasses.dataclass(frozen=True, slots=True)
class GivenNotice:
    """A notice to the owner of an instance, and the scope whose engine gave it."""

    scope: str
    notice: model.MoveNotice


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An event at a time (epoch seconds): exactly one of the rows is set."""

    id: str
    at: float
    plan: rows.PlanRow | None = None
    task: rows.TaskRow | None = None
    command: audits.AuditEntry | None = None
    notice: GivenNotice | None = None

    @property
    def digest(self) -> str:
        return f'{zlib.crc32(self.id.encode()):08x}'

    @property
    def key(self) -> _Key:
        return round(self.at * _SECOND), self.digest


@dataclasses.dataclass(frozen=True, slots=True)
class _Marker:
    """The caller has the events up to ``floor``, and later ones whose digests are ``seen``.

    ``end``: the time of its latest event, in microseconds.
    """

    end: int
    floor: _Key
    seen: frozenset[str]

    @property
    def since(self) -> float:
        """The time from which changes must be read, in epoch seconds."""
        return max(self.end - round(OVERLAP * _SECOND), self.floor[0]) / _SECOND


@dataclasses.dataclass(frozen=True, slots=True)
class EventPage:
    """Events, oldest first, and the marker for the next call."""

    events: Sequence[Event]
    marker: str


def make_marker(at: float) -> str:
    """Return the marker of a caller that has all events before a time (epoch seconds)."""
    moment = round(at * _SECOND)
    return _format_marker(moment, (moment, '0' * 8), ())


def list_events(session: sessions.DatabaseSession, marker: str | None, limit: int) -> EventPage:
    """List the events after the marker; None: no event, and the marker of now.

    :raises NotFoundError: it is no marker.
    """
    if marker is None:
        begun = _Marker(round(session.store.events.list_changes(None, READ).now * _SECOND),
                        (0, '0' * 8), frozenset())
    else:
        begun = _parse_marker(marker)
    changes = session.store.events.list_changes(begun.since, READ)
    events = sorted((event for event in _list_changed(changes) if event.key > begun.floor),
                    key=lambda event: event.key)
    # Without a marker the caller has seen the events of the overlap: they are not new.
    missing = [] if marker is None else [
        event for event in events if event.digest not in begun.seen]
    new, later = missing[:limit], missing[limit:]
    # A clock that is ahead must not hide the events of others.
    now = round(changes.now * _SECOND)
    end = max([begun.end, *(min(event.key[0], now) for event in new)])
    undelivered = {event.id for event in later}
    known = [event.key for event in events if event.id not in undelivered
             and event.key[0] >= end - OVERLAP * _SECOND]
    floor = begun.floor
    if not new and READ in (len(changes.plans), len(changes.tasks), len(changes.commands),
                            len(changes.notices)):
        floor = events[-1].key if events else (floor[0] + 1, floor[1])
    elif len(known) > MARKED:
        # Not above an event that the caller lacks.
        floor = max((key for key in known[:-MARKED] if not later or key < later[0].key),
                    default=floor)
    return EventPage(new, _format_marker(end, floor, [key[1] for key in known if key > floor]))


def _list_changed(changes: store_events.ChangedRows) -> Iterator[Event]:
    for row in changes.plans:
        yield Event(f'plan-{row.plan_id}', row.created_at, plan=row)
    for task_row in changes.tasks:
        task = task_row.task
        yield Event(f'task-{task.task_id}-{task.state}-{task_row.updated_at:.6f}',
                    task_row.updated_at, task=task_row)
    for number, entry in changes.commands:
        yield Event(f'command-{number}', entry.at, command=entry)
    for scope, notice in changes.notices:
        yield Event(f'notice-{notice.instance_uuid}-{notice.noticed_at:.6f}', notice.noticed_at,
                    notice=GivenNotice(scope, notice))


def wait_for_events(session: sessions.DatabaseSession, marker: str | None, limit: int,
                    seconds: float, sleep: Callable[[float], None] = time.sleep,
                    clock: Callable[[], float] = time.monotonic) -> EventPage:
    """Return the events after the marker as soon as there are any, or none after the seconds.

    :raises NotFoundError: it is no marker.
    """
    end = clock() + seconds
    while True:
        page = list_events(session, marker, limit)
        left = end - clock()
        if page.events or marker is None or left <= 0:
            return page
        sleep(min(LOOK_SECONDS, left))


def _parse_marker(marker: str) -> _Marker:
    if re.fullmatch(MARKER_PATTERN, marker) is None:
        raise exception.NotFoundError(path='query', field='since', problem='it is no marker',
                                      remedy='Begin without a marker')
    end, floor, digests = marker.split('.')
    at, _dash, digest = floor.partition('-')
    return _Marker(int(end), (int(at), digest),
                   frozenset(digests[n:n + 8] for n in range(0, len(digests), 8)))


def _format_marker(end: int, floor: _Key, digests: Sequence[str]) -> str:
    return f'{end}.{floor[0]}-{floor[1]}.{"".join(digests[-MARKED:])}'
