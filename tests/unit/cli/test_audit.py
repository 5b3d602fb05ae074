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

"""Every command is known either to change nothing or to leave an audit row."""

from importlib import metadata
import time

import pytest

from kronos_nova import model
from tests import commands
from tests.fixtures import stores
from tests.unit.rebalancer.store import cases

READS = {
    'campaign plan', 'campaign status', 'drain check', 'drain list', 'drain watch', 'explain move',
    'failover check', 'host list', 'instance show', 'pause list',
    'plan list', 'plan show', 'plugin list', 'policy lint', 'policy preset list',
    'policy preset show', 'policy test', 'quarantine list', 'report', 'simulate',
    'snapshot anonymise', 'status', 'task list', 'task show', 'weigh explain', 'weigh tune',
    'what-if', 'why-not', 'why-nothing'}
#: They ask Nova. The tests of the store and of drains look for their rows.
ASKS_NOVA = {'campaign start', 'drain start', 'drain stop', 'plan retry', 'plan revert', 'swap'}
#: test_campaign_orders looks for their rows.
CAMPAIGNS = {f'campaign {order}' for order in (
    'abort', 'done', 'pause', 'repeat', 'resume', 'skip')}
#: Command -> arguments, the command and the target in its row.
CHANGES = {
    'pause': ('--reason why', 'paused', 'everything'),
    'resume': ('', 'resumed', 'everything'),
    'plan approve': ('{plan}', 'approved', 'plan {plan}'),
    'plan reject': ('{plan} --reason why', 'rejected', 'plan {plan}'),
    'plan cancel': ('{queued_plan} --reason why', 'cancelled', 'plan {queued_plan}'),
    'quarantine lift': ('host h9', 'lifted', 'host h9'),
    'quarantine clear': ('host h9', 'lifted', 'host h9'),
    'task cancel': ('{task} --reason why', 'cancelled', 'task {task}'),
    'task resolve': ('{asked} --as failed --reason why', 'resolved', 'plan {asked_plan}')}


def test_every_command_is_in_one_of_the_lists():
    entries = metadata.entry_points(group='kronos_nova.cli')
    found = {entry.name.replace('_', ' ') for entry in entries}
    assert sorted(found) == sorted([*READS, *ASKS_NOVA, *CAMPAIGNS, *CHANGES])


@pytest.fixture
def where(tmp_path):
    """A database in which every command of CHANGES has something to change."""
    conf = tmp_path / 'kronos.conf'
    conf.write_text(f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n'
                    '[engine]\naggregates = blue\n')
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    now = time.time()

    def save(host, **fields):
        plan_id, (task,), _ = cases.save(store, [lambda p, s: cases.make_task(
            p, s, from_host=host, created_at=now, not_before=now, deadline=now + 3600,
            **fields)], now=now)
        return plan_id, task.task_id

    asked_plan, asked = save('h1')
    begun = cases.claim(store, now=now).task
    store.tasks.update_state(begun.task_id, 'w', [begun.state], model.TaskState.UNKNOWN, now)
    queued_plan, task = save('h3')
    plan, _ = save('h5', state=model.TaskState.PENDING)
    store.quarantine.count_refusal('h9', now, limit=1, seconds=3600, reason='No valid host')
    store.pauses.pause_scope(None, now, seconds=None, paused_by='breaker', reason='why')
    yield conf, store, {'plan': plan, 'queued_plan': queued_plan, 'task': task,
                        'asked': asked, 'asked_plan': asked_plan}
    store.close()


@pytest.mark.parametrize('command', CHANGES)
def test_a_command_that_changes_something_leaves_a_row(where, command):
    conf, store, names = where
    before = len(store.audit.list_newest_entries(99))
    arguments, verb, target = (text.format(**names) for text in CHANGES[command])
    done = commands.main('kronos_nova.cli.app', *command.split(), *arguments.split(),
                         '--config-file', conf)
    assert done.returncode == 0, done.stderr
    row, *others = store.audit.list_newest_entries(99)
    assert (row.command, row.target) == (verb, target) and len(others) == before
    assert '@' in row.by
