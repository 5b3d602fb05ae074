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

"""Liveness of a scope, by the database: does an engine plan it, does an executor serve it."""

from collections.abc import Iterator
from typing import Any

from kronos_nova.text import plan_lines


def has_executor(census: Any, scope: str) -> bool:
    """Return True if an executor that serves the scope reported within three minutes."""
    return any(served is None or scope in served for served in census.executors.values())


def list_causes(conf: Any, store: Any, scopes: Any) -> dict[str, tuple[str, ...]]:
    """Return, by scope, why its moves are not made although planning may find some."""
    census, leased = store.statistics.read_census(), store.leases.list_leased_scopes()
    return {scope: tuple(_list_scope_causes(conf, census, leased, scope)) for scope in scopes}


def _list_scope_causes(conf: Any, census: Any, leased: Any, scope: str) -> Iterator[str]:
    if conf.engine.dry_run:
        yield 'dry run: [engine] dry_run is set, so plans are shown and no move is made'
        return
    if scope not in leased:
        yield (f'no live engine: none holds the lease of scope {scope}, so no cycle plans it '
               'until kronos-engine runs')
    if not has_executor(census, scope):
        yield plan_lines.NO_EXECUTOR.format(scope)


def describe_missing_engine(dry_run: bool | None, planned_at: float | None, now: float) -> str:
    """Say that no engine holds a scope's lease, and when the scope was last planned."""
    last = ('never planned' if planned_at is None
            else f'last plan {_format_elapsed(now - planned_at)}')
    return f'{"dry run" if dry_run else "none"} ({last})'


def _format_elapsed(seconds: float) -> str:
    for size, unit in ((86400, 'd'), (3600, 'h'), (60, 'min')):
        if seconds >= size:
            return f'{seconds // size:.0f} {unit} ago'
    return f'{max(0.0, seconds):.0f} s ago'
