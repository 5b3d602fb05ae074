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

"""Campaigns as the database has them.

A row that a person has written by hand may have a value that no program of ours writes: such a
campaign is unreadable, and others are not.
"""

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import json
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.store import campaign_stats
from kronos_nova.rebalancer.store import tables

_host = tables.campaign_host
_T = TypeVar('_T')
#: 9999-12-31: a time after it has no date.
_LAST_TIME = 253402214400.0
_MOST = 2**31 - 1
#: Characters of a bad value that an error shows.
_SHOWN = 60
_BEGUN = [state.value for state in model.CampaignHostState if state.is_begun]

Found = model.Campaign | model.UnreadableCampaign
FoundOverview = model.CampaignOverview | model.UnreadableCampaign


class LeftHost(NamedTuple):
    """A host that Nova shows disabled for a campaign which is not at work there."""

    host: str
    campaign_id: str
    reason: str
    state: model.CampaignHostState


class _FieldError(ValueError):
    """A value of a row that no program of ours writes."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem


def require_readable(found: Found) -> model.Campaign:
    """Return the campaign.

    :raises UnreadableRowError: its row has a value that no program of ours writes.
    """
    if isinstance(found, model.Campaign):
        return found
    raise exception.UnreadableRowError(
        path='database', field=f'campaign {found.campaign_id}',
        problem=f'it cannot be read: {found.field}: {found.problem}', remedy=found.remedy)


def build_host(row: Any) -> model.CampaignHost:
    """Return a host of a campaign.

    :raises ValueError: a column has a value that no program of ours writes.
    """
    def read(column: str, parse: Callable[[Any], _T]) -> _T:
        return _parse_field(f'{_host.name}.{column} of host {row.host!r}', parse,
                            getattr(row, column))

    state = read('state', _parse_host_state)
    announced_at, asked_at = (read(column, _parse_optional_seconds)
                              for column in ('announced_at', 'asked_at'))
    if state is not model.CampaignHostState.HELD:
        # An engine of the release before has written its request there alone.
        asked_at = max(filter(None, (announced_at, asked_at)), default=None)
        announced_at = None
    return model.CampaignHost(
        row.host, read('position', int), state,
        read('since', _parse_seconds), read('disabled_at', _parse_optional_seconds), row.worker,
        announced_at, row.detail, asked_at)


def read_campaigns(connection: sa.Connection, query: sa.Select[Any]) -> list[Found]:
    found = connection.execute(query).all()
    hosts = _read_hosts(connection, [row.campaign_id for row in found])
    return [_build_readable(row, lambda row: _build_campaign(row, [
        build_host(host) for host in hosts[row.campaign_id]])) for row in found]


def _read_hosts(connection: sa.Connection, campaign_ids: Collection[str],
                *conditions: sa.ColumnElement[bool]) -> Mapping[str, Sequence[Any]]:
    """Return the rows of the hosts of campaigns, by campaign."""
    hosts = defaultdict[str, list[Any]](list)
    for row in connection.execute(
            sa.select(_host).where(_host.c.campaign_id.in_(sorted(campaign_ids)), *conditions)
            .order_by(_host.c.position, _host.c.host)) if campaign_ids else ():
        hosts[row.campaign_id].append(row)
    return hosts


def _is_time(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    return sa.or_(column.is_(None), column.between(0.0, _LAST_TIME))


#: Rows of hosts that can be read. A text in place of a number is greater than any number.
_READABLE = sa.and_(
    _host.c.position.between(-_MOST, _MOST),
    _host.c.state.in_([state.value for state in model.CampaignHostState]),
    *map(_is_time, (_host.c.since, _host.c.disabled_at, _host.c.announced_at, _host.c.asked_at)))


def read_overviews(connection: sa.Connection, query: sa.Select[Any], *,
                   with_begun: bool) -> list[FoundOverview]:
    """Return campaigns without the rows of their hosts, which are counted.

    A campaign with a row of a host that cannot be read is unreadable here as well.

    :param with_begun: read the hosts that have begun.
    """
    found = connection.execute(query).all()
    ids = [row.campaign_id for row in found]
    counts = campaign_stats.count_hosts_by_state(connection, ids)
    next_hosts = campaign_stats.map_next_hosts(connection, ids)
    begun = _read_hosts(connection, ids, _host.c.state.in_(_BEGUN)) if with_begun else {}
    bad = _read_hosts(connection, ids, sa.not_(_READABLE))

    def build_overview(row: Any) -> model.CampaignOverview:
        for host in bad.get(row.campaign_id, ()):
            build_host(host)
        numbers = {_parse_field(f'{_host.name}.state', _parse_host_state, state): number
                   for state, number in counts.get(row.campaign_id, {}).items()}
        return model.CampaignOverview(
            _build_campaign(row, ()),
            {state: numbers[state] for state in model.CampaignHostState if state in numbers},
            next_hosts.get(row.campaign_id),
            tuple(build_host(host) for host in begun.get(row.campaign_id, ())))

    return [_build_readable(row, build_overview) for row in found]


def _build_readable(row: Any, build: Callable[[Any], _T]) -> _T | model.UnreadableCampaign:
    try:
        return build(row)
    except _FieldError as e:
        return model.UnreadableCampaign(row.campaign_id, row.scope, e.field, e.problem)


def _build_campaign(row: Any, hosts: Iterable[model.CampaignHost]) -> model.Campaign:
    """Return a campaign.

    :raises _FieldError: a column has a value that no program of ours writes.
    """
    def read(column: str, parse: Callable[[Any], _T]) -> _T:
        return _parse_field(column, parse, getattr(row, column))

    created_at = read('created_at', _parse_seconds)
    changed_at = read('changed_at', _parse_optional_seconds)
    return model.Campaign(
        row.campaign_id, row.scope, row.reason, read('together', _parse_together), created_at,
        row.created_by, read('state', _parse_state), read('windows', _parse_windows),
        bool(row.opened), row.held_by, row.held_because, row.waits,
        read('migrations', _parse_count), read('seconds', _parse_optional_seconds),
        read('ended_at', _parse_optional_seconds), tuple(hosts), row.authorization or '',
        created_at if changed_at is None else changed_at,
        0 if row.refusals is None else read('refusals', _parse_count))


class _WrongValueError(ValueError):
    """A wrong value; its text follows the value in a sentence."""


def _parse_field(name: str, parse: Callable[[Any], _T], value: object) -> _T:
    """Return what ``parse`` makes of a value.

    :raises _FieldError: it raises an error.
    """
    try:
        return parse(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as e:
        shown = repr(value)
        if len(shown) > _SHOWN:
            shown = f'{shown[:_SHOWN]}...'
        why = str(e) if isinstance(e, _WrongValueError) else 'cannot be read'
        raise _FieldError(name, f'{shown} {why}') from None


def _parse_state(value: str) -> model.CampaignState:
    try:
        return model.CampaignState(value)
    except ValueError:
        raise _WrongValueError(
            'is no state of a campaign: ' + ', '.join(model.CampaignState)) from None


def _parse_host_state(value: str) -> model.CampaignHostState:
    try:
        return model.CampaignHostState(value)
    except ValueError:
        raise _WrongValueError(
            'is no state of a host: ' + ', '.join(model.CampaignHostState)) from None


def _parse_seconds(value: Any) -> float:
    """Return seconds, also those of a time since the epoch.

    :raises ValueError: they are negative, or no datetime has them.
    """
    seconds = float(value)
    if not 0.0 <= seconds <= _LAST_TIME:
        raise _WrongValueError('is no time')
    return seconds


def _parse_optional_seconds(value: Any) -> float | None:
    return None if value is None else _parse_seconds(value)


def _parse_count(value: Any, least: int = 0) -> int:
    count = int(value)
    if not least <= count <= _MOST:
        raise _WrongValueError(f'is no number from {least} on')
    return count


def _parse_together(value: Any) -> int:
    return _parse_count(value, 1)


def _parse_windows(value: str) -> tuple[maintenance_windows.MaintenanceWindow, ...]:
    """Return windows.

    :raises ValueError: the text is no list of windows in JSON.
    """
    texts = json.loads(value)
    if not isinstance(texts, list) or len(texts) > maintenance_windows.MOST or not all(
            isinstance(text, str) for text in texts):
        raise _WrongValueError(
            f'is no list of at most {maintenance_windows.MOST} texts in JSON')
    try:
        return tuple(map(maintenance_windows.parse_window, texts))
    except ValueError as e:
        raise _WrongValueError(f'has a window that cannot be read: {e}') from None
