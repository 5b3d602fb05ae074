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

"""Policy rules for oslo.policy: three base rules, and one for each endpoint.

Plans and tasks name instances of all projects. So a role in any project is not enough: readers and
managers must have theirs in one of ``[kronos_api] operator_projects``. An administrator of any
project may do everything, as in Nova.
"""

from collections.abc import Iterator
import contextlib

from oslo_config import cfg
from oslo_context import context
from oslo_policy import policy
import yaml

from kronos_nova import exception
from kronos_nova.api import endpoints
from kronos_nova.api import handlers

ADMIN, MANAGER, READER = 'operator_admin', 'operator_manager', 'operator_reader'
#: Scope of the tokens that the rules admit.
SCOPES = ['project']
_BASE = {endpoints.Access.ADMIN: f'rule:{ADMIN}', endpoints.Access.MANAGER: f'rule:{MANAGER}',
         endpoints.Access.READER: f'rule:{READER}'}


def list_rules() -> list[policy.RuleDefault]:
    """Return the defaults of all rules, for the service and for oslopolicy-sample-generator."""
    handlers.load_handlers()
    rules = [
        policy.RuleDefault(ADMIN, 'role:admin',
                           description='An administrator of the cloud.'),
        policy.RuleDefault(
            MANAGER, f'rule:{ADMIN} or (role:manager and True:%(operator_project)s)',
            description='A manager in a project of [kronos_api] operator_projects.'),
        policy.RuleDefault(
            READER, f'rule:{MANAGER} or (role:reader and True:%(operator_project)s)',
            description='A reader in a project of [kronos_api] operator_projects.')]
    paths: dict[str, list[endpoints.Endpoint]] = {}
    for endpoint in endpoints.ENDPOINTS:
        paths.setdefault(endpoint.rule, []).append(endpoint)
    rules += [policy.DocumentedRuleDefault(
        rule, _BASE[same[0].access], same[0].handler_docstring.partition('\n')[0],
        [{'path': endpoint.path, 'method': endpoint.method} for endpoint in same],
        scope_types=SCOPES) for rule, same in paths.items()]
    return rules


def make_enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return the enforcer of the rules, with those of the operator's file in place of ours.

    It reads the file again when that changes.

    :raises PolicyRulesError: the file cannot be used.
    """
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    with _explain_file(conf):
        enforcer.load_rules()
        enforcer.check_rules(raise_on_violation=True)
    return enforcer


@contextlib.contextmanager
def _explain_file(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Raise PolicyRulesError with the file's name for each error of reading it."""
    try:
        yield
    except (policy.InvalidDefinitionError, cfg.Error, OSError, ValueError, AttributeError,
            yaml.YAMLError) as e:
        # oslo.policy takes any document for a mapping.
        problem = ('it is not a mapping of rules' if isinstance(e, AttributeError)
                   else ' '.join(str(e).split()))
        raise exception.PolicyRulesError(
            path=str(conf.oslo_policy.policy_file), field='policy rules', problem=problem,
            remedy='Correct the file; policy.yaml.sample has all rules') from None


def may_call(enforcer: policy.Enforcer, conf: cfg.ConfigOpts, rule: str,
             identity: context.RequestContext) -> bool:
    """Return whether the rule admits the identity.

    :raises PolicyRulesError: the file has changed and cannot be used any more.
    """
    target = {'operator_project': identity.project_id in conf.kronos_api.operator_projects}
    with _explain_file(conf):
        return bool(enforcer.authorize(rule, target, identity))
