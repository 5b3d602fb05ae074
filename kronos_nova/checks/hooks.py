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



"""The check of the hooks and the plan webhook: each can be used, and its service answers.

The check calls no hook and posts no event.
"""

from collections.abc import Iterator

from kronos_nova import exception
from kronos_nova import plugins
from kronos_nova.checks import base
from kronos_nova.conf import hooks
from kronos_nova.rebalancer.clients import connection
from kronos_nova.rebalancer.engine import plan_webhook

_BESIDE = 'or take it out of [hooks] enabled and on_request.'


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    if context.conf.plan_webhook.url:
        yield _check_plan_webhook(context)
    chosen = context.conf.hooks
    default = next(opt.default for opt in hooks.OPTS if opt.name == 'on_request')
    if not chosen.enabled and chosen.on_request == default:
        return
    for name in dict.fromkeys((*chosen.enabled, *chosen.on_request)):
        yield _check_hook(context, name, 'enabled' if name in chosen.enabled else 'on_request')


def _check_plan_webhook(context: base.CheckContext) -> base.CheckItem:
    title = 'plan webhook'
    try:
        problem = plan_webhook.PlanWebhook(context.conf).find_problem()
    except exception.ConfigError as e:
        return base.report_failure(title, f'{e.kwargs["field"]}: {e.kwargs["problem"]}',
                                   e.kwargs['remedy'])
    if problem is not None:
        return base.report_failure(title, problem,
                                   'See that it runs, and the options in [plan_webhook].')
    return base.report_ok(title, 'its program answers to OPTIONS; nothing was posted')


def _check_hook(context: base.CheckContext, name: str, option: str) -> base.CheckItem:
    title = f'hook: {name}'
    try:
        text = plugins.load_plugin(plugins.HOOKS, name).examine(
            context.conf, lambda: connection.make_connection(context.conf))
    except exception.PluginNotFound as e:
        return base.report_failure(title, f'[hooks] {option} names it: {e}',
                                   'Correct the name, install '
                                                                   f'its package, {_BESIDE}')
    except exception.ConfigError as e:
        return base.report_failure(title, f'{e.kwargs["field"]}: {e.kwargs["problem"]}',
                                   e.kwargs['remedy'])
    except exception.KronosException as e:
        return base.report_failure(title, f'the hook {e}',
                                   f'See that it runs, and the options in [hook_{name}].')
    except Exception as e:  # a hook of a third party may raise anything
        return base.report_failure(title, f'it cannot be loaded or made ({type(e).__name__}: {e})',
                                   f'Ask its author, {_BESIDE}')
    return base.report_ok(title, f'{option}: {text}')
