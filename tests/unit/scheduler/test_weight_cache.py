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


"""Remembered weights are the ones that would be computed."""

import random
import threading

from hypothesis import given
from hypothesis import strategies as st

from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import weight_cache
from tests.unit import nova_fakes

HOSTS = 'abcde'
ABSENT = object()

numbers = st.integers(0, 64) | st.none() | st.just(ABSENT)
loads = st.dictionaries(st.sampled_from(HOSTS), st.builds(
    depletion.HostLoad, st.floats(0, 1), st.floats(-2, 2), st.floats(0, 0.1), st.floats(0, 0.01)))
requests = st.lists(st.lists(st.tuples(st.sampled_from(HOSTS), numbers, numbers), max_size=8),
                    max_size=6)


def state_of(name, vcpus_used, free_ram_mb):
    """A HostState; one without the attributes that are ABSENT."""
    fields = {'vcpus_used': vcpus_used, 'free_ram_mb': free_ram_mb}
    return nova_fakes.Fields(host=name, **{
        field: value for field, value in fields.items() if value is not ABSENT})


def computed(hosts, found):
    """Each weight from its definition: 0.5 - load within [0, 1], to five places."""
    return [None if load is None else round(0.5 - min(1.0, max(0.0, load)), 5)
            for load in depletion.project_loads(hosts, found)]


@given(loads, requests)
def test_cached_weights_equal_computed_weights(found, asked):
    kept = weight_cache.WeightCache()
    for request in asked:
        hosts = [state_of(*fields) for fields in request]
        weights = kept.weigh_hosts(hosts, found)
        expected = computed(hosts, found)
        assert [w is None for w in weights] == [w is None for w in expected]
        for weight, other in zip(weights, expected, strict=True):
            assert weight is None or abs(weight - other) <= 1.0001e-5
        assert weights == weight_cache.compute_raw_weights(depletion.project_loads(hosts, found))


def test_each_thread_gets_the_weights_of_its_own_hosts():
    found = {name: depletion.HostLoad(0.0, 0.0, 0.01) for name in HOSTS}
    kept, wrong = weight_cache.WeightCache(), []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(300):
            hosts = [state_of(name, rng.randrange(8), 0) for name in HOSTS]
            if kept.weigh_hosts(hosts, found) != weight_cache.compute_raw_weights(
                    depletion.project_loads(hosts, found)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_weights_learnt_in_the_background_are_not_computed_again():
    kept = weight_cache.WeightCache()
    kept.add_weights([weight_cache.SeenAllocation('a', 4, 100)],
                     {'a': depletion.HostLoad(0.25, 0.25)})
    # Other loads would give another weight: they are not looked at.
    assert kept.weigh_hosts([state_of('a', 4, 100)], {}) == [0.25]
    assert kept.weigh_hosts([state_of('a', 5, 100)], {}) == [None]
