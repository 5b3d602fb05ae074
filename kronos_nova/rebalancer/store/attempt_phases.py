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


"""Durations of the phases of an attempt: pure.

The current attempt is a list of marks (phase, epoch seconds of its beginning), the oldest first; a
phase may come several times. The list is stored in the task's row, so that an executor that takes
the task over continues it.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import json

QUEUE = 'queue'
PRE_FLIGHT = 'pre_flight'
HOOKS = 'hooks'
PRE_CHECK = 'pre_check'
PREPARING = 'preparing'
RUNNING = 'running'
POST_MIGRATING = 'post_migrating'
POST_FLIGHT = 'post_flight'

#: All phases, in the order of an attempt.
PHASES = (QUEUE, PRE_FLIGHT, HOOKS, PRE_CHECK, PREPARING, RUNNING, POST_MIGRATING, POST_FLIGHT)
#: Phases whose times Nova records.
NOVAS = (PRE_CHECK, PREPARING, RUNNING, POST_MIGRATING)

#: Migration statuses of Nova -> phase; other statuses tell nothing.
#: Source: nova.compute.manager, live_migration and _do_live_migration.
OF_STATUS: Mapping[str, str] = {
    'accepted': PRE_CHECK, 'queued': PRE_CHECK, 'pre-migrating': PRE_CHECK,
    'preparing': PREPARING, 'running': RUNNING, 'running (post-copy)': RUNNING,
    'migrating': RUNNING, 'post-migrating': POST_MIGRATING, 'finished': POST_MIGRATING}

Marks = tuple[tuple[str, float], ...]


def begin_phase(marks: Marks, phase: str, at: float) -> Marks:
    """Return the marks with the phase that begins at ``at``, unless it is the current one."""
    if marks and marks[-1][0] == phase:
        return marks
    return (*marks, (phase, at))


def is_later_phase(marks: Marks, phase: str | None) -> bool:
    """Return whether the phase comes after the current one.

    A look at Nova may be older than the recorded phase.
    """
    if phase is None or not marks or marks[-1][0] not in PHASES:
        return False
    return PHASES.index(phase) > PHASES.index(marks[-1][0])


def compute_phase_seconds(marks: Marks, end: float, measured: Mapping[str, float] | None = None) \
        -> dict[str, float]:
    """Return the seconds of each phase, in the order of :data:`PHASES`.

    :param end: end of the attempt, epoch seconds.
    :param measured: seconds of phases by Nova's own clock, from its record of our request until
        the end of its migration; the rest of the time since our request is then post_flight. None:
        only the marks are known, from looks at Nova.
    """
    phase_seconds: dict[str, float] = {}
    ends = [*(at for _phase, at in marks), end][1:]
    for (phase, since), until in zip(marks, ends, strict=True):
        phase_seconds[phase] = phase_seconds.get(phase, 0.0) + max(0.0, until - since)
    if measured:
        pre_check_times = [at for phase, at in marks if phase == PRE_CHECK]
        if pre_check_times:
            for phase in (*NOVAS, POST_FLIGHT):
                phase_seconds.pop(phase, None)
            phase_seconds |= {phase: measured[phase] for phase in NOVAS if phase in measured}
            phase_seconds[POST_FLIGHT] = max(
                0.0, end - pre_check_times[-1] - sum(measured.values()))
    return {phase: round(phase_seconds[phase], 3) for phase in PHASES if phase in phase_seconds}


def compute_intervals(times: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the seconds of each phase from when it began; the last pair names the end.

    A phase whose beginning is unknown is part of the one before. The result is empty when time
    runs backwards.

    :param times: (phase, epoch seconds) in order; the first must be known.
    """
    known = [(phase, at) for phase, at in times if at is not None]
    if any(later < earlier for (_, earlier), (_, later)
           in zip(known, known[1:], strict=False)):
        return {}
    return {phase: until - at for (phase, at), (_, until) in zip(known, known[1:], strict=False)}


def format_phase_starts(marks: Marks) -> str:
    """Format marks as JSON text."""
    return json.dumps(marks)


def parse_phase_starts(text: str | None) -> Marks:
    """Parse marks from JSON text; a row of an earlier release has none."""
    return tuple((str(phase), float(at)) for phase, at in json.loads(text or '[]'))
