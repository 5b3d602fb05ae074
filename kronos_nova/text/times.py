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

"""Times and durations as people write them on a command line."""

import contextlib
import datetime
import re

UNITS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}
DURATION = re.compile(r'(?:\d+(?:\.\d+)?[smhdw])+')
PART = re.compile(r'(\d+(?:\.\d+)?)([smhdw])')
NUMBER = re.compile(r'\d+(?:\.\d+)?')
#: 9999-12-31, the last day that a calendar can show.
LAST = 253402214400.0


def parse_duration(text: str) -> float:
    """Return ``300``, ``5m``, ``1h30m`` or ``2d`` in seconds.

    :raises ValueError: the text is no duration; the message shows the valid forms.
    """
    if NUMBER.fullmatch(text):
        return float(text)
    if not DURATION.fullmatch(text):
        raise ValueError(f'{text!r} is no duration; write 300, 5m, 1h30m or 2d')
    return sum(float(number) * UNITS[unit] for number, unit in PART.findall(text))


def parse_time(text: str, now: float) -> float:
    """Return a time in epoch seconds.

    The text is RFC 3339, epoch seconds, ``now``, or a duration before now (``-2d``). A date without
    a zone is UTC.

    :raises ValueError: the text is no time; the message shows the valid forms.
    """
    wrong = ValueError(f'{text!r} is no time; write 2026-11-01T00:00:00Z, 1793491200, now or -2d')
    try:
        if text == 'now':
            seconds = now
        elif text.startswith('-'):
            seconds = now - parse_duration(text[1:])
        elif NUMBER.fullmatch(text):
            seconds = float(text)
        else:
            parsed = datetime.datetime.fromisoformat(text)
            if parsed.tzinfo is None:
                parsed = parsed.replace(tzinfo=datetime.UTC)
            seconds = parsed.timestamp()
    except (ValueError, OverflowError):
        raise wrong from None
    if not 0.0 <= seconds <= LAST:
        raise wrong
    return seconds


def parse_moment(text: str) -> float | datetime.timedelta:
    """Return a time in epoch seconds, or how long before a time that is known later.

    The text is that of :func:`parse_time`; ``now`` and ``-2d`` are before a later time.

    :raises ValueError: the text is no time; the message shows the valid forms.
    """
    if text == 'now':
        return datetime.timedelta()
    if text.startswith('-'):
        with contextlib.suppress(ValueError, OverflowError):
            return datetime.timedelta(seconds=parse_duration(text[1:]))
    return parse_time(text, 0.0)


def parse_deadline(text: str) -> float | datetime.timedelta:
    """Return a time in epoch seconds, or a duration from a time that is known later.

    A date without a zone is UTC. A number without a unit is neither.

    :raises ValueError: the text is neither; the message shows the valid forms.
    """
    if text != 'now' and not text.startswith('-') and not NUMBER.fullmatch(text):
        with contextlib.suppress(ValueError, OverflowError):
            return datetime.timedelta(seconds=parse_duration(text))
        with contextlib.suppress(ValueError):
            return parse_time(text, 0.0)
    raise ValueError(f'{text!r} is no deadline; write a duration with its unit, 2h or 1d12h, or a '
                     'time, 2026-11-01T06:00:00Z')


def clamp_time(at: float) -> float:
    """Return epoch seconds that a calendar can show; NaN becomes 0."""
    return min(LAST, max(0.0, at))


def format_time(at: float) -> str:
    """Return epoch seconds as RFC 3339 in UTC."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec='seconds')
