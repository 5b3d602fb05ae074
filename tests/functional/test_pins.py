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


"""What pins an instance: our rules and a real Nova say the same of each host.

The tests request each migration from Nova, also those that a rule refuses.
"""

import time
from typing import Any

from nova import context as nova_context
from nova import objects
import nova.conf

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import hints
from kronos_nova.constraints import prefilters
from kronos_nova.rebalancer.executors import base as executors
from kronos_nova.rebalancer.executors import nova as nova_executor
from tests import marks
from tests.functional import test_collector

CONF = nova.conf.CONF
FILTERS = [aggregates.EXTRA_SPECS, aggregates.TENANTS, aggregates.IMAGES, hints.DIFFERENT]
PREFILTERS = [prefilters.TENANTS, prefilters.ISOLATED]


class PinsCase(test_collector.CollectorCase):
    """Nova enforces aggregates and hints, and our options say so."""

    def configure(self) -> None:
        super().configure()
        self.flags(enabled_filters=[*CONF.filter_scheduler.enabled_filters, *FILTERS],
                   group='filter_scheduler')
        self.flags(**dict.fromkeys(PREFILTERS, True), group='scheduler')

    def setUp(self) -> None:
        super().setUp()
        self.conf.set_override('nova_enabled_filters', FILTERS, 'engine')
        self.conf.set_override('nova_prefilters', PREFILTERS, 'engine')
        self.conf.set_override('require_cpu_compatibility', True, 'engine')  # reads traits
        self.aggregate('all', *self.hosts)

    def server(self, host: str = 'host1', hints: dict[str, Any] | None = None,
               **extra_specs: str) -> str:
        """Its UUID."""
        flavor = self.flavor
        if extra_specs:
            flavor = {'id': self._create_flavor(
                vcpu=1, memory_mb=512, disk=1, ephemeral=0, extra_spec=extra_specs)}
        return str(self.boot(host=host, flavor=flavor, hints=hints)['id'])

    def give_trait(self, name: str, *hosts: str) -> None:
        self._create_trait(name)
        for host in hosts:
            provider = self._get_provider_uuid_by_host(host)
            self._set_provider_traits(provider, [*self._get_provider_traits(provider), name])

    def ours(self, uuid: str, host: str) -> str | None:
        """The rule that refuses the move, for the engine and for an executor."""
        cluster = self.collect().replace_scope('all')
        view = cluster_view.ClusterView(cluster, engine_conf.build_options(self.conf))
        move = model.Move(uuid, cluster.instances[uuid].host, host, model.Phase.AFFINITY)
        no = constraints.judge_move(view, move, constraints.PRE_FLIGHT)
        rule = None if no is None else no.rule
        self.assertEqual(rule, self.at_pre_flight(move))
        return rule

    def at_pre_flight(self, move: model.Move) -> str | None:
        task = model.Task('t', 'p', 'all', move.instance_uuid, move.from_host, move.to_host,
                          move.phase)
        driver = nova_executor.NovaExecutor(self.conf, self.connection)
        try:
            driver.pre_flight(task, executors.StoredFacts(now=time.time()))
        except exception.PreFlightError as exc:
            return str(exc.kwargs['rule'])
        return None

    def judged(self, uuid: str, host: str, rule: str | None, home: str = 'host1') -> None:
        """By us, and by Nova, which moves it or leaves it."""
        self.assertEqual(rule, self.ours(uuid, host), host)
        self.live_migrate({'id': uuid}, host, 'completed' if rule is None else 'error')
        self.assertEqual(home if rule else host, self.host_of({'id': uuid}))


@marks.long
class AggregatesTestCase(PinsCase):

    hosts = ('host1', 'host2', 'host3', 'host4', 'host5')

    def test_rules_and_nova_agree_on_aggregates_and_hints(self) -> None:
        self.give_trait('CUSTOM_LICENCE', 'host1', 'host5')
        self.aggregate('fast', 'host1', 'host5', ssd='true, sata')
        self.aggregate('theirs', 'host2', filter_tenant_id='22222222222222222222222222222222')
        self.aggregate('isolated', 'host3', **{'trait:CUSTOM_OTHER': 'required'})
        self.aggregate('arm', 'host4', hw_architecture='aarch64,ppc64le')
        plain, fast = self.server(), self.server(ssd='<or> nvme <or> true')
        licensed = self.server(**{'trait:CUSTOM_LICENCE': 'required'})
        apart = self.server('host5', hints={'different_host': [plain]})
        found = self.collect().instances[plain]
        self.assertEqual({}, found.extra_specs)
        self.assertEqual((1, {}), (found.power_state, found.scheduler_hints))

        self.judged(plain, 'host2', 'aggregate-tenant')
        self.judged(plain, 'host3', 'isolated-aggregate')
        self.judged(plain, 'host4', 'aggregate-image')
        self.judged(fast, 'host2', 'aggregate-tenant')
        self.judged(fast, 'host4', 'aggregate-extra-specs')
        self.judged(licensed, 'host4', 'aggregate-image')
        self.judged(licensed, 'host3', 'isolated-aggregate')
        self.judged(apart, 'host1', 'different-host', home='host5')
        for uuid in (plain, fast, licensed):
            self.judged(uuid, 'host5', None)


