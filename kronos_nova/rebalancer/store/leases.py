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


"""Leases of scopes: compare-and-swap on an epoch, by the database's clock."""

from collections.abc import Collection
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova import exception
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_lease = tables.lease

#: A scope without a lease and without a decision for so long (seconds) is out of use: its row
#: stays, to keep the epoch.
REMEMBERED = 86400.0


def of_late(clock: ColumnElement[float]) -> ColumnElement[bool]:
    """Match leases of scopes that an engine plans, or planned within :data:`REMEMBERED`."""
    return sa.or_(_lease.c.until > clock, _lease.c.planned_at > clock - REMEMBERED)


def acquire_lease(connection: sa.Connection, clock: ColumnElement[float], scope: str, owner: str,
                  seconds: float, policy_hash: str) -> rows.ScopeLease | None:
    """Lease the scope when it is free, or extend our lease; None: another engine has it.

    Drains of a scope that no engine has planned lately are deleted.

    :raises StoreError: another engine holds it with other settings.
    """
    row = connection.execute(*_how_it_stands(scope, clock)).mappings().first()
    if row is None:
        connection.execute(sa.insert(_lease).values(
            scope=scope, owner=owner, epoch=1, until=clock + seconds, policy_hash=policy_hash))
        return rows.ScopeLease(scope, owner, 1)
    if row['live'] and row['owner'] != owner:
        if row['policy_hash'] != policy_hash:
            _refuse_other_settings(scope, row['owner'], row['policy_hash'], policy_hash)
        return None
    epoch = row['epoch'] if row['live'] else row['epoch'] + 1
    takeover = connection.execute(*_build_takeover(
        scope, row['owner'], row['epoch'], clock, owner, epoch, seconds, policy_hash))
    if takeover.rowcount != 1:
        return None
    if not row['of_late']:
        # Drains of that time are out of date.
        connection.execute(sa.delete(tables.drain).where(tables.drain.c.scope == scope))
    return rows.ScopeLease(scope, owner, epoch)


def _refuse_other_settings(scope: str, owner: str, theirs: str, ours: str) -> NoReturn:
    where = f'shows scope {scope} leased by engine {owner}, which'
    policies, _contracts = rows.EngineSettings.parse_digest(theirs)
    if policies == rows.EngineSettings.parse_digest(ours).policies:
        raise exception.StoreError(
            problem=f'{where} has other options of [contracts], or another file of contracts',
            remedy='Give all engines and executors the same of both, and restart them.')
    raise exception.StoreError(
        problem=f'{where} uses another policies file or another [engine] availability_zone',
        remedy='Give every engine of the scope the same of both. Where an aggregate has '
               'hosts of several zones, name one for each zone, or give the engine of '
               'each zone a [database] of its own.')


def list_engine_settings(connection: sa.Connection, clock: ColumnElement[float],
                         scopes: Collection[str] | None) -> dict[str, rows.EngineSettings]:
    """Return the settings of the engines that plan scopes now, by scope.

    :param scopes: the scopes to return; None: all.
    """
    return {row.scope: rows.EngineSettings.parse_digest(row.policy_hash)
            for row in connection.execute(*_select_settings(clock))
            if scopes is None or row.scope in scopes}


@statements.build_once
def _select_settings(clock: ColumnElement[float]) -> sa.Select[Any]:
    return sa.select(_lease.c.scope, _lease.c.policy_hash).where(_lease.c.until > clock)


@statements.build_once
def select_leased_scopes(clock: ColumnElement[float]) -> sa.Select[Any]:
    """Select the scopes that some engine plans now."""
    return sa.select(_lease.c.scope).where(_lease.c.until > clock)


@statements.build_once
def _how_it_stands(scope: str, clock: ColumnElement[float]) -> sa.Select[Any]:
    return sa.select(
        _lease, (_lease.c.until > clock).label('live'), of_late(clock).label('of_late')
        ).where(_lease.c.scope == scope)


@statements.build_once
def _build_takeover(scope: str, before: str, epoch_before: int, clock: ColumnElement[float],
                    owner: str,
                    epoch: int, seconds: float, policy_hash: str) -> sa.Update:
    return (sa.update(_lease)
            .where(_lease.c.scope == scope, _lease.c.epoch == epoch_before,
                   _lease.c.owner == before,
                   sa.or_(_lease.c.until <= clock, _lease.c.owner == owner))
            .values(owner=owner, epoch=epoch, until=clock + seconds, policy_hash=policy_hash))


def _match_held_lease(scope: str, owner: str, epoch: int,
                      clock: ColumnElement[float]) -> tuple[ColumnElement[bool], ...]:
    return (_lease.c.scope == scope, _lease.c.owner == owner, _lease.c.epoch == epoch,
            _lease.c.until > clock)


def renew_lease(connection: sa.Connection, clock: ColumnElement[float], lease: rows.ScopeLease,
                seconds: float) -> bool:
    return connection.execute(*_build_renewal(
        lease.scope, lease.owner, lease.epoch, clock, seconds)).rowcount == 1


@statements.build_once
def _build_renewal(scope: str, owner: str, epoch: int, clock: ColumnElement[float],
                   seconds: float) -> sa.Update:
    return sa.update(_lease).where(*_match_held_lease(scope, owner, epoch, clock)).values(
        until=clock + seconds)


