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

"""Free ports, and a clear word when a wanted one is not free."""

import socket

import pytest

from tools.cloud import errors
from tools.cloud import ports


@pytest.fixture
def taken():
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_every_name_gets_a_port_of_its_own_that_can_be_bound():
    chosen = ports.choose()
    assert set(chosen) == set(ports.NAMES)
    assert len(set(chosen.values())) == len(ports.NAMES)
    for port in chosen.values():
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', port))


def test_ports_stay_below_the_range_of_outgoing_connections():
    assert max(ports.choose().values()) < 32768


def test_a_listener_makes_a_port_taken(taken):
    assert not ports.is_free(taken)


def test_a_taken_port_after_the_base_is_named_with_its_service(taken):
    with pytest.raises(errors.NotPossibleHere, match=f'port {taken} .for glance. is taken'):
        ports.choose(('glance', 'nova'), base=taken)


@pytest.mark.parametrize('base', [0, 80, 65530])
def test_a_base_outside_the_range_is_refused(base):
    with pytest.raises(errors.NotPossibleHere, match='--base-port'):
        ports.choose(base=base)


def test_free_ports_from_a_base_are_consecutive():
    base = next(b for b in range(21000, 31000, 10)
                if ports.is_free(b) and ports.is_free(b + 1))
    assert ports.choose(('a', 'b'), base=base) == {'a': base, 'b': base + 1}
