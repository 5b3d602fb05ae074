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


"""What the scheduler has placed, the rebalancer leaves there."""

import os
import random

import pytest

from tests.simulation import booting_cloud
from tests.simulation import test_settling

SEEDS = int(os.environ.get('KRONOS_BOOT_SEEDS', '48'))
#: What `tools/test long` adds.
LONG_SEEDS = 4152
CHUNK = 12
#: Within which clouds come to rest (see test_settling).
HOURS_OF_REST = 3


def run(seed, cooldown=booting_cloud.COOLDOWN, seconds=booting_cloud.COOLDOWN):
    """A cloud at rest into which 1 to 10 instances were booted; else None."""
    rng = random.Random(seed)
    cloud = booting_cloud.BootingCloud(
        test_settling.weather(seed, mode='spread', hidden=False),
        surprise=rng.choice([1.0, 3.0]), cooldown=cooldown)
    cloud.settle(HOURS_OF_REST)
    if not cloud.at_rest() or not cloud.boot(rng.randint(1, 10)):
        return None
    cloud.now += rng.uniform(0, 60)
    cloud.go_on(seconds)
    return cloud


def hold(seeds):
    found = [cloud for seed in seeds if (cloud := run(seed)) is not None]
    for cloud in found:
        assert cloud.moves_of_booted() == [], cloud.weather
    return len(found)


@pytest.mark.turns(4)
@pytest.mark.parametrize('first', range(0, SEEDS, CHUNK))
def test_next_cycles_move_no_just_booted_instance(first):
    assert hold(range(first, min(first + CHUNK, SEEDS))) > 0


@pytest.mark.long
@pytest.mark.parametrize('first', range(SEEDS, SEEDS + LONG_SEEDS, CHUNK))
def test_next_cycles_move_no_just_booted_instance_in_more_clouds(first):
    hold(range(first, first + CHUNK))


def test_just_booted_instances_move_without_the_rule():
    """The clouds above are not too easy."""
    assert any(cloud.moves_of_booted() for seed in range(20)
               if (cloud := run(seed, cooldown=0.0)) is not None)
