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
import time
from unittest import mock

from nova.scheduler import filters
from nova.scheduler import weights

from kronos_nova import boot
from tests.unit import nova_fakes

HOSTS = ('cn1', 'cn2')
EXPECTED = [0.25, -0.25]


def load() -> tuple[object, object]:
    """As HostManager.__init__ does."""
    classes = filters.HostFilterHandler().get_matching_classes(
        ['nova.scheduler.filters.all_filters', 'kronos_nova.filters.all_filters'])
    wanted = next(c for c in classes if c.__name__ == 'KronosCapacityFilter')
    weighers = weights.HostWeightHandler().get_matching_classes(
        ['nova.scheduler.weights.all_weighers', 'kronos_nova.weighers.all_weighers'])
    return wanted(), next(c for c in weighers if c.__name__ == 'KronosWeigher')()


def sees_scores(filter_: object, weigher: object, patience: float = 60.0) -> bool:
    states = nova_fakes.hosts(*HOSTS)
    weighed = [mock.Mock(obj=state) for state in states]
    end = time.monotonic() + patience
    while time.monotonic() < end:
        assert filter_.filter_all(states, nova_fakes.spec()) == states
        found = weigher.weigh_objects(weighed, None)
        if found == EXPECTED:
            return True
        assert found == [0.0, 0.0], found
        time.sleep(0.02)
    return False


def main() -> int:
    boot.CONF([], project='nova', default_config_files=[])
    boot.CONF.set_override('policies_file', [sys.argv[1]], 'kronos')
    boot.CONF.set_override('url', sys.argv[2], 'prometheus')
    filter_, weigher = load()
    early = os.fork()
    if early == 0:
        # Forked before anything ran, as nova-scheduler's workers are.
        os._exit(0 if sees_scores(filter_, weigher) else 1)
    if not sees_scores(filter_, weigher):
        return 2
    late = os.fork()
    if late == 0:
        # Forked from a process whose thread, lock and connection are in use.
        for card in boot.door().scores._cards:
            card.snapshot = type(card.snapshot)()
        os._exit(0 if sees_scores(filter_, weigher) else 1)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (early, late)]
    return max(codes) * 3


if __name__ == '__main__':
    sys.exit(main())
