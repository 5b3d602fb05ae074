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

"""Outputs of an engine: log, publications for nova-scheduler, notifications for listeners."""

from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import re
from typing import Any

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import quiet_hours
from kronos_nova.feed import flavor_usages
from kronos_nova.rebalancer.engine import flavor_usage
from kronos_nova.rebalancer.messaging import plan_events
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.planning import failover_reserve
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.text import move_effects
from kronos_nova.text import times

LOG = logging.getLogger(__name__)

#: Tasks that are not over.
LIVE = tuple(state for state in model.TaskState if not state.is_terminal)
#: A task that waits for approval is not under way: it holds no boot.
DECIDED = tuple(state for state in LIVE if state is not model.TaskState.PENDING)
#: Seconds for which an operator's decision on a plan is announced.
NEWS = 86400.0
#: Notices of a scope that a listener gets in a cycle, at most.
MOST_ANNOUNCED = 50
_SECONDS = re.compile(r'\b\d+ s\b')
_RATES = re.compile(r'\b[0-9.]+ MiB/s')
#: Ends of warnings that say until when a drain waits.
_WAITS = tuple(f'({code})' for code in quiet_hours.QUIETER_HOUR_RULE.codes)

#: Receives (event, scope, payload); returns False if it could not take the event.
Listener = Callable[[str, str, dict[str, Any]], object]
Publish = Callable[[frozenset[str], model.MoveHistory, model.Cluster, float, frozenset[str]], None]
PublishLimits = Callable[[str, Mapping[str, model.BootLimit], float], None]
_NoticeKey = tuple[str, float]
PublishUsage = Callable[[policies.Policy, flavor_usages.FlavorUsages, float], None]


class DecisionLog:
    """The log of decisions; a state that lasts is logged once."""

    def __init__(self) -> None:
        self._shared: dict[str, tuple[str, ...]] = {}
        self._undrained: dict[str, frozenset[str]] = {}
        self._waits: dict[str, frozenset[str]] = {}

    def log_shared_hosts(self, cluster: model.Cluster, named: Sequence[str]) -> None:
        """Log each host in several planned aggregates once, and again when these have changed."""
        shared = cluster.shared_hosts(named)
        for host, names in shared.items():
            if self._shared.get(host) != names:
                LOG.warning('Host %s is in several aggregates that are planned, %s: it belongs '
                            'to scope %s, the first one in [engine] aggregates', host,
                            ', '.join(names), names[0])
        self._shared = shared

    def log_decisions(self, row: Mapping[str, Any]) -> None:
        """Log the decisions, one line each, keyed by UUID."""
        for move in row['moves']:
            effects = move_effects.describe_effects(move)
            LOG.info('Instance %s: %s from %s to %s (%swave %d%s%s)',
                     move['instance_uuid'], move['phase'], move['from_host'], move['to_host'],
                     '' if move['method'] == 'live' else f'{move["method"]}, ', move['wave'],
                     f'; {effects}' if effects else '',
                     '' if move['from_zone'] == move['to_zone'] else
                     f', zone {move["from_zone"]} to {move["to_zone"]}')
        for policy in row['policies']:
            for text in policy['warnings']:
                LOG.debug('Scope %s, policy %s: %s', row['name'], policy['name'], text)
        for text in row['warnings']:
            if not text.endswith(_WAITS):
                LOG.warning('Scope %s: %s', row['name'], text)
        self._log_waits(row)
        LOG.info('Scope %s: %s', row['name'], cycle_report.format_log_line(row))
        self._undrained_of(row)

    def log_scores(self, scope: str, scores: model.ClusterScores) -> None:
        """Log each host's score, and where it lies between the lowest and the highest."""
        if not LOG.isEnabledFor(logging.DEBUG):
            return
        for name, policy in sorted(scores.policies.items()):
            low, high = min(policy.hosts.values(), default=0.0), max(
                policy.hosts.values(), default=0.0)
            for host, score in sorted(policy.hosts.items()):
                LOG.debug('Scope %s, policy %s: host %s has score %.4f, min-max %.4f', scope, name,
                          host, score, (score - low) / (high - low) if high > low else 0.0)

    def _log_waits(self, row: Mapping[str, Any]) -> None:
        """Log drains that wait, once for each instance and time; rates do not count."""
        waits = {_RATES.sub('', text): text for text in row['warnings'] if text.endswith(_WAITS)}
        for key, text in waits.items():
            if key not in self._waits.get(row['name'], ()):
                LOG.info('Scope %s: %s', row['name'], text)
        self._waits[row['name']] = frozenset(waits)

    def _undrained_of(self, row: Mapping[str, Any]) -> None:
        """Log hosts that are not drained, once for each reason; seconds do not count."""
        undrained_texts = frozenset(_SECONDS.sub('', text) for text in row['undrained'])
        for text in row['undrained']:
            if _SECONDS.sub('', text) not in self._undrained.get(row['name'], ()):
                LOG.info('Scope %s: %s', row['name'], text)
        self._undrained[row['name']] = undrained_texts


