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
"""A small cloud that a real cycle of an engine has published in the database."""

import time

from oslo_config import cfg
import yaml

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.model import movement_hours
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.engine import engine as engines
from tests.scenarios import loader
from tests.unit.rebalancer.engine import test_engine
from tests.unit.rebalancer.store import cases

#: Two instances of one name, as tenants may give it, and one that Kronos must not move.
TWINS = (loader.uuid_of('a0'), loader.uuid_of('b0'))
NAME = 'web {0} %s ../'
PINNED = loader.uuid_of('c0')
HOSTS = ('a', 'b', 'c', 'd')
CONTRACTS = (model.Contract(model.ContractSource.FLAVOR, model.Disruption.DRAIN_ONLY,
                            max_moves=model.MoveQuota(2, 604800)),
             model.Contract(model.ContractSource.TAG,
                            hours=movement_hours.parse_hours('* 1-4 * * *'),
                            unreadable=('disruption',), notify=model.NoticePeriod(86400),
                            release=1793491200.0))


def make_cluster(aggregate='blue', extra=0):
    """Return four hosts of an aggregate; a has most load, d is disabled, and e is outside.

    :param extra: more instances on b, without load.
    """
    def host(name):
        return model.Host(name, name, zone='nova', provider=model.Provider(
            f'provider-{name}', 1, {'VCPU': model.Inventory(32), 'MEMORY_MB': model.Inventory(
                65536)}, {'VCPU': 4, 'MEMORY_MB': 8192}, name=name))

    def instance(short, at, **more):
        uuid = loader.uuid_of(short)
        return model.Instance(uuid, at, **{
            'name': short, 'vcpus': 2, 'memory_mb': 4096, 'disk_gb': 20, 'local_disk_gb': 0,
            'project_id': 'c1' * 16, 'launched_at': 1_600_000_000.0, 'power_state': 1,
            'claims': {'VCPU': 2, 'MEMORY_MB': 4096}, 'allocations': {
                f'provider-{at}': {'VCPU': 2, 'MEMORY_MB': 4096}},
            'extra_specs': {}, 'image_properties': {}, **more})

    instances = [
        instance('a0', 'a', name=NAME), instance('a1', 'a'), instance('b0', 'b', name=NAME),
        instance('c0', 'c', pinned='its device cannot move'),
        instance('e0', 'e', contracts=CONTRACTS),
        *(instance(f'x{number}', 'b') for number in range(extra))]
    names = (*HOSTS, 'e')
    return model.Cluster(
        hosts={name: host(name) for name in names},
        instances={i.uuid: i for i in instances},
        services={name: model.Service(name, zone='nova', **(
            {'status': 'disabled', 'disabled_reason': 'new disks'} if name == 'd' else {}))
            for name in names},
        groups=(model.ServerGroup('9' * 36, model.GroupPolicy.ANTI_AFFINITY, frozenset(TWINS)),),
        aggregates={aggregate: HOSTS, 'other': ('e',)})


def end_move(store, uuid, from_host, to_host, state, error_type='MigrationFailed',
             quarantine_seconds=None, **fields):
    """Store a plan of one move that has ended in the given state; return its UUID."""
    now = store.now()
    plan_id, (task,), _plan = cases.save(store, [lambda plan_id, scope: cases.make_task(
        plan_id, scope, instance_uuid=uuid, from_host=from_host, to_host=to_host, alternates=(),
        not_before=now - 60, **fields)], now=now - 60)
    row = cases.claim(store, now=now - 50)
    assert row.task.task_id == task.task_id
    store.tasks.update_state(task.task_id, 'w', [row.task.state], TaskState.SUBMITTED, now - 45,
                             submitted_at=now - 45)
    cases.end(store, row, state, now - 40, error_type=None if state is TaskState.COMPLETED
              else error_type, quarantine_seconds=quarantine_seconds)
    return plan_id


class Publisher:
    """An engine with a cloud that a test changes between cycles."""

    def __init__(self, store, directory, cluster=None, dry_run=True, owner='engine', scope='blue'):
        self.store = store
        self.collector = test_engine.FakeCollector(cluster or make_cluster(scope))
        self.source = test_engine.FakeSource(
            time.time, {'a': 0.8, 'b': 0.3, 'c': 0.3, 'd': 0.0},
            {loader.uuid_of('a0'): 0.3, loader.uuid_of('a1'): 0.3, loader.uuid_of('b0'): 0.2,
             PINNED: 0.1})
        path = directory / 'policies.yaml'
        path.write_text(yaml.safe_dump({'policies': [{
            'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', 'vm_profile_query': 'vm',
            'vm_profile_label_type': 'nova_instance_uuid', 'max_migrations_per_cycle': 2}]}))
        self.conf = cfg.ConfigOpts()
        opts.register(self.conf)
        self.conf([], default_config_files=[])
        for name, value in {'policies_file': str(path), 'dry_run': dry_run, 'aggregates': [scope],
                            'include_unassigned_hosts': False, 'publish_interval': 5,
                            'evacuate_disabled_hosts': True, 'max_drain_fraction': 0.9,
                            'max_down_fraction': 0.9}.items():
            self.conf.set_override(name, value, 'engine')
        self.now = 1000.0
        self.engine = engines.Engine(
            self.conf, collector=self.collector, source=self.source, store=store, owner=owner,
            monotonic=lambda: self.now)

    def run_cycle(self):
        """Run a cycle, which publishes a version."""
        self.now += 60
        return self.engine.run_cycle()
