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


"""Random plans, carried out on a real Nova: it refuses none of the moves for a
reason that our rules check, and no server group is broken at any moment.

Everything is ours and real but the scores: collector, planner, checker, store,
worker and the nova driver. ``tools/random_plans.py`` runs many clouds; here it
is a small one; KRONOS_TEST_PLANS, KRONOS_TEST_HOSTS and KRONOS_TEST_SEED ask for
another.
"""

from collections import Counter
import dataclasses
import itertools
import json
import math
import os
import random
import time
from typing import Any
from unittest import mock

import fixtures
from nova import context
from nova.tests import fixtures as nova_fixtures
import yaml

from kronos_nova import model
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.executors import nova_responses
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import stale_scheduler_view
from kronos_nova.rebalancer.executors import worker
from tests.functional import api
from tests.functional import random_cloud

PLANS = int(os.environ.get('KRONOS_TEST_PLANS', '3'))
HOSTS = int(os.environ.get('KRONOS_TEST_HOSTS', '5'))
SEED = int(os.environ.get('KRONOS_TEST_SEED', '1'))
#: Where figures go, for tools/random_plans.py.
FIGURES = os.environ.get('KRONOS_TEST_FIGURES', '')
#: Seconds after which nova-scheduler has heard where instances are now.
SYNC = 2
#: Rules of ours at pre-flight that only ask to wait.
WAITS = frozenset({'no-slot', 'group-in-flight', 'just-left', 'just-came'})


