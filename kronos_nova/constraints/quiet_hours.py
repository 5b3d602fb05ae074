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

"""Drains that wait for an hour in which an instance writes less memory."""

from kronos_nova import model
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views
from kronos_nova.text import times

_MIB = 1024.0 * 1024.0


def quieter_hour(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a live move of a drain whose instance waits for a quieter hour.

    The planner has chosen the hour. An executor knows of none, so it holds no task.
    """
    wait = view.find_quiet_wait(move.instance_uuid)
    if (wait is None or move.phase is not model.Phase.EVACUATE
            or offline_drains.is_admitted(view, move)):
        return None
    why = ('it waits until then at most for its rates of the last day'
           if wait.quiet_rate is None else
           f'in that hour it wrote {_format_rate(wait.quiet_rate)} at most a day before')
    return model.Rejection(
        'quieter-hour',
        f'instance {move.instance_uuid} writes {_format_rate(wait.rate_now)} of memory now, and '
        f'its drain waits until {times.format_time(wait.until)}: {why}')


def _format_rate(rate: float) -> str:
    return f'{rate / _MIB:.1f} MiB/s'


QUIETER_HOUR_RULE = rules.Rule(
    quieter_hour, kind=rules.RuleKind.ALONE,
    codes={
        'quieter-hour': rules.RejectionCode(
            meaning='It writes too much memory for a live migration now, and its drain waits for a '
                    'quieter hour; only when planning.',
            remedy='the hour comes, or [engine] drain_quiet_wait, counted from the begin of the '
                   'drain, is over; an earlier deadline of the drain shortens the wait',
            retry=rules.RetryClass.PASSING)})
