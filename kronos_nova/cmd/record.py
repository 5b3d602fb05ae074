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


"""kronos-record: write a snapshot of the live cloud and its metrics."""

from collections.abc import Sequence
import os
import sys
import time
from typing import Any

from kronos_nova import exception
from kronos_nova.wiring import extras

PROG = 'kronos-record'

with extras.needs_extra(PROG):
    from oslo_config import cfg

    from kronos_nova import plugins
    from kronos_nova.conf import opts
    from kronos_nova.conf import policies
    from kronos_nova.rebalancer.clients import collector as collectors
    from kronos_nova.rebalancer.clients import connection
    from kronos_nova.rebalancer.operations import write_rates
    from kronos_nova.rebalancer.planning import planning_settings
    from kronos_nova.rebalancer.snapshots import recorder
    from kronos_nova.rebalancer.snapshots import writer
    from kronos_nova.rebalancer.store import api
    from kronos_nova.rebalancer.store import database
    from kronos_nova.wiring import tools

DESCRIPTION = ('Reads Nova, Placement, the score source and the database once, as a planning '
               'cycle does, and writes this state into a new directory, for kronos-replay. It '
               'changes nothing. The snapshot holds the names of instances and hosts.')


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Print the path of the new snapshot.

    :returns: 0; 1 when Nova or Placement could not be read: the snapshot
        says so, and cannot be replayed.
    """
    conf = cfg.ConfigOpts()
    opts.register(conf)
    tools.configure_command(conf, PROG, argv, [
        cfg.StrOpt('output_dir', positional=True, required=True,
                   help='Directory in which the snapshot\'s own directory is made.')],
        DESCRIPTION)
    return tools.run_guarded(PROG, lambda: _run(conf))


def _run(conf: Any) -> int:
    policy_set = policies.load_policies(conf.engine.policies_file)
    scopes = planning_settings.list_planned_scopes(conf, policy_set)
    # A snapshot without CPU traits could not be replayed with the rule on.
    conf.set_override('require_cpu_compatibility', True, 'engine')
    collector = collectors.CloudCollector(conf, connection.make_connection(conf))
    source = plugins.load_plugin(plugins.SOURCES, conf.engine.source)(conf)
    store = _open_store(conf)
    try:
        recording = write_rates.add_recorded_rates(conf, source, store, recorder.read_recording(
            collector, source, store, policy_set, scopes, time.time))
    finally:
        source.close()
        if not isinstance(store, str):
            store.close()
    path = writer.write_snapshot(conf.output_dir, recording)
    for text in recorder.list_unknown_parts(recording):
        sys.stderr.write(f'{PROG}: recorded as unknown: {text}\n')
    print(path)
    return int(isinstance(recording.cluster, str))


def _open_store(conf: Any) -> Any:
    """Return the database, or why it cannot be read.

    The database is neither created nor changed.
    """
    path = database.sqlite_file(conf.database.connection)
    if path is not None and not os.path.exists(path):
        return f'the database file {path} does not exist'
    try:
        store = api.Store(conf)
        store.check()
    except exception.StoreError as e:
        return str(e)
    return store
