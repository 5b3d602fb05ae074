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

"""Settings of a pass from the configuration: its scopes, and how they are planned."""

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import policy as policies
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline


def list_planned_scopes(conf: cfg.ConfigOpts, policy_set: policies.PolicySet) -> list[str]:
    """List the scopes that this engine plans: aggregates, then the pool of hosts in none.

    :raises ConfigError: neither is configured, or an option names a wrong scope.
    """
    names = list(dict.fromkeys(conf.engine.aggregates))
    if model.UNASSIGNED in names:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] aggregates',
            problem=f'{model.UNASSIGNED} stands for the hosts in no aggregate',
            remedy='Set include_unassigned_hosts = true for these; rename an aggregate that '
                   'really bears that name.')
    # With a misspelt name a scope's plans would be carried out without approval, or with too few.
    for option, scope_setting in (
            *(('scope_mode', setting) for setting in conf.engine.scope_mode or ()),
            *(('scope_min_approvals', setting)
              for setting in conf.engine.scope_min_approvals or ())):
        if scope_setting.scope not in (*names, model.UNASSIGNED):
            raise exception.ConfigError(
                path='kronos.conf', field=f'[engine] {option}',
                problem=f'no aggregate {scope_setting.scope} is planned',
                remedy=f'Name one of [engine] aggregates, or {model.UNASSIGNED}.')
    if conf.engine.include_unassigned_hosts:
        names.append(model.UNASSIGNED)
    if policy_set.aggregates:
        names = [n for n in names if n in policy_set.aggregates]
    if not names:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] aggregates', problem='there is nothing to plan',
            remedy='Name aggregates that the policy file is for, or set '
                   'include_unassigned_hosts = true.')
    return names


def build_settings(conf: cfg.ConfigOpts,
                   policy_set: policies.PolicySet) -> planning_pipeline.PassSettings:
    """Build the settings of a pass from the configuration.

    :raises PluginNotFound: a strategy of Kronos is not installed.
    """
    strategies = [plugins.load_plugin(plugins.STRATEGIES, name)() for name in strategy_names()]
    return planning_pipeline.PassSettings(
        policies=policy_set, options=engine_conf.build_options(conf), strategies=strategies,
        staleness=conf.prometheus.staleness_threshold, require_age=conf.engine.require_age,
        deadline=conf.engine.planning_deadline,
        instance_cooldown=conf.engine.instance_cooldown)


def strategy_names() -> list[str]:
    """List the strategies of Kronos in their order, then all other installed ones by name."""
    others = sorted(set(plugins.list_names(plugins.STRATEGIES)) - set(planner.ORDER))
    return [*planner.ORDER, *others]
