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


"""What a server's record says about where it may be, and what its owner says."""

from typing import Any

from oslo_config import cfg
import pytest

from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import server_constraints
from tests.unit.rebalancer.clients import answers

OTHER = '2b0e3ab5-6c1c-4b8e-9a0a-0d5b3b7f1c11'
BOTH = server_constraints.DisruptionSettings('stay', 'stays')


def flavor(**fields: Any) -> dict[str, Any]:
    return {'flavor': answers.server('vm')['flavor'] | fields}


def opted_out(where: server_constraints.DisruptionSettings = BOTH, **fields: Any) -> str | None:
    data = answers.server('vm', **{'metadata': {}, 'tags': [], **fields})
    return nova_records.parse_instance(data, where).opted_out


def test_fields_that_nova_does_not_show_are_unknown() -> None:
    found = nova_records.parse_instance(answers.server('vm'))
    assert (found.extra_specs, found.image_properties, found.power_state) == (None, None, None)
    assert found.scheduler_hints == {} and found.opted_out is None
    assert nova_records.parse_instance(answers.server('vm', image='')).image_properties is None


def test_an_instance_has_flavor_specs_image_properties_and_hints() -> None:
    found = nova_records.parse_instance(answers.server('vm', **flavor(extra_specs={
        'ssd': 'true'}), **{
        'OS-EXT-STS:power_state': 4, 'image': {'id': 'i', 'properties': {'os_type': 'linux'}},
        'scheduler_hints': {'different_host': [OTHER, '../x', 7], 'same_host': OTHER,
                            'group': ['g']}}))
    assert (found.extra_specs, found.image_properties) == ({'ssd': 'true'}, {'os_type': 'linux'})
    assert found.power_state == 4
    assert found.scheduler_hints == {'different_host': (OTHER,), 'same_host': (OTHER,)}


@pytest.mark.parametrize('hints', [None, {}, {'same_host': []}, {'same_host': None},
                                   {'same_host': [OTHER] * (server_constraints.MOST_HINTED + 1)}])
def test_invalid_hints_are_left_to_nova(hints: Any) -> None:
    assert nova_records.parse_instance(answers.server(
        'vm', scheduler_hints=hints)).scheduler_hints == {}


@pytest.mark.parametrize(('change', 'problem'), [
    (flavor(extra_specs={'a': 1}), "field 'extra_specs' has a value that is not a text"),
    (flavor(extra_specs=None), "field 'extra_specs' is not an object"),
    ({'image': {'properties': []}}, "field 'properties' is not an object"),
    ({'OS-EXT-STS:power_state': -1}, "field 'OS-EXT-STS:power_state' is not a number"),
    ({'scheduler_hints': 'x'}, "field 'scheduler_hints' is not an object")])
def test_error_about_an_invalid_record_names_the_field(change: dict[str, Any],
                                                       problem: str) -> None:
    with pytest.raises(api.ApiError, match=problem):
        nova_records.parse_instance(answers.server('vm') | change)


@pytest.mark.parametrize(('value', 'reason'), [
    ('true', 'metadata stay'), ('YES', 'metadata stay'), ('1', 'metadata stay'),
    ('false', None), ('off', None), ('0', None),
    ('', 'metadata stay, whose value is no boolean'),
    ('never {0} %s', 'metadata stay, whose value is no boolean')])
def test_an_owner_opts_out_by_a_value(value: str, reason: str | None) -> None:
    """A value that is not a boolean opts out too, and the reason never repeats it."""
    assert opted_out(metadata={'stay': value, 'other': 'true'}) == reason


def test_an_owner_opts_out_by_a_tag() -> None:
    assert opted_out(tags=['a', 'stays']) == 'tag stays'
    assert opted_out(tags=['stay'], metadata={'stays': 'true'}) is None
    assert opted_out(tags=['stays'], metadata={'stay': 'false'}) == 'tag stays'


def test_no_owner_opts_out_without_a_configured_key() -> None:
    data = answers.server('vm', metadata={'': 'true', 'stay': 'true'}, tags=['', 'stays'])
    assert nova_records.parse_instance(data).opted_out is None


@pytest.mark.parametrize('field', ['metadata', 'tags'])
def test_a_wish_that_cannot_be_seen_stops_the_reading(field: str) -> None:
    data = answers.server('vm', metadata={}, tags=[])
    del data[field]
    with pytest.raises(api.ApiError, match=f"field '{field}' is missing"):
        nova_records.parse_instance(data, BOTH)


def test_keys_come_from_the_configuration() -> None:
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([])
    assert server_constraints.make_disruption_settings(conf) == server_constraints.NOWHERE
    conf.set_override('opt_out_metadata_key', 'stay', 'engine')
    conf.set_override('opt_out_tag', 'stays', 'engine')
    assert server_constraints.make_disruption_settings(conf) == BOTH


def test_instances_of_one_flavor_share_its_extra_specs() -> None:
    nova = answers.Answers('2.100')
    nova.answers['/servers/detail'] = [{'servers': [
        answers.server(u, **flavor(extra_specs={'ssd': 'true'})) for u in ('a', 'b')]}]
    first, second = nova_api.NovaApi(nova).list_servers().instances.values()
    assert first.extra_specs is second.extra_specs


@pytest.mark.parametrize(('offered', 'used'), [
    ('2.72', '2.72'), ('2.95', '2.72'), ('2.96', '2.96'), ('2.97', '2.96'), ('2.99', '2.98'),
    ('2.100', '2.100'), ('2.104', '2.100')])
def test_servers_are_read_with_what_shows_the_most(offered: str, used: str) -> None:
    nova = answers.Answers(offered)
    nova.answers['/servers/detail'] = [{'servers': []}]
    nova_api.NovaApi(nova).list_servers()
    assert nova.asked[-1][2] == used


def test_a_hypervisor_and_an_aggregate_have_what_rules_look_at() -> None:
    data = {'id': 'u', 'hypervisor_hostname': 'h', 'hypervisor_type': 'QEMU',
            'service': {'host': 'h'}}
    assert nova_records.parse_hypervisor(data).version == 0
    assert nova_records.parse_hypervisor(data | {'hypervisor_version': 8002001}).version == 8002001
    nova = answers.Answers()
    nova.answers['/os-aggregates'] = [{'aggregates': [
        {'name': 'a', 'hosts': ['h2', 'h1'], 'metadata': {'ssd': 'true'}}]}]
    assert nova_api.NovaApi(nova).read_aggregates() == {
        'a': nova_api.Aggregate(('h1', 'h2'), {'ssd': 'true'})}


def test_flavors_that_are_not_shown_are_spoken_of() -> None:
    shown = nova_records.parse_instance(answers.server('vm', **flavor(extra_specs={})))
    hidden = nova_records.parse_instance(answers.server('vm'))
    assert collector.warn_about_extra_specs([shown]) == []
    (note,) = collector.warn_about_extra_specs([shown, hidden, hidden])
    assert 'servers:show:flavor-extra-specs' in note
