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

"""Scarce resources that a request does not use cost weight; all others cost exactly 0."""

import math
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from nova import objects
from oslo_config import cfg
import pytest

from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import periodic
from kronos_nova.scheduler import runtime
from kronos_nova.weighers import all_weighers
from kronos_nova.weighers import scarce_traits
from kronos_nova.weighers import scarcity
from tests.unit import nova_fakes

objects.register_all()


@given(st.integers(0, 50), st.integers(0, 50))
def test_scarcity_is_0_for_all_1_for_a_single_one_and_falls_between(having, nodes):
    found = scarce_traits.compute_scarcity(having, nodes)
    assert 0.0 <= found <= 1.0
    if having == nodes or nodes <= 1 or having == 0:
        assert found == 0.0
    elif having == 1:
        assert found == 1.0
    if 1 <= having < nodes:
        assert found > scarce_traits.compute_scarcity(having + 1, nodes)


def test_scarcity_is_the_information_in_having_it():
    assert scarce_traits.compute_scarcity(10, 100) == pytest.approx(0.5)
    assert scarce_traits.compute_scarcity(8, 64) == pytest.approx(math.log(8) / math.log(64))


def nodes(count=8):
    return {f'n{i}' for i in range(count)}


def test_costs_combine_and_stay_below_1():
    found = scarce_traits.build_specials({'CUSTOM_A': {'n0', 'n1'}, 'VGPU': {'n0', 'n1'}}, nodes(),
                                         {})
    each = scarce_traits.compute_scarcity(2, 8)
    assert found.compute_cost({'CUSTOM_A'}) == pytest.approx(each)
    assert found.compute_cost({'CUSTOM_A', 'VGPU'}) == pytest.approx(1 - (1 - each) ** 2)
    assert found.compute_cost(set()) == 0.0


def test_traits_of_all_nodes_and_of_no_node_are_not_special():
    found = scarce_traits.build_specials({'HW_CPU_X86_AVX2': nodes(),
                                          'CUSTOM_STORAGE': {'a-sharing-provider'}},
                                         nodes(), {})
    assert found.by_provider == {}


def test_weights_make_a_name_count_more_less_or_not_at_all():
    found = scarce_traits.build_specials({'A': {'n0'}, 'B': {'n0', 'n1'}, 'C': {'n0', 'n1'}},
                                         nodes(),
                                         {'A': 0.0, 'B': 2.0})
    each = scarce_traits.compute_scarcity(2, 8)
    assert found.by_provider['n0'] == {'B', 'C'}
    assert found.compute_cost({'B'}) == pytest.approx(1 - (1 - each) ** 2)
    assert found.compute_cost({'C'}) == pytest.approx(each)


@pytest.mark.parametrize('patterns, expected', [
    (['CUSTOM_*'], True), (['HW_*'], False), ([], False), (['*', '!CUSTOM_RACK_*'], False),
    (['!CUSTOM_RACK_*', '*'], True), (['CUSTOM_RACK_?'], True)])
def test_the_last_pattern_that_fits_decides(patterns, expected):
    assert scarce_traits.matches_patterns('CUSTOM_RACK_7', patterns) is expected


def request(extra_specs=None, image=None):
    return objects.RequestSpec(
        flavor=objects.Flavor(vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0, swap=0,
                              extra_specs=extra_specs or {}),
        image=objects.ImageMeta(properties=objects.ImageMetaProps(**(image or {}))),
        is_bfv=False, requested_resources=[], project_id='p', instance_uuid='u',
        request_level_params=objects.RequestLevelParams(root_required={'CUSTOM_ROOT'}))


def test_requested_names_equal_novas_query_to_placement():
    found = scarcity.asked_for(request(
        {'resources:VGPU': '1', 'trait:CUSTOM_A': 'required', 'trait:CUSTOM_NO': 'forbidden',
         'resources_fpga:CUSTOM_FPGA': '1', 'trait_fpga:CUSTOM_F': 'required',
         'hw:cpu_policy': 'dedicated'}, {'traits_required': ['CUSTOM_IMAGE']}))
    assert found >= {'VGPU', 'CUSTOM_A', 'CUSTOM_FPGA', 'CUSTOM_F', 'CUSTOM_IMAGE', 'CUSTOM_ROOT',
                     'PCPU', 'MEMORY_MB', 'DISK_GB'}
    assert not found & {'CUSTOM_NO', 'VCPU'}


class Shown:
    def __init__(self, found):
        self.found = found

    def read_scarce_traits(self):
        return self.found


def weights(found, spec, multiplier=1.0, uuids=('n0', 'n1', 'n7')):
    states = [nova_fakes.HostState(u, uuid=u) for u in uuids]
    door = nova_fakes.FakeDoor()
    door.kept = {scarce_traits.ScarcityBoard: Shown(found)}
    runtime.CONF.set_override(scarcity.KronosScarcityWeigher.OPTION, multiplier, 'filter_scheduler')
    try:
        with door.opened():
            result = scarcity.KronosScarcityWeigher().weigh_objects(
                [nova_fakes.Fields(obj=s) for s in states], spec)
    finally:
        runtime.CONF.clear_override(scarcity.KronosScarcityWeigher.OPTION, 'filter_scheduler')
    assert not door.faults.counts
    return result


def test_a_plain_instance_costs_more_on_a_special_host():
    found = scarce_traits.build_specials({'VGPU': {'n0'}, 'CUSTOM_A': {'n0', 'n1'}}, nodes(), {})
    assert weights(found, request()) == [-1.0, -round(scarce_traits.compute_scarcity(2, 8), 5), 0.0]