def raise_epoch(connection: sa.Connection, scope: str) -> rows.ScopeLease:
    """Raise the epoch of the scope's lease, so that its holder cannot write its current decision.

    The holder keeps the lease, in the later epoch. A scope without a lease gets one without an
    owner.

    :returns: the lease in its later epoch; the caller does not hold it.
    """
    raised = connection.execute(
        sa.update(_lease).where(_lease.c.scope == scope).values(epoch=_lease.c.epoch + 1))
    if raised.rowcount != 1:
        connection.execute(sa.insert(_lease).values(
            scope=scope, owner='', epoch=1, until=0.0, policy_hash=''))
    row = connection.execute(sa.select(_lease).where(_lease.c.scope == scope)).one()
    return rows.ScopeLease(scope, row.owner, row.epoch)


def retake_lease(connection: sa.Connection, clock: ColumnElement[float], lease: rows.ScopeLease,
                 seconds: float) -> rows.ScopeLease | None:
    """Extend our live lease after a plan raised its epoch; return it in the later epoch."""
    ours = sa.and_(_lease.c.scope == lease.scope, _lease.c.owner == lease.owner,
                   _lease.c.epoch > lease.epoch, _lease.c.until > clock)
    if connection.execute(
            sa.update(_lease).where(ours).values(until=clock + seconds)).rowcount != 1:
        return None
    row = connection.execute(sa.select(_lease).where(_lease.c.scope == lease.scope)).one()
    return rows.ScopeLease(row.scope, row.owner, row.epoch)


def release_lease(connection: sa.Connection, clock: ColumnElement[float],
                  lease: rows.ScopeLease) -> None:
    # Also a lease of ours whose epoch has risen.
    connection.execute(sa.update(_lease).where(
        _lease.c.scope == lease.scope, _lease.c.owner == lease.owner,
        _lease.c.epoch >= lease.epoch, _lease.c.until > clock).values(until=0.0))


def fence_lease(connection: sa.Connection, clock: ColumnElement[float],
                lease: rows.ScopeLease) -> None:
    """Hold the lease's row until this transaction ends.

    :raises LeaseLost: it has ended, even if no engine has taken it yet: decisions under it are
        old.
    """
    fence_update = connection.execute(
        *_build_fence_update(lease.scope, lease.owner, lease.epoch, clock))
    if fence_update.rowcount != 1:
        raise exception.LeaseLost(scope=lease.scope, epoch=lease.epoch)


@statements.build_once
def _build_fence_update(scope: str, owner: str, epoch: int,
                        clock: ColumnElement[float]) -> sa.Update:
    return sa.update(_lease).where(*_match_held_lease(scope, owner, epoch,
                                                      clock)).values(epoch=epoch)


class LeaseRepository(transactions.Repository):
    """Leases of scopes."""

    def is_empty(self) -> bool:
        """Return whether the database has no lease at all: no engine has ever written to it."""
        return self._runner.run_read(lambda c: c.execute(
            sa.select(tables.lease.c.scope).limit(1)).first()) is None

    def list_engine_settings(
            self, scopes: Collection[str] | None) -> dict[str, rows.EngineSettings]:
        """Return the settings of the engines that plan scopes now (None: all), by scope."""
        return self._runner.run_read(lambda c: list_engine_settings(
            c, self._runner.build_now_clause(), scopes))

    def acquire_lease(self, scope: str, owner: str, seconds: float,
                      policy_hash: str) -> rows.ScopeLease | None:
        """Lease the scope; return None while another engine holds it.

        The same owner gets its live lease again, for ``seconds`` from now.

        :raises StoreError: another engine holds it with other settings.
        """
        return self._runner.run_transaction(lambda c: acquire_lease(
            c, self._runner.build_now_clause(), scope, owner, seconds, policy_hash))

    def renew_lease(self, lease: rows.ScopeLease, seconds: float) -> bool:
        """Extend the lease; return False when it has ended or its epoch has risen.

        After False, drop the decisions that were made under the lease.
        """
        return self._runner.run_transaction(
            lambda c: renew_lease(c, self._runner.build_now_clause(), lease, seconds))

    def retake_lease(self, lease: rows.ScopeLease, seconds: float) -> rows.ScopeLease | None:
        """Reacquire our lease after an operator's plan raised its epoch.

        :returns: the lease in its later epoch; None: it has ended, or another engine holds it.
        """
        return self._runner.run_transaction(
            lambda c: retake_lease(c, self._runner.build_now_clause(), lease, seconds))

    def release_lease(self, lease: rows.ScopeLease) -> None:
        """Release the scope's lease; a lease that has ended stays as it is."""
        self._runner.run_transaction(
            lambda c: release_lease(c, self._runner.build_now_clause(), lease))

    def has_free_scope(self, scopes: Collection[str]) -> bool:
        """Return whether at least one of the scopes has no live lease."""
        lease = tables.lease
        leased_scopes = self._runner.run_read(lambda c: set(c.scalars(
            sa.select(lease.c.scope).where(
                lease.c.scope.in_(sorted(scopes)),
                lease.c.until > self._runner.build_now_clause()))))
        return not leased_scopes.issuperset(scopes)

    def list_leased_scopes(self) -> frozenset[str]:
        """Return the scopes that some engine plans now."""
        return self._runner.run_read(lambda c: frozenset(
            c.scalars(*select_leased_scopes(self._runner.build_now_clause()))))

    def list_scopes(self) -> list[str]:
        """Return every scope that has ever had a lease."""
        return self._runner.run_read(lambda c: list(c.scalars(
            sa.select(tables.lease.c.scope).order_by(tables.lease.c.scope))))

    def find_planned_at(self, scope: str) -> float | None:
        """Return when an engine last stored its decision for the scope, with moves or without."""
        lease = tables.lease
        return self._runner.run_read(lambda c: c.scalar(
            sa.select(lease.c.planned_at).where(lease.c.scope == scope)))
