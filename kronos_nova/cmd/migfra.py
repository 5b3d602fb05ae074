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

"""kronos-migfra: start, stop and move instances for clients of MQTT."""

from collections.abc import Sequence
import threading
from typing import Any

from kronos_nova.wiring import extras
from kronos_nova.wiring import heap
from kronos_nova.wiring import signals

PROG = 'kronos-migfra'

with extras.needs_extra(PROG):
    from oslo_log import log as logging

    from kronos_nova.rebalancer.monitoring import health as healths
    from kronos_nova.rebalancer.monitoring import http_server
    from kronos_nova.wiring import daemon_configuration
    from kronos_nova.wiring import error_reports
    from kronos_nova.wiring import tools

LOG = logging.getLogger(__name__)


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the next daemon goes on with open requests."""
    tools.native_threads()
    conf = daemon_configuration.configure_daemon(PROG, argv)
    return tools.run_guarded(PROG, lambda: _run(conf))


def _run(conf: Any) -> int:
    signals.block_signals()
    heap.limit_heap()
    with extras.needs_extra(PROG, 'mqtt'):
        # paho-mqtt, the extra "mqtt", may be missing. NumPy starts threads when it is imported:
        # they would receive signals otherwise.
        from kronos_nova.wiring import request_service  # noqa: PLC0415

    health = healths.DaemonHealth(daemon=PROG, dry_run=conf.engine.dry_run)
    built, close = request_service.make_migfra_service(conf, health)
    if not conf.migfra.allow:
        LOG.warning('Every request will be refused: [migfra] allow names none')
    monitor = http_server.start_monitor(conf, health, 'migfra_port')
    thread = threading.Thread(target=built.run, name='kronos-migfra')
    thread.start()
    try:
        while (received := signals.wait_for_signal()) not in signals.LEAVE:
            if received == signals.REPORT:
                error_reports.print_report(PROG)
    finally:
        built.stop()
        thread.join()
        close()
    if monitor is not None:
        monitor.stop()
    return 0
