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

"""Every option of the planner reaches the planner."""

import dataclasses

from oslo_config import cfg
import pytest

from kronos_nova import conf as config
from kronos_nova import model
from kronos_nova.conf import contracts
from kronos_nova.conf import engine

#: Of another kind than their default shows, or with choices.
OTHERS = {'objective': 'kronos', 'instance_storage': 'local', 'enforce_placement_disk': True,
          'max_missing_hosts': 7, 'drain_mode': 'scatter', 'failover': 'warn',
          'drain_offline': 'allow', 'drain_quiet_wait': 7200,
          'nova_prefilters': ['enable_isolated_aggregate_filtering']}


def changed(default):
    """A value of its kind that differs."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, (list, tuple)):
        return ['11111111-1111-4111-8111-111111111111']
    if isinstance(default, (int, float)):
        return default + 1 if default >= 1 else default / 2
    return f'{default}x'


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    for module in (engine, contracts):
        config.register(found, module.GROUP, module.OPTS)
    found([])
    return found


@pytest.mark.parametrize('name', sorted(
    {f.name for f in dataclasses.fields(model.PlanningOptions)} - engine.NOT_SET - {'contracts'}))
def test_the_planner_reads_each_option_that_an_operator_sets(name, conf):
    before = getattr(engine.build_options(conf), name)
    value = OTHERS.get(name, changed(conf.engine[name]))
    conf.set_override(name, value, 'engine')
    after = getattr(engine.build_options(conf), name)
    assert after != before
    assert after == (frozenset(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(('name', 'value', 'read'), [
    ('strongest_for_tenants', 'live', model.Disruption.LIVE),
    ('ignore_after', '2026-11-01T22:00:00Z', 1793570400.0),
    ('opt_out', 'drain-only', model.Disruption.DRAIN_ONLY),
    ('timezone', 'Europe/Berlin', 'Europe/Berlin')])
def test_the_planner_reads_each_option_of_contracts(name, value, read, conf):
    assert getattr(engine.build_options(conf).contracts, name) != read
    conf.set_override(name, value, 'contracts')
    assert getattr(engine.build_options(conf).contracts, name) == read


def test_options_made_by_hand_have_the_defaults_of_the_configuration(conf):
    """Which filters Nova has is a fact about Nova: options made by hand name none."""
    assert dataclasses.replace(
        engine.build_options(conf), nova_enabled_filters=frozenset()) == model.PlanningOptions()


def test_internal_planning_fields_are_not_options(conf):
    assert [name for name in engine.NOT_SET if name in conf.engine] == []
    assert engine.build_options(conf).overbooking is model.PlanningOptions().overbooking
