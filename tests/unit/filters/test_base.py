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


"""Requests that our filters do not judge, and errors that they never raise."""

import pytest

from kronos_nova.filters import all_filters
from kronos_nova.filters import base
from kronos_nova.filters import capacity
from kronos_nova.filters import placement
from tests.unit import nova_fakes
from tests.unit.nova_fakes import Fields


class Nothing(base.KronosFilter):
    def judge(self, hosts, spec, moving):
        return []


class Broken(base.KronosFilter):
    def judge(self, hosts, spec, moving):
        raise RuntimeError('boom')


HOSTS = nova_fakes.hosts('a', 'b')


@pytest.mark.parametrize(('fields', 'judged'), [
    ({}, True),
    ({'scheduler_hints': {'_nova_check_type': ['rebuild']}}, False),
    ({'requested_destination': Fields(host='a')}, False),
    ({'requested_destination': Fields(host='a', cell='c')}, False),
    ({'requested_destination': Fields(host=None)}, True),
    ({'requested_destination': Fields(aggregates=['x'])}, True),
    ({'requested_destination': Fields(cell='c')}, True),
    ({'force_hosts': ['a']}, False),
    ({'force_nodes': ['n']}, False),
    ({'force_hosts': [], 'force_nodes': []}, True),
])
def test_a_rebuild_and_a_named_destination_are_not_judged(fields, judged):
    passing = Nothing().filter_all(iter(HOSTS), nova_fakes.spec(**fields))
    assert passing == ([] if judged else HOSTS)


@pytest.mark.parametrize(('fields', 'moving'), [
    ({}, False),
    ({'requested_destination': Fields(aggregates=['x'])}, False),
    ({'requested_destination': Fields(cell=None)}, False),
    ({'requested_destination': Fields(cell='c')}, True),
    ({'ignore_hosts': ['a']}, True),
    ({'ignore_hosts': []}, False),
    ({'ignore_hosts': None}, False),
])
def test_a_move_is_recognised_by_its_request_fields(fields, moving):
    assert base.is_move(nova_fakes.spec(**fields)) == moving


def test_a_spec_without_optional_fields_is_a_boot():
    bare = Fields(instance_uuid='u')
    assert not base.is_move(bare) and not base.has_named_destination(bare)
    assert Nothing().filter_all(HOSTS, bare) == []


def test_an_error_passes_every_host_and_is_counted():
    door = nova_fakes.FakeDoor()
    with door.opened():
        for _ in range(3):
            assert Broken().filter_all(iter(HOSTS), nova_fakes.spec()) == HOSTS
    assert door.faults.counts == {'Broken: RuntimeError': 3}


def test_the_entry_points_name_them():
    assert {capacity.KronosCapacityFilter, placement.KronosPlacementFilter} <= set(all_filters())
