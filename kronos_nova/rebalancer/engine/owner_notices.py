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

"""Notices of a cycle to the owners of instances: chosen, stored, then announced.

The notices of drains come first and depend on no plan: a plan that fails, or the search for moves
for balance, delays no notice of a drain.
"""

from collections.abc import Callable
from collections.abc import Sequence
import math
import threading

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.engine import notifications
from kronos_nova.rebalancer.planning import move_notices
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import rows as store_rows

LOG = logging.getLogger(__name__)

#: Seconds between two plans of a scope that suppose that all owners of instances had notice.
SUPPOSE_EVERY = 600.0


class OwnerNotices:
    """Notices that the cycles of one engine give.

    :param stopping: set when the engine stops: then no notice is given.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: store_api.Store,
                 listeners: notifications.PlanAnnouncer, stopping: threading.Event) -> None:
        self._valid_for = float(conf.contracts.notice_valid_for)
        self._store = store
        self._listeners = listeners
        self._stopping = stopping
        #: When each scope was last planned as if all owners had notice.
        self._supposed: dict[str, float] = {}

    def give_drain_notices(self, lease: store_rows.ScopeLease, request: planner.PlanningInput,
                           held: planner.PlanningInput, tripped: bool = False) -> None:
        """Give the notices that drains lack, and announce all that wait.

        Notices whose moves go on last longer, also while the scope is held.

        :param request: the input of a plan in which drains go before a plan that waits.
        :param held: the input with all that holds the scope.
        :param tripped: the circuit breaker holds the scope, so that no moves follow.
        """
        self._give_notices(
            lease, request, [] if tripped else move_notices.list_drain_notices(request),
            move_notices.list_extended_notices(held, self._valid_for))

    def give_balance_notices(self, lease: store_rows.ScopeLease, request: planner.PlanningInput,
                             plan: model.Plan,
                             replan: Callable[[model.MoveHistory], model.Plan]) -> None:
        """Give the notices that moves for balance lack, every ``SUPPOSE_EVERY`` seconds.

        :param request: that of the plan.
        :param replan: returns the plan that another history would give.
        """
        if request.now < self._supposed.get(plan.scope, -math.inf) + SUPPOSE_EVERY:
            return
        # A plan that fails is not repeated in each cycle.
        self._supposed[plan.scope] = request.now
        try:
            wanted = move_notices.list_balance_notices(request, plan, replan)
        except exception.KronosException as e:
            _log_delay(plan.scope, e)
        else:
            if wanted:
                self._give_notices(lease, request, wanted)

    def _give_notices(self, lease: store_rows.ScopeLease, request: planner.PlanningInput,
                      wanted: Sequence[move_notices.WantedNotice],
                      extended: Sequence[model.MoveNotice] = ()) -> None:
        """Store the notices, then announce them."""
        if self._stopping.is_set():
            return
        try:
            notices = self._store.notices.record_notices(lease, move_notices.make_notices(
                request, wanted, self._store.now(), self._valid_for), extended)
            self._listeners.announce_moves(lease, self._store, notices)
        except exception.StoreError as e:
            _log_delay(lease.scope, e)


def _log_delay(scope: str, error: exception.KronosException) -> None:
    LOG.warning('Scope %s: %s Owners of instances get their notices in a later cycle.', scope,
                error)
