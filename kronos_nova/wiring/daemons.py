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

"""Assembly of daemons from the configuration.

It imports NumPy, which starts threads: a daemon blocks its signals before. All functions take their
inputs as arguments.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.feed import feed_channel
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import raw_cache
from kronos_nova.feed import worker_records
from kronos_nova.rebalancer.authorization import signatures
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.clients import collector as collecting
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.clients import connection
from kronos_nova.rebalancer.engine import daemon
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.engine import placement_check as confirmation
from kronos_nova.rebalancer.engine import plan_webhook as webhooks
from kronos_nova.rebalancer.executors import authorized_executor
from kronos_nova.rebalancer.executors import base as executor_base
from kronos_nova.rebalancer.executors import contract_agreement
from kronos_nova.rebalancer.executors import hook_catalogue
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker as workers
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.messaging import senders
from kronos_nova.rebalancer.messaging import transport
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import metrics_page
from kronos_nova.rebalancer.monitoring import stats
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import process_identity

LOG = logging.getLogger(__name__)

#: Published drains, moves and usages expire after this many cycles.
PUBLISHED_CYCLES = 5


def make_collector(conf: cfg.ConfigOpts) -> Any:
    """Return the reader of Nova and Placement."""
    return collecting.CloudCollector(conf, open_connection(conf))


def make_placement_check(conf: cfg.ConfigOpts) -> Any:
    """Return the check of chosen moves with Placement; None without confirm_moves."""
    if not conf.engine.confirm_moves:
        return None
    return confirmation.PlanConfirmation(conf, open_connection(conf))


def open_connection(conf: cfg.ConfigOpts) -> Any:
    """Return the connection to Nova and Placement."""
    return connection.make_connection(conf)


def make_service_finder(conf: cfg.ConfigOpts) -> Callable[[str], compute_service.ComputeService]:
    """Return the function that returns the nova-compute of a host; it logs in at its first use."""
    @functools.cache
    def connect() -> Any:
        return open_connection(conf)

    return lambda host: compute_service.ComputeService(connect(), host)


def load_metrics_source(conf: cfg.ConfigOpts) -> Any:
    """Return the configured score source."""
    return plugins.load_plugin(plugins.SOURCES, conf.engine.source)(conf)


def open_store(conf: cfg.ConfigOpts) -> Any:
    """Return the database, after an upgrade to this release's schema.

    :raises StoreError: the database cannot be used, or is SQLite and used from two machines.
    """
    store = api.Store(conf, seconds=database.ANSWER_SECONDS)
    store.refuse_other_machines(conf.executor.hosts)
    store.upgrade()
    return store


def make_metrics_page(conf: cfg.ConfigOpts, health: Any, tally: Any,
                      option: str) -> Callable[[str], tuple[str, bytes]] | None:
    """Return the function that renders /metrics; None where the option's port is 0.

    It reads the database through its own connection with a short timeout: no cycle and no task
    waits for a scrape.
    """
    if not conf.monitoring[option]:
        return None
    store = api.Store(engine=database.create_engine(conf, patient=False))
    planning = option == 'engine_port'
    raw_cache.register(conf)
    return metrics_page.MetricsPage(
        health, tally, store.statistics.read_census, renew=store.engine.dispose,
        driver=conf.engine.executor, host_scores=conf.monitoring.host_scores,
        interval=conf.engine.evaluation_interval if planning else None,
        workers=worker_records.RecordReader(conf)
        if planning and raw_cache.is_configured(conf) else None)


def make_publisher(conf: cfg.ConfigOpts) -> Callable[..., None] | None:
    """Return the function that publishes drains and moves to nova-scheduler.

    None without a channel.
    """
    raw_cache.warn_of_unread_backend(conf)
    if not raw_cache.is_configured(conf):
        return None
    channel = feed_channel.FeedChannel(conf)

    def publish_drains(draining: frozenset[str], history: model.MoveHistory,
                       cluster: model.Cluster, now: float, scopes: frozenset[str]) -> None:
        try:
            channel.write(feed_channel.PublishedState(
                draining=draining, quarantined=history.quarantined_hosts,
                flights=feed_channel.choose_flights(cluster, history.completed, now),
                scopes=scopes, written_at=now,
                expires_at=now + PUBLISHED_CYCLES * conf.engine.evaluation_interval))
        except Exception as e:  # a client of memcached raises many kinds
            LOG.warning('nova-scheduler could not be told about drains and moves under way: '
                        '%s. Boots go on without it; see [kronos_channel].', e)

    return publish_drains


def usage_publisher(conf: cfg.ConfigOpts) -> Callable[..., None] | None:
    """Return the function that publishes instances' usage to nova-scheduler.

    None without a channel.
    """
    if not raw_cache.is_configured(conf):
        return None
    channel = feed_channel.FeedChannel(conf)

    def publish_usage(policy: policies.Policy, usage: flavor_usages.FlavorUsages,
                      now: float) -> None:
        try:
            channel.write_usage(feed_channel.usage_key(policy), usage, now,
                                now + PUBLISHED_CYCLES * conf.engine.evaluation_interval)
        except Exception as e:  # a client of memcached raises many kinds
            LOG.warning('nova-scheduler could not be told what instances use under policy %s: '
                        '%s. Boots go on without it; see [kronos_channel].', policy.name, e)

    return publish_usage


def limit_publisher(conf: cfg.ConfigOpts) -> Callable[..., None] | None:
    """Return the function that publishes the limits of boots to nova-scheduler.

    None without a channel.
    """
    if not raw_cache.is_configured(conf):
        return None
    channel = feed_channel.FeedChannel(conf)

    def publish_limits(scope: str, limits: Mapping[str, model.BootLimit], now: float) -> None:
        try:
            channel.write_boot_limits(
                scope, limits, now,
                now + PUBLISHED_CYCLES * conf.engine.evaluation_interval)
        except Exception as e:  # a client of memcached raises many kinds
            LOG.warning('nova-scheduler could not be told how far boots may fill the hosts of '
                        'scope %s: %s. The limits before hold for a while; see [kronos_channel].',
                        scope, e)

    return publish_limits


def make_caster(conf: cfg.ConfigOpts) -> Any:
    """Return the client that wakes executors; None in a dry run or without a broker."""
    if conf.engine.dry_run:
        return None
    rpc_transport = transport.get_transport(conf)
    if rpc_transport is None:
        LOG.info('No transport_url is set: executors find their tasks by polling alone')
        return None
    return senders.TaskCaster(rpc_transport, retry=transport.count_retries(conf))


def plan_notifier(conf: cfg.ConfigOpts) -> Any:
    """Return the notifier of plans and drains.

    None if plan_notifications is off, in a dry run, or without a broker.
    """
    if conf.engine.dry_run or not conf.messaging.plan_notifications:
        return None
    rpc_transport = transport.get_transport(conf)
    return None if rpc_transport is None else senders.PlanNotifier(
        rpc_transport, retry=transport.count_retries(conf))


def plan_webhook(conf: cfg.ConfigOpts) -> Any:
    """Return the webhook for events of plans and drains.

    None in a dry run or without [plan_webhook] url.

    :raises ConfigError: an option cannot be used.
    """
    if conf.engine.dry_run or not conf.plan_webhook.url:
        return None
    return webhooks.PlanWebhook(conf)


def make_engine(conf: cfg.ConfigOpts,
                tally: stats.DaemonTally) -> tuple[engine.Engine, Callable[[], None]]:
    """Return the engine, and the function to call after it has ended.

    :raises SigningKeyError: the engine could not sign its tasks.
    """
    if not conf.engine.dry_run:
        task_authorization.make_signer(conf).check_keys()
    webhook = plan_webhook(conf)
    built = engine.Engine(
        conf, collector=make_collector(conf), source=load_metrics_source(conf),
        confirming=make_placement_check(conf), store=open_store(conf), cast=make_caster(conf),
        publish=make_publisher(conf), publish_usage=usage_publisher(conf),
        publish_limits=limit_publisher(conf),
        listeners=[listener for listener in (plan_notifier(conf), webhook) if listener is not None],
        find_service=make_service_finder(conf), kept_alive=not conf.once, tally=tally)

    def close() -> None:
        built.close()
        if webhook is not None:
            webhook.close()

    return built, close


def make_cycles(conf: cfg.ConfigOpts, built: engine.Engine,
                health: healths.DaemonHealth) -> daemon.EngineDaemon:
    """Return the threads that run the engine's cycles."""
    return daemon.EngineDaemon(built, conf.engine.evaluation_interval, health=health)


