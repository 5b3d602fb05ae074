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
from kronos_nova.wiring import signals

PROG = 'kronos-migfra'


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the next daemon goes on with open requests."""
    from kronos_nova.wiring import tools

    tools.native_threads()
    from kronos_nova.wiring import daemons

    conf = daemons.configure_daemon(PROG, argv)
    return tools.run_guarded(PROG, lambda: _run(conf))


def _run(conf: Any) -> int:
    with extras.needs_extra(PROG, 'mqtt'):
        import paho.mqtt.client  # noqa: F401

    signals.block_signals()
    from oslo_log import log as logging

    from kronos_nova.rebalancer.monitoring import health as healths
    from kronos_nova.rebalancer.monitoring import http_server
    from kronos_nova.wiring import daemons
    from kronos_nova.wiring import error_reports

    health = healths.DaemonHealth(daemon=PROG, dry_run=conf.engine.dry_run)
    built, close = daemons.make_migfra_service(conf, health)
    if not conf.migfra.allow:
        logging.getLogger(__name__).warning(
            'Every request will be refused: [migfra] allow names none')
    monitor = http_server.start_monitor(conf, health, 'migfra_port')
    thread = threading.Thread(target=built.run, name='kronos-migfra')
    thread.start()
    try:
        while (taken := signals.wait()) not in signals.LEAVE:
            if taken == signals.REPORT:
                error_reports.print_report(PROG)
    finally:
        built.stop()
        thread.join()
        close()
    if monitor is not None:
        monitor.stop()
    return 0
