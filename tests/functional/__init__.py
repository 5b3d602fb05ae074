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


"""Tests on a whole Nova in one process: API, conductor, scheduler, computes.

Nova decides at its first import whether it runs on native threads; every service does
since 2026.2, so the choice is made here, before any test module. Nova's own fixtures
know native threads since then, too: ``OS_NOVA_DISABLE_EVENTLET_PATCHING=0`` asks for
eventlet, on which the tests run with older Novas.
"""

import os

os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', '1')

from nova import monkey_patch

monkey_patch.patch()
