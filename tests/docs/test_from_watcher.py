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

"""The page on coming from Watcher: its facts about Kronos are true, and it has every strategy."""

import re

import numpy as np
import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova import presets
from kronos_nova.conf import opts
from kronos_nova.rebalancer.strategies import drain_requests
from tests.docs import shown

PAGE = (shown.TOP / 'doc/source/admin/from-watcher.rst').read_text()
#: The entry points ``watcher_strategies`` of Watcher, less those for its tests.
STRATEGIES = {
    'actuator', 'basic', 'host_maintenance', 'node_resource_consolidation', 'noisy_neighbor',
    'outlet_temperature', 'saving_energy', 'storage_capacity_balance', 'uniform_airflow',
    'vm_workload_consolidation', 'workload_balance', 'workload_stabilization', 'zone_migration'}
#: Watcher's own names, and Nova's.
THEIRS = {'backup_node', 'disable_cold_migration', 'exclude', 'fqdn', 'parallel_per_node',
          'parallel_total', 'watcher_disabled', 'watcher_maintaining'}


def test_each_strategy_has_its_row():
    table = PAGE.split('\nStrategies\n')[1].split('\nStep by step\n')[0]
    rows = [name for cell in re.findall(r'^   \* - (``.*)$', table, re.MULTILINE)
            for name in re.findall(r'``(\w+)``', cell)]
    assert len(rows) == len(set(rows))
    assert set(rows) == STRATEGIES


def test_each_named_option_and_field_exists():
    known = {option.dest for _, options in opts.list_opts() for option in options}
    known |= {*policy.Policy.model_fields, *policy.PolicySet.model_fields}
    named = {re.split(r'[ :=]', text)[0] for text in re.findall(r'``([a-z_]+(?:[ :=][^`]*)?)``',
                                                              PAGE)}
    assert 'max_drain_fraction' in named and 'relief_threshold' in named
    words = {'kronos', 'openstack', 'optimize', 'spread', 'pack'}
    assert named - known - STRATEGIES - THEIRS - words == set()


def test_named_preset_packs():
    assert 'preset ``pack-inovex``' in PAGE
    assert 'mode: pack' in presets.read_preset('pack-inovex')


@pytest.mark.parametrize(('reason', 'drained'), [
    ('watcher_disabled', False), ('watcher_maintaining', False), ('CHG-17', True), ('', True)])
def test_documented_regex_skips_hosts_disabled_by_watcher(reason, drained):
    expression = re.search(r'^ +drain_reason_regex = (.*)$', PAGE, re.MULTILINE)[1]
    options = model.PlanningOptions(evacuate_disabled_hosts=True, drain_reason_regex=expression)
    service = model.Service(host='a', status='disabled', disabled_reason=reason)
    assert (drain_requests.find_drain_refusal(service, options) is None) is drained


def test_difference_is_at_least_twice_the_deviation():
    """Popoviciu: of values between a and b the deviation is (b - a) / 2 at most."""
    assert 'never below twice\n       the deviation' in PAGE
    values = np.random.default_rng(0).random((1000, 7))
    differences = values.max(axis=1) - values.min(axis=1)
    assert (differences >= 2 * values.std(axis=1)).all()
