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

"""[engine] scope_mode and scope_min_approvals: valid and refused values."""

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import policy
from kronos_nova.conf import engine
from kronos_nova.conf import opts
from kronos_nova.conf import scope_mode
from kronos_nova.rebalancer.planning import planning_settings


def configuration(tmp_path, text):
    path = tmp_path / 'kronos.conf'
    path.write_text(f'[engine]\n{text}')
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf(['--config-file', str(path)])
    return conf


@pytest.mark.parametrize('text', ['rack-1', 'rack-1:', ':approve', 'rack-1:perhaps', ''])
def test_an_invalid_mode_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match='rack-1:approve'):
        scope_mode.ScopeModeType()(text)


def test_a_scope_may_have_colons_in_its_name(tmp_path):
    conf = configuration(tmp_path, 'aggregates = a:b, c\nscope_mode = a:b : approve\n'
                                   'scope_mode = _unassigned_:approve\n')
    assert [engine.needs_approval(conf, scope) for scope in ('a:b', 'a', 'c', '_unassigned_')] == [
        True, False, False, True]
    kind = scope_mode.ScopeModeType()
    assert kind._formatter(conf.engine.scope_mode[0]) == 'a:b:approve'
    assert kind(conf.engine.scope_mode[0]) == conf.engine.scope_mode[0]


@pytest.mark.parametrize('text', ['rack-1', 'rack-1:', ':2', 'rack-1:0', 'rack-1:11', 'rack-1:two',
                                  'rack-1:-1', 'rack-1:2.0', 'rack-1:\u00b2', ''])
def test_an_invalid_number_of_approvals_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match='rack-1:2'):
        scope_mode.ScopeApprovalsType()(text)


def test_each_scope_may_want_more_approvals(tmp_path):
    conf = configuration(tmp_path, 'aggregates = a:b, c, d\nmode = approve\nmin_approvals = 2\n'
                                   'scope_min_approvals = a:b : 3\nscope_mode = d:auto\n'
                                   'scope_min_approvals = d:4\nscope_min_approvals = a:b:1\n')
    assert [engine.count_needed_approvals(conf, scope) for scope in ('a:b', 'c', 'd')] == [1, 2, 0]
    kind = scope_mode.ScopeApprovalsType()
    assert kind._formatter(conf.engine.scope_min_approvals[0]) == 'a:b:3'
    assert kind(conf.engine.scope_min_approvals[0]) == conf.engine.scope_min_approvals[0]


def test_a_misspelt_scope_that_wants_more_approvals_is_refused(tmp_path):
    policies = policy.PolicySet.model_validate({'policies': [
        {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu'}]})
    conf = configuration(tmp_path, 'aggregates = rack-1\nscope_min_approvals = rakc-1:2\n')
    with pytest.raises(exception.ConfigError, match='scope_min_approvals.*no aggregate rakc-1'):
        planning_settings.list_planned_scopes(conf, policies)


def test_a_scope_that_is_misspelt_is_not_carried_out_unasked(tmp_path):
    policies = policy.PolicySet.model_validate({'policies': [
        {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu'}]})
    conf = configuration(tmp_path, 'aggregates = rack-1\nscope_mode = rakc-1:approve\n')
    with pytest.raises(exception.ConfigError, match='scope_mode.*no aggregate rakc-1') as e:
        planning_settings.list_planned_scopes(conf, policies)
    assert '_unassigned_' in str(e.value)
