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

"""The configuration of the simulated rebalancer, and its policy files."""

import functools
import os
import tempfile

from oslo_config import cfg

from kronos_nova.conf import opts
from tests.simulation.world import cloud
from tests.simulation.world import prometheus

_POLICY = """policies:
- name: cpu
  weight: 1.0
  imbalance_query: {query}
  vm_profile_query: {profile}
  vm_profile_label: uuid
  vm_profile_label_type: nova_instance_uuid
  vm_profile_unit: absolute
  host_capacity: VCPU
  age_query: {age}
  threshold: {threshold}
  max_migrations_per_cycle: {moves}
"""


def _policies(threshold: float, moves: int) -> str:
    return _POLICY.format(query=prometheus.QUERY, profile=prometheus.PROFILE,
                          age=prometheus.AGE, threshold=threshold, moves=moves)


#: Policy files by the budget that they give.
#: No scope is balanced.
CALM = _policies(0.9, 2)
POLICIES = {1: _policies(0.07, 1), 2: _policies(0.08, 2), 3: _policies(0.06, 3)}

#: Drawn by each run: of a scope, the cloud, a source, a destination.
CAPS = ('max_concurrent_migrations', 'max_concurrent_migrations_total',
        'max_concurrent_per_source', 'max_concurrent_per_destination')

OPTIONS = {
    'engine': {
        'dry_run': False, 'evaluation_interval': 50, 'aggregates': [cloud.AGGREGATE],
        'include_unassigned_hosts': True, 'evacuate_disabled_hosts': True,
        'enforce_hard_affinity': True, 'instance_storage': 'shared', 'cooldown': 90,
        'instance_cooldown': 150, 'instance_quarantine_seconds': 1800, 'settle_seconds': 20,
        'max_drain_fraction': 0.5, 'max_down_fraction': 0.5, 'breaker_failure_rate': 1.0,
        # No process of the simulation reads them, and each is another place for a fault.
        'publish_interval': 0},
    'executor': {
        'migration_timeout': 60, 'seconds_per_gib': 0.0, 'migration_poll_interval': 8,
        'claim_seconds': 40, 'stagger_seconds': 25, 'max_retries': 1, 'retry_backoff': 5.0,
        'scheduler_instance_sync_interval': int(cloud.SYNC)},
    'prometheus': {'url': 'http://prometheus:9090'},
}


@functools.cache
def directory() -> 'tempfile.TemporaryDirectory[str]':
    return tempfile.TemporaryDirectory(prefix='kronos-simulation-')


@functools.cache
def conf(number: int) -> cfg.ConfigOpts:
    """The configuration of the engine of that number; the first one's is also
    the executors'."""
    configuration = cfg.ConfigOpts()
    opts.register(configuration)
    configuration([], default_config_files=[])
    for group, values in OPTIONS.items():
        for name, value in values.items():
            configuration.set_override(name, value, group)
    configuration.set_override('policies_file', policies_file(number), 'engine')
    return configuration


def policies_file(number: int) -> str:
    return os.path.join(directory().name, f'policies-{os.getpid()}-{number}.yaml')