def make_results_listener(conf: cfg.ConfigOpts, scopes: Sequence[str],
                          heard: Callable[..., None]) -> Any:
    """Return the listener for task results; None in a dry run or without a broker.

    It hears all results of the scopes: each engine has its own pool.
    """
    rpc_transport = None if conf.engine.dry_run else transport.get_transport(conf)
    if rpc_transport is None:
        return None
    return listeners.ResultServers(rpc_transport, scopes, heard, pool=transport.results_pool(conf))


def _make_driver(conf: cfg.ConfigOpts,
                 driver: type[executor_base.Executor]) -> executor_base.Executor:
    """Return the configured driver; with keys it asks Nova only for signed tasks.

    :raises SigningKeyError: the keys cannot be read.
    """
    built = driver.create(conf, lambda: open_connection(conf))
    keys = signatures.open_keys(conf)
    if keys is None:
        LOG.info('No [signing] key_repository is set: this executor carries out every queued row '
                 'of the database')
        return built
    LOG.info('This executor carries out only tasks that one of %s has signed (%s)',
             plurals.count_noun(keys.count_public_keys(), 'key'), keys.directory)
    return authorized_executor.AuthorizedExecutor(
        built, task_authorization.TaskVerifier(keys))


def make_worker(conf: cfg.ConfigOpts, scopes: Sequence[str], tally: Any = None) -> tuple[Any, Any]:
    """Return an executor on the configured driver, and the listener that wakes it.

    The executor serves ``scopes`` (empty: all). In a dry run or without a broker the listener is
    missing (None). In a dry run the executor begins nothing; it watches migrations that were begun
    before to their end.
    """
    driver = plugins.load_plugin(plugins.EXECUTORS, conf.engine.executor)
    chosen = retry.build_settings(conf)
    if scopes:
        chosen = dataclasses.replace(chosen, scopes=frozenset(scopes))
    rpc_transport = None if conf.engine.dry_run else transport.get_transport(conf)
    opened = open_store(conf)
    if opened.engine.dialect.name == 'sqlite' and opened.leases.is_empty():
        LOG.warning('No engine has written to %s yet. Start kronos-engine on this host: SQLite '
                    'serves one host, and the tasks of an engine elsewhere are not seen here.',
                    opened.engine.url.database)
    name = process_identity.name_process()
    agreement = contract_agreement.ContractAgreement(contracts_conf.digest_settings(conf))

    def record_presence(there: bool) -> None:
        if there:
            opened.executors.record_heartbeat(name, chosen.scopes)
            agreement.compare_settings(opened.leases.list_engine_settings(chosen.scopes))
        else:
            opened.executors.remove_executor(name)

    notifier = (None if rpc_transport is None
                else senders.ResultNotifier(rpc_transport, retry=transport.count_retries(conf)))
    built = workers.Worker(
        opened, _make_driver(conf, driver), chosen, notifier,
        announce=None if notifier is None else notifier.announce_event, tally=tally, name=name,
        present=None if conf.engine.dry_run else record_presence,
        hooks=(hook_catalogue.HookCatalogue.load_hooks(conf, lambda: open_connection(conf)),
               hook_runner.build_settings(conf)))
    if rpc_transport is None:
        return built, None
    heard = sorted(chosen.scopes or {*conf.engine.aggregates, model.UNASSIGNED})

    def find_doubt(task: model.Task) -> str | None:
        try:
            doubt: str | None = opened.tasks.validate_cast(task)
        except exception.StoreError:
            return None  # the worker checks the task when the database is back
        return doubt

    return built, listeners.WakeUps(rpc_transport, heard, transport.this_host(), built.wake.set,
                                    find_doubt)
