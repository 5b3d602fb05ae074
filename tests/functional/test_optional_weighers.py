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

"""Scarce hosts stay free for who asks for them, and projects spread: real Nova."""

from unittest import mock

from nova import context

from kronos_nova.scheduler import runtime
from kronos_nova.weighers import project_cache
from kronos_nova.weighers import scarce_traits
from tests import marks
from tests.functional import base


class ScarcityTestCase(base.NovaTestCase):
    """host3 has a trait and host2 a nested provider with a class that no other
    has; stock Nova prefers them, because host1 has instances."""

    multiplier = 100.0

    def configure(self):
        super().configure()
        runtime.close()
        self.addCleanup(runtime.close)
        self.flags(kronos_scarcity_weight_multiplier=self.multiplier, group='filter_scheduler')

    def setUp(self):
        super().setUp()
        self.boot(host='host1')
        self.boot(host='host1')
        self.boot(host='host2')
        self._create_trait('CUSTOM_FPGA')
        fpga = self._get_provider_uuid_by_host('host3')
        # Those that it has stay: nova-compute would set COMPUTE_NODE anew, in its time.
        self._set_provider_traits(fpga, [*self._get_provider_traits(fpga), 'CUSTOM_FPGA'])
        self.placement.put('/resource_classes/CUSTOM_CARD', {}, version='1.7')
        child = self.placement.post(
            '/resource_providers', version='1.20',
            body={'name': 'a-card', 'parent_provider_uuid': self._get_provider_uuid_by_host(
                'host2')}).body
        self._set_inventory(child['uuid'], {'resource_class': 'CUSTOM_CARD', 'total': 1})

    def flavored(self, **extra_specs):
        flavor = self._create_flavor(
            vcpu=1, memory_mb=64, disk=1,
            extra_spec={k.replace('__', ':'): v for k, v in extra_specs.items()})
        return {'id': flavor}

    def wait_for_specials(self):
        board = runtime.get_runtime().get_shared_state(scarce_traits.ScarcityBoard)
        self.wait_for(board.read_scarce_traits, 'what hosts have')
        # It may have been learned while setUp booted, before there was anything special.
        board.refresh_traits()

    @marks.turns(12)
    def test_plain_instance_avoids_scarce_hosts(self):
        self.wait_for_specials()
        self.assertEqual('host1', self.host_of(self.boot()))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))

    @marks.turns(12)
    def test_request_for_scarce_resource_gets_its_host(self):
        self.wait_for_specials()
        trait = self.flavored(trait__CUSTOM_FPGA='required')
        self.assertEqual('host3', self.host_of(self.boot(flavor=trait)))
        card = self.flavored(resources__CUSTOM_CARD='1')
        self.assertEqual('host2', self.host_of(self.boot(flavor=card)))
        # The only card is taken: host2 is a plain host until it is given back.
        runtime.get_runtime().get_shared_state(scarce_traits.ScarcityBoard).refresh_traits()
        self.assertEqual('host2', self.host_of(self.boot()))

    @marks.long
    def test_aggregate_overrides_multiplier(self):
        self.wait_for_specials()
        self.aggregate('open', 'host3', kronos_scarcity_weight_multiplier='0')
        self.assertEqual('host3', self.host_of(self.boot()))

    @marks.long
    def test_missing_placement_answers_leave_choice_to_nova(self):
        board = runtime.get_runtime().get_shared_state(scarce_traits.ScarcityBoard)
        self.flags(scarcity_weights={'CUSTOM_FPGA': 0.0, 'CUSTOM_CARD': 0.0}, group='kronos')
        board.refresh_traits()
        self.assertEqual('host3', self.host_of(self.boot()))


@marks.long
class ScarcityOffTestCase(ScarcityTestCase):
    """Off by default: no thread, no question, and Nova's choice."""

    multiplier = 0.0

    def wait_for_specials(self):
        pass

    @marks.turns(12)
    def test_plain_instance_avoids_scarce_hosts(self):
        self.assertEqual('host3', self.host_of(self.boot()))
        self.assertNotIn(scarce_traits.ScarcityBoard, runtime.get_runtime()._shared_states)

    test_request_for_scarce_resource_gets_its_host = None
    test_missing_placement_answers_leave_choice_to_nova = None

    def test_aggregate_overrides_multiplier(self):
        self.aggregate('kept', 'host3', kronos_scarcity_weight_multiplier='100')
        runtime.get_runtime().get_shared_state(scarce_traits.ScarcityBoard).refresh_traits()
        self.assertEqual('host2', self.host_of(self.boot()))


class ProjectTestCase(base.NovaTestCase):
    """host1 and host2 hold another project's instances, host3 one of ours:
    stock Nova prefers host3, because the others have more."""

    tracked = True
    multiplier = 100.0

    def configure(self):
        super().configure()
        runtime.close()
        self.addCleanup(runtime.close)
        self.flags(kronos_project_weight_multiplier=self.multiplier,
                   track_instance_changes=self.tracked, group='filter_scheduler')

    def setUp(self):
        super().setUp()
        with mock.patch.object(self.admin_api, 'project_id', 'another-project'):
            for host in ('host1', 'host1', 'host1', 'host2', 'host2'):
                self.boot(host=host)
        self.first = self.boot(host='host3')

    def learn(self):
        """What the thread does after a request."""
        states = list(self.scheduler_service.manager.host_manager.get_host_states_by_uuids(
            context.get_admin_context(), None, None))
        book = runtime.get_runtime().get_shared_state(project_cache.ProjectBook)
        book.list_project_instances(states, '')
        book.refresh_projects()

    def multi_create(self, count):
        body = self._build_server(flavor_id=self.flavor['id'], networks='none')
        body.update(min_count=count, max_count=count, name='many')
        before = {s['id'] for s in self.admin_api.get_servers()}
        self.admin_api.post_server({'server': body})
        new = [s for s in self.admin_api.get_servers() if s['id'] not in before]
        self.assertEqual(count, len(new))
        return sorted(self.host_of(self._wait_for_state_change(s, 'ACTIVE')) for s in new)

    @marks.turns(3)
    def test_hosts_without_own_project_instances_are_preferred(self):
        self.learn()
        self.assertEqual('host2', self.host_of(self.boot()))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))

    @marks.turns(12)
    def test_project_instances_spread_over_requests(self):
        self.learn()
        self.assertEqual(['host1', 'host2'], self.multi_create(2))
        self.learn()
        self.assertEqual(['host1', 'host2', 'host3'], self.multi_create(3))

    @marks.long
    def test_other_project_keeps_stock_choice(self):
        self.learn()
        with mock.patch.object(self.admin_api, 'project_id', 'another-project'):
            self.assertEqual('host3', self.host_of(self.boot()))

    @marks.long
    def test_negative_aggregate_multiplier_gathers_project(self):
        self.boot(host='host1')
        self.learn()
        self.aggregate('gather', 'host1', kronos_project_weight_multiplier='-100')
        self.assertEqual('host1', self.host_of(self.boot()))


@marks.long
class UntrackedProjectTestCase(ProjectTestCase):
    """HostState tells nothing but UUIDs: all is looked up."""

    tracked = False


@marks.long
class ProjectOffTestCase(ProjectTestCase):
    """Off by default: nothing is looked up, and Nova decides alone."""

    multiplier = 0.0

    @marks.turns(3)
    def test_hosts_without_own_project_instances_are_preferred(self):
        self.assertEqual('host3', self.host_of(self.boot()))
        self.assertNotIn(project_cache.ProjectBook, runtime.get_runtime()._shared_states)

    test_project_instances_spread_over_requests = None
    test_other_project_keeps_stock_choice = None
