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

"""An optional weigher is off until a multiplier is set, and never raises."""

from nova.scheduler import weights as nova_weights
import pytest

from kronos_nova.feed import periodic
from kronos_nova.scheduler import runtime
from kronos_nova.weighers import optional
from kronos_nova.weighers import project
from kronos_nova.weighers import scarcity
from tests.unit import nova_fakes

BOTH = pytest.mark.parametrize('kind', [scarcity.KronosScarcityWeigher,
                                        project.KronosProjectWeigher])


class Fixed(optional.OptionalWeigher):
    """Costs that a test gives, under the scarcity weigher's multiplier."""

    OPTION = scarcity.KronosScarcityWeigher.OPTION

    def __init__(self, *values):
        self.values = values

    def costs(self, hosts, spec):
        return list(self.values)


class Broken(Fixed):
    def costs(self, hosts, spec):
        raise RuntimeError('boom')


def final(weigher, default, **multipliers):
    """Each host's weight as Nova's own handler computes it."""
    states = nova_fakes.hosts('a', 'b')
    for state in states:
        if state.host in multipliers:
            state.aggregates = [nova_fakes.Fields(
                name='x', metadata={weigher.OPTION: multipliers[state.host]})]
    door = nova_fakes.FakeDoor()
    runtime.CONF.set_override(weigher.OPTION, default, 'filter_scheduler')
    try:
        with door.opened():
            weighed = nova_weights.HostWeightHandler().get_weighed_objects(
                [weigher], states, nova_fakes.spec(project_id='mine'))
    finally:
        runtime.CONF.clear_override(weigher.OPTION, 'filter_scheduler')
    return {w.obj.host: w.weight for w in weighed}, dict(door.faults.counts)


@BOTH
def test_the_multiplier_is_0_by_default(kind):
    assert runtime.CONF.filter_scheduler[kind.OPTION] == 0.0


@BOTH
def test_a_disabled_weigher_reads_no_board(kind):
    """FakeDoor has no boards: each request for a board fails."""
    assert final(kind(), 0.0) == ({'a': 0.0, 'b': 0.0}, {})
    assert final(kind(), 1.0) == ({'a': 0.0, 'b': 0.0}, {f'{kind.__name__}: KeyError': 1})


def test_costs_count_against_hosts_unstretched():
    found, faults = final(Fixed(0.5, 0.25), 2.0)
    assert found == {'a': -1.0, 'b': -0.5} and not faults


def test_an_aggregate_switches_it_on_for_its_hosts_and_turns_it_round():
    found, _ = final(Fixed(0.5, 0.5), 0.0, a='2')
    assert found == {'a': -1.0, 'b': 0.0}
    found, _ = final(Fixed(0.5, 0.5), 1.0, a='-2')
    assert found == {'a': 1.0, 'b': -0.5}


def test_no_opinion_is_exactly_0_under_multipliers_of_both_signs():
    found, _ = final(Fixed(0.0, 0.0), 1e6, a='-1e6')
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize('value', ['nan', 'inf', '-inf'])
def test_a_multiplier_that_is_no_number_counts_0(value):
    found, faults = final(Fixed(0.5, 0.5), 1.0, a=value)
    assert found == {'a': 0.0, 'b': -0.5} and not faults


def test_an_error_weighs_0_and_is_counted():
    found, faults = final(Broken(), 1.0)
    assert found == {'a': 0.0, 'b': 0.0} and faults == {'Broken: RuntimeError': 1}


def test_a_multiplier_that_cannot_be_looked_up_is_0_and_counted():
    state, door = nova_fakes.HostState('a'), nova_fakes.FakeDoor()
    state.aggregates = None
    with door.opened():
        assert Fixed().weight_multiplier(state) == 0.0
    assert door.faults.counts == {'Fixed: TypeError': 1}


class Kept:
    def __init__(self, conf, faults):
        self.stopped = False

    def stop(self):
        self.stopped = True


def test_the_door_keeps_one_object_of_a_class_and_stops_it():
    door = runtime.SchedulerRuntime(runtime.CONF)
    assert isinstance(door.faults, periodic.FaultCounters)
    kept = door.get_shared_state(Kept)
    assert door.get_shared_state(Kept) is kept and not kept.stopped
    door.stop()
    assert kept.stopped
