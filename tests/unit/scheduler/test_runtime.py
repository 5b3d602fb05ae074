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


"""The door of a process: one for all of its threads."""

import threading
from unittest import mock

from kronos_nova.scheduler import runtime


def test_first_requests_that_come_together_get_one_door():
    """A second one would go on asking the source, on a thread of its own."""
    together = threading.Barrier(2)
    made = []

    def slow(conf):
        together.wait(10)
        made.append(object())
        return made[-1]

    found = []
    with mock.patch.object(runtime, '_door', None), mock.patch.object(runtime, '_made', {}), \
            mock.patch.object(runtime, 'SchedulerRuntime', slow):
        threads = [threading.Thread(target=lambda: found.append(runtime.get_runtime()))
                   for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(made) == 2 and found in ([made[0]] * 2, [made[1]] * 2)
