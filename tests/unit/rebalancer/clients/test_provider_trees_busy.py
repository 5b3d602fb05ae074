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


"""A cloud that does not stand still: one tree, one provider or one reading that fails is
that one's own affair."""

from collections.abc import Callable

from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_contents
from kronos_nova.rebalancer.clients import provider_trees
from kronos_nova.rebalancer.executors import preflight_reader
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.clients import simulated_placement

LIST, SEARCH = '/resource_providers', '/allocation_candidates'


class Cloud(simulated_placement.Placement):
    """Trees a and b of two providers, lone s, which shares, and lone h. ``v`` has something
    on both providers of a, and on s."""

    #: Whether a search for candidates shows all trees, or none.
    summarizes = False

    def __init__(self) -> None:
        super().__init__({'a0': None, 'a1': 'a0', 'b0': None, 'b1': 'b0', 's': None, 'h': None},
                         frozenset({'s'}))
        self.hidden = set() if self.summarizes else {'a0', 'b0', 's', 'h'}
        self.sharing = provider_trees.ProviderSharing(
            {'s': frozenset({'agg'})}, {'agg': frozenset({'s', 'a0', 'b0'})})
        self.allocate('v', {'a0': 1, 'a1': 1, 's': 1})
        self.api = placement_api.PlacementApi(self)
        self.reader = provider_trees.TreeReader(self.api, remembers=True)

    def busy(self, name: str, paths: Callable[[str], bool]) -> None:
        """Raise the provider's generation at each request for such a path."""
        def before(path: str, tree: str | None) -> None:
            if paths(path if tree is None else f'{path}?{tree}'):
                self.generations[name] += 1
        self.before = before

    def once(self, path: str, act: Callable[[], object]) -> None:
        pending = [act]

        def before(found: str, _tree: str | None) -> None:
            if found == path and pending:
                pending.pop()()
        self.before = before

    def read(self) -> provider_trees.ProviderForest:
        self.asked.clear()
        with parallel_reads.ReadingContext(60) as reads:
            return self.reader.read(reads, self.api.read_providers, self.sharing)


@pytest.fixture(autouse=True)
def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_reads, 'CONCURRENCY', 1)


