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


"""As many threads in Nova's pools as have something to do.

futurist adds a thread with each piece of work until the pool is full, and each that
idles wakes up once a second: with several computes in a process these threads take
most of its time.
"""

import fixtures
import futurist


class FewThreads(fixtures.Fixture):

    def _setUp(self) -> None:
        spin_up = futurist.ThreadPoolExecutor._maybe_spin_up

        def when_all_are_busy(executor: futurist.ThreadPoolExecutor) -> bool:
            # Counted until a thread is done with it, so that one is free for what comes.
            if len(executor._workers) > executor._work_queue.unfinished_tasks:
                return False
            return spin_up(executor)

        self.useFixture(fixtures.MockPatchObject(
            futurist.ThreadPoolExecutor, '_maybe_spin_up', when_all_are_busy))
