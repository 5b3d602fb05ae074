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

"""Campaigns and their hosts.

Engines write under the lease of the scope, operators without one. Each change of a state names the
states in which it may take place, so that of an engine and an operator one comes first.
"""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import json
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import campaign_reader
from kronos_nova.rebalancer.store import campaign_rows
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import task_claims

_campaign, _host = tables.campaign, tables.campaign_host
_OVER = [state.value for state in model.CampaignHostState if state.is_over]
_BEGUN = [state.value for state in model.CampaignHostState if state.is_begun]
#: Hosts that an abort leaves out at once, and the state that each gets.
_ABORTED = {model.CampaignHostState.TO_COME: model.CampaignHostState.SKIPPED,
            model.CampaignHostState.EMPTYING: model.CampaignHostState.WITHDRAWN}
#: Values of a host without a request to Nova that may come late, and without news for listeners.
_NO_REQUEST = {'announced_at': None, 'asked_at': None}


@dataclasses.dataclass(frozen=True, slots=True)
class HostOrder:
    """An operator's order for a host of a campaign: audit command, states before and after it.

    A host that is ``TO_COME`` before a withdrawal is not disabled, and ends at once.
    """

    command: str
    before: frozenset[model.CampaignHostState]
    after: model.CampaignHostState


class CampaignRepository(campaign_reader.CampaignReader):
    """Campaigns, which operators order and engines carry out."""

    def create_campaign(self, campaign: model.Campaign, reason: str) -> None:
        """Write a campaign with its hosts, and its audit row.

        :param reason: of the audit row.
        :raises ConflictError: a live campaign has the scope or one of the hosts.
        """
        def write_campaign(connection: sa.Connection) -> None:
            # First of all: two starts of scopes that share a host would not see each other.
            connection.execute(*task_claims.build_gate_update())
            _refuse_rival(connection, campaign)
            connection.execute(sa.insert(_campaign).values(
                campaign_id=campaign.campaign_id, scope=campaign.scope, live_scope=campaign.scope,
                reason=campaign.reason, together=campaign.together,
                created_at=campaign.created_at, created_by=_cut_name(campaign.created_by),
                state=campaign.state.value, opened=False, held_by='', held_because='', waits='',
                windows=json.dumps([window.text for window in campaign.windows]),
                migrations=campaign.migrations, seconds=campaign.seconds,
                authorization=campaign.authorization or None, changed_at=campaign.created_at))
            connection.execute(sa.insert(_host), [{
                'campaign_id': campaign.campaign_id, 'host': host.host,
                'position': host.position, 'state': host.state.value, 'since': host.since,
                'detail': ''} for host in campaign.hosts])
            audits.add_audit(connection, audits.AuditEntry(
                campaign.created_at, campaign.created_by, 'campaign started',
                _name_target(campaign.campaign_id), reason))
        self._runner.run_transaction(write_campaign)

    # Changes by engines.

    def begin_step(self, lease: rows.ScopeLease, campaign_id: str, hosts: Collection[str], *,
                   opened: bool, now: float) -> list[model.CampaignHost]:
        """Let hosts begin together; return those that are being emptied now.

        No host begins unless the campaign runs; one that an operator has left out does not.

        :param opened: their instances may move onto hosts that are to come.
        :raises LeaseLost: nothing was written.
        """
        def write_step(connection: sa.Connection) -> list[model.CampaignHost]:
            if not _hold_running(connection, campaign_id, opened=opened,
                                 changed_at=self._runner.build_now_clause()):
                return []
            _update_hosts(connection, campaign_id, model.CampaignHostState.TO_COME, hosts,
                          state=model.CampaignHostState.EMPTYING.value, since=now,
                          disabled_at=None, worker=None, detail='', **_NO_REQUEST)
            return [campaign_rows.build_host(row) for row in connection.execute(
                sa.select(_host).where(
                    _host.c.campaign_id == campaign_id, _host.c.host.in_(hosts),
                    _host.c.state == model.CampaignHostState.EMPTYING.value)
                .order_by(_host.c.position))]
        return self._runner.run_under_lease(lease, write_step)

    def return_hosts(self, lease: rows.ScopeLease, campaign_id: str, hosts: Collection[str],
                     now: float, detail: str = '') -> None:
        """Let hosts be to come again that began and that no engine has seen disabled.

        :param detail: why they are not disabled.
        :raises LeaseLost: nothing was written.
        """
        def write_return(connection: sa.Connection) -> None:
            self._mark_changed(connection, campaign_id)
            _update_hosts(connection, campaign_id, model.CampaignHostState.EMPTYING, hosts,
                          _host.c.disabled_at.is_(None),
                          state=model.CampaignHostState.TO_COME.value, since=now,
                          detail=detail, **_NO_REQUEST)
        self._runner.run_under_lease(lease, write_return)

    def ask_host(self, lease: rows.ScopeLease, campaign_id: str, host: str,
                 states: Collection[model.CampaignHostState], late_seconds: float, *,
                 disables: bool) -> bool:
        """Write that an engine asks Nova now to disable or to enable a host.

        Directly before the request: an engine that stood still since it read the database, or that
        an order of a person has overtaken, asks nothing.

        :param states: the host must still have one.
        :param late_seconds: for so long an earlier request may be on its way.
        :returns: False if the engine must not ask; nothing was written. A campaign disables a host
            only while it runs, and while no request for another campaign may be on its way; it
            enables none that another campaign has begun with.
        :raises LeaseLost: nothing was written.
        """
        def write_question(connection: sa.Connection) -> bool:
            # Requests of scopes that share the host see each other.
            connection.execute(*task_claims.build_gate_update())
            now = self._read_now(connection)
            if _has_rival(connection, campaign_id, host,
                          now - late_seconds if disables else None):
                return False
            if not disables:
                self._mark_changed(connection, campaign_id)
            elif not _hold_running(connection, campaign_id, changed_at=now):
                return False
            # Engines of the release before read a request in announced_at.
            return _update_host(connection, campaign_id, host, states, announced_at=now,
                                asked_at=now)
        return self._runner.run_under_lease(lease, write_question)

    def begin_work(self, lease: rows.ScopeLease, campaign_id: str, host: str, worker: str,
                   now: float) -> bool:
        """Write that an engine is about to run the command for a held host.

        :returns: False unless the campaign runs and the host is held; nothing is written then.
        :raises LeaseLost: nothing was written.
        """
        return self._runner.run_under_lease(lease, lambda c: (
            _hold_running(c, campaign_id, changed_at=self._runner.build_now_clause())
            and _update_host(
                c, campaign_id, host, (model.CampaignHostState.HELD,),
                state=model.CampaignHostState.WORKING.value, since=now, worker=worker, detail='')))

    def change_host(self, lease: rows.ScopeLease, campaign_id: str, host: model.CampaignHost,
                    **values: Any) -> bool:
        """Write columns of a host; return False if its state has changed meanwhile.

        :param host: as the engine has read it.
        :raises LeaseLost: nothing was written.
        """
        def write_host(connection: sa.Connection) -> bool:
            self._mark_changed(connection, campaign_id)
            return _update_host(connection, campaign_id, host.host, (host.state,), **values)
        return self._runner.run_under_lease(lease, write_host)

    def pause_campaign(self, lease: rows.ScopeLease, campaign_id: str, by: str,
                       because: str) -> bool:
        """Pause a campaign that runs, for an engine; return False if it does not run.

        :raises LeaseLost: nothing was written.
        """
        return self._runner.run_under_lease(lease, lambda c: _hold_running(
            c, campaign_id, state=model.CampaignState.PAUSED.value, held_by=_cut_name(by),
            held_because=because, changed_at=self._runner.build_now_clause()))

    def record_waits(self, lease: rows.ScopeLease, campaign_id: str, waits: str) -> None:
        """Write why no further host begins at the moment.

        :raises LeaseLost: nothing was written.
        """
        self._runner.run_under_lease(lease, lambda c: c.execute(
            sa.update(_campaign).where(_campaign.c.campaign_id == campaign_id)
            .values(waits=waits, changed_at=self._runner.build_now_clause())))

    def record_refusals(self, lease: rows.ScopeLease, campaign_id: str, number: int) -> None:
        """Write how many steps in a row gave way because of Nova.

        :raises LeaseLost: nothing was written.
        """
        self._runner.run_under_lease(lease, lambda c: c.execute(
            sa.update(_campaign).where(_campaign.c.campaign_id == campaign_id)
            .values(refusals=number)))

    def renew_authorization(self, lease: rows.ScopeLease, campaign: model.Campaign,
                            authorization: str) -> bool:
        """Write a new signature of a campaign; return False if another one came meanwhile.

        :raises LeaseLost: nothing was written.
        """
        return self._runner.run_under_lease(lease, lambda c: c.execute(
            sa.update(_campaign).where(
                _campaign.c.campaign_id == campaign.campaign_id,
                _campaign.c.authorization == campaign.authorization)
            .values(authorization=authorization)).rowcount == 1)

    def end_campaign(self, lease: rows.ScopeLease, campaign: model.Campaign, now: float) -> bool:
        """End a campaign whose hosts are all over; return False if it has changed meanwhile.

        :raises LeaseLost: nothing was written.
        """
        ending = (model.CampaignState.ABORTED if campaign.state is model.CampaignState.ABORTING
                  else model.CampaignState.DONE)
        # Nothing holds a campaign that was paused while its last hosts came back.
        held = {'held_by': '', 'held_because': ''} if ending is model.CampaignState.DONE else {}

        def write_end(connection: sa.Connection) -> bool:
            if not _update_campaign(connection, campaign.campaign_id, (campaign.state,), waits=''):
                return False
            left = connection.scalar(sa.select(sa.func.count()).select_from(_host).where(
                _host.c.campaign_id == campaign.campaign_id, _host.c.state.not_in(_OVER)))
            return not left and _update_campaign(
                connection, campaign.campaign_id, (campaign.state,), state=ending.value,
                ended_at=now, changed_at=self._runner.build_now_clause(), live_scope=None,
                authorization=None, **held)
        return self._runner.run_under_lease(lease, write_end)

    # Orders of operators.

    def order_state(self, campaign_id: str, before: Collection[model.CampaignState],
                    after: model.CampaignState, *, command: str, by: str, reason: str,
                    authorization: str | None = None) -> bool:
        """Change the state of a campaign; return False if it is in none of the states ``before``.

        An abort leaves out the hosts that have not begun, and those that are being emptied. A
        campaign that runs again disables those that another user has enabled, and has no refused
        steps.

        :param command: of the audit row, ``reason``: its reason.
        :param authorization: the new signature; None: the present one stays.
        """
        signed: dict[str, str | None] = (
            {} if authorization is None else {'authorization': authorization})
        if after is model.CampaignState.ABORTING:
            signed = {'authorization': None}  # no row lets engines carry it on again

        def write_state(connection: sa.Connection) -> bool:
            now = self._read_now(connection)
            held = after is not model.CampaignState.RUNNING
            if not _update_campaign(
                    connection, campaign_id, before, state=after.value, changed_at=now, **signed,
                    held_by=_cut_name(by) if held else '', held_because=reason if held else ''):
                return False
            if after is model.CampaignState.ABORTING:
                for state, then in _ABORTED.items():
                    _update_hosts(connection, campaign_id, state, None, state=then.value,
                                  since=now, detail=f'aborted by {by}')
            if after is model.CampaignState.RUNNING:
                _update_campaign(connection, campaign_id, (after,), refusals=0)
                # Engines have as long as for others to disable them, and these to come back.
                _update_hosts(connection, campaign_id, model.CampaignHostState.EMPTYING, None,
                              disabled_at=None, since=now)
                _update_hosts(connection, campaign_id, model.CampaignHostState.RETURNING, None,
                              since=now)
            audits.add_audit(connection, audits.AuditEntry(
                now, by, command, _name_target(campaign_id), reason))
            return True
        return self._runner.run_transaction(write_state)

    def order_host(self, campaign_id: str, host: str, order: HostOrder, *, by: str,
                   reason: str = '') -> bool:
        """Change the state of a host; return False if it is in none of the states of the order."""
        def write_host(connection: sa.Connection) -> bool:
            now = self._read_now(connection)
            self._mark_changed(connection, campaign_id)
            values = {'since': now, 'worker': None, **_NO_REQUEST,
                      'detail': ' '.join(filter(None, (f'{order.command} by {by}', reason)))}
            to_come = model.CampaignHostState.TO_COME
            if to_come in order.before and _update_host(
                    connection, campaign_id, host, (to_come,),
                    state=model.CampaignHostState.SKIPPED.value, since=now,
                    detail=values['detail']):
                pass
            elif not _update_host(connection, campaign_id, host, order.before - {to_come},
                                  state=order.after.value, **values):
                return False
            audits.add_audit(connection, audits.AuditEntry(
                now, by, order.command, f'host {host}', reason))
            return True
        return self._runner.run_transaction(write_host)

    def _mark_changed(self, connection: sa.Connection, campaign_id: str) -> None:
        """Note the time, and hold the row, before rows of hosts: so no two changes deadlock."""
        connection.execute(sa.update(_campaign).where(_campaign.c.campaign_id == campaign_id)
                           .values(changed_at=self._runner.build_now_clause()))

    def _read_now(self, connection: sa.Connection) -> float:
        return float(connection.execute(sa.select(self._runner.build_now_clause())).scalar_one())


