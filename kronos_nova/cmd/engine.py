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
from kronos_nova.wiring import heap
from kronos_nova.wiring import signals

PROG = 'kronos-engine'

with extras.needs_extra(PROG):
    from oslo_config import cfg
    from oslo_log import log as logging

    from kronos_nova.rebalancer.monitoring import health as healths
    from kronos_nova.rebalancer.monitoring import http_server
    from kronos_nova.rebalancer.monitoring import stats as tallies
    from kronos_nova.wiring import daemon_configuration
    from kronos_nova.wiring import error_reports
    from kronos_nova.wiring import tools

LOG = logging.getLogger(__name__)


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; with ``--once``, one cycle and its report.

    :returns: 0; with ``--once`` 1 when a scope could not be planned.
    """
    tools.native_threads()
    conf = daemon_configuration.configure_daemon(PROG, argv, [
        cfg.BoolOpt('once', default=False, help='Run one cycle, print its report as JSON, and '
                                                'leave. Executors carry out its plan.')])
    return tools.run_guarded(PROG, lambda: _run(conf))


def _run(conf: Any) -> int:
    if not conf.once:
        signals.block_signals()
        heap.limit_heap()
    # NumPy starts threads when it is imported: they would receive signals otherwise.
    from kronos_nova.wiring import daemons  # noqa: PLC0415

    tally = tallies.DaemonTally()
    built, close = daemons.make_engine(conf, tally)
    try:
        if conf.once:
            rows = built.run_cycle()
            print(json.dumps({'aggregates': rows}, indent=2, sort_keys=True))
            return int(any(row['hosts'] is None for row in rows))
        health = healths.DaemonHealth(daemon=PROG, dry_run=conf.engine.dry_run)
        monitor = http_server.start_monitor(
            conf, health, 'engine_port',
            daemons.make_metrics_page(conf, health, tally, 'engine_port'))
        return _run_daemon(
            conf, built, monitor,
            daemons.make_results_listener(conf, built.scope_names(), built.log_result),
            daemons.make_cycles(conf, built, health))
    finally:
        close()


def _run_daemon(conf: Any, built: Any, monitor: Any, heard: Any, cycles: Any) -> int:
    """Run cycles in their own threads; handle signals in the main thread.

    SIGUSR1 writes a snapshot, SIGUSR2 a Guru Meditation Report, SIGTERM and SIGINT stop the daemon.

    :param monitor: the HTTP server; None where its port is 0.
    :param heard: the listener for results of tasks; None without a broker.
    """
    if heard is not None:
        heard.start()
    cycles.start()
    LOG.info('Planning every %d s%s', conf.engine.evaluation_interval,
             ' (dry run: nothing is moved)' if conf.engine.dry_run else '')
    while (received := signals.wait_for_signal()) not in signals.LEAVE:
        if received == signals.REPORT:
            error_reports.print_report(PROG)
        else:
            built.write_snapshot()
    LOG.info('Stopping; migrations under way go on without us')
    cycles.stop()
    if heard is not None:
        heard.stop()
    if monitor is not None:
        monitor.stop()
    return 0
