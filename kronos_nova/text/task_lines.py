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

"""Lines about parts of a task. Names that come from outside are printable already."""

from collections.abc import Mapping
from typing import Any

from kronos_nova.text import printable


def format_alternate(alternate: Mapping[str, Any]) -> str:
    """Return a destination for a further attempt: host and improvement."""
    improvement = alternate['improvement']
    return f'{alternate["host"]}' + ('' if improvement is None else f' ({improvement:.4f})')


def format_attempt(attempt: Mapping[str, Any]) -> str:
    """Return an attempt that has ended, and on a second line the length of its phases.

    :param attempt: has to_host, started_at, ended_at, migration_uuid, error_type, error, phases.
    """
    migration, kind = attempt['migration_uuid'], attempt['error_type']
    return (f'{attempt["to_host"]}, {attempt["started_at"]} to {attempt["ended_at"]}'
            + (f', migration {migration}' if migration else '')
            + (f': {kind}: {attempt["error"]}' if kind else ': completed')
            + _format_phases(attempt['phases']))


def format_step(step: Mapping[str, Any]) -> str:
    """Return a step against a migration that does not converge, with Nova's answer.

    :param step: has kind, at, reason, answer, seconds, expected_seconds.
    """
    text = (f'{step["kind"]}, {step["at"]}: {step["reason"]}: '
            f'{step["answer"] or "no answer is known"}')
    expected = step.get('expected_seconds')  # A server of an earlier release has none.
    if step['seconds'] is not None:
        text += f'; it had arrived about {step["seconds"]:.0f} s later'
    if expected is not None:
        text += f'; {expected:.0f} s were expected for a pause'
    return printable.format_printable(text)


def format_owed_hook(name: str, host: str, begun_at: str, tries: int, error: str | None) -> str:
    """Return a hook that has begun and has not ended."""
    failed = f', tried {tries} times: {error}' if tries else ''
    return printable.format_printable(f'{name} for {host}, since {begun_at}{failed}')


def format_doubt(doubt: str, since: str) -> str:
    """Return an executor's doubt about a task that Nova was asked for."""
    return f'{doubt}, since {since}'


def format_retries(count: int, most: int) -> str:
    """Return the number of repeated attempts and their limit."""
    return f'{count} of {most}'


def _format_phases(seconds: Mapping[str, float]) -> str:
    """Return the phases of an attempt as its second line."""
    if not seconds:
        return ''
    return '\n  ' + ', '.join(f'{name} {value:.0f} s' for name, value in seconds.items())
