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


"""Lists that change while they are read."""

from collections.abc import Callable
import threading

from nova import context
from nova import objects

from tests import marks
from tests.functional import test_collector


class MarkerTestCase(test_collector.CollectorCase):

    def spoil_page(self, limit: int, when: Callable[[int], bool]) -> list[str]:
        """Delete and archive the marker of some pages of servers, as nova-manage does.

        Nova continues from a marker that is only deleted. Returns the growing list of
        requested paths.
        """
        self.flags(max_limit=limit, group='api')
        asked: list[str] = []

        def spoil(method: str, path: str) -> bool:
            if threading.current_thread() not in spoiling and path.endswith('/servers/detail'):
                asked.append(path)
                if when(len(asked)):
                    spoiling.append(threading.current_thread())
                    marker = self.admin_api.api_get(
                        f'/servers/detail?all_tenants=1&limit={limit}').body['servers'][-1]
                    self.admin_api.delete_server(marker['id'])
                    self._wait_until_deleted(marker)
                    objects.InstanceMapping.get_by_instance_uuid(
                        context.get_admin_context(), marker['id']).destroy()
            return False

        spoiling: list[threading.Thread] = []
        self.nova_api.door.answers.append((spoil, '', b''))
        return asked

    @marks.turns(3)
    def test_deleted_page_marker_restarts_list(self) -> None:
        """Nova answers 400 then: the list that was begun is worth nothing."""
        for _ in range(6):
            self.boot(host='host1')
        asked = self.spoil_page(2, lambda count: count == 2)
        cluster = self.collect()
        left = {s['id'] for s in self.admin_api.get_servers(detail=False)}
        self.assertEqual(5, len(cluster.instances))
        self.assertLessEqual(left, set(cluster.instances))
        self.assertGreater(len(asked), 2 + 2, 'the second page failed, and all came again')

    @marks.turns(12)
    def test_constantly_changing_list_stops_cycle(self) -> None:
        """The second reading is the last: nothing partial is planned."""
        for _ in range(4):
            self.boot(host='host1')
        self.spoil_page(1, lambda count: count % 2 == 0)
        self.assertRegex(str(self.not_collected()), 'servers from Nova: HTTP 400')
