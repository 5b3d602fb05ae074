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


"""How long the phases of an attempt take: pure.

What is under way is a list of marks (phase, epoch seconds of its beginning), the oldest
first; a phase may come several times. The list stands in the task's row, so that
whoever takes over goes on with it.
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

#: In the order of an attempt.
PHASES = (QUEUE, PRE_FLIGHT, HOOKS, PRE_CHECK, PREPARING, RUNNING, POST_MIGRATING, POST_FLIGHT)
#: Those that Nova has the times of.
NOVAS = (PRE_CHECK, PREPARING, RUNNING, POST_MIGRATING)

#: Migration statuses of Nova -> phase; what is not here says nothing.
#: Source: nova.compute.manager, live_migration and _do_live_migration.
OF_STATUS: Mapping[str, str] = {
    'accepted': PRE_CHECK, 'queued': PRE_CHECK, 'pre-migrating': PRE_CHECK,
    'preparing': PREPARING, 'running': RUNNING, 'running (post-copy)': RUNNING,
    'migrating': RUNNING, 'post-migrating': POST_MIGRATING, 'finished': POST_MIGRATING}

Marks = tuple[tuple[str, float], ...]


def begun(marks: Marks, phase: str, at: float) -> Marks:
    """With the phase that begins then, unless it is the one that lasts."""
    if marks and marks[-1][0] == phase:
        return marks
    return (*marks, (phase, at))


def later(marks: Marks, phase: str | None) -> bool:
    """Whether the phase comes after the one that lasts: a look at Nova may be older than
    what is known already."""
    if phase is None or not marks or marks[-1][0] not in PHASES:
        return False
    return PHASES.index(phase) > PHASES.index(marks[-1][0])


def seconds(marks: Marks, end: float, measured: Mapping[str, float] | None = None) \
        -> dict[str, float]:
    """Of each phase, in the order of :data:`PHASES`.

    :param end: of the attempt, epoch seconds.
    :param measured: seconds of phases by Nova's own clock, from its record of our request
        until the end of its migration; none: what looks have found is all that is known.
        What is left of the time since our request is then post_flight.
    """
    found: dict[str, float] = {}
    ends = [*(at for _phase, at in marks), end][1:]
    for (phase, since), until in zip(marks, ends, strict=True):
        found[phase] = found.get(phase, 0.0) + max(0.0, until - since)
    if measured:
        asked = [at for phase, at in marks if phase == PRE_CHECK]
        if asked:
            for phase in (*NOVAS, POST_FLIGHT):
                found.pop(phase, None)
            found |= {phase: measured[phase] for phase in NOVAS if phase in measured}
            found[POST_FLIGHT] = max(0.0, end - asked[-1] - sum(measured.values()))
    return {phase: round(found[phase], 3) for phase in PHASES if phase in found}


def between(times: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Seconds of each phase from when it began; the last pair names the end. A phase whose
    beginning is not known is part of the one before; empty when time runs backwards.

    :param times: (phase, epoch seconds) in order; the first must be known.
    """
    known = [(phase, at) for phase, at in times if at is not None]
    if any(later < earlier for (_, earlier), (_, later)
           in zip(known, known[1:], strict=False)):
        return {}
    return {phase: until - at for (phase, at), (_, until) in zip(known, known[1:], strict=False)}


def document(marks: Marks) -> str:
    """As JSON text."""
    return json.dumps(marks)


def marks(text: str | None) -> Marks:
    """Of what :func:`document` wrote; of a row of an earlier release nothing."""
    return tuple((str(phase), float(at)) for phase, at in json.loads(text or '[]'))
