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

"""Requests in the database, as kronos-migfra keeps and continues them."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import time
from typing import Any

from oslo_log import log as logging
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.rebalancer.authorization import request_authorization
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import requests

LOG = logging.getLogger(__name__)

#: Requests that a process continues at a time, and results that it publishes at once.
AT_ONCE = 64


class MigfraRequestRepository:
    """Requests in the database, for one process.

    :param worker: its name.
    :param authorization: signs and verifies requests.
    """

    def __init__(self, store: store_api.Store, worker: str, claim_seconds: float,
                 clock: Callable[[], float] = time.time, *,
                 authorization: request_authorization.RequestAuthorization) -> None:
        self._store = store
        self._claim_seconds = claim_seconds
        self._clock = clock
        self.worker = worker
        self.authorization = authorization

    def release_requests(self, worker: str) -> None:
        """Release the worker's open requests, so that other processes may take them at once.

        If the database fails, they take them after a while.
        """
        try:
            self._store.run_transaction(lambda c: requests.release_requests(c, worker))
        except exception.StoreError as e:
            LOG.warning('%s Others take over open requests when our heartbeat is '
                        'late.', e)

    def receive_request(self, request: requests.MigfraRequest,
                        former: Sequence[str] = ()) -> requests.MigfraRequest | None:
        """Store a new request; return the stored one if it is known already.

        :param former: keys under which the host may have it already.
        """
        return self._store.run_transaction(lambda c: requests.record_request(c, request, former))

    def claim_requests(self, worker: str, kinds: frozenset[str]) -> list[requests.MigfraRequest]:
        return self._store.run_transaction(lambda c: requests.claim_requests(
            c, worker, kinds, self._clock(), self._claim_seconds, AT_ONCE))

    def check_request(self, request: requests.MigfraRequest, now: float) -> None:
        """Check that a process of ours has heard the message of a request.

        :raises MigfraRequestRefusal: the row was written or changed by hand.
        :raises SigningKeyError: that is not known, as the keys cannot be read.
        """
        problem = self.authorization.find_problem(
            request.authorization, request.request_id, request.host, request.kind,
            request.document, now)
        if problem is not None:
            LOG.error('Request %s is refused: %s. Find out who can write to the database.',
                      request.request_id, problem)
            raise request_handler.MigfraRequestRefusal(f'it is not authorized: {problem}')

    def format_worker_name(self, name: str) -> str:
        """Return the worker name of a thread: each thread is a worker of its own."""
        return f'{self.worker}/{name}'[-255:]

    def record_heartbeat(self, worker: str) -> None:
        """Record that the worker is alive, though its pass takes long."""
        self._store.run_transaction(lambda c: requests.renew_heartbeats(c, worker, self._clock()))

    def record_progress(self, request: requests.MigfraRequest, progress: dict[str, Any]) -> None:
        """Write the progress of a request.

        :raises StoreError: another process has taken it over, or it cannot be written.
        """
        self._store.run_transaction(lambda c: requests.record_progress(
            c, request.request_id, request.worker or '', self._clock(), progress))

    def record_plan(self, connection: sa.Connection, request: requests.MigfraRequest,
                    progress: dict[str, Any], plan_id: str) -> None:
        """Write the progress and the plan of a request within the caller's transaction."""
        requests.record_progress(connection, request.request_id, request.worker or '',
                                 self._clock(),
                                 progress, plan_id)

    def end_request(self, request: requests.MigfraRequest,
                    ended: request_handler.MigfraRequestResult) -> None:
        self._store.run_transaction(lambda c: requests.record_reply(
            c, request.request_id, request.worker or '', self._clock(), ended.reply,
            ended.failed))

    def give_up_request(self, request: requests.MigfraRequest,
                        ended: request_handler.MigfraRequestResult,
                        instance_cooldown: float) -> int:
        """End the request, and cancel its tasks that have not begun in Nova.

        A result must not report a failure of a move that is made later. Moves in Nova go on.

        :returns: how many tasks were cancelled.
        """
        now = self._clock()

        def end_and_cancel(connection: sa.Connection) -> int:
            requests.record_reply(connection, request.request_id, request.worker or '', now,
                                  ended.reply,
                                  ended.failed)
            # The plan may be newer than the request that we know.
            known = requests.read_request(connection, request.request_id)
            if known is None or known.plan_id is None:
                return 0
            return len(plan_approvals.cancel_plan_tasks(
                connection, known.plan_id, now, plan_decisions.OperatorDecision(
                    request_handler.SOURCE,
                    f'request {request_handler.find_id(request)} was given up'),
                plan_decisions.CANCELLED, instance_cooldown))

        return self._store.run_transaction(end_and_cancel)

    def list_undelivered_replies(self, workers: Sequence[str],
                                 but: Collection[str]) -> list[requests.MigfraRequest]:
        """List requests with unpublished results: our workers', and overdue ones of others."""
        return self._store.run_transaction(lambda c: requests.list_undelivered_replies(
            c, workers, self._clock() - self._claim_seconds, AT_ONCE, but))

    def record_reply_delivery(self, request_id: str, *, again: bool = False) -> None:
        """Record that the result has arrived, or that it must be published again."""
        now = None if again else self._clock()
        self._store.run_transaction(lambda c: requests.record_reply_delivery(c, request_id, now))
