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


"""Reading provider trees of a real Placement, while others write to it."""

from collections.abc import Callable
from collections.abc import Iterable
import threading
from typing import Any

import fixtures
from keystoneauth1 import session as ks_session
from keystoneauth1 import token_endpoint
from openstack import connection
from oslo_utils import uuidutils
from placement import deploy
from placement.tests.functional.fixtures import placement as placement_fixtures
import requests
import testtools

from kronos_nova import model
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_trees
from kronos_nova.rebalancer.planning import provider_tree_digest
from tests import marks
from tests.functional import api
from tests.functional import placement_writer

VM, OTHER = uuidutils.generate_uuid(), uuidutils.generate_uuid()


def one_at_a_time(app: api.App) -> api.App:
    """The fixture's database is one connection."""
    lock = threading.Lock()

    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with lock:
            return list(app(environ, start_response))
    return guarded


class ReadOnlyTestCase(testtools.TestCase):  # type: ignore[misc]

    def asked(self, *methods: str, **headers: str) -> api.PlacementApi:
        def app(_environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            start_response('204 No Content', [])
            return []

        found = api.PlacementApi(app, {})
        found.setUp()
        with requests.Session() as session:
            for method in methods:
                session.request(method, found.url + '/allocations/x', headers=headers, timeout=60)
        return found

    def test_own_write_to_placement_fails_test_case(self) -> None:
        self.asked('GET', 'HEAD').cleanUp()
        self.asked('GET', 'PUT', 'POST', **{api.NOT_OURS: 'true'}).cleanUp()
        for method in ('PUT', 'POST', 'DELETE', 'PATCH'):
            error = self.assertRaises(AssertionError, self.asked('GET', method).cleanUp)
            self.assertIn(f"[('{method}', '/allocations/x')]", str(error))


class PlacementTestCase(marks.MarkedTestCase, testtools.TestCase):  # type: ignore[misc]
    """Placement alone: a host with two children, and one without."""

    #: Whether Placement answers the search for candidates.
    summarizes = True

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        found = self.useFixture(placement_fixtures.PlacementFixture(use_intercept=False))
        server = self.useFixture(api.PlacementApi(one_at_a_time(
            deploy.loadapp(found.conf_fixture.conf)), {'HTTP_X_AUTH_TOKEN': 'admin'}))
        self.door = server.door
        if not self.summarizes:
            self.door.answers.append((
                lambda _method, path: path == '/allocation_candidates', '403 Forbidden', b'{}'))
        self.connection = connection.Connection(
            session=ks_session.Session(auth=token_endpoint.Token(server.url, 'admin')),
            placement_endpoint_override=server.url)
        self.placement = placement_api.PlacementApi(self.connection)
        self.writer = placement_writer.Writer(self.connection)
        self.reader = provider_trees.TreeReader(self.placement, remembers=True)
        self.root = self.writer.create('host1', VCPU=8, MEMORY_MB=8192, VGPU=4)
        self.left = self.writer.create('host1_left', self.root)
        self.right = self.writer.create('host1_right', self.root, SRIOV_NET_VF=4)
        self.lone = self.writer.create('host2', VCPU=8)

    def read(self) -> provider_trees.ProviderForest:
        with parallel_reads.ReadingContext(60) as reads:
            return self.reader.read(reads, self.placement.read_providers,
                                    provider_trees.read_sharing(reads, self.placement))

    def asked(self, read: Callable[[], Any]) -> list[str]:
        """What a reading asks for below a provider, as ``name/part``."""
        before = len(self.door.requests)
        read()
        names = {self.root: 'root', self.left: 'left', self.right: 'right', self.lone: 'lone'}
        paths = [path.split('/') for _method, path in self.door.requests[before:]]
        return sorted(f'{names[path[2]]}/{path[3]}' for path in paths if len(path) > 3)

    def once(self, part: str, act: Callable[[], object]) -> None:
        """Do something in the moment before this request is first answered."""
        def hook(_method: str, path: str) -> bool:
            if path == part and pending:
                pending.pop()()
            return False

        pending = [act]
        self.door.answers.append((hook, '', b''))
        self.addCleanup(self.assertEqual, [], pending, f'{part} was never asked for')

    def one_after_the_other(self) -> None:
        """The list's order is that of creation."""
        self.useFixture(fixtures.MonkeyPatch(
            'kronos_nova.rebalancer.clients.parallel_reads.CONCURRENCY', 1))

    def host(self, forest: provider_trees.ProviderForest) -> model.Host:
        tree = [forest.find_provider(uuid) for uuid in forest.map_trees()[self.root]]
        return model.Host('host1', provider=tree[0], nested=tuple(tree[1:]))

    # What is read.

    def test_tree_is_read_with_all_its_parts(self) -> None:
        shared, aggregate = self.writer.create('nfs', DISK_GB=1000), uuidutils.generate_uuid()
        self.writer.tell(shared, placement_api.SHARES)
        self.writer.join(shared, aggregate)
        self.writer.join(self.right, aggregate, uuidutils.generate_uuid())
        self.writer.tell(self.left, 'CUSTOM_LEFT')
        own = {self.root: {'VCPU': 2, 'VGPU': 1}, self.right: {'SRIOV_NET_VF': 1},
               shared: {'DISK_GB': 20}}
        self.writer.allocate(VM, own)
        forest = self.read()
        self.assertEqual([self.root, *sorted([self.left, self.right])],
                         list(forest.map_trees()[self.root]))
        self.assertEqual({VM: own}, forest.map_allocations())
        root, left, right = (forest.find_provider(u) for u in (self.root, self.left, self.right))
        self.assertEqual(('host1', None), (root.name, root.parent_uuid))
        self.assertEqual(('host1_left', self.root), (left.name, left.parent_uuid))
        self.assertEqual({'VCPU': 2, 'MEMORY_MB': 0, 'VGPU': 1}, root.used)
        self.assertEqual(4, root.inventories['VGPU'].total)
        self.assertEqual(self.writer.generation(self.root), root.generation)
        self.assertEqual({'CUSTOM_LEFT'}, left.traits)
        self.assertEqual({aggregate}, right.aggregates, 'those that matter')
        self.assertEqual({shared},
                         forest.sharing.list_sharing_with_tree(forest.map_trees()[self.root]))
        self.assertEqual(set(), forest.sharing.list_sharing_with_tree([self.lone]))
        self.assertEqual({aggregate}, forest.find_provider(shared).aggregates)

    # What may be remembered.

    @marks.turns(12)
    def test_writes_raise_generation_as_cache_assumes(self) -> None:
        """Verify when Placement raises a generation, and that a cached read sees every change."""
        writer, root = self.writer, self.root
        aggregate = uuidutils.generate_uuid()
        writer.allocate(OTHER, {root: {'VCPU': 1}})
        actions: list[tuple[str, bool, Callable[[], object]]] = [
            ('inventory', True, lambda: writer.stock(root, VCPU=16, VGPU=4)),
            ('traits', True, lambda: writer.tell(root, 'CUSTOM_A')),
            ('the same traits', False, lambda: writer.tell(root, 'CUSTOM_A')),
            ('aggregates', True, lambda: writer.join(root, aggregate)),
            ('aggregates before 1.19', False, lambda: writer.done(
                'PUT', f'/resource_providers/{root}/aggregates', [aggregate], '1.18')),
            ('an allocation', True, lambda: writer.allocate(VM, {root: {'VCPU': 2}})),
            ('more of it', True, lambda: writer.allocate(VM, {root: {'VCPU': 3, 'VGPU': 1}})),
            ('it moves away', False, lambda: writer.allocate(VM, {self.lone: {'VCPU': 3}})),
            ('it comes back', True, lambda: writer.allocate(VM, {root: {'VCPU': 3}})),
            ('it is deleted', False, lambda: writer.done('DELETE', f'/allocations/{VM}')),
            ('one is emptied', True, lambda: writer.allocate(OTHER, {})),
            ('a reshape', True, lambda: writer.reshape({root: {'VCPU': 16}, self.left: {
                'VGPU': 4}}, {})),
            ('a new name', False, lambda: writer.done(
                'PUT', f'/resource_providers/{root}', {'name': 'renamed'}))]
        self.read()
        for what, raises, act in actions:
            before = writer.generation(root)
            act()
            self.assertEqual(raises, writer.generation(root) > before, what)
            fresh = provider_trees.TreeReader(self.placement)
            with parallel_reads.ReadingContext(60) as reads:
                self.assertEqual(fresh.read(reads, self.placement.read_providers).contents,
                                 self.read().contents, what)

    def test_unchanged_providers_are_not_read_again(self) -> None:
        """host2 has no memory: the search does not show it."""
        parts = ('allocations', 'inventories', 'traits', 'usages')
        self.writer.allocate(VM, {self.root: {'VCPU': 2}, self.right: {'SRIOV_NET_VF': 1}})
        lone = [f'lone/{part}' for part in parts]
        tree = [f'{name}/{part}' for name in ('right', 'root')
                for part in (('allocations', 'inventories') if self.summarizes else parts)]
        left = [] if self.summarizes else ['left/inventories', 'left/traits']
        self.assertEqual(sorted([*lone, *tree, *left]), self.asked(self.read))
        usages = [] if self.summarizes else ['right/usages', 'root/usages']
        self.assertEqual(usages, self.asked(self.read))
        self.writer.tell(self.lone, 'CUSTOM_A')
        self.assertEqual(sorted([*lone, *usages]), self.asked(self.read))
        self.writer.reshape({self.root: {'VCPU': 8, 'MEMORY_MB': 8192}, self.left: {'VGPU': 4}}, {})
        found = self.asked(self.read)
        self.assertLessEqual({'root/inventories', 'left/inventories'}, set(found))
        self.assertNotIn('lone/inventories', found)
        self.assertEqual(usages, self.asked(self.read))
        self.writer.allocate(VM, {self.lone: {'VCPU': 1}})
        self.assertEqual({VM: {self.lone: {'VCPU': 1}}}, self.read().map_allocations())
        self.writer.done('DELETE', f'/allocations/{VM}')
        self.assertEqual({}, self.read().map_allocations())
        self.assertEqual([], self.asked(self.read))

    # What changes while it is read.

    def test_inventories_and_usages_are_of_one_generation(self) -> None:
        self.writer.allocate(VM, {self.root: {'VCPU': 2}})
        part = 'allocations' if self.summarizes else 'usages'
        self.once(f'/resource_providers/{self.root}/{part}', lambda: self.writer.stock(
            self.root, VCPU=16, MEMORY_MB=8192))
        root = self.read().find_provider(self.root)
        self.assertEqual({'VCPU', 'MEMORY_MB'}, root.inventories.keys())
        self.assertEqual(root.inventories.keys(), root.used.keys())
        self.assertEqual(self.writer.generation(self.root), root.generation)

    def test_tree_reshaped_during_read_is_consistent(self) -> None:
        """The root has been read with its VGPUs when they go to a child; and
        the writer, too, had to try it twice."""
        writer, vgpus = self.writer, {VM: {self.root: {'VCPU': 2}, self.left: {'VGPU': 2}}}
        writer.allocate(VM, {self.root: {'VCPU': 2, 'VGPU': 2}})

        def reshape() -> None:
            body = writer.reshaping({self.root: {'VCPU': 8, 'MEMORY_MB': 8192},
                                     self.left: {'VGPU': 4}}, vgpus)
            writer.tell(self.right, 'CUSTOM_A')
            stale = {**body, 'inventories': {**body['inventories'], self.right: {
                'resource_provider_generation': 0, 'inventories': {}}}}
            self.assertEqual(409, writer.call('POST', '/reshaper', stale).status_code)
            writer.done('POST', '/reshaper', body)

        self.one_after_the_other()
        read_later = self.root if self.summarizes else self.left
        self.once(f'/resource_providers/{read_later}/inventories', reshape)
        self.assertEqual(vgpus, self.read().map_allocations())

    def test_allocation_moved_during_read_is_counted_once(self) -> None:
        self.writer.stock(self.left, VGPU=4)
        self.writer.allocate(VM, {self.root: {'VCPU': 2, 'VGPU': 2}})
        apart = {VM: {self.root: {'VCPU': 2}, self.left: {'VGPU': 2}}}
        self.one_after_the_other()
        self.once(f'/resource_providers/{self.left}/inventories',
                  lambda: self.writer.allocate(VM, {self.left: {'VGPU': 2}}))
        self.assertEqual({VM: {self.left: {'VGPU': 2}}}, self.read().map_allocations())
        self.writer.allocate(VM, apart[VM])
        self.assertEqual(apart, self.read().map_allocations())

    # What it means to a plan.

    @marks.turns(12)
    def test_reshape_is_distinguished_from_other_changes(self) -> None:
        writer = self.writer
        numa = [writer.create(f'host1_numa{n}', self.root) for n in (0, 1)]
        writer.done('PUT', '/resource_classes/CUSTOM_FPGA')
        writer.stock(self.right, CUSTOM_FPGA=2)
        writer.allocate(VM, {self.root: {'VCPU': 2, 'MEMORY_MB': 512, 'VGPU': 1},
                             self.right: {'CUSTOM_FPGA': 1}})
        reshapes: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
            ('VGPU to a child', {self.root: {'VCPU': 8, 'MEMORY_MB': 8192},
                                 self.left: {'VGPU': 4}},
             {self.root: {'VCPU': 2, 'MEMORY_MB': 512}, self.left: {'VGPU': 1},
              self.right: {'CUSTOM_FPGA': 1}}),
            ('VCPU and MEMORY_MB to NUMA nodes', {self.root: {}, **{node: {
                'VCPU': 4, 'MEMORY_MB': 4096} for node in numa}},
             {numa[0]: {'VCPU': 2, 'MEMORY_MB': 512}, self.left: {'VGPU': 1},
              self.right: {'CUSTOM_FPGA': 1}}),
            ('CUSTOM_X to X', {self.right: {'FPGA': 2}},
             {numa[0]: {'VCPU': 2, 'MEMORY_MB': 512}, self.left: {'VGPU': 1},
              self.right: {'FPGA': 1}})]
        for what, totals, placed in reshapes:
            known = provider_tree_digest.compute_tree_digest(self.host(self.read()))
            assert known is not None
            writer.tell(self.root, f'CUSTOM_{len(what)}')
            writer.allocate(OTHER, {self.lone: {'VCPU': 1}})
            now = self.host(self.read())
            self.assertFalse(provider_tree_digest.is_tree_reshaped(known, now), what)
            self.assertGreater(provider_tree_digest.compute_tree_digest(now).generation,
                               known.generation)
            writer.reshape(totals, {VM: placed})
            forest = self.read()
            self.assertTrue(provider_tree_digest.is_tree_reshaped(known, self.host(forest)), what)
            self.assertEqual(placed, forest.map_allocations()[VM], what)


class RefusedSearchTestCase(PlacementTestCase):
    """The same where policy denies the search."""

    summarizes = False
