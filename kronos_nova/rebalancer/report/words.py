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

"""Names, numbers and times as a report writes them."""

import datetime

from kronos_nova import plurals

#: Longest name in a report, in characters; a host's name may have 255.
LONGEST = 80
_LAST = 253402214400.0


def format_value(value: object) -> object:
    """Return the form of a value that is written into a report.

    In texts a question mark replaces each character that is not printable, such as controls and
    marks that turn the text's direction.
    """
    if hasattr(value, '__html__'):
        return value
    if value is None:
        return '-'
    return ''.join(c if c.isprintable() else '?' for c in str(value))


def clip_text(text: str, length: int = LONGEST) -> str:
    return text if len(text) <= length else text[:length - 1] + '\N{HORIZONTAL ELLIPSIS}'


def format_number(value: float | None) -> str:
    """Format a score or imbalance."""
    return '\N{EN DASH}' if value is None else f'{value:.2f}'


def format_fine_number(value: float | None) -> str:
    """Format a score or imbalance where small steps count."""
    return '\N{EN DASH}' if value is None else f'{value:.4f}'


def format_moment(at: float) -> str:
    """Format epoch seconds for readers, in UTC."""
    return f'{_convert_to_utc(at):%Y-%m-%d %H:%M:%S} UTC'


def format_timestamp(at: float) -> str:
    """Format epoch seconds for programs: RFC 3339."""
    return _convert_to_utc(at).isoformat(timespec='seconds')


def format_clock_time(at: float, days: bool) -> str:
    """Format the text of a mark on a time line."""
    return f'{_convert_to_utc(at):%m-%d %H:%M}' if days else f'{_convert_to_utc(at):%H:%M:%S}'


def format_offset(seconds: float) -> str:
    """Format the seconds after a wave's start."""
    if seconds < 120:
        return f'+{seconds:.0f} s'
    minutes, rest = divmod(round(seconds), 60)
    return f'+{minutes} min' + (f' {rest} s' if rest else '')


def format_span(seconds: float) -> str:
    """Format an expected time in whole minutes or hours."""
    if seconds >= 7200:
        return f'{seconds / 3600:.1f} hours'
    return plurals.count_noun(max(1, round(seconds / 60)), 'minute')


def _convert_to_utc(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(min(max(at, 0.0), _LAST), datetime.UTC)
