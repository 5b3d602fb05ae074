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


"""What an operator sees, from the first look to the undoing, word for word.

The commands read a real Nova, for which an engine plans in ``mode = approve``; the test compares
their output with the recording. KRONOS_RECORD=1 writes a new recording; read the difference
before you commit it.
"""

import difflib
import os
from pathlib import Path
import pwd
import re
import shlex
import socket

import fixtures

from kronos_nova.rebalancer.operations import cloud_state
from tests.functional import test_tools

RECORDED = Path(__file__).with_name('recorded.txt')
UUID = re.compile(r'\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b')
#: What differs each time, and what stands for it.
VARYING = (
    # A command prints this on a slow machine only; test_sessions holds when.
    (re.compile(re.escape(cloud_state.READING) + '\n'), ''),
    (re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?\+00:00'), 'TIME'),
    (re.compile(r'HOST:UUID\d+:\d+:UUID\d+'), 'ENGINE'),
    (re.compile(r'http://127\.0\.0\.1:\d+[\w/.]*'), 'URL'),
    (re.compile(r'\b\d+(?:\.\d+)? (s|MiB/s)\b'), r'N \1'),
    (re.compile(r'^(\| Seconds +\| )[\d.]+', re.MULTILINE), r'\1N'),
    (re.compile(r'-{3,}'), '---'),
    (re.compile(r' {2,}'), ' '),
    (re.compile(r' +$', re.MULTILINE), ''),
)


class TestRecorded(test_tools.ToolsCase):
    maxDiff = None

    def setUp(self) -> None:
        super().setUp()
        # Wrapped lines would depend on the lengths of names that differ each time.
        self.useFixture(fixtures.EnvironmentVariable('CLIFF_MAX_TERM_WIDTH', '10000'))
        self.said: list[str] = []
        self.names: dict[str, str] = {}
        self.engine_options('mode = approve', 'evacuate_disabled_hosts = true')
        for name, value in {'mode': 'approve', 'evacuate_disabled_hosts': True}.items():
            self.conf.set_override(name, value, 'engine')

    def engine_options(self, *lines: str) -> None:
        with open(self.config) as f:
            text = re.sub('sustain_for = .*\n', '', f.read().replace(
                'dry_run = true', 'dry_run = false'))
        with open(self.config, 'w') as f:
            f.write(text.replace('[engine]', '\n'.join(['[engine]', *lines])))

    def say(self, line: str, **uuids: str) -> str:
        """Run ``kronos LINE`` and keep its output.

        :param uuids: by the name that stands for each in the line.
        """
        self.names.update({uuid: name for name, uuid in uuids.items()})
        known = {name: uuid for uuid, name in self.names.items()}
        done = self.kronos(*(known.get(word, word) for word in shlex.split(line)))
        self.assertNotIn('Traceback', done.stderr)
        status = f'[exit status {done.returncode}]\n' if done.returncode else ''
        self.said.append(f'$ kronos {line}\n{self.plain(done.stdout)}{self.plain(done.stderr)}'
                         f'{status}')
        return done.stdout

    def plain(self, text: str) -> str:
        for uuid in UUID.findall(text):
            self.names.setdefault(uuid, f'UUID{len(self.names)}')
        text = UUID.sub(lambda found: self.names[found[0]], text)
        here = re.escape(socket.gethostname())
        text = text.replace(self.directory, 'DIR').replace(self.policies_file, 'policies.yaml')
        user = re.escape(pwd.getpwuid(os.getuid()).pw_name)
        text = re.sub(rf'\b{user}@{here}(?![\w-])(?: \(not authenticated: [^)]*\))?',
                      'USER@HOST', text)
        # An engine's name, as it stands in its lease.
        text = re.sub(rf'(?<![\w-]){here}(?=:UUID)', 'HOST', text)
        for varying, name in VARYING:
            text = varying.sub(name, text)
        return text

    def test_command_output_matches_recording(self) -> None:
        self.boot_and_load()
        self.look()
        self.order_a_campaign()
        self.decide()
        self.stop_and_go_on()
        self.undo()
        self.fail_for_once()
        said = '\n'.join(self.said)
        if os.environ.get('KRONOS_RECORD'):
            RECORDED.write_text(said)
        self.assertEqual([], list(difflib.unified_diff(
            RECORDED.read_text().splitlines(), said.splitlines(), 'recorded', 'now', lineterm='')))

    def boot_and_load(self) -> None:
        group = self.server_group('pair', 'anti-affinity')
        servers = self.servers = [self.boot(host=host, hints={'group': group['id']})
                   for host in ('host1', 'host2')]
        self.names = {servers[0]['id']: 'INSTANCE', servers[1]['id']: 'OTHER',
                      group['id']: 'GROUP'}
        self.admin_api.put_server(servers[0]['id'], {'server': {'name': '<b>{0}%s'}})
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1},
                  {servers[0]['id']: 0.35, servers[1]['id']: 0.1})

    def look(self) -> None:
        self.say('status')
        self.say('host list')
        self.say('instance show INSTANCE')
        self.say('why-nothing')
        self.say('why-not INSTANCE host2')
        self.say('why-not INSTANCE host3')
        self.say('what-if --drain host1 --add-host 1=host2')
        self.say('drain check host1')
        self.say('campaign plan host1 host2')
        self.say('failover check')
        self.say('policy test')
        for wrong in ('why-not INSTANCE host4', 'instance show OTHERS', 'plan show PLANS',
                      'task show TASKS', 'host list --scope slow', 'plan list --scope slow',
                      'drain check hots1', 'what-if --drain hots1', 'campaign plan hots1',
                      'plan approve PLANS', 'plan revert PLANS --reason x',
                      'explain move TASKS', 'pause',
                      'quarantine clear instance OTHERS', 'resume --scope slow', 'plam list'):
            self.say(wrong)

    def order_a_campaign(self) -> None:
        """No engine of this test carries it out."""
        self.say('campaign start host1 host2 --together 1 --reason "new firmware" '
                 '--window "Sat 22:00-04:00"')
        self.say('campaign status')
        for wrong in ('start host3 --reason more', 'start hots1 --reason x',
                      'start host3 --reason x --window "Sut 1:00-2:00"',
                      'done host1', 'done host4'):
            self.say(f'campaign {wrong}')
        self.say('why-not INSTANCE host2')
        self.say('campaign pause --reason "a storm"')
        self.say('campaign abort --reason "the wrong hosts"')
        self.say('campaign status')

    def decide(self) -> None:
        self.conf.set_override('sustain_for', 600, 'engine')
        self.engine_options('sustain_for = 600')
        self.say('why-nothing')
        self.plan()
        self.say('why-not INSTANCE host3')
        self.conf.set_override('sustain_for', 0, 'engine')
        self.engine_options('sustain_for = 0')
        self.plan()
        plan = self.store.plans.list_plans()[0]
        (row,) = self.store.tasks.list_plan_tasks(plan.plan_id)
        self.say('status')
        self.say('plan list')
        self.say('plan show PLAN', PLAN=plan.plan_id, TASK=row.task.task_id)
        self.say('task list')
        self.say('why-nothing')
        self.say('instance show INSTANCE')
        self.say('explain move TASK')
        self.say('drain check host1')
        self.say('what-if --drain host1')
        self.say('plan approve PLAN --move OTHER')
        self.say('plan approve PLAN --reason "after a look"')
        self.say('plan approve PLAN')
        self.work()
        self.load({'host1': 0.45, 'host2': 0.5, 'host3': 0.45},
                  {self.servers[0]['id']: 0.35, self.servers[1]['id']: 0.1})
        self.say('task list')
        self.say('task show TASK')
        self.say('plan show PLAN')
        self.say('explain move TASK')
        self.say('instance show INSTANCE')

    def stop_and_go_on(self) -> None:
        self.say('pause --reason "a new switch" --for 2h')
        self.say('pause list')
        self.say('why-nothing')
        self.say('plan revert PLAN --reason "slower since"')
        self.say('resume')
        self.say('quarantine list')

    def undo(self) -> None:
        self.say('plan revert PLAN --reason "slower since" --dry-run')
        self.say('plan revert PLAN --reason "slower since"')
        plan = self.store.plans.list_plans()[0]
        (row,) = self.store.tasks.list_plan_tasks(plan.plan_id)
        self.say('plan show UNDONE', UNDONE=plan.plan_id, BACK=row.task.task_id)
        self.say('task cancel BACK --reason "it is faster again"')
        self.say('plan list')

    def fail_for_once(self) -> None:
        """Nova has no such aggregate: cycles of the scope come to no plan."""
        self.conf.set_override('aggregates', ['ghost'], 'engine')
        self.store.executors.record_heartbeat('executor-1', ['ghost'])
        self.engine.run_cycle()
        self.say('status')
