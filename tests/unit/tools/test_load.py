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

"""Counters integrate the simulated demand over time."""

import pytest

from tools.cloud import load

GIB = 1024 ** 3
BASE = {'compute-01': load.Use(cpu=1.0, memory=2.0 * GIB, disk=0.1), 'compute-02': load.Use()}


def guest(uuid='u1', host='compute-01', vcpus=4, memory_mb=8192):
    return load.Guest(uuid=uuid, host=host, domain='instance-00000001', name='web',
                      flavor='large', vcpus=vcpus, memory_mb=memory_mb, project_id='p',
                      user_id='u')


@pytest.fixture
def integrator():
    return load.Integrator(['compute-01', 'compute-02'], cores=8, memory_bytes=16.0 * GIB, now=0)


def loads(**instances):
    return load.Loads(instances, BASE)


def test_busy_and_idle_time_sum_up_to_cores_times_seconds(integrator):
    integrator.set([guest()], loads(u1=load.Use(cpu=3.0)), now=0)
    integrator.advance(10)
    host = integrator.hosts['compute-01']
    assert host.busy == pytest.approx(40)
    assert host.busy + host.idle == pytest.approx(80)


def test_a_guest_uses_no_more_than_its_flavor(integrator):
    integrator.set([guest(vcpus=2, memory_mb=1024)], loads(u1=load.Use(5, 9.0 * GIB)), now=0)
    integrator.advance(10)
    [counters] = integrator.guests.values()
    assert (counters.cpu_time, counters.memory) == (pytest.approx(20), GIB)


def test_an_overloaded_host_shares_its_cores_and_lets_wait(integrator):
    guests = [guest(f'u{i}', vcpus=8) for i in (1, 2)]
    integrator.set(guests, loads(u1=load.Use(cpu=8), u2=load.Use(cpu=7)), now=0)
    integrator.advance(10)
    host = integrator.hosts['compute-01']
    assert host.idle == pytest.approx(0)
    assert host.cpu_waiting == pytest.approx(5)
    assert [c.cpu_time for c in integrator.guests.values()] == pytest.approx([40, 35])


def test_a_new_load_counts_from_its_moment_on(integrator):
    integrator.set([guest()], loads(u1=load.Use(cpu=1)), now=0)
    integrator.set([guest()], loads(u1=load.Use(cpu=4)), now=10)
    integrator.advance(15)
    [counters] = integrator.guests.values()
    assert counters.cpu_time == pytest.approx(30)


def test_a_migrated_guest_starts_from_zero_on_its_destination(integrator):
    integrator.set([guest()], loads(u1=load.Use(cpu=2)), now=0)
    integrator.set([guest(host='compute-02')], loads(u1=load.Use(cpu=2)), now=10)
    integrator.advance(13)
    assert {key: c.cpu_time for key, c in integrator.guests.items()} == {
        ('compute-02', 'u1'): pytest.approx(6)}
    assert integrator.hosts['compute-01'].busy == pytest.approx(10 * 3 + 3 * 1)
    assert integrator.hosts['compute-02'].busy == pytest.approx(6)


def test_counters_never_fall_when_the_clock_steps_back(integrator):
    integrator.set([guest()], loads(), now=10)
    before = integrator.hosts['compute-01'].busy
    integrator.advance(5)
    assert integrator.hosts['compute-01'].busy == before
    integrator.advance(12)
    assert integrator.hosts['compute-01'].busy > before


def test_memory_in_use_is_that_of_base_and_guests(integrator):
    integrator.set([guest()], loads(u1=load.Use(memory=3.0 * GIB)), now=0)
    assert integrator.hosts['compute-01'].memory_used == 5 * GIB


def test_guests_of_foreign_hosts_are_ignored(integrator):
    integrator.set([guest(host='elsewhere')], loads(), now=0)
    assert integrator.guests == {}


def test_an_unnamed_guest_idles():
    use = load.demand(guest(), load.Loads())
    assert (use.cpu, use.memory) == (pytest.approx(0.2), 2 * GIB)


@pytest.mark.parametrize(('raw', 'problem'), [
    ([], 'instances and hosts'),
    ({'guests': {}}, 'instances and hosts'),
    ({'instances': []}, 'instances: an object'),
    ({'instances': {'u': {'cpus': 1}}}, 'instances.u: an object with cpu'),
    ({'instances': {'u': {'cpu': 'x'}}}, r'instances\.u\.cpu'),
    ({'instances': {'u': {'cpu': True}}}, r'instances\.u\.cpu'),
    ({'hosts': {'h': {'memory': float('nan')}}}, r'hosts\.h\.memory'),
    ({'hosts': {'h': {'disk': -1}}}, r'hosts\.h\.disk'),
])
def test_a_bad_control_file_names_its_entry(raw, problem):
    with pytest.raises(ValueError, match=problem):
        load.parse(raw)


def test_a_control_file_gives_demands_by_uuid_and_host():
    parsed = load.parse({'instances': {'u': {'cpu': 2}}, 'hosts': {'h': {'memory': 5}}})
    assert parsed == load.Loads({'u': load.Use(cpu=2)}, {'h': load.Use(memory=5)})