class HostsAndWishesTestCase(PinsCase):

    @marks.turns(12)
    def test_older_hypervisor_or_missing_trait_is_refused(self) -> None:
        self.give_trait('CUSTOM_LICENCE', 'host1')
        node = objects.ComputeNode.get_first_node_by_host_for_old_compat(
            nova_context.get_admin_context(), 'host1')
        node.hypervisor_version += 1
        node.save()
        plain = self.server()
        self.judged(plain, 'host2', 'hypervisor-older')
        with self.subTest('where Nova does not look, nor do we'):
            self.flags(skip_hypervisor_version_check_on_lm=True, group='workarounds')
            self.conf.set_override('skip_hypervisor_version_check_on_lm', True, 'engine')
            self.judged(plain, 'host2', None)
            self.judged(self.server(**{'trait:CUSTOM_LICENCE': 'required'}), 'host2',
                        'required-traits')

    @marks.long
    def test_instance_stays_in_requested_zone(self) -> None:
        """An instance that was booted without a zone may go to any."""
        self.aggregate('east', 'host1', 'host3', availability_zone='east')
        self.aggregate('west', 'host2', availability_zone='west')
        asked = self.admin_api.post_server({'server': self._build_server(
            flavor_id=self.flavor['id'], networks='none', az='east')})
        asked = self._wait_for_state_change(asked, 'ACTIVE')
        home = self.host_of(asked)
        self.assertEqual('east', self.collect().instances[asked['id']].pinned_zone)
        self.judged(asked['id'], 'host2', 'az-pinned', home=home)
        self.judged(asked['id'], ({'host1', 'host3'} - {home}).pop(), None)
        self.judged(self.server('host1'), 'host2', None)
        self.conf.set_override('restrict_to_az', True, 'engine')
        self.assertEqual('az-differs', self.ours(self.server('host1'), 'host2'))

    @marks.long
    def test_host_without_cpu_trait_is_refused(self) -> None:
        """By Placement's traits; Nova's fake driver compares no CPUs."""
        self.give_trait('HW_CPU_X86_AVX', 'host1', 'host3')
        plain = self.server()
        self.assertEqual('cpu-traits', self.ours(plain, 'host2'))
        self.assertIsNone(self.ours(plain, 'host3'))

    @marks.turns(12)
    def test_project_stays_in_tenant_aggregates(self) -> None:
        mine = self.server()
        project = self.collect().instances[mine].project_id
        self.aggregate('mine', 'host1', 'host3', filter_tenant_id=project)
        self.judged(mine, 'host2', 'tenant-aggregate')
        self.judged(mine, 'host3', None)

    def test_owner_opts_out_by_metadata_or_tag(self) -> None:
        self.conf.set_override('opt_out_metadata_key', 'stay', 'engine')
        self.conf.set_override('opt_out_tag', 'stay', 'engine')
        first, second = self.server(), self.server()
        self.assertIsNone(self.ours(first, 'host2'))
        self.api.api_post(f'/servers/{first}/metadata', {'metadata': {'stay': 'yes'}})
        self.api.api_put(f'/servers/{second}/tags/stay', None, check_response_status=[201])
        reasons = {u: i.opted_out for u, i in self.collect().instances.items()}
        self.assertEqual({first: 'metadata stay', second: 'tag stay'}, reasons)
        self.assertEqual('owner-opted-out', self.ours(first, 'host2'))
        self.api.api_post(f'/servers/{first}/metadata', {'metadata': {'stay': 'false'}})
        self.assertIsNone(self.ours(first, 'host2'))

    @marks.turns(3)
    def test_contracts_of_tags_metadata_and_flavors_hold_moves(self) -> None:
        """Nova admits the keys, and shows them."""
        first, second = self.server(), self.server()
        third = self.server(**{'kronos:disruption': 'drain-only', 'kronos:max_moves': '1/1d'})
        self.assertIsNone(self.ours(first, 'host2'))
        self.api.api_post(f'/servers/{first}/metadata', {
            'metadata': {'kronos:disruption': 'never', 'kronos:hours': '* 22-23,0-5 * * *'}})
        self.api.api_put(f'/servers/{second}/tags/kronos:max_moves=2:7d', None,
                         check_response_status=[201])
        stated = {u: [str(c) for c in i.contracts] for u, i in self.collect().instances.items()}
        self.assertEqual({
            first: ['disruption never, hours * 22-23,0-5 * * * (metadata)'],
            second: ['max_moves 2/7d (tag)'],
            third: ['disruption drain-only, max_moves 1/1d (flavor)']}, stated)
        self.assertIsNone(self.ours(first, 'host2'), 'tenants forbid nothing by default')
        self.assertIsNone(self.ours(second, 'host2'))
        self.assertEqual('contract-disruption', self.ours(third, 'host2'))
