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

"""kronos-migfra: takes tasks from the broker, continues them, and publishes their results.

A task is kept in the database before its message is acknowledged, and its result is published until
the broker has acknowledged it. Servers and moves have a thread each: a look at a large cloud takes
long, and starting a server should not.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import hashlib
import queue
import threading
import time
from typing import Any, Protocol

from oslo_config import cfg
from oslo_log import log as logging
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.messaging import mqtt
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra.protocol import RequestKind
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import requests

LOG = logging.getLogger(__name__)

#: Seconds after which a pass hangs.
HUNG_SECONDS = 900.0
#: Messages that may wait to be stored; with more, the broker waits.
WAITING = 256
#: Requests that a process continues at a time, and results that it publishes at once.
AT_ONCE = 64
#: Seconds within which two messages without an id and of the same content are one task.
ANONYMOUS_SECONDS = 60.0
#: The driver that only logs the moves.
DRY = 'dry_run'
#: Seconds that a result waits after the broker has refused it; and the results that may wait
#: or be on their way before no more are published.
REFUSED_SECONDS = 30.0
MOST_UNTOLD = 500
#: Tries of a request that fails for a defect of ours.
TRIES = 3
#: Seconds until the next look at a request whose look has failed: at first, at most.
BACKOFF, MAX_BACKOFF = 5.0, 120.0


class MqttBroker(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def publish(self, topic: str, payload: str, said: Callable[[bool], None]) -> None: ...


class RequestRepository:
    """Requests in the database, for one process.

    :param worker: its name.
    """

    def __init__(self, store: store_api.Store, worker: str, claim_seconds: float,
                 clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._claim_seconds = claim_seconds
        self._clock = clock
        self.worker = worker

    def release(self, worker: str) -> None:
        """Release the worker's open requests, so that other processes may take them at once.

        If the database fails, they take them after a while.
        """
        try:
            self._store.transaction(lambda c: requests.release_requests(c, worker))
        except exception.StoreError as e:
            LOG.warning('%s Others take over open requests when our heartbeat is '
                        'late.', e)

    def receive(self, request: requests.StoredRequest,
                former: Sequence[str] = ()) -> requests.StoredRequest | None:
        """Store a new request; return the stored one if it is known already.

        :param former: keys under which the host may have it already.
        """
        return self._store.transaction(lambda c: requests.record_request(c, request, former))

    def claim(self, worker: str, kinds: frozenset[str]) -> list[requests.StoredRequest]:
        return self._store.transaction(lambda c: requests.claim(
            c, worker, kinds, self._clock(), self._claim_seconds, AT_ONCE))

    def of_thread(self, name: str) -> str:
        """Return the worker name of a thread: each thread is a worker of its own."""
        return f'{self.worker}/{name}'[-255:]

    def beat(self, worker: str) -> None:
        """Record that the worker is alive, though its pass takes long."""
        self._store.transaction(lambda c: requests.renew_heartbeats(c, worker, self._clock()))

    def note(self, request: requests.StoredRequest, progress: dict[str, Any]) -> None:
        """Write the progress of a request.

        :raises StoreError: another process has taken it over, or it cannot be written.
        """
        self._store.transaction(lambda c: requests.record_progress(
            c, request.request_id, request.worker or '', self._clock(), progress))

    def note_plan(self, connection: sa.Connection, request: requests.StoredRequest,
                  progress: dict[str, Any], plan_id: str) -> None:
        """Write the progress and the plan of a request within the caller's transaction."""
        requests.record_progress(connection, request.request_id, request.worker or '',
                                 self._clock(),
                                 progress, plan_id)

    def end(self, request: requests.StoredRequest, ended: request_handler.RequestResult) -> None:
        self._store.transaction(lambda c: requests.record_reply(
            c, request.request_id, request.worker or '', self._clock(), ended.reply,
            ended.failed))

    def give_up(self, request: requests.StoredRequest, ended: request_handler.RequestResult,
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
            known = requests.get(connection, request.request_id)
            if known is None or known.plan_id is None:
                return 0
            return len(plan_approvals.cancel_plan_tasks(
                connection, known.plan_id, now, plan_approvals.OperatorDecision(
                    request_handler.SOURCE,
                    f'request {request_handler.find_id(request)} was given up'),
                plan_approvals.CANCELLED, instance_cooldown))

        return self._store.transaction(end_and_cancel)

    def untold(self, workers: Sequence[str], but: Collection[str]) -> list[requests.StoredRequest]:
        """List requests with unpublished results: our workers', and overdue ones of others."""
        return self._store.transaction(lambda c: requests.list_undelivered_replies(
            c, workers, self._clock() - self._claim_seconds, AT_ONCE, but))

    def tell(self, request_id: str, *, again: bool = False) -> None:
        """Record that the result has arrived, or that it must be published again."""
        now = None if again else self._clock()
        self._store.transaction(lambda c: requests.record_reply_delivery(c, request_id, now))


class RequestWorker:
    """A thread that continues the requests of one handler's kinds.

    :param ticks: monotonic seconds, for waiting times.
    """

    def __init__(self, conf: cfg.ConfigOpts, kept: RequestRepository,
                 handler: request_handler.RequestHandler,
                 clock: Callable[[], float] = time.time,
                 ticks: Callable[[], float] = time.monotonic) -> None:
        self._conf = conf
        self._kept = kept
        self._handler = handler
        self._clock = clock
        self._ticks = ticks
        self._defects: dict[str, int] = {}
        #: Until when, in ticks, and how long the last wait was.
        self._waits: dict[str, tuple[float, float]] = {}
        self._began: float | None = None
        self.wake = threading.Event()
        self.name = handler.name
        self.worker = kept.of_thread(handler.name)

    def run_once(self) -> int:
        """Look once at each open request; return their number.

        :raises StoreError: the database is away; no request is lost.
        """
        self._began = self._ticks()
        try:
            return self._run_pass()
        finally:
            self._began = None

    def beat(self) -> None:
        """Keep the claims while a pass takes long, but not if it hangs; called by another thread.

        :raises StoreError: the database is away.
        """
        began = self._began
        if began is not None and self._ticks() - began < HUNG_SECONDS:
            self._kept.beat(self.worker)

    def close(self) -> None:
        """Stop the handler and release the open requests."""
        self._handler.close()
        self._kept.release(self.worker)

    def _run_pass(self) -> int:
        mine = self._kept.claim(self.worker, frozenset(self._handler.kinds))
        due = [request for request in mine if self._ticks() >= self._waits.get(
            request.request_id, (float('-inf'), 0.0))[0]]
        errors: list[Exception] = []
        self._handler.begin_pass(due)
        try:
            for request in due:
                try:
                    self._go_on(request, self._clock())
                except Exception as e:
                    # Another process may have taken this request over, or its end cannot be
                    # written: the requests behind it go on.
                    LOG.warning('Request %s: %s', request.request_id, secret_mask.mask_text(str(e)))
                    errors.append(e)
        finally:
            self._handler.end_pass()
        if not mine:
            self._handler.rest()
        for memory in (self._defects, self._waits):
            for request_id in memory.keys() - {r.request_id for r in mine}:
                del memory[request_id]
        if errors:
            raise errors[0]
        return len(mine)

    def _put_off(self, request: requests.StoredRequest) -> None:
        """Delay the next look at a request: a look may be long, and its obstacle lasts."""
        _until, seconds = self._waits.get(request.request_id, (0.0, BACKOFF / 2))
        seconds = min(2 * seconds, MAX_BACKOFF)
        self._waits[request.request_id] = (self._ticks() + seconds, seconds)

    def _go_on(self, request: requests.StoredRequest, now: float) -> None:
        try:
            ended = self._step_request(request, now)
        except request_handler.RequestRefusal as e:
            ended = self._build_refusal(request, str(e))
        except exception.PlanRefused as e:
            # A defect of ours, which the same look would find again.
            LOG.error('Request %s: %s', request.request_id, e)
            ended = self._build_refusal(request, str(e))
        except exception.StoreError as e:
            LOG.warning('Request %s: %s It is looked at again.', request.request_id, e)
            self._put_off(request)
            ended = self._end_if_late(request, now, str(e))
        except (api.ApiError, exception.KronosException) as e:
            LOG.warning('Request %s: %s. It is looked at again.', request.request_id,
                        str(e).rstrip('.'))
            self._put_off(request)
            ended = self._end_if_late(request, now, str(e))
        except Exception as e:
            ended = self._count_defect(request, e)
        if ended is None:
            return
        if ended.given_up:
            number = self._kept.give_up(request, ended, self._conf.engine.instance_cooldown)
            if number:
                LOG.warning('Request %s was given up: %d tasks that had not begun are cancelled',
                            request.request_id, number)
        else:
            self._kept.end(request, ended)
        LOG.log(logging.WARNING if ended.failed else logging.INFO,
                'Request %s (%s on %s) has ended %s', request.request_id, request.kind,
                request.host, 'with errors: see its result' if ended.failed else 'well')

    def _step_request(self, request: requests.StoredRequest,
                      now: float) -> request_handler.RequestResult | None:
        if (problem := request_handler.find_damage(request)) is not None:
            LOG.error('Request %s (%s on %s) cannot be read from the database (%s). It ends with '
                      'an error.', request.request_id, request.kind, request.host, problem)
            return self._given_up(request, f'the stored request cannot be read ({problem}); send '
                                           'it again with a new id')
        if request.plan_id is not None:
            # A request with a plan gets its result, even if nothing may begin now.
            return self._handler.step(request, now) or self._end_if_late(
                request, now, 'its moves have not ended; those that Nova has not been asked for '
                              'are cancelled, and others go on')
        if self._conf.engine.dry_run:
            raise request_handler.RequestRefusal('[engine] dry_run is set, and then nothing is '
                                                 'done')
        if self._conf.engine.executor == DRY:
            raise request_handler.RequestRefusal('[engine] executor = dry_run, and then nothing is '
                                                 'done')
        return self._handler.step(request, now) or self._end_if_late(
            request, now, 'it has not ended')

    def _end_if_late(self, request: requests.StoredRequest, now: float,
                     why: str) -> request_handler.RequestResult | None:
        seconds = self._conf.migfra.give_up_seconds
        if now - request.received_at <= seconds:
            return None
        return self._given_up(request, f'given up after {seconds} s: {why}')

    def _count_defect(self, request: requests.StoredRequest,
                      error: Exception) -> request_handler.RequestResult | None:
        count = self._defects[request.request_id] = self._defects.get(request.request_id, 0) + 1
        LOG.exception('Request %s (%s on %s) failed for a reason that is a defect of ours.',
                      request.request_id, request.kind, request.host)
        if count < TRIES:
            return None
        return self._given_up(request, f'a defect of kronos-nova ({type(error).__name__}); see '
                                       'its log')

    def _given_up(self, request: requests.StoredRequest, why: str) -> request_handler.RequestResult:
        return dataclasses.replace(self._build_refusal(request, why), given_up=True)

    def _build_refusal(self, request: requests.StoredRequest,
                       why: str) -> request_handler.RequestResult:
        return request_handler.RequestResult(replies.format_refusal(
            RequestKind(request.kind), request_handler.find_id(request),
            self._conf.migfra.scheduler,
            api.format_printable(why), request_handler.list_named_instances(request)), True)


class MigfraService:
    """The service: connection to the broker, and the lanes.

    :param connect: makes the connection to the broker, given the function that takes messages.
    :param lanes: continue the requests.
    """

    def __init__(self, conf: cfg.ConfigOpts, kept: RequestRepository, hosts: names.ScopesByHost,
                 lanes: Sequence[RequestWorker],
                 connect: Callable[[Callable[[mqtt.ReceivedMessage], None]], MqttBroker],
                 health: healths.DaemonHealth | None = None,
                 clock: Callable[[], float] = time.time,
                 ticks: Callable[[], float] = time.monotonic) -> None:
        self._conf = conf
        self._aliases = names.read_host_aliases(conf.migfra.host_aliases)
        self._named = {host: alias for alias, host in self._aliases.items()}
        self._kept = kept
        self._hosts = hosts
        self._lanes = lanes
        self._clock = clock
        self._ticks = ticks
        self._stopping = threading.Event()
        self._messages: queue.Queue[mqtt.ReceivedMessage] = queue.Queue(WAITING)
        self._held: mqtt.ReceivedMessage | None = None
        self._telling: set[str] = set()
        self._again: set[str] = set()
        self._told: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
        #: Results that the broker has refused, with the time (ticks) of the next try.
        self._refused_until: dict[str, float] = {}
        self._refresh_at = self._beat_at = float('-inf')
        self._topics: frozenset[str] = frozenset()
        self._health = health or healths.DaemonHealth()
        for part in ('messages', *(lane.name for lane in lanes)):
            self._health.expect(part)
        self._pulses = {name: self._health.pulse(name, HUNG_SECONDS)
                        for name in ('messages', *(lane.name for lane in lanes))}
        self._broker = connect(self._queue_message)

    # The threads.

    def run(self) -> None:
        """Work until :meth:`stop`."""
        threads = [threading.Thread(target=self._run_loop, name=f'kronos-migfra-{lane.name}',
                                    args=(lane.name, lane.run_once, lane.wake))
                   for lane in self._lanes]
        for thread in threads:
            thread.start()
        self._broker.start()
        try:
            self._run_loop('messages', self.run_once, None)
        finally:
            self.stop()
            self._broker.stop()
            for thread in threads:
                thread.join()
            for lane in self._lanes:
                lane.close()

    def stop(self) -> None:
        """End soon; the next process continues the open requests."""
        self._stopping.set()
        for lane in self._lanes:
            lane.wake.set()

    def _run_loop(self, name: str, step: Callable[[], object],
                  wake: threading.Event | None) -> None:
        while not self._stopping.is_set():
            self._pulses[name].beat()
            problem = ''
            try:
                step()
            except exception.StoreError as e:
                problem = str(e)
                LOG.error('%s: %s It is tried again.', name, e)
            except Exception as e:
                problem = f'{type(e).__name__}, a defect of ours; see the log'
                LOG.exception('%s: a pass failed for a reason that is a defect of ours; the next '
                              'one tries again.', name)
            self._health.note(name, {'': problem} if problem else {})
            if wake is not None:
                wake.wait(self._conf.migfra.poll_interval)
                wake.clear()
            elif problem:
                self._stopping.wait(1.0)

    # Messages.

    def _queue_message(self, message: mqtt.ReceivedMessage) -> None:
        """Queue a message, on the connection's thread; while the queue is full, the broker waits.
        """
        while not self._stopping.is_set():
            try:
                return self._messages.put(message, timeout=0.5)
            except queue.Full:
                continue
        return None

    def run_once(self, wait: float = 0.2) -> None:
        """Refresh the hosts, store new messages, publish results.

        :raises StoreError: the database is away; no message is lost.
        """
        now = self._ticks()
        if now >= self._refresh_at:
            self._refresh_hosts()
            self._refresh_at = now + self._conf.migfra.hosts_interval
        if now >= self._beat_at:
            self._beat_at = now + self._conf.migfra.claim_seconds / 4
            for lane in self._lanes:
                lane.beat()
        if self._held is not None:
            self._store_message(self._held)
            self._held = None
        try:
            # Claims and results are due even if messages come faster than they are stored.
            for _ in range(WAITING):
                self._held = self._messages.get(timeout=wait)
                wait = 0.0
                self._store_message(self._held)
                self._held = None
        except queue.Empty:
            pass
        self._publish_results()

    def _refresh_hosts(self) -> None:
        try:
            found = self._hosts.refresh()
        except api.ApiError as e:
            LOG.warning('Which hosts there are is not known: %s. It is looked at again.', e)
            return
        served, foreign = [], []
        for host in found:
            if host in self._aliases and host not in self._named:
                # Its topic would be that of the host with this alias.
                foreign.append(host)
                continue
            try:
                protocol.host_name(self._named.get(host, host))
                served.append(host)
            except ValueError:
                foreign.append(host)
        topics = frozenset(self._format_topic(host, 'task') for host in served)
        if topics == self._topics:
            return
        if foreign:
            LOG.warning('%d hosts have names that no topic can bear, or that are in [migfra] '
                        'host_aliases the alias of another host. They are not served: %s',
                        len(foreign), api.format_printable(', '.join(sorted(foreign)[:5])))
        LOG.info('Tasks of %d hosts are heard', len(topics))
        self._topics = topics
        self._broker.subscribe(sorted(topics))

    def _format_topic(self, host: str, end: str) -> str:
        return f'{self._conf.mqtt.prefix}/migfra/{self._named.get(host, host)}/{end}'

    def _parse_host(self, topic: str) -> str:
        return topic.removeprefix(f'{self._conf.mqtt.prefix}/migfra/').removesuffix('/task')

    def _store_message(self, message: mqtt.ReceivedMessage) -> None:
        """Store the task of a message, or publish its refusal; acknowledge it after that."""
        alias = self._parse_host(message.topic)
        host = self._aliases.get(alias, alias)
        if message.retained:
            LOG.warning('A task for %s was published as retained: it may be of long ago and is '
                        'left alone. Publish tasks without that flag.', api.format_printable(host))
            return message.acknowledge()
        try:
            task = protocol.parse(
                message.payload, alias, protocol.MessageDialect(self._conf.migfra.dialect),
                lambda text: LOG.info('A task for %s: %s', host, text))
        except protocol.MessageRefused as e:
            return self._publish_refusal(message, host, e.kind, e.request_id, str(e), e.named)
        except Exception as e:
            # The message must not come again and again, and stop each reader.
            LOG.exception('A message for %s could not be read for a reason that is a defect of '
                          'ours.', api.format_printable(host))
            return self._publish_refusal(message, host, None, None, 'a defect of kronos-nova '
                                         f'({type(e).__name__}); see its log')
        document = request_handler.format_document(
            request_handler.resolve_hosts(task, self._aliases))
        digest = hashlib.sha256(document.encode()).hexdigest()
        key, former = self._keys(task.id, host, digest)
        request = requests.StoredRequest(
            key, host, task.task.value, document, digest, self._clock())
        known = self._kept.receive(request, former)
        if known is None:
            LOG.info('Request %s: %s on %s', key, task.task, host)
            for lane in self._lanes:
                lane.wake.set()
        elif (known.digest, known.host) != (request.digest, host):
            return self._publish_refusal(message, host, RequestKind(task.task), task.id,
                                         'id: another task had it; each needs one of its own',
                                         request_handler.list_named_instances(request))
        elif known.ended_at is not None:
            LOG.info('Request %s came again after its end: sending its result again',
                     known.request_id)
            self._again.add(known.request_id)
            self._kept.tell(known.request_id, again=True)
        return message.acknowledge()

    def _keys(self, request_id: str | int | None, host: str,
              digest: str) -> tuple[str, list[str]]:
        """Return the key of a new request, and the keys under which it may be known.

        Each kronos-migfra receives every message; one without an id is the same as one of the same
        content within a minute.
        """
        if request_id is not None:
            # A release before had ids for all hosts together.
            return request_handler.make_key(host, request_id), [str(request_id)]
        minute = int(self._clock() // ANONYMOUS_SECONDS)
        keys = [request_handler.make_key(host, f'no-id-{digest[:32]}-{n}')
                for n in (minute, minute - 1)]
        return keys[0], keys[1:]

    def _publish_refusal(self, message: mqtt.ReceivedMessage, host: str, kind: RequestKind | None,
                         request_id: str | int | None, why: str, named: Sequence[str] = ()) -> None:
        LOG.warning('A message for %s is no task: %s', host, why)
        text = replies.format_refusal(kind, request_id, self._conf.migfra.scheduler, why, named)
        # If it cannot be published, the message comes again after the next connection.
        self._broker.publish(self._format_topic(host, 'result'), text,
                             lambda said: message.acknowledge() if said else None)

    def _publish_results(self) -> None:
        while not self._told.empty():
            request_id, said = self._told.get()
            # If this fails, the result is published once more, which does no harm.
            self._telling.discard(request_id)
            if said and request_id in self._again:
                # It was requested again while it was on its way.
                self._again.discard(request_id)
            elif said:
                self._kept.tell(request_id)
            else:
                # A client that may not publish there may not in a moment either.
                self._refused_until[request_id] = self._ticks() + REFUSED_SECONDS
        for request_id in [r for r, until in self._refused_until.items()
                           if until <= self._ticks()]:
            del self._refused_until[request_id]
        if len(self._telling) + len(self._refused_until) > MOST_UNTOLD:
            return
        for request in self._kept.untold([lane.worker for lane in self._lanes],
                                         self._telling | self._refused_until.keys()):
            self._telling.add(request.request_id)
            self._again.discard(request.request_id)
            self._broker.publish(self._format_topic(request.host, 'result'), request.reply or '',
                                 self._make_publish_callback(request.request_id))

    def _make_publish_callback(self, request_id: str) -> Callable[[bool], None]:
        return lambda said: self._told.put((request_id, said))

