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

"""``PYTHON watcher_model.py CONFIG``: build Watcher's compute model for each line of stdin.

PYTHON is an interpreter with python-watcher, which is run as an outside program. Each model ends
with a line of JSON on stdout: seconds by the clock and of this process, hosts, instances, memory.
"""

import json
import os
import pathlib
import re
import sys
import time


def main() -> None:
    # It must not be this project's directory that its imports come from.
    sys.path[:] = [p for p in sys.path if p != os.path.dirname(os.path.abspath(__file__))]
    from watcher.common import clients  # type: ignore[import-not-found]
    from watcher.common import service
    from watcher.decision_engine.model.collector import nova  # type: ignore[import-not-found]

    service.prepare_service(['watcher', '--config-file', sys.argv[1]])
    for _line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        model = nova.NovaModelBuilder(clients.OpenStackClients()).execute(
            {'host_aggregates': [], 'availability_zones': []})
        spent = time.perf_counter() - wall, time.process_time() - cpu
        status = pathlib.Path('/proc/self/status').read_text()
        print(json.dumps({
            'seconds': spent[0], 'cpu_seconds': spent[1],
            'hosts': len(model.get_all_compute_nodes()),
            'instances': len(model.get_all_instances()),
            'memory': int(re.search(r'VmHWM:\s+(\d+)', status)[1]) / 1024,  # type: ignore[index]
        }), flush=True)
    os._exit(0)


if __name__ == '__main__':
    main()