def _refuse_rival(connection: sa.Connection, campaign: model.Campaign) -> None:
    """Refuse a campaign whose scope, or one of whose hosts, a live one has.

    :raises ConflictError: a live one has.
    """
    live = sa.select(_campaign.c.campaign_id, _campaign.c.scope, _campaign.c.created_by,
                     _campaign.c.state).where(_campaign.c.live_scope.is_not(None))
    shared = {row.campaign_id: row.host for row in connection.execute(
        sa.select(_host.c.campaign_id, _host.c.host).where(
            _host.c.campaign_id.in_(live.with_only_columns(_campaign.c.campaign_id)),
            _host.c.host.in_(sorted(host.host for host in campaign.hosts)),
            _host.c.state.not_in(_OVER)).order_by(_host.c.host.desc()))}
    for rival in connection.execute(live.order_by(_campaign.c.scope)):
        if rival.scope != campaign.scope and rival.campaign_id not in shared:
            continue
        what = (f'scope {rival.scope}' if rival.scope == campaign.scope
                else f'host {shared[rival.campaign_id]}')
        raise exception.ConflictError(
            path='request', field='campaign',
            problem=f'{what} has the campaign {rival.campaign_id} of {rival.created_by}, which is '
                    f'{rival.state}',
            remedy='Wait for its end, or end it (kronos campaign abort)')


