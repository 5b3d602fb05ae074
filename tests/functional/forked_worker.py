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


"""What nova-scheduler does with plug-ins: load, use, fork, use. A program.

Run as ``python -m tests.functional.forked_worker POLICIES URL``; exit code 0
when the parent and its forked child each saw the scores through the same
weigher object, made before the fork.
"""

import os
import sys

from kronos_nova.scheduler import runtime
from tests.fixtures import doors


def main() -> int:
    runtime.CONF([], project='nova', default_config_files=[])
    runtime.CONF.set_override('policies_file', [sys.argv[1]], 'kronos')
    runtime.CONF.set_override('url', sys.argv[2], 'prometheus')
    filter_, weigher = doors.load()
    early = os.fork()
    if early == 0:
        # Forked before anything ran, as nova-scheduler's workers are.
        os._exit(0 if doors.sees_scores(filter_, weigher) else 1)
    if not doors.sees_scores(filter_, weigher):
        return 2
    late = os.fork()
    if late == 0:
        # Forked from a process whose thread, lock and connection are in use.
        for card in runtime.get_runtime().scores._cards:
            card.snapshot = type(card.snapshot)()
        os._exit(0 if doors.sees_scores(filter_, weigher) else 1)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (early, late)]
    return max(codes) * 3


if __name__ == '__main__':
    sys.exit(main())
