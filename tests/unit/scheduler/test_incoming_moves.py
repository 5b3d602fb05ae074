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


"""A move counts at its destination exactly until Nova counts it there."""

import pytest

from kronos_nova.feed import flavor_usages
from kronos_nova.scheduler import incoming_moves
from tests.unit import nova_fakes

SHAPE = flavor_usages.FlavorShape(2, 2048)
MOVE = flavor_usages.IncomingMove('u1', 'a', SHAPE, 100.0)
OTHER = flavor_usages.IncomingMove('u2', 'a', SHAPE, 100.0)


class Watched:
    """Host a as requests see it, one after the other."""

    def __init__(self, *moves):
        self.arrivals = incoming_moves.PublishedMoves()
        self.arrivals.watch_moves(moves)
        self.host = nova_fakes.HostState('a', vcpus_used=4, free_ram_mb=10000, num_instances=2)
        self.now = 0.0
        self.see()

    def see(self, vcpus=0, ram_mb=0, instances=0, holds=(), after=1.0):
        self.now += after
        self.host.vcpus_used += vcpus
        self.host.free_ram_mb -= ram_mb
        self.host.num_instances += instances
        self.host.instances.update(dict.fromkeys(holds))
        return self.arrivals.find_landings(
            [nova_fakes.HostState('b'), self.host],
            lambda host: (host.vcpus_used, 16000 - host.free_ram_mb), self.now)

    @property
    def landed(self):
        return {key[0] for key in self.arrivals.landed_moves}


def test_a_claim_for_a_migration_is_growth_without_an_instance_more():
    host = Watched(MOVE)
    assert not host.see() and not host.landed
    assert host.see(2, 2048) and host.landed == {'u1'}
    # Said once.
    assert not host.see()


def test_a_boot_of_the_same_flavor_is_not_taken_for_the_claim():
    host = Watched(MOVE)
    assert not host.see(2, 2048, instances=1)
    assert host.see(2, 2048)


def test_an_instance_that_has_arrived_unclaimed_lands_when_it_is_counted():
    host = Watched(MOVE)
    assert not host.see(holds=['u1'])
    assert host.see(2, 2048, instances=1)


def test_an_instance_that_was_counted_before_we_looked_lands_after_a_grace():
    host = Watched(MOVE)
    assert not host.see(holds=['u1'])
    assert not host.see(after=incoming_moves.CLAIM_GRACE)
    assert host.see(after=1.0)


def test_growth_that_is_too_small_is_no_claim():
    host = Watched(MOVE)
    assert not host.see(1, 2048)
    assert not host.see(2, 1024)


def test_one_growth_lands_one_of_two():
    host = Watched(MOVE, OTHER)
    assert host.see(2, 2048) and host.landed == {'u1'}
    assert host.see(2, 2048) and host.landed == {'u1', 'u2'}
    both = Watched(MOVE, OTHER)
    assert both.see(4, 4096) and both.landed == {'u1', 'u2'}


def test_a_landed_move_is_kept_while_published_and_differs_from_a_new_one():
    host = Watched(MOVE)
    host.see(2, 2048)
    host.arrivals.watch_moves([MOVE, OTHER])
    assert host.landed == {'u1'}
    host.arrivals.watch_moves([MOVE._replace(since=200.0)])
    assert host.landed == set()
    host.arrivals.watch_moves([])
    assert not host.arrivals


def test_a_request_that_saw_the_host_before_does_not_take_a_landing_back():
    """Two threads: the slower one has an older HostState."""
    arrival = incoming_moves._PublishedMove(MOVE)
    arrival.observe_destination(nova_fakes.HostState('a', num_instances=2), (4, 6000), 0.0, None)

    class Slow(nova_fakes.HostState):
        @property
        def num_instances(self):
            arrival.observe_destination(nova_fakes.HostState('a', num_instances=2), (6, 8048), 1.0,
                                        None)
            return 2

        @num_instances.setter
        def num_instances(self, value):
            pass

    arrival.observe_destination(Slow('a'), (4, 6000), 1.0, None)
    assert arrival.landed


@pytest.mark.parametrize('to_host', ['c', 'b'])
def test_another_host_s_growth_is_nothing(to_host):
    host = Watched(MOVE._replace(to_host=to_host))
    assert not host.see(2, 2048)