def test_requested_resources_cost_nothing_and_others_still_cost():
    found = scarce_traits.build_specials({'VGPU': {'n0', 'n1'}, 'CUSTOM_A': {'n0'}}, nodes(), {})
    vgpu = request({'resources:VGPU': '1'})
    assert weights(found, vgpu) == [-1.0, 0.0, 0.0]
    both = request({'resources:VGPU': '1', 'trait:CUSTOM_A': 'required'})
    assert weights(found, both) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize('found', [None, scarce_traits.ScarceTraits()])
def test_without_placements_answers_every_host_costs_exactly_0(found):
    assert weights(found, request()) == [0.0, 0.0, 0.0]


class Response:
    def __init__(self, status_code, body):
        self.status_code, self._body = status_code, body

    def json(self):
        return self._body


class Placement:
    """Stands for Nova's client, whose real one the functional test uses."""

    def __init__(self):
        self.asked = []
        self.status = 200
        self.traits = ['COMPUTE_NODE', 'COMPUTE_X', 'CUSTOM_A', 'HW_B']
        self.classes = ['VCPU', 'MEMORY_MB', 'DISK_GB', 'VGPU']

    def get(self, url, version=None):
        self.asked.append(url)
        if url == '/traits?associated=true':
            return Response(self.status, {'traits': self.traits})
        if url == '/resource_classes':
            return Response(self.status, {'resource_classes': [{'name': c}
                                                               for c in self.classes]})
        uuids = {'required=COMPUTE_NODE': ('n0', 'n1', 'n2'), 'required=CUSTOM_A': ('n1',),
                 'resources=VGPU:1': ('child-of-n2',)}[url.partition('?')[2]]
        return Response(self.status, {'resource_providers': [
            {'uuid': u, 'root_provider_uuid': u.removeprefix('child-of-')} for u in uuids]})


def board(placement, **options):
    conf = mock.Mock()
    conf.kronos = mock.Mock(**{
        'scarcity_traits': ['CUSTOM_*'], 'scarcity_resource_classes': ['*'],
        'scarcity_weights': {}, 'scarcity_refresh_interval': 300.0, **options})
    found = scarce_traits.ScarcityBoard(conf, periodic.FaultCounters())
    found._refresher.ensure_running = lambda: None
    return found


@pytest.fixture()
def placement():
    found = Placement()
    with mock.patch.object(scarce_traits.report, 'report_client_singleton', autospec=True,
                           return_value=found):
        yield found


def test_placement_is_queried_by_name_and_a_tree_counts_as_its_root(placement):
    found = board(placement)
    assert found.read_scarce_traits() is None
    found.refresh_traits()
    assert found.read_scarce_traits().by_provider == {'n1': {'CUSTOM_A'}, 'n2': {'VGPU'}}
    assert len(placement.asked) == 5


def test_a_lost_placement_keeps_the_last_board_with_one_log_line(placement):
    found = board(placement)
    found.refresh_traits()
    before = found.read_scarce_traits()
    placement.status = 503
    with mock.patch.object(scarce_traits.LOG, 'warning', autospec=True) as warning:
        found.refresh_traits()
        found.refresh_traits()
    assert found.read_scarce_traits() is before and warning.call_count == 1
    placement.status = 200
    with mock.patch.object(scarce_traits.LOG, 'info', autospec=True) as info:
        found.refresh_traits()
        found.refresh_traits()
    assert info.call_count == 1


def test_an_outdated_board_is_not_used(placement):
    found = board(placement, scarcity_refresh_interval=0.0)
    found.refresh_traits()
    assert found.read_scarce_traits() is None


def test_too_many_names_are_not_asked_about(placement):
    placement.traits += [f'CUSTOM_{i}' for i in range(scarce_traits.MAX_NAMES)]
    found = board(placement)
    found.refresh_traits()
    assert found.read_scarce_traits() is None and len(placement.asked) == 3


def configured(tmp_path, text):
    path = tmp_path / 'nova.conf'
    path.write_text(f'[kronos]\n{text}\n')
    conf = cfg.ConfigOpts()
    scheduler_conf.register(conf)
    conf([], default_config_files=[str(path)], default_config_dirs=[])
    return conf


def test_options_are_read_as_they_are_documented(tmp_path):
    conf = configured(tmp_path, 'scarcity_traits = CUSTOM_*,!CUSTOM_RACK_*\n'
                                'scarcity_weights = VGPU:2,CUSTOM_LICENSED:0.5')
    assert conf.kronos.scarcity_traits == ['CUSTOM_*', '!CUSTOM_RACK_*']
    assert conf.kronos.scarcity_weights == {'VGPU': 2.0, 'CUSTOM_LICENSED': 0.5}
    assert conf.kronos.scarcity_resource_classes == ['*']


def test_an_invalid_weight_is_logged_and_disables_the_weigher(tmp_path, placement):
    conf = configured(tmp_path, 'scarcity_weights = VGPU:much')
    found = scarce_traits.ScarcityBoard(conf, periodic.FaultCounters())
    found._refresher.ensure_running = lambda: None
    with mock.patch.object(scarce_traits.LOG, 'warning', autospec=True) as warning:
        found.refresh_traits()
    assert found.read_scarce_traits() is None and 'scarcity_weights' in str(warning.call_args)


def test_the_entry_point_names_it():
    assert scarcity.KronosScarcityWeigher in all_weighers()
