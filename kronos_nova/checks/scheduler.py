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


"""The check of nova-scheduler's policy files, when its nova.conf is given too."""

from collections.abc import Iterator

from kronos_nova.checks import base
from kronos_nova.conf import scheduler


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    conf = context.conf
    scheduler.register(conf)
    if not scheduler.is_configured(conf):
        return
    errors, doubts = scheduler.check_policy_files(conf)
    for error in errors:
        yield base.report_failure('scheduler', f'{error.kwargs["path"]}: {error.kwargs["field"]}: '
                                       f'{error.kwargs["problem"]}', error.kwargs['remedy'])
    for doubt in doubts:
        text, _, remedy = doubt.partition('. ')
        yield base.report_warning('scheduler', text, remedy)
    if not errors and not doubts:
        yield base.report_ok('scheduler', ', '.join(conf.kronos.policies_file)
                             + '; kronos_weight_multiplier = '
                               f'{conf.filter_scheduler.kronos_weight_multiplier:g}')
