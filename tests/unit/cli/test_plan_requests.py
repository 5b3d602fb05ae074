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

"""What kronos plan retry and revert, and kronos swap, say about their plan."""

import argparse
import contextlib

from kronos_nova.cli import plan_requests
from kronos_nova.rebalancer.operations import plan_requests as operation


def test_warnings_of_the_plan_are_lines_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr(operation, 'retry_plan', lambda *args, **fields: operation.RepeatResult(
        (operation.RepeatRow('u', 'a', 'b', 'wave 0'),), 'p', warnings=('after\nthis', 'plan')))
    command = plan_requests.RetryPlan(None, argparse.Namespace())
    monkeypatch.setattr(command, 'open_session', lambda *_: contextlib.nullcontext())
    rows = command.render_rows(argparse.Namespace(
        plan='p', move=[], partly=False, dry_run=False, reason='why'))
    said = capsys.readouterr()
    assert said.err.splitlines()[:2] == ['Warning: after this', 'Warning: plan']
    assert said.out == '' and list(rows) == [('u', 'a', 'b', 'wave 0', '')]
