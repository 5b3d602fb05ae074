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


"""A store on SQLite. The tests that take no other fixture run on servers, too: see
tests/integration/test_store.py.
"""

import pytest

from tests.fixtures import stores


@pytest.fixture(scope='module')
def shared(tmp_path_factory):
    """One file and one engine, which compiles each statement once."""
    path = tmp_path_factory.mktemp('shared') / 'kronos.sqlite'
    store = stores.in_file(path)
    yield store, path
    store.close()


@pytest.fixture
def store(shared):
    """A store with an upgraded, empty database."""
    store, path = shared
    stores.renew_file(path)
    return store
