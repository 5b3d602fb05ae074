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

"""Leases of one engine on the scopes that it plans."""

from collections.abc import Callable
import hashlib
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import policy as policies
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

#: Seconds that a lease lasts after its last renewal: an engine that dies or is
#: frozen holds it no longer.
LEASE_SECONDS = 30


class LeaseKeeper:
    """Leases by scope. One thread may renew them while another acquires and gives back.

    :param report_loss: takes a scope whose lease was over before it was renewed.
    :raises ConfigError: the file of contracts is wrong.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: store_api.Store, owner: str,
                 report_loss: Callable[[str], None]) -> None:
        self._zone = engine_conf.planned_zone(conf)
        self._contracts = contracts_conf.digest_settings(conf)
        self._store = store
        self._owner = owner
        self._report_loss = report_loss
        self.leases: dict[str, Any] = {}
        #: Scopes that other engines plan.
        self.foreign_scopes: frozenset[str] = frozenset()

    def acquire_lease(self, scope: str, seconds: float, policy_set: policies.PolicySet) -> Any:
        """Acquire or extend the scope's lease.

        :param seconds: how long it lasts without a renewal, beyond LEASE_SECONDS.
        :raises ScopeTaken: another engine plans this scope.
        """
        lease = self._store.leases.acquire_lease(
            scope, self._owner, LEASE_SECONDS + seconds,
            digest_settings(policy_set, self._zone, self._contracts))
        if lease is None:
            self.leases.pop(scope, None)
            raise exception.ScopeTaken(scope=scope)
        self.leases[scope] = lease
        return lease

    def give_back_lease(self, scope: str) -> None:
        try:
            self._store.leases.release_lease(self.leases.pop(scope))
        except exception.StoreError as e:
            LOG.warning('The lease of scope %s is not given back and runs out: %s', scope, e)

    def renew_leases(self) -> bool:
        """Renew the leases, also while a cycle runs.

        :returns: whether a scope that another engine had is free now.
        """
        for scope, lease in self.leases.copy().items():
            # The next cycle acquires a lost lease again, or not; until then the
            # store refuses decisions under it.
            if self._store.leases.renew_lease(lease, LEASE_SECONDS):
                continue
            again = self._store.leases.retake_lease(lease, LEASE_SECONDS)
            if again is not None:
                LOG.info('Scope %s: an operator has asked for moves; if a plan was being made, it '
                         'is dropped', scope)
                if self.leases.get(scope) is lease:
                    self.leases[scope] = again
            else:
                LOG.warning('Scope %s: the lease was over before it was renewed: this engine or '
                            'the database was held up', scope)
                if self.leases.get(scope) is lease:
                    del self.leases[scope]
                    self._report_loss(scope)
        return bool(self.foreign_scopes) and self._store.leases.has_free_scope(self.foreign_scopes)


def digest_settings(policy_set: policies.PolicySet, zone: str | None, contracts: str) -> str:
    """Digest the settings that all engines of a scope must agree on.

    :param contracts: the digest of ``[contracts]``.
    """
    text = policy_set.model_dump_json() + ('' if zone is None else f' {zone}')
    return rows.EngineSettings(hashlib.sha256(text.encode()).hexdigest(), contracts).format_digest()