@pytest.fixture(params=[False, True])
def summarizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test without summaries, and with those of all providers."""
    monkeypatch.setattr(Cloud, 'summarizes', request.param)
    return bool(request.param)


def nodes(*uuids: str) -> dict[str, nova_api.Hypervisor]:
    return {f'host-{u}': nova_api.Hypervisor(u, u, f'host-{u}', 'QEMU') for u in uuids}


def hosts(forest: provider_trees.ProviderForest, *uuids: str) -> dict[str, model.Host]:
    found = nodes(*uuids)
    return collector.build_hosts(
        found, {name: model.Service(name) for name in found}, forest, {})


# Trees settle each by itself.

@pytest.mark.usefixtures('summarizes')
@pytest.mark.parametrize('name', ['a1', 'b0', 'h'])
def test_one_boot_between_two_lists_leaves_the_forest_settled(name: str) -> None:
    cloud = Cloud()
    cloud.busy(name, lambda path: path == LIST)
    forest = cloud.read()
    assert forest.unsettled == frozenset() and len(forest.contents) == 6
    assert cloud.asked.count(LIST) == 2
    assert {path for path in cloud.asked if '?' in path} <= {f'{LIST}?{name[0]}0'}
    assert forest.contents['a1'].allocations == {'v': {'X': 1}}


@pytest.mark.usefixtures('summarizes')
def test_only_the_tree_that_never_rests_is_not_known() -> None:
    cloud = Cloud()
    cloud.busy('a1', lambda path: path.startswith(LIST) and path.count('/') == 1)
    forest = cloud.read()
    assert forest.unsettled == {'a0'}
    assert cloud.asked.count(f'{LIST}?a0') == provider_trees.ROUNDS
    found = hosts(forest, 'a0', 'b0', 'h')
    assert found['host-a0'].tree == () and found['host-a0'].sharing == frozenset()
    assert [p.uuid for p in found['host-b0'].tree] == ['b0', 'b1']
    assert found['host-b0'].sharing == {'s'} and found['host-h'].provider is not None


@pytest.mark.usefixtures('summarizes')
def test_tree_that_did_not_rest_is_read_right_when_it_rests() -> None:
    """In the last round v leaves a0, which has been looked at, for a1, which has not."""
    cloud = Cloud()
    cloud.allocate('w', {'a1': 1})

    def before(path: str, tree: str | None) -> None:
        lists = cloud.asked.count(f'{LIST}?a0')
        if path == LIST and lists < provider_trees.ROUNDS:
            cloud.generations['a1'] += 1
        if (path == f'{LIST}/a1/inventories' and lists == provider_trees.ROUNDS - 1
                and 'v' in cloud.on['a0']):
            cloud.allocate('v', {'a1': 1})

    cloud.before = before
    forest = cloud.read()
    assert forest.unsettled == {'a0'} and forest.map_allocations()['v'].keys() >= {'a0', 'a1'}
    cloud.before = lambda _path, _tree: None
    assert cloud.read().map_allocations() == {'v': {'a1': {'X': 1}}, 'w': {'a1': {'X': 1}}}
    cloud.read()
    asked = [path for path in cloud.asked if path.count('/') > 1]
    assert asked == ([] if cloud.summarizes else [f'{LIST}/a1/usages'])


@pytest.mark.usefixtures('summarizes')
def test_an_instance_that_moves_during_a_reading_is_counted_once() -> None:
    """a1 has changed, so it is read again; meanwhile v leaves a0, whose generation stays."""
    cloud = Cloud()
    lists = 0

    def before(path: str, _tree: str | None) -> None:
        nonlocal lists
        lists += path == LIST
        if path == LIST and lists == 2:
            cloud.generations['a1'] += 1
        if path == f'{LIST}/a1/inventories' and lists == 2:
            cloud.allocate('v', {'a1': 2})

    cloud.before = before
    assert cloud.read().map_allocations() == {'v': {'a1': {'X': 2}, 's': {'X': 1}}}
    cloud.before = lambda _path, _tree: None
    assert cloud.read().map_allocations() == {'v': {'a1': {'X': 2}}}


@pytest.mark.usefixtures('summarizes')
def test_instances_of_a_constantly_changing_host_stay_with_a_warning() -> None:
    cloud = Cloud()
    cloud.busy('a1', lambda path: path.startswith(LIST) and path.count('/') == 1)
    forest = cloud.read()
    found = hosts(forest, 'a0', 'b0')
    frozen = collector.list_changing_hosts(nodes('a0', 'b0'), forest)
    assert frozen == ['host-a0']
    note, = collector.without_provider(found, frozen)
    assert 'host-a0 (a0) change faster than they can be read' in note
    assert 'no instance leaves it, and it receives none.' in note
    note, = collector.without_provider(found, frozen, enforced=False)
    assert 'no instance leaves it. ' in note
    assert 'is planned all the same' in collector.without_provider(found, (), enforced=False)[0]
    instances = {u: nova_records.parse_instance(answers.server(u, 'host-a0'))
                 for u in ('v', 'away')}
    pinned = collector.with_claims(
        instances, found, forest.map_allocations(), {'away'}, [], frozen)
    assert str(pinned['v'].pinned).startswith('providers-changing: ')
    assert pinned['away'].pinned is None, 'in flight it is not judged'


@pytest.mark.usefixtures('summarizes')
def test_unwanted_providers_of_a_tree_stay_unread_in_a_second_listing() -> None:
    """A host of b that is not planned; b1 shares with others."""
    cloud = Cloud()

    def wanted(provider: placement_api.ListedProvider) -> bool:
        return provider.root_uuid != 'b0' or provider.uuid == 'b1'

    with parallel_reads.ReadingContext(60) as reads:
        def listing() -> dict[str, placement_api.ListedProvider]:
            # In the second list b1 is new.
            return {u: p for u, p in cloud.api.read_providers().items()
                    if wanted(p) and (u != 'b1' or cloud.asked.count(LIST) > 1)}

        forest = cloud.reader.read(reads, listing, cloud.sharing, wanted)
    assert forest.contents.keys() == {'a0', 'a1', 'b1', 's', 'h'}
    assert forest.unsettled == frozenset()


# Providers that go, or never rest.

@pytest.mark.usefixtures('summarizes')
@pytest.mark.parametrize('name', ['a1', 'h', 's'])
@pytest.mark.parametrize('warm', [True, False])
def test_a_provider_that_is_deleted_meanwhile_is_gone_and_nothing_else(
        name: str, warm: bool) -> None:
    cloud = Cloud()
    cloud.allocate('w', {'h': 1, 'a1': 1})
    if warm:
        cloud.read()
    part = 'usages' if warm else 'inventories'
    asked = [SEARCH] if warm and cloud.summarizes else [
        f'{LIST}/{n}/{part}' for n in cloud.parents]

    def before(path: str, _tree: str | None) -> None:
        if path in asked and name in cloud.parents:
            cloud.delete(name)

    cloud.before = before
    forest = cloud.read()
    assert name not in cloud.parents
    assert forest.contents.keys() == forest.listed.keys() == cloud.parents.keys()
    assert forest.unsettled == frozenset()
    assert not collector.list_changing_hosts(nodes('a0', 'b0'), forest)


@pytest.mark.usefixtures('summarizes')
def test_a_child_that_is_deleted_while_its_tree_is_read_again_is_gone() -> None:
    cloud = Cloud()

    def before(path: str, tree: str | None) -> None:
        if path == LIST and tree is None:
            cloud.generations['b0'] += 1
        if tree == 'b0' and 'b1' in cloud.parents:
            cloud.delete('b1')

    cloud.before = before
    forest = cloud.read()
    assert forest.contents.keys() == forest.listed.keys() == {'a0', 'a1', 'b0', 's', 'h'}
    assert forest.unsettled == frozenset()


def test_deleted_providers_outside_nested_trees_need_no_new_list() -> None:
    cloud = Cloud()
    for name in ('a1', 'b1'):
        cloud.delete(name)
    cloud.once(f'{LIST}/h/traits', lambda: cloud.delete('h'))
    assert cloud.read().listed.keys() == {'a0', 'b0', 's'}
    assert cloud.asked.count(LIST) == 1


@pytest.mark.usefixtures('summarizes')
def test_only_a_constantly_changing_host_is_unsettled() -> None:
    cloud = Cloud()
    cloud.busy('h', lambda path: path.startswith(f'{LIST}/h/'))
    forest = cloud.read()
    assert forest.unsettled == {'h'} and len(forest.contents) == 5
    assert collector.list_changing_hosts(nodes('a0', 'b0', 'h'), forest) == ['host-h']


@pytest.mark.usefixtures('summarizes')
def test_a_constantly_changing_sharing_provider_is_used_and_not_kept() -> None:
    cloud = Cloud()
    cloud.busy('s', lambda path: path.startswith(f'{LIST}/s/'))
    for _cycle in range(2):
        forest = cloud.read()
        assert (forest.contents['s'].used, forest.contents['s'].whole) == ({'X': 1}, False)
        assert forest.unsettled == frozenset()
        assert cloud.asked.count(f'{LIST}/s/inventories') == provider_contents.SHARING_ATTEMPTS
    assert hosts(forest, 'a0')['host-a0'].sharing == {'s'}


@pytest.mark.usefixtures('summarizes')
def test_an_unread_sharing_provider_makes_its_hosts_unsettled() -> None:
    cloud = Cloud()
    forest = cloud.read()
    forest = provider_trees.ProviderForest(
        forest.listed, {u: c for u, c in forest.contents.items() if u != 's'}, cloud.sharing)
    assert collector.list_changing_hosts(nodes('a0', 'b0', 'h'), forest) == ['host-a0', 'host-b0']


# Summaries.

@pytest.mark.usefixtures('summarizes')
def test_instance_that_replaces_another_of_its_size_is_seen() -> None:
    """v left h before the first list, which no generation shows; w comes before the summaries."""
    cloud = Cloud()
    cloud.allocate('v', {'h': 1})
    cloud.read()
    cloud.allocate('v', {})
    cloud.once(SEARCH, lambda: cloud.allocate('w', {'h': 1}))
    assert cloud.read().map_allocations() == {'w': {'h': {'X': 1}}}


def test_summaries_spare_most_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloud, 'summarizes', True)
    cloud = Cloud()
    forest = cloud.read()
    used = ('a0', 'a1', 's')
    assert sorted(path for path in cloud.asked if path.count('/') > 1) == sorted([
        *(f'{LIST}/{name}/inventories' for name in cloud.parents),
        *(f'{LIST}/{name}/allocations' for name in used)])
    assert cloud.read() == forest
    assert cloud.asked == [LIST, SEARCH, LIST]
    cloud.hidden = {'a0'}
    assert cloud.read() == forest
    assert cloud.asked == [LIST, SEARCH, f'{LIST}/a0/usages', f'{LIST}/a1/usages', LIST]
    cloud.hidden = set()
    cloud.totals['b1'] = 20
    cloud.generations['b1'] += 1
    assert cloud.read().contents['b1'].inventories['X'].total == 20
    assert cloud.asked == [LIST, SEARCH, f'{LIST}/b1/inventories', LIST]


def test_provider_without_inventory_takes_no_request_of_its_own(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloud, 'summarizes', True)
    cloud = Cloud()
    del cloud.totals['h']
    assert cloud.read().contents['h'].inventories == {}
    assert not any(path.startswith(f'{LIST}/h') for path in cloud.asked)


def test_provider_known_by_its_summary_alone_is_of_the_generation_of_the_second_list(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloud, 'summarizes', True)
    cloud = Cloud()
    del cloud.totals['h']
    cloud.busy('h', lambda path: path == SEARCH)
    assert cloud.read().contents['h'].generation == 1


def test_search_of_a_database_that_lags_misleads_for_one_reading(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloud, 'summarizes', True)
    cloud = Cloud()
    earlier = cloud.get(SEARCH, {})
    cloud.allocate('w', {'h': 1})
    cloud.traits['b1'] = ['CUSTOM_T']
    cloud.generations['b1'] += 1
    cloud.lags = earlier
    cloud.read()
    cloud.lags = None
    forest = cloud.read()
    assert forest.map_allocations()['w'] == {'h': {'X': 1}}
    assert forest.contents['b1'].traits == {'CUSTOM_T'}
    assert cloud.read() == forest and cloud.asked == [LIST, SEARCH, LIST]


@pytest.mark.usefixtures('summarizes')
def test_unplanned_root_hides_no_change_of_a_provider_below(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """b1 shares with others; the other providers of its tree are not read."""
    cloud = Cloud()
    cloud.allocate('v', {'b1': 1})

    def read() -> provider_trees.ProviderForest:
        with parallel_reads.ReadingContext(60) as reads:
            return cloud.reader.read(
                reads, lambda: {u: p for u, p in cloud.api.read_providers().items() if u != 'b0'},
                cloud.sharing, lambda provider: provider.uuid != 'b0')

    read()
    cloud.allocate('v', {})
    cloud.once(SEARCH, lambda: cloud.allocate('w', {'b1': 1}))
    assert read().map_allocations() == {'w': {'b1': {'X': 1}}}


@pytest.mark.parametrize('status', [403, 500])
def test_search_that_is_refused_is_named_once_and_spares_nothing(
        status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    warned: list[str] = []
    monkeypatch.setattr(provider_trees.LOG, 'warning', lambda text, *_args: warned.append(text))
    forest = cloud.read()
    cloud.refused = status
    numbers = []
    for _cycle in range(4):
        assert cloud.read() == forest
        numbers.append(len(warned))
    assert numbers == [0, 1, 1, 1] and 'no search for allocation candidates' in warned[0]
    cloud.refused = None
    cloud.read()
    cloud.refused = status
    for _cycle in range(2):
        cloud.read()
    assert len(warned) == 2


# A reading that breaks off.

def test_content_read_before_an_abort_is_not_read_again(summarizes: bool) -> None:
    cloud = Cloud()

    def fault() -> None:
        raise api.ApiError('Placement', 'x', 'not read within 120 s')

    cloud.once(f'{LIST}/h/inventories', fault)
    with pytest.raises(api.ApiError, match='not read within'):
        cloud.read()
    assert cloud.read().contents.keys() == cloud.parents.keys()
    again = [path for path in cloud.asked if path.count('/') > 1]
    assert sorted(again) == sorted([f'{LIST}/h/inventories'] if summarizes else [
        *(f'{LIST}/{name}/usages' for name in ('a0', 'a1', 's')),
        *(f'{LIST}/h/{part}' for part in ('inventories', 'traits', 'usages', 'allocations'))])


def test_mixed_generations_of_an_aborted_reading_are_read_again() -> None:
    cloud = Cloud()

    def before(path: str, _tree: str | None) -> None:
        if path == f'{LIST}/s/usages':
            cloud.generations['s'] += 1
        if path == f'{LIST}/h/inventories':
            raise api.ApiError('Placement', 'x', 'not read within 120 s')

    cloud.before = before
    with pytest.raises(api.ApiError, match='not read within'):
        cloud.read()
    cloud.before = lambda _path, _tree: None
    cloud.read()
    assert f'{LIST}/s/allocations' in cloud.asked


# Before a move.

def fresh_reader(cloud: Cloud) -> preflight_reader.FreshReader:
    found = cfg.ConfigOpts()
    opts.register(found)
    found([], default_config_files=[])
    return preflight_reader.FreshReader(found, cloud)


def test_before_a_move_a_tree_that_never_rests_is_an_error() -> None:
    cloud = Cloud()
    cloud.shares = frozenset()
    reader = fresh_reader(cloud)
    cloud.busy('a1', lambda path: path.startswith(f'{LIST}?'))
    with parallel_reads.ReadingContext(60) as reads:
        assert reader._read_forest(reads, ['b0', 'h']).unsettled == frozenset()
        with pytest.raises(api.ApiError, match='resource provider a0: its tree changes') as error:
            reader._read_forest(reads, ['a0', 'h'])
    assert error.value.status == 409