def _has_rival(connection: sa.Connection, campaign_id: str, host: str,
               since: float | None) -> bool:
    """Return whether another campaign has begun with a host, or asked Nova to change it.

    :param since: requests from then on count; None: none does.
    """
    asked = [] if since is None else [_host.c.asked_at >= since, _host.c.announced_at >= since]
    return connection.execute(sa.select(_host.c.campaign_id).where(
        _host.c.host == host, _host.c.campaign_id != campaign_id,
        sa.or_(_host.c.state.in_(_BEGUN), *asked))).first() is not None


def _hold_running(connection: sa.Connection, campaign_id: str, **values: Any) -> bool:
    """Write columns of a campaign, and hold its row; return False unless it runs."""
    return _update_campaign(connection, campaign_id, (model.CampaignState.RUNNING,),
                            **values or {'state': model.CampaignState.RUNNING.value})


def _update_campaign(connection: sa.Connection, campaign_id: str,
                     before: Iterable[model.CampaignState], **values: Any) -> bool:
    return connection.execute(sa.update(_campaign).where(
        _campaign.c.campaign_id == campaign_id,
        _campaign.c.state.in_([state.value for state in before])).values(values)).rowcount == 1


def _update_host(connection: sa.Connection, campaign_id: str, host: str,
                 before: Iterable[model.CampaignHostState], **values: Any) -> bool:
    return connection.execute(sa.update(_host).where(
        _host.c.campaign_id == campaign_id, _host.c.host == host,
        _host.c.state.in_([state.value for state in before])).values(values)).rowcount == 1


def _update_hosts(connection: sa.Connection, campaign_id: str, before: model.CampaignHostState,
                  hosts: Collection[str] | None, *conditions: sa.ColumnElement[bool],
                  **values: Any) -> None:
    """Write columns of the hosts in a state; ``hosts``: only these hosts, None: all."""
    which = sa.update(_host).where(
        _host.c.campaign_id == campaign_id, _host.c.state == before.value, *conditions)
    connection.execute((which if hosts is None else which.where(
        _host.c.host.in_(sorted(hosts)))).values(values))


def _name_target(campaign_id: str) -> str:
    return f'campaign {campaign_id}'


def _cut_name(name: str) -> str:
    return name[:tables.NAME_LENGTH]
