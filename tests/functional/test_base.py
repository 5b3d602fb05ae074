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


"""The harness itself: Nova boots and live-migrates without our plug-ins."""

import os

from nova import monkey_patch

from tests.functional import base


class StockNovaTestCase(base.NovaTestCase):
    plugins = False
    hosts = ('host1', 'host2')

    def test_boot_and_live_migration_use_configured_threads(self):
        server = self.boot(host='host1')
        self.assertEqual('host1', self.host_of(server))
        self.live_migrate(server, 'host2')
        self.assertEqual('host2', self.host_of(server))
        self.assertEqual(os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] == '0',
                         monkey_patch.is_patched())
