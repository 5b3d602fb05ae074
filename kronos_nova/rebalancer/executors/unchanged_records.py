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

"""Versions of the migrations' records in Nova, and for how long an executor has seen each.

Only monotonic time counts within an executor: the database's clock may jump. Nova's own time of a
record only tells one version from another, since our clock and Nova's may differ.
"""

import dataclasses

from kronos_nova.rebalancer.store import rows

#: Seconds that a record must stay unchanged before we note that.
NOTED_AFTER = 60.0


@dataclasses.dataclass(slots=True)
class SeenVersion:
    """A version of a record that executors have seen since ``began``, by monotonic time.

    ``note``: the newest note about this version (``doubt_since`` and ``doubt`` of the row),
    written at this age in minutes; None: the record has not been unchanged for NOTED_AFTER.
    """

    version: str
    began: float
    minutes: int = 0
    note: tuple[float, str] | None = None


def follow_version(row: rows.TaskRow, seen_version: SeenVersion | None, version: str | None, *,
                   now: float, read_at: float, monotonic: float) -> SeenVersion | None:
    """Return the version that a look has found, with its note.

    The note is another one each minute, until the task has lost its slots. None: the version is
    unknown.

    :param seen: the version of the look before, if any.
    :param now: time by the database's clock.
    :param read_at: monotonic time before the look: Nova may have changed the record since.
    :param monotonic: monotonic time at ``now``.
    """
    if version is None:
        return None
    read_when = now - (monotonic - read_at)
    if seen_version is None:
        seen_version = (_adopt_note(row, version, read_when, read_at)
                        or SeenVersion(version, monotonic))
    elif seen_version.version != version:
        seen_version = SeenVersion(version, monotonic)
    seconds = read_at - seen_version.began
    minutes = int(min(seconds, rows.SLOT_SECONDS) // 60)
    if seconds >= NOTED_AFTER and minutes != seen_version.minutes:
        since = read_when - seconds
        seen_version.minutes, seen_version.note = minutes, (
            since, rows.note_unchanged(since, version, seconds))
    return seen_version


def _adopt_note(row: rows.TaskRow, version: str, read_when: float,
                read_at: float) -> SeenVersion | None:
    """Return the version of a predecessor's note; None: it noted none, or another one."""
    since = rows.find_unchanged_since(row.doubt, row.doubt_since, version)
    if since is None or row.doubt is None:
        return None
    seen_version = SeenVersion(version, read_at - rows.count_unchanged_seconds(
        row.doubt, since, version, read_when))
    if rows.has_lost_slots(row.doubt, since):
        seen_version.minutes, seen_version.note = int(rows.SLOT_SECONDS // 60), (since, row.doubt)
    return seen_version
