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

"""Contracts in a server's record: each source read, and no text of a tenant kept."""

import collections
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.model import movement_hours
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import server_constraints
from kronos_nova.rebalancer.simulation import cluster_simulation
from tests.unit.rebalancer.clients import answers

PROJECT = model.Contract(model.ContractSource.PROJECT, model.Disruption.DRAIN_ONLY)


def read(settings: server_constraints.DisruptionSettings = server_constraints.NOWHERE,
         extra_specs: dict[str, str] | None = None,
         **fields: Any) -> tuple[model.Contract, ...]:
    data = answers.server('vm', **{'metadata': {}, 'tags': [], **fields})
    if extra_specs is not None:
        data['flavor'] = data['flavor'] | {'extra_specs': extra_specs}
    return nova_records.parse_instance(data, settings).contracts


def test_a_server_without_statements_has_no_contract() -> None:
    assert read(metadata={'kronos': 'never'}, tags=['x=kronos:hours'],
                extra_specs={'hw:cpu_policy': 'dedicated'}) == ()


def test_keys_without_effect_are_counted_and_not_kept() -> None:
    stated = read(metadata={'kronos:disruptoin': 'never', 'kronos:hours': '* 1 * * *'},
                  tags=['kronos:other=1', 'kronos:other=2', 'kronos:x'],
                  extra_specs={'kronos:release': '2026-11-01T00:00:00Z'})
    assert [(contract.source, contract.ineffective) for contract in stated] == [
        (model.ContractSource.METADATA, 1), (model.ContractSource.TAG, 3),
        (model.ContractSource.FLAVOR, 1)]
    assert 'disruptoin' not in repr(stated) and 'other' not in repr(stated)


def test_the_keys_by_which_owners_opt_out_are_no_contracts() -> None:
    settings = server_constraints.DisruptionSettings('kronos:stay', 'kronos:fixed')
    assert read(settings, metadata={'kronos:stay': 'true'}, tags=['kronos:fixed']) == ()


def test_the_owner_asks_for_notice_and_releases_it() -> None:
    (stated,) = read(metadata={'kronos:notify': '24h', 'kronos:release': '2026-11-01T00:00:00Z'})
    assert stated == model.Contract(
        model.ContractSource.METADATA, notify=model.NoticePeriod(86400), release=1793491200.0)
    assert str(stated) == 'notify 1d (metadata)'


@pytest.mark.parametrize('text', ['', 'now', '-2d', '1793491200', '2026-13-01T00:00:00Z',
                                  '2026-11-01T00:00:00Z' + ' ' * 128, '9999-99', 'x' * 500])
def test_a_release_that_cannot_be_read_releases_nothing(text: str) -> None:
    (stated,) = read(metadata={'kronos:release': text})
    assert stated == model.Contract(model.ContractSource.METADATA, ineffective=1)


def test_each_source_states_its_own() -> None:
    assert read(metadata={'kronos:disruption': ' Never '}, tags=['kronos:max_moves=2:7d'],
                extra_specs={'kronos:hours': '*  1-4 * * SUN'}) == (
        model.Contract(model.ContractSource.METADATA, model.Disruption.NEVER),
        model.Contract(model.ContractSource.TAG, max_moves=model.MoveQuota(2, 604800)),
        model.Contract(model.ContractSource.FLAVOR,
                       hours=movement_hours.parse_hours('* 1-4 * * sun')))


def test_the_operators_file_states_the_rest() -> None:
    settings = server_constraints.DisruptionSettings(
        projects=contracts_conf.ProjectContracts({'p': PROJECT}))
    assert read(settings, tenant_id='p') == (PROJECT,)
    assert read(settings, tenant_id='q') == ()
    assert read(server_constraints.DisruptionSettings(
        projects=contracts_conf.ProjectContracts({}, PROJECT)), tenant_id='q') == (PROJECT,)


@pytest.mark.parametrize(('fields', 'source', 'unreadable'), [
    ({'metadata': {'kronos:disruption': 'maybe'}}, 'metadata', 'disruption'),
    ({'metadata': {'kronos:hours': 'H H * * *'}}, 'metadata', 'hours'),
    ({'tags': ['kronos:max_moves=lots']}, 'tag', 'max_moves'),
    ({'tags': ['kronos:disruption']}, 'tag', 'disruption'),
    ({'tags': ['kronos:disruption=live', 'kronos:disruption=never']}, 'tag', 'disruption'),
    ({'extra_specs': {'kronos:max_moves': '2/31d'}}, 'flavor', 'max_moves')])
def test_an_unreadable_value_is_named_and_not_kept(fields: dict[str, Any], source: str,
                                                   unreadable: str) -> None:
    assert read(**fields) == (model.Contract(model.ContractSource(source),
                                             unreadable=(unreadable,)),)


def test_the_same_tag_twice_is_one_statement() -> None:
    assert read(tags=['kronos:disruption=live', 'kronos:disruption=LIVE']) == (
        model.Contract(model.ContractSource.TAG, model.Disruption.LIVE),)


