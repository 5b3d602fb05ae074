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

from oslo_config import cfg
import pytest

from kronos_nova.conf import opts


def _conf():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    return conf


def test_an_override_stays_in_its_own_configuration():
    one, two = _conf(), _conf()
    one.set_override('evacuate_disabled_hosts', True, 'engine')
    assert two.engine.evacuate_disabled_hosts is False
    assert _conf().engine.evacuate_disabled_hosts is False


def test_registering_twice_changes_nothing():
    conf = _conf()
    opts.register(conf)
    assert conf.engine.evaluation_interval == 60


@pytest.mark.parametrize('regex', ['(', 'x{9999999999}', '(' * 2000 + ')' * 2000])
def test_a_broken_drain_reason_regex_is_named_at_the_start(regex):
    conf = _conf()
    conf.set_override('drain_reason_regex', regex, 'engine')
    assert ['[engine] drain_reason_regex'] == [e.kwargs['field'] for e in opts.wrong_values(conf)]


@pytest.mark.parametrize(('steps', 'resets', 'is_refused'), [
    ([], False, False), (['force-complete'], False, True), (['force-complete'], True, False)])
def test_step_against_a_migration_needs_a_reset_of_the_state(steps, resets, is_refused):
    """A migration that does not arrive after its step is aborted."""
    conf = _conf()
    conf.set_override('drain_escalation', steps, 'executor')
    conf.set_override('reset_state_after_abort', resets, 'executor')
    found = opts.wrong_values(conf)
    assert [e.kwargs['field'] for e in found] == ['[executor] drain_escalation'] * is_refused


@pytest.mark.parametrize(('steps', 'per_gib', 'arrival', 'is_refused'), [
    (['force-complete'], 0.0, 600, True), (['force-complete'], 0.0, 599, False),
    (['force-complete'], 50.0, 700, True), (['force-complete'], 50.0, 699, False),
    ([], 0.0, 600, False)])
def test_step_comes_before_the_deadline_of_its_task(steps, per_gib, arrival, is_refused):
    conf = _conf()
    for name, value in (('drain_escalation', steps), ('reset_state_after_abort', True),
                        ('migration_timeout', 600), ('seconds_per_gib', per_gib),
                        ('drain_arrival_seconds', arrival)):
        conf.set_override(name, value, 'executor')
    found = opts.wrong_values(conf)
    assert [e.kwargs['field'] for e in found] == ['[executor] drain_arrival_seconds'] * is_refused


@pytest.mark.parametrize(('collect_timeout', 'timeout', 'is_refused'), [
    (120, None, False), (720, None, False), (721, None, True), (600, 100, False), (600, 101, True)])
def test_timeouts_that_outlast_the_step_of_an_executor_are_refused(
        collect_timeout, timeout, is_refused):
    conf = _conf()
    conf.set_override('collect_timeout', collect_timeout, 'nova')
    conf.set_override('timeout', timeout, 'nova')
    found = opts.wrong_values(conf)
    assert [e.kwargs['field'] for e in found] == ['[nova] collect_timeout'] * is_refused
    assert all('Lower one:' in str(e) for e in found)


@pytest.mark.parametrize(('seconds', 'is_refused'), [(29, True), (30, False)])
def test_claims_shorter_than_a_renewal_may_take_are_refused(tmp_path, seconds, is_refused):
    path = tmp_path / 'kronos.conf'
    path.write_text(f'[executor]\nclaim_seconds = {seconds}\n')
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[str(path)])
    assert [e.kwargs['field'] for e in opts.wrong_values(conf)] == (
        ['[executor] claim_seconds'] * is_refused)