class RandomPlansTestCase(api.ApiTestCase):

    def setUp(self) -> None:
        self.rng = random.Random(SEED)
        self.drawn = random_cloud.drawn(self.rng, HOSTS)
        self.hosts = tuple(self.drawn.sizes)
        super().setUp()
        self.load = random_cloud.Load()
        self.figures: Counter[str] = Counter()
        self.problems: list[str] = []
        #: Servers that demand a trait.
        self.picky: set[str] = set()
        self.cell = random_cloud.engine_of(self.cell_mappings['cell1'])
        self._furnish()
        self._wire()

    def configure(self) -> None:
        super().configure()
        # Nova's fixture takes a lock here to read one attribute, which with its
        # lock of writers is a deadlock when much is booted and moved at a time.
        self.useFixture(fixtures.MockPatchObject(
            nova_fixtures.CellDatabases, '_wrap_get_context_manager',
            lambda cells, ctxt: getattr(ctxt, 'db_connection', None) or cells._last_ctxt_mgr))
        self.flags(report_interval=600, service_down_time=6000)
        self.flags(instances=-1, cores=-1, ram=-1, server_groups=-1, server_group_members=-1,
                   group='quota')
        self.flags(initial_cpu_allocation_ratio=self.drawn.ratio,
                   initial_ram_allocation_ratio=1.0)
        self.flags(max_concurrent_live_migrations=2)
        # It is Nova's own, and takes longer than the answers do.
        self.flags(response_validation='ignore', group='api')

    def _start_compute(self, host: str, cell_name: str | None = None) -> Any:
        vcpus, memory_mb = self.drawn.sizes[host]
        size = {'vcpus': vcpus, 'memory_mb': memory_mb, 'local_gb': 1000}
        with mock.patch.multiple('nova.virt.fake.MediumFakeDriver', **size):
            compute = super()._start_compute(host, cell_name)
        # The driver asks its class again whenever it reports.
        vars(compute.manager.driver).update(size)
        return compute

    # The cloud.

    def _furnish(self) -> None:
        hosts = list(self.drawn.sizes)
        half = len(hosts) // 2
        if self.drawn.scoping == 'racks':
            self.aggregate('rack1', *hosts[:half], availability_zone='az1')
            self.aggregate('rack2', *hosts[half:-1])
        elif self.drawn.scoping == 'zones':
            self.aggregate('all', *hosts)
            self.aggregate('zone1', *hosts[:half], availability_zone='az1')
            self.aggregate('zone2', *hosts[half:], availability_zone='az2')
        self._create_trait(random_cloud.FAST)
        for host in hosts:
            traits = ([random_cloud.FAST] * (host in self.drawn.fast)
                      + [random_cloud.AVX] * (host in self.drawn.avx))
            uuid = self._get_provider_uuid_by_host(host)
            self._set_provider_traits(uuid, [*self._get_provider_traits(uuid), *traits])
        self.flavors = [self._create_flavor(vcpu=vcpus, memory_mb=memory, disk=1, ephemeral=0)
                        for vcpus, memory in random_cloud.SHAPES]
        self.flavors.append(self._create_flavor(
            vcpu=1, memory_mb=512, disk=1, ephemeral=0,
            extra_spec={f'trait:{random_cloud.FAST}': 'required'}))
        self.groups = [self._group(n) for n in range(self.rng.randint(4, 7))]
        self._boot_many(int(2.7 * len(hosts)))
        for uuid, policy in self.groups:
            if self.rng.random() < 0.25:
                random_cloud.change_group(*{
                    'anti-affinity': (uuid, 'anti-affinity', 1),
                    'soft-anti-affinity': (uuid, 'affinity', None),
                    'soft-affinity': (uuid, 'anti-affinity', 1),
                    'affinity': (uuid, 'soft-anti-affinity', None)}[policy])

    def _group(self, number: int) -> tuple[str, str]:
        policy = self.rng.choice([str(p) for p in model.GroupPolicy])
        limit = ({'max_server_per_host': self.rng.choice((1, 2, 3))}
                 if policy == 'anti-affinity' else {})
        return self.server_group(f'g{number}', policy, **limit)['id'], policy

    def _boot_many(self, count: int) -> None:
        """What finds no host is deleted again: the cloud is full."""
        rng, made = self.rng, []
        for _ in range(count):
            zone = None
            if self.drawn.scoping != 'pool' and rng.random() < 0.15:
                zone = 'az1'
            flavor = rng.choice(self.flavors)
            body = {'server': self._build_server(flavor_id=flavor, networks='none', az=zone)}
            if rng.random() < 0.45:
                body['os:scheduler_hints'] = {'group': rng.choice(self.groups)[0]}
            made.append(self.admin_api.post_server(body)['id'])
            if flavor == self.flavors[-1]:
                self.picky.add(made[-1])

        def ready() -> bool:
            return all(s['status'] != 'BUILD' for s in self.admin_api.get_servers())

        self.wait_for(ready, 'servers to be built')
        lost = [s['id'] for s in self.admin_api.get_servers() if s['status'] == 'ERROR']
        self._delete(*lost)

    def _delete(self, *uuids: str) -> None:
        for uuid in uuids:
            self.admin_api.delete_server(uuid)
        self.wait_for(lambda: not {s['id'] for s in self.admin_api.get_servers(detail=False)}
                      & set(uuids), 'servers to be deleted')

    def _churn(self) -> None:
        """Between two plans: some go, some come, some are locked or stopped."""
        rng = self.rng
        servers = sorted((s for s in self.admin_api.get_servers() if s['status'] == 'ACTIVE'),
                         key=lambda s: s['id'])
        gone = [s['id'] for s in rng.sample(servers, min(2, len(servers)))]
        self._delete(*gone)
        self._boot_many(3)
        left = [s['id'] for s in servers if s['id'] not in gone]
        if left and rng.random() < 0.3:
            self.admin_api.post_server_action(
                rng.choice(left), {rng.choice(('lock', 'unlock')): None})
        if left and rng.random() < 0.2:
            server = {'id': rng.choice(left)}
            self.admin_api.post_server_action(server['id'], {'os-stop': None})
            self._wait_for_state_change(server, 'SHUTOFF')

    def _draw_services(self) -> None:
        """Up to two hosts are disabled, for some reason or another."""
        services = {s['host']: s for s in self.admin_api.get_services(binary='nova-compute')}
        chosen = self.rng.sample(sorted(services), self.rng.choice((0, 1, 1, 2, 3)))
        for host, service in sorted(services.items()):
            reason = self.rng.choice(random_cloud.REASONS)
            if host in chosen:
                self.admin_api.put_service(service['id'], {
                    'status': 'disabled',
                    **({'disabled_reason': reason} if reason else {})})
            elif service['status'] == 'disabled':
                self.admin_api.put_service(service['id'], {'status': 'enabled'})

    # What is under test.

    def _wire(self) -> None:
        directory = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(directory, 'policies.yaml')
        fields = {'mode': self.drawn.mode, 'imbalance_query': 'drawn', 'threshold': 0.05,
                  'vm_profile_query': 'drawn', 'vm_profile_label_type': 'nova_instance_uuid',
                  'max_migrations_per_cycle': 8}
        if self.drawn.mode == 'pack':
            fields |= {'capacity_query': 'drawn', 'capacity_threshold': 0.9}
        with open(path, 'w') as f:
            yaml.safe_dump({'policies': [{'name': 'cpu', 'weight': 1.0, **fields}]}, f)
        self.store = self.new_store()
        scopes = {'pool': [], 'racks': ['rack1', 'rack2'], 'zones': ['all']}
        self._configure('engine', policies_file=path, dry_run=False, settle_seconds=0, cooldown=0,
                        instance_cooldown=0, instance_quarantine_seconds=0,
                        evacuate_disabled_hosts=True, breaker_worse_plans=0,
                        breaker_failure_rate=1.0, max_drain_fraction=0.5,
                        aggregates=scopes[self.drawn.scoping],
                        include_unassigned_hosts=self.drawn.scoping != 'zones')
        self._configure('executor', stagger_seconds=0, max_concurrent_migrations=4,
                        max_concurrent_per_source=2, retry_backoff=0.2,
                        migration_poll_interval=1, scheduler_instance_sync_interval=SYNC)
        # Everything goes by one clock here.
        self.useFixture(fixtures.MockPatchObject(stale_scheduler_view, 'MARGIN', 3.0))
        self.driver = random_cloud.Witness(self.conf, self.connection)
        self.worker = worker.Worker(
            self.store, self.driver,
            dataclasses.replace(retry.build_settings(self.conf), look_interval=0.8,
                                host_quarantine_seconds=0.0))
        self.engine = engine.Engine(self.conf, collector=self, source=self.load,
                                    store=self.store)

    def collect_cluster(self, now: float) -> model.Cluster:
        """Collect the cloud for the engine, and draw load for it."""
        self.cluster = collector.CloudCollector(self.conf, self.connection).collect_cluster(now)
        self.load.draw(self.rng, self.cluster)
        return self.cluster

    def _configure(self, group: str, **values: Any) -> None:
        for name, value in values.items():
            self.conf.set_override(name, value, group)

    def _draw_options(self) -> None:
        rng = self.rng
        self._configure('engine', enforce_hard_affinity=rng.random() < 0.6,
                        enforce_soft_affinity=rng.random() < 0.4,
                        restrict_to_az=rng.random() < 0.3,
                        require_cpu_compatibility=rng.random() < 0.3,
                        cold_migrate_stopped=rng.random() < 0.3,
                        drain_reason_regex=rng.choice(('', '', '^maint')),
                        objective=rng.choice(('balanced', 'balanced', 'kronos')))

    # A cycle.

    def _one_cycle(self) -> None:
        self._draw_services()
        self._draw_options()
        nova = nova_api.NovaApi(self.connect())
        known = {m.id for m in nova._list_migrations({})}
        self.driver.pre_flights.clear()
        self.driver.answers.clear()
        rows = self.engine.run_cycle()
        self.assertEqual([], [r['reason'] for r in rows if r['hosts'] is None])
        moves = [m for row in rows for m in row['moves']]
        self.figures['plans'] += len(rows)
        self.figures['plans with moves'] += sum(1 for r in rows if r['moves'])
        self.figures['moves'] += len(moves)
        for m in moves:
            self.figures[f'moves {m["phase"]}'] += 1
        with random_cloud.Watcher(self.cell, self.cluster.groups) as watcher:
            self._work()
        self.assertIsNone(watcher.problem)
        self.figures['cycles'] += 1
        self.figures['looks'] += watcher.looks
        self.figures['group violations'] += len(watcher.broken)
        self.problems += watcher.broken
        self._account(nova, known)

    def _work(self) -> None:
        synced = -math.inf

        def idle() -> bool:
            nonlocal synced
            if time.monotonic() >= synced + SYNC:
                # Nova's fixtures leave periodic tasks to the tests.
                for compute in self.computes.values():
                    compute.manager._sync_scheduler_instance_info(context.get_admin_context())
                synced = time.monotonic()
            self.worker.run_once(self.worker._clock())
            return not self.store.tasks.list_in_flight_moves()
        self.wait_for(idle, 'every task to end', 180.0)

    def _account(self, nova: nova_api.NovaApi, known: set[int]) -> None:
        """Who has said no to what."""
        for error in self.driver.pre_flights:
            rule = error.kwargs.get('rule', type(error).__name__)
            self.figures[f'pre-flight {rule}'] += 1
            if rule not in WAITS:
                self.problems.append(f'pre-flight: {error}')
        for error in self.driver.answers:
            self.figures['refused at once'] += 1
            self.problems.append(f'Nova answers: {error}')
        for migration in nova._list_migrations({}):
            if migration.id in known:
                continue
            self.figures[f'migrations {migration.status}'] += 1
            if migration.status in ('error', 'failed'):
                log = self.stdlog.logger.output
                who = random_cloud.filter_that_refused(log, migration.instance_uuid)
                if who == 'not told' and migration.instance_uuid in self.picky:
                    who = 'required trait'
                action = (nova_api.LIVE_MIGRATION if migration.type == nova_api.LIVE_MIGRATION
                          else nova_api.MIGRATE)
                why = nova_responses.read_action_errors(nova, migration.instance_uuid, action)
                self.figures[f'refused by {who}'] += 1
                self.problems.append(f'Nova refused {migration} ({who}): {why}')

    def _write_figures(self) -> None:
        if FIGURES:
            with open(FIGURES, 'w') as f:
                json.dump({'figures': self.figures, 'problems': self.problems}, f)

    def test_nova_refuses_no_move_and_no_group_is_broken(self) -> None:
        for cycle in itertools.count():
            self._one_cycle()
            self._write_figures()
            # Of a few plans none may have a move.
            if self.figures['plans'] >= PLANS and (
                    self.figures['migrations completed'] or cycle > 3 * PLANS):
                break
            if cycle % 3 == 2:
                self._churn()
        self.assertEqual([], self.problems, dict(self.figures))
        self.assertGreater(self.figures['migrations completed'], 0)
