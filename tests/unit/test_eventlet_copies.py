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

"""Servers of tests run on native threads, also after a library of Nova has loaded eventlet.wsgi."""

import threading
import urllib.request

import pytest

from tests.unit.rebalancer.hooks import servers


@pytest.mark.timeout(60)
def test_server_stops_after_eventlet_has_replaced_the_modules_of_http():
    pytest.importorskip('eventlet.wsgi')
    with servers.Server() as server:
        with urllib.request.urlopen(server.url, timeout=30) as answer:
            assert answer.status == 204
    assert type(threading.Lock()).__module__ == '_thread'