@given(st.dictionaries(st.sampled_from(['kronos:disruption', 'kronos:hours', 'kronos:max_moves']),
                       st.text(max_size=300)))
def test_no_text_of_a_tenant_stops_the_reading(metadata: dict[str, str]) -> None:
    found = read(metadata=metadata, tags=[f'{key}={value}' for key, value in metadata.items()])
    assert len(found) == (2 if metadata else 0)
    for stated in found:
        assert str(stated).isascii() and len(str(stated)) < 400


def test_each_text_is_parsed_once_for_all_ingests(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: collections.Counter[str] = collections.Counter()

    def count_calls(text: str) -> movement_hours.MovementHours:
        calls[text] += 1
        return parse_hours(text)

    parse_hours = movement_hours.parse_hours
    monkeypatch.setattr(movement_hours, 'parse_hours', count_calls)
    shared = server_constraints.SharedMappings()
    # Every tenth text cannot be read.
    texts = [f'0-{5 + n % 50}{"-" * (n % 10 == 0)} {n // 50 % 24} {n // 1200 + 1} * *'
             for n in range(5000)]
    instances = [nova_records.parse_instance(answers.server(
        f'vm{again}{n}', 'host1', metadata={'kronos:hours': text}), shared=shared)
        for again in range(2) for n, text in enumerate(texts)]
    cluster = model.Cluster({'host1': model.Host('host1')}, {i.uuid: i for i in instances}, {},
                            scope_hosts=frozenset({'host1'}), taken_at=1793534400.0)
    for _ingest in range(2):
        simulation = cluster_simulation.Simulation(
            cluster, model.ClusterScores({'cpu': model.PolicyScores('cpu')}, cluster.taken_at),
            policy.PolicySet(policies=[{
                'name': 'cpu', 'weight': 1.0, 'threshold': 0.01, 'imbalance_query': 'x',
                'vm_profile_query': 'x'}]),
            model.MoveHistory(), model.PlanningOptions())
        for instance in instances:
            constraints.check_alone(simulation.view, model.Move(
                instance.uuid, 'host1', 'host2', model.Phase.REQUESTED))
    assert calls == collections.Counter(texts)
    assert sum(bool(i.contracts[0].unreadable) for i in instances) == 1000


def test_servers_of_one_flavor_share_their_contracts() -> None:
    shared = server_constraints.SharedMappings()
    one, other = (nova_records.parse_instance(answers.server(uuid, metadata={
        'kronos:disruption': 'live'}), shared=shared) for uuid in ('vm', 'wm'))
    assert one.contracts is other.contracts


def read_spread(settings: server_constraints.DisruptionSettings = server_constraints.NOWHERE,
                extra_specs: dict[str, str] | None = None, **fields: Any) -> list[str]:
    data = answers.server('vm', **{'metadata': {}, 'tags': [], **fields})
    if extra_specs is not None:
        data['flavor'] = data['flavor'] | {'extra_specs': extra_specs}
    return list(map(str, nova_records.parse_instance(data, settings).spread))


def test_all_requests_for_a_spread_count() -> None:
    projects = contracts_conf.ProjectContracts(
        spreads={'p': spread_requests.parse_spread('room')},
        default_spread=spread_requests.parse_spread('row'))
    settings = server_constraints.DisruptionSettings(projects=projects)
    assert read_spread(
        settings, {'kronos:spread': 'rack'}, tenant_id='p', metadata={'kronos:spread': 'pdu, rack'},
        tags=['kronos:spread=rack:web', 'kronos:spread=pdu:db', 'kronos:spread', 'other']) == [
            'pdu', 'pdu:db', 'rack', 'rack:web', 'room']
    assert read_spread(settings, tenant_id='q') == ['row']
    assert read_spread() == []


@pytest.mark.parametrize('text', ['', 'rack:', '%(x)s', '{0}', 'r' * 200, 'rack;DROP', '<b>'])
def test_a_request_that_cannot_be_read_leaves_no_text(text: str) -> None:
    assert read_spread(metadata={'kronos:spread': text}, tags=['kronos:spread=rack']) == [
        '', 'rack']


def test_one_instance_has_few_requests() -> None:
    tags = [f'kronos:spread=rack:set{n}' for n in range(50)]
    found = read_spread(tags=tags)
    assert len(found) == spread_requests.MOST + 1 and found[0] == ''  # the surplus is counted


def test_no_request_of_an_owner_takes_the_place_of_the_operator_s() -> None:
    projects = contracts_conf.ProjectContracts(
        default_spread=spread_requests.parse_spread('room'))
    found = read_spread(
        server_constraints.DisruptionSettings(projects=projects), {'kronos:spread': 'zone-rack'},
        metadata={'kronos:spread': 'a,b,c,d,e,f,g,h'}, tags=['kronos:spread=i,j,k'])
    assert found == ['', *'abcdefgh', 'room', 'zone-rack']
