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

"""Workers that continue the stored requests, each for the kinds of one handler."""

from collections.abc import Callable
import dataclasses
import threading
import time

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import plurals
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra import request_repository
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.store import requests

LOG = logging.getLogger(__name__)

#: Seconds after which a pass hangs.
HUNG_SECONDS = 900.0
#: The driver that only logs the moves.
DRY = 'dry_run'
#: Tries of a request that fails for a defect of ours.
TRIES = 3
#: Seconds until the next look at a request whose look has failed: at first, at most.
BACKOFF, MAX_BACKOFF = 5.0, 120.0


class MigfraRequestWorker:
    """A thread that continues the requests of one handler's kinds.

    :param ticks: monotonic seconds, for waiting times.
    """

    def __init__(self, conf: cfg.ConfigOpts, repository: request_repository.MigfraRequestRepository,
                 handler: request_handler.MigfraRequestHandler,
                 clock: Callable[[], float] = time.time,
                 ticks: Callable[[], float] = time.monotonic) -> None:
        self._conf = conf
        self._repository = repository
        self._handler = handler
        self._clock = clock
        self._ticks = ticks
        self._defects: dict[str, int] = {}
        #: Until when, in ticks, and how long the last wait was.
        self._waits: dict[str, tuple[float, float]] = {}
        self._began: float | None = None
        self.wake = threading.Event()
        self.name = handler.name
        self.worker = repository.format_worker_name(handler.name)

    def run_once(self) -> int:
        """Look once at each open request; return their number.

        :raises StoreError: the database is away; no request is lost.
        """
        self._began = self._ticks()
        try:
            return self._run_pass()
        finally:
            self._began = None

    def renew_request_claims(self) -> None:
        """Keep the claims while a pass takes long, but not if it hangs; called by another thread.

        :raises StoreError: the database is away.
        """
        began = self._began
        if began is not None and self._ticks() - began < HUNG_SECONDS:
            self._repository.record_heartbeat(self.worker)

    def close(self) -> None:
        """Stop the handler and release the open requests."""
        self._handler.close()
        self._repository.release_requests(self.worker)

    def _run_pass(self) -> int:
        mine = self._repository.claim_requests(self.worker, frozenset(self._handler.kinds))
        due = [request for request in mine if self._ticks() >= self._waits.get(
            request.request_id, (float('-inf'), 0.0))[0]]
        errors: list[Exception] = []
        self._handler.begin_pass(due)
        try:
            for request in due:
                try:
                    self._continue_requests(request, self._clock())
                except Exception as e:
                    # Another process may have taken this request over, or its end cannot be
                    # written: the requests behind it go on.
                    LOG.warning('Request %s: %s', request.request_id, secret_mask.mask_text(str(e)))
                    errors.append(e)
        finally:
            self._handler.end_pass()
        if not mine:
            self._handler.release_pass_data()
        for memory in (self._defects, self._waits):
            for request_id in memory.keys() - {r.request_id for r in mine}:
                del memory[request_id]
        if errors:
            raise errors[0]
        return len(mine)

    def _delay_request(self, request: requests.MigfraRequest) -> None:
        """Delay the next look at a request: a look may be long, and its obstacle lasts."""
        _until, seconds = self._waits.get(request.request_id, (0.0, BACKOFF / 2))
        seconds = min(2 * seconds, MAX_BACKOFF)
        self._waits[request.request_id] = (self._ticks() + seconds, seconds)

    def _continue_requests(self, request: requests.MigfraRequest, now: float) -> None:
        try:
            ended = self._step_request(request, now)
        except request_handler.MigfraRequestRefusal as e:
            ended = self._build_refusal(request, str(e))
        except exception.PlanRefused as e:
            # A defect of ours, which the same look would find again.
            LOG.error('Request %s: %s', request.request_id, e)
            ended = self._build_refusal(request, str(e))
        except exception.StoreError as e:
            LOG.warning('Request %s: %s It is looked at again.', request.request_id, e)
            self._delay_request(request)
            ended = self._end_if_late(request, now, str(e))
        except (api.ApiError, exception.KronosException) as e:
            LOG.warning('Request %s: %s. It is looked at again.', request.request_id,
                        str(e).rstrip('.'))
            self._delay_request(request)
            ended = self._end_if_late(request, now, str(e))
        except Exception as e:
            ended = self._count_defect(request, e)
        if ended is None:
            return
        if ended.given_up:
            number = self._repository.give_up_request(request, ended,
                                                      self._conf.engine.instance_cooldown)
            if number:
                LOG.warning('Request %s was given up: %s cancelled before their start',
                            request.request_id, plurals.count_noun(number, 'task'))
        else:
            self._repository.end_request(request, ended)
        LOG.log(logging.WARNING if ended.failed else logging.INFO,
                'Request %s (%s on %s) has ended %s', request.request_id, request.kind,
                request.host, 'with errors: see its result' if ended.failed else 'well')

    def _step_request(self, request: requests.MigfraRequest,
                      now: float) -> request_handler.MigfraRequestResult | None:
        if (problem := request_handler.find_damage(request)) is not None:
            LOG.error('Request %s (%s on %s) cannot be read from the database (%s). It ends with '
                      'an error.', request.request_id, request.kind, request.host, problem)
            return self._given_up(request, f'the stored request cannot be read ({problem}); send '
                                           'it again with a new id')
        self._repository.check_request(request, now)
        if request.plan_id is not None:
            # A request with a plan gets its result, even if nothing may begin now.
            return self._handler.continue_request(request, now) or self._end_if_late(
                request, now, 'its moves have not ended; those that Nova has not been asked for '
                              'are cancelled, and others go on')
        if self._conf.engine.dry_run:
            raise request_handler.MigfraRequestRefusal(
                '[engine] dry_run is set, and then nothing is '
                'done')
        if self._conf.engine.executor == DRY:
            raise request_handler.MigfraRequestRefusal(
                '[engine] executor = dry_run, and then nothing is '
                'done')
        return self._handler.continue_request(request, now) or self._end_if_late(
            request, now, 'it has not ended')

    def _end_if_late(self, request: requests.MigfraRequest, now: float,
                     why: str) -> request_handler.MigfraRequestResult | None:
        seconds = self._conf.migfra.give_up_seconds
        if now - request.received_at <= seconds:
            return None
        return self._given_up(request, f'given up after {seconds} s: {why}')

    def _count_defect(self, request: requests.MigfraRequest,
                      error: Exception) -> request_handler.MigfraRequestResult | None:
        count = self._defects[request.request_id] = self._defects.get(request.request_id, 0) + 1
        LOG.exception('Request %s (%s on %s) failed for a reason that is a defect of ours.',
                      request.request_id, request.kind, request.host)
        if count < TRIES:
            return None
        return self._given_up(request, f'a defect of kronos-nova ({type(error).__name__}); see '
                                       'its log')

    def _given_up(self, request: requests.MigfraRequest,
                  why: str) -> request_handler.MigfraRequestResult:
        return dataclasses.replace(self._build_refusal(request, why), given_up=True)

    def _build_refusal(self, request: requests.MigfraRequest,
                       why: str) -> request_handler.MigfraRequestResult:
        return request_handler.MigfraRequestResult(replies.format_refusal(
            MigfraRequestKind(request.kind), request_handler.find_id(request),
            self._conf.migfra.scheduler,
            api.format_printable(why), request_handler.list_named_instances(request)), True)
