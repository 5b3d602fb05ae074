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

"""kronos-engine: plan every interval, or once."""

from collections.abc import Sequence
import json
from typing import Any

from kronos_nova.wiring import extras
from kronos_nova.wiring import signals

PROG = 'kronos-engine'


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; with ``--once``, one cycle and its report.

    :returns: 0; with ``--once`` 1 when a scope could not be planned.
    """
    from kronos_nova.wiring import tools

    tools.native_threads()
    from oslo_config import cfg

    from kronos_nova.wiring import daemons

    conf = daemons.configure_daemon(PROG, argv, [
        cfg.BoolOpt('once', default=False, help='Run one cycle, print its report as JSON, and '
                                                'leave. Executors carry out its plan.')])
    return tools.run_guarded(PROG, lambda: _run(conf))


def _run(conf: Any) -> int:
    if not conf.once:
        # Block them before NumPy is imported: its threads would receive signals otherwise.
        signals.block_signals()
    from kronos_nova.rebalancer.engine import engine
    from kronos_nova.rebalancer.monitoring import stats as tallies
    from kronos_nova.wiring import daemons

    tally = tallies.DaemonTally()
    webhook = daemons.plan_webhook(conf)
    built = engine.Engine(
        conf, collector=daemons.make_collector(conf), source=daemons.load_source(conf),
        confirming=daemons.make_placement_check(conf),
        store=daemons.open_store(conf), cast=daemons.make_caster(conf),
        publish=daemons.make_publisher(conf),
        publish_usage=daemons.usage_publisher(conf),
        notify=daemons.join_listeners(daemons.plan_notifier(conf), webhook),
        kept_alive=not conf.once, tally=tally)
    try:
        if conf.once:
            rows = built.run_cycle()
            print(json.dumps({'aggregates': rows}, indent=2, sort_keys=True))
            return int(any(row['hosts'] is None for row in rows))
        return _run_daemon(conf, built, tally)
    finally:
        built.close()
        if webhook is not None:
            webhook.close()


def _run_daemon(conf: Any, built: Any, tally: Any) -> int:
    """Run cycles in their own threads; handle signals in the main thread.

    SIGUSR1 writes a snapshot, SIGUSR2 a Guru Meditation Report, SIGTERM and SIGINT stop the daemon.
    """
    from oslo_log import log as logging

    from kronos_nova.rebalancer.engine import daemon
    from kronos_nova.rebalancer.monitoring import health as healths
    from kronos_nova.rebalancer.monitoring import http_server
    from kronos_nova.wiring import daemons
    from kronos_nova.wiring import error_reports

    log = logging.getLogger(__name__)
    health = healths.DaemonHealth(daemon=PROG, dry_run=conf.engine.dry_run)
    monitor = http_server.start_monitor(conf, health, 'engine_port',
                                        daemons.make_metrics_page(conf, health, tally,
                                                                  'engine_port'))
    heard = daemons.make_results_listener(conf, built.scope_names(), built.on_result)
    if heard is not None:
        heard.start()
    cycles = daemon.EngineDaemon(built, conf.engine.evaluation_interval, health=health)
    cycles.start()
    log.info('Planning every %d s%s', conf.engine.evaluation_interval,
             ' (dry run: nothing is moved)' if conf.engine.dry_run else '')
    while (taken := signals.wait()) not in signals.LEAVE:
        if taken == signals.REPORT:
            error_reports.print_report(PROG)
        else:
            built.write_snapshot()
    log.info('Stopping; migrations under way go on without us')
    cycles.stop()
    if heard is not None:
        heard.stop()
    if monitor is not None:
        monitor.stop()
    return 0
