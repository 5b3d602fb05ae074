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


"""The check of kronos.conf: each option admits its value, and each name is known."""

from collections.abc import Iterator
import time

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova.checks import base
from kronos_nova.conf import contracts
from kronos_nova.conf import messaging
from kronos_nova.conf import option_names
from kronos_nova.conf import opts
from kronos_nova.text import times

#: Seconds after which a deadline of a maintenance is taken as forgotten.
FORGOTTEN_SECONDS = 7 * 86400.0


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    conf = context.conf
    wrong = opts.wrong_values(conf)
    for error in wrong:
        yield base.report_failure(f'options: {error.kwargs["field"]}',
                                  f'{error.kwargs["path"]}: {error.kwargs["problem"]}',
                                  error.kwargs['remedy'])
    if not wrong:
        files = ', '.join(conf.config_file or ()) or 'no file, defaults'
        yield base.report_ok('options', f'{files}; dry_run = {str(conf.engine.dry_run).lower()}')
        ignored = conf.contracts.ignore_after
        if ignored is not None and ignored < time.time() - FORGOTTEN_SECONDS:
            yield base.report_warning(
                'options: [contracts] ignore_after',
                f'{times.format_time(ignored)} is long past: since then contracts and opt-outs of '
                'tenants have held neither drains nor requested moves',
                'Take it away after the maintenance.')
        if (conf.contracts.file and not conf.plan_webhook.url
                and not conf.messaging.plan_notifications and _asks_for_notice(conf)):
            yield base.report_warning(
                'options: [contracts] file',
                'it asks for notice before moves (notify), and no listener gets the notices',
                'Set [plan_webhook] url or [messaging] plan_notifications, or let a program read '
                '/v1/events of kronos-api.')
        if conf.engine.drain_offline != 'never' and not (
                conf.executor.abort_at_deadline or conf.executor.drain_escalation):
            yield base.report_warning(
                'options: [engine] drain_offline',
                'by this configuration executors end no live migration at its deadline, so no '
                'instance is shut down',
                'Set [executor] abort_at_deadline or drain_escalation where executors run.')
        if messaging.transport_url(conf) is not None:
            yield base.report_warning('options: [messaging]', 'it is deprecated',
                                      'Set transport_url in [DEFAULT]: it takes several hosts and '
                                      'TLS.')
    for path, finding in option_names.judge_files(option_names.read_files(conf)):
        judged = base.report_failure if finding.certain else base.report_warning
        what, _, remedy = finding.text.rstrip('.').rpartition('. ')
        yield judged(f'options: {finding}', f'{path}: {what}', f'{remedy}.')


def _asks_for_notice(conf: cfg.ConfigOpts) -> bool:
    """Return whether the file of contracts has a notice; not if it cannot be read."""
    try:
        stated = contracts.load_project_contracts(conf)
    except exception.ConfigError:
        return False
    return any(each is not None and each.notify is not None
               for each in (stated.default, *stated.projects.values()))
