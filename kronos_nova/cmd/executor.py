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

"""kronos-executor: carry out the tasks that engines have planned."""

from collections.abc import Sequence
import threading
from typing import Any

from kronos_nova.wiring import extras
from kronos_nova.wiring import heap
from kronos_nova.wiring import signals

PROG = 'kronos-executor'

with extras.needs_extra(PROG):
    from oslo_config import cfg
    from oslo_log import log as logging

    from kronos_nova import model
    from kronos_nova.rebalancer.monitoring import health as healths
    from kronos_nova.rebalancer.monitoring import http_server
    from kronos_nova.rebalancer.monitoring import stats as tallies
    from kronos_nova.wiring import daemon_configuration
    from kronos_nova.wiring import error_reports
    from kronos_nova.wiring import tools

LOG = logging.getLogger(__name__)


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; migrations that were begun go on."""
    tools.native_threads()
    conf = daemon_configuration.configure_daemon(PROG, argv, [
        cfg.MultiStrOpt('aggregate', default=[], help='Serve this aggregate; may be repeated.'),
        cfg.BoolOpt('unassigned', default=False,
                    help='Serve the hosts that are in no aggregate. With neither option every '
                         'scope is served.')])
    return tools.run_guarded(PROG, lambda: _run(conf))


def _run(conf: Any) -> int:
    signals.block_signals()
    heap.limit_heap()
    # NumPy starts threads when it is imported: they would receive signals otherwise.
    from kronos_nova.wiring import daemons  # noqa: PLC0415

    tally = tallies.DaemonTally()
    scopes = [*conf.aggregate, *([model.UNASSIGNED] if conf.unassigned else [])]
    worker, listeners = daemons.make_worker(conf, scopes, tally)
    LOG.info('Serving %s%s', ', '.join(scopes) if scopes else 'every scope',
             ' (dry run: no move begins, running moves are watched)'
             if conf.engine.dry_run else '')
    health = healths.DaemonHealth(daemon=PROG, dry_run=conf.engine.dry_run)
    worker.set_health_registry(health)
    monitor = http_server.start_monitor(conf, health, 'executor_port',
                                        daemons.make_metrics_page(conf, health, tally,
                                                                  'executor_port'))
    thread = threading.Thread(target=worker.run, name='worker')
    thread.start()
    if listeners is not None:
        listeners.start()
    try:
        while (received := signals.wait_for_signal()) not in signals.LEAVE:
            if received == signals.REPORT:
                error_reports.print_report(PROG)
    finally:
        # Otherwise the thread would go on, and no signal would reach the process.
        worker.stop()
        thread.join()
    if listeners is not None:
        listeners.stop()
    if monitor is not None:
        monitor.stop()
    return 0