class PlanAnnouncer:
    """Notifications of plans and drains, at most once each: one that a crash prevents is lost.

    Notices to owners are announced to each listener until it takes them: a listener that takes
    none holds up no other.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)
        self._draining: dict[str, frozenset[str]] = {}
        #: By scope, for each listener: the keys of the notices that it has and another one lacks.
        self._taken: dict[str, list[set[_NoticeKey]]] = {}

    def _notify(self, event: str, scope: str, payload: dict[str, Any]) -> None:
        for listener in self._listeners:
            listener(event, scope, payload)

    def announce_stored_plan(self, outcome: planning_pipeline.PassOutcome, plan_id: str, now: float,
                             state: model.TaskState, draining: frozenset[str]) -> None:
        """Announce a stored plan, and the drains that have begun or ended.

        :param draining: the hosts of the scope that are being drained now; drains that wait for
            approval begin with it.
        """
        if not self._listeners:
            return
        plan = outcome.plan
        if plan.moves:
            self._notify(plan_events.PLANNED, plan.scope,
                         plan_events.plan_payload(plan, plan_id, now, state, tasks.choose_methods(
                             plan, outcome.cluster, outcome.request.options,
                             outcome.request.history)))
        before = self._draining.get(
            plan.scope, outcome.request.history.draining & outcome.cluster.scope_hosts)
        self._draining[plan.scope] = draining
        here = Counter(i.host for i in outcome.cluster.instances.values())
        for host in sorted(before ^ draining):
            event = (plan_events.DRAINING if host in draining else
                     plan_events.UNDRAINED if here[host] else plan_events.DRAINED)
            self._notify(event, plan.scope,
                         plan_events.drain_payload(plan.scope, host, now, here[host]))

    def announce_moves(self, lease: store_rows.ScopeLease, store: store_api.Store,
                       given: Sequence[model.MoveNotice]) -> None:
        """Announce moves to the owners of instances, once their notices are stored.

        Those that a listener could not take, or that an engine did not get to announce, follow in
        the next cycles. Which listener has which notice is not stored: after a crash, or when
        another engine takes the scope, a listener may get one twice.

        :param given: the notices of this cycle, for the log.
        """
        for notice in given:
            LOG.info('Instance %s: its owner gets notice of a move off host %s (%s) from %s on',
                     notice.instance_uuid, notice.host, notice.reason,
                     times.format_time(notice.movable_from))
        if not self._listeners:
            if given:
                LOG.warning('No listener gets these notices: set [plan_webhook] url or [messaging] '
                            'plan_notifications, or let a program read /v1/events of kronos-api')
            return
        waiting = {_find_key(notice): notice for notice in
                   store.notices.list_unannounced_notices(lease.scope, store.now())}
        before = self._taken.get(lease.scope) or [set() for _listener in self._listeners]
        taken = [has.intersection(waiting) | _offer_notices(listener, lease.scope, [
                     notice for key, notice in waiting.items() if key not in has][:MOST_ANNOUNCED])
                 for listener, has in zip(self._listeners, before, strict=True)]
        self._taken[lease.scope] = taken
        announced = set.intersection(*taken)
        store.notices.record_announcements(
            lease, [notice for key, notice in waiting.items() if key in announced])

    def announce_held_host(self, campaign: model.Campaign, host: model.CampaignHost) -> bool:
        """Announce that a host is empty and held for maintenance; a repetition says the same.

        :returns: False, if a listener could not take it: it follows in the next cycle.
        """
        payload = plan_events.held_host_payload(campaign, host)
        answers = [listener(plan_events.HOST_HELD, campaign.scope, payload)
                   for listener in self._listeners]
        return False not in answers

    def announce_campaign(self, campaign: model.Campaign, state: model.CampaignState, now: float,
                          reason: str) -> None:
        """Announce that a campaign pauses or has ended, once."""
        self._notify(plan_events.format_campaign_event(state), campaign.scope,
                     plan_events.campaign_payload(campaign, now, reason))

    def announce_decisions(self, lease: store_rows.ScopeLease, store: store_api.Store, now: float,
                           lapsed: Sequence[model.Task] = ()) -> None:
        """Announce the operators' decisions on the scope's plans, and approvals that came too late.

        :param lapsed: tasks that no operator approved in time.
        """
        scope = lease.scope
        if not self._listeners:
            return
        for plan_id, number in Counter(task.plan_id for task in lapsed).items():
            self._notify(plan_events.format_decision_event(plan_events.LAPSED), scope,
                         plan_events.decision_payload(scope, plan_id, now, number))
        try:
            decisions = store.approvals.pop_unannounced_decisions(lease)
        except exception.StoreError as e:
            LOG.warning('%s Listeners get these plan notifications in the next cycle.', e)
            return
        for d in decisions:
            if d.decided_at >= now - NEWS:
                self._notify(plan_events.format_decision_event(d.verb), scope,
                             plan_events.decision_payload(
                    scope, d.plan_id, d.decided_at, d.tasks, d.decided_by, d.reason))


def _find_key(notice: model.MoveNotice) -> _NoticeKey:
    """Return the fields that stay when the notice is extended."""
    return notice.instance_uuid, notice.noticed_at


def _offer_notices(listener: Listener, scope: str,
                   notices: Sequence[model.MoveNotice]) -> set[_NoticeKey]:
    """Offer notices until the listener refuses one; return the keys of the others.
    """
    taken = set()
    for notice in notices:
        payload = plan_events.notice_payload(scope, notice)
        if listener(plan_events.ANNOUNCED, scope, payload) is False:
            break
        taken.add(_find_key(notice))
    return taken


class SchedulerPublisher:
    """Publishes to nova-scheduler.

    :param publish: publishes drains and moves, or None.
    :param publish_usage: publishes measured usage, or None.
    :param publish_limits: publishes the limits of boots in a scope, or None.
    """

    def __init__(self, store: store_api.Store, publish: Publish | None,
                 publish_usage: PublishUsage | None, publish_limits: PublishLimits | None,
                 clock: Callable[[], float]) -> None:
        self._store = store
        self._publish = publish
        self._publish_usage = publish_usage
        self._publish_limits = publish_limits
        self._clock = clock

    def publish_limits(self, outcomes: Sequence[planning_pipeline.PassOutcome]) -> None:
        """Publish the limits that keep the failover certificates, where plans keep them as well.

        Without a new certificate of a scope the limits before hold until they expire. Where plans
        keep none, a record without limits ends them.
        """
        if self._publish_limits is None:
            return
        for outcome in outcomes:
            limits: Mapping[str, model.BootLimit] = {}
            if outcome.request.options.failover is model.FailoverMode.ENFORCE:
                if outcome.certificate is None or outcome.certificate.hold is not None:
                    continue
                limits = failover_reserve.compute_boot_limits(outcome.certificate,
                                                              outcome.plan.moves)
            self._publish_limits(outcome.plan.scope, limits, self._clock())

    def publish_moves(self, cluster: model.Cluster, scopes: frozenset[str]) -> None:
        """Publish the drains and moves of all scopes, also of other engines and failed ones.

        :param scopes: scopes that this engine or another one plans.
        """
        if self._publish is None:
            return
        now = self._clock()
        try:
            draining = self._store.plans.list_draining_hosts()
            history = self._store.history.read_history(model.UNASSIGNED, now,
                                                        late_drains=False)
            cluster = dataclasses.replace(
                cluster, flights=cluster.flights + self._store.tasks.list_in_flight_moves(DECIDED))
        except exception.StoreError as e:
            LOG.warning('%s nova-scheduler is not told about drains this time.', e)
            return
        self._publish(draining, history, cluster, now, scopes)

    def publish_usage(self, cluster: model.Cluster, samples: Mapping[str, model.PolicySamples],
                      policy_set: policies.PolicySet) -> None:
        if self._publish_usage is None:
            return
        now = self._clock()
        try:
            live = [row.task for row in self._store.tasks.list_tasks_in_states(LIVE)]
        except exception.StoreError as e:
            LOG.warning('%s nova-scheduler is not told what instances use this time.', e)
            return
        for policy in policy_set.enabled_policies:
            self._publish_usage(
                policy,
                flavor_usage.compute_usage(policy, samples[policy.name], cluster, live, now), now)


def log_result(result: model.TaskResult,
               find_max_retries: Callable[[model.TaskResult], int]) -> None:
    """Log an executor's result.

    :param find_max_retries: returns the retries that the task of a failure is allowed.
    """
    if result.success:
        LOG.info('%s: moved from %s to %s in %.0f s', model.format_task(result),
                 result.from_host, result.to_host, result.duration_seconds)
        return
    allowed = find_max_retries(result)
    if result.retry_count < allowed:
        LOG.debug('%s: the move from %s to %s failed: %s: %s; retry %d of %d follows',
                  model.format_task(result), result.from_host, result.to_host, result.error_type,
                  result.error, result.retry_count + 1, allowed)
    else:
        LOG.info('%s: the move from %s to %s failed: %s: %s', model.format_task(result),
                 result.from_host, result.to_host, result.error_type, result.error)
