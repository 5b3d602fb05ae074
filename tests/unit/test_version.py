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


from importlib import metadata
from unittest import mock

from kronos_nova import version


def test_release_is_read_once():
    version.read_release.cache_clear()
    with mock.patch.object(metadata, 'version', autospec=True, return_value='1.2.3') as read:
        assert [version.read_release() for _ in range(2)] == ['1.2.3'] * 2
    version.read_release.cache_clear()
    assert read.call_count == 1
