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


"""The commands that come and go, as processes, against a real Nova."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from typing import Any
import uuid

import fixtures
import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer import operations
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.executors import authorized_executor
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import tables
from tests import commands
from tests import marks
from tests.docs import shown as docs
from tests.functional import api
from tests.functional import test_first_light


class ToolsCase(test_first_light.RebalancedTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.config = os.path.join(self.directory, 'kronos.conf')
        self.configure_tools()

    def configure_tools(self, nova: str | None = None, aggregates: str = '') -> None:
        """Write kronos.conf; ``nova``: another URL than the real one's."""
        with open(self.config, 'w') as f:
            f.write(f'''
[engine]
dry_run = true
policies_file = {self.policies_file}
hypervisor_types = fake
settle_seconds = 0
instance_cooldown = 0
aggregates = {aggregates}
[prometheus]
url = {self.prometheus.url}
max_retries = 0
[database]
connection = {self.store.engine.url.render_as_string(hide_password=False)}
[nova]
auth_type = admin_token
endpoint = {nova or self.nova_api.url}
token = fake
endpoint_override = {nova or self.nova_api.url}
placement_endpoint_override = {self.placement_api.url}
''')

    def run_tool(self, name: str, *arguments: str) -> 'subprocess.CompletedProcess[str]':
        return commands.main(f'kronos_nova.cmd.{name}', '--config-file', self.config, *arguments,
                             timeout=180)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user whose home has the configuration that commands read."""
        return {**os.environ, 'HOME': self.directory}

    def documented(self, names: Sequence[str], words: Mapping[str, str], but: str = '',
                   ) -> Iterator[tuple[str, 'subprocess.CompletedProcess[str]']]:
        """Run the named commands that blocks of the documentation show, in their order.

        :param words: replacement by word of a command.
        :param but: leave out commands with this word.
        """
        found = [(name, arguments) for _page, command in docs.blocks()
                 if command.startswith('kronos ')
                 for name, arguments in [docs.split(command)]
                 if name in names and but not in arguments]
        self.assertEqual(set(names), {name for name, _ in found})
        for name, arguments in found:
            # A new interpreter: some of them load Nova.
            done = subprocess.run(
                [sys.executable, '-W', 'ignore', '-c',
                 'import sys; from kronos_nova.cli.app import main; sys.exit(main())',
                 *name.split(), *(words.get(word, word) for word in arguments)],
                cwd=self.directory, timeout=180, capture_output=True, text=True, check=False,
                env={'PYTHONPATH': str(docs.TOP), **{
                    name: value for name, value in self.environment.items()
                    if name != 'OS_NOVA_DISABLE_EVENTLET_PATCHING'}})
            self.assertNotIn('Traceback', done.stderr)
            yield name, done

    def ask(self, *arguments: str) -> 'subprocess.CompletedProcess[str]':
        """A subcommand of kronos, for JSON."""
        return self.kronos(*arguments, '-f', 'json')

    def kronos(self, *arguments: str) -> 'subprocess.CompletedProcess[str]':
        return commands.main('kronos_nova.cli.app', *arguments, '--config-file', self.config,
                             timeout=180)


class TestRecordAndReplay(ToolsCase):

    def record(self) -> str:
        done = self.run_tool('record', self.directory)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.strip()

    @marks.turns(12)
    def test_replay_plans_what_the_engine_plans(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        snapshot = self.record()
        self.prometheus.stop()
        planned = self.plan_offline(snapshot)
        self.prometheus.restart()
        live = self.plan()
        self.assertEqual(live['moves'], planned['moves'])
        self.assertEqual([server['id']], [m['instance_uuid'] for m in planned['moves']])
        for key in ('combined_before', 'combined_after', 'rejections', 'hosts', 'instances'):
            self.assertEqual(live[key], planned[key])

    def plan_offline(self, snapshot: str) -> dict[str, Any]:
        done = self.run_tool('replay', snapshot, '--format', 'json')
        self.assertEqual(0, done.returncode, done.stderr)
        row: dict[str, Any] = json.loads(done.stdout)['aggregates'][0]
        return row

    @marks.turns(3)
    def test_snapshot_holds_cloud_and_is_readable_by_owner_only(self) -> None:
        self.aggregate('rack1', 'host1')
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        snapshot = self.record()
        self.assertEqual(0o700, stat.S_IMODE(os.stat(snapshot).st_mode))
        found = reader.read_snapshot(snapshot)
        self.assertEqual({'host1', 'host2', 'host3'}, set(found.cluster.hosts))
        self.assertEqual(('host1',), found.cluster.aggregates['rack1'])
        self.assertEqual((model.UNASSIGNED,), found.scopes)
        provider = found.cluster.hosts['host1'].provider
        assert provider is not None
        self.assertEqual(found.cluster.instances[server['id']].claims,
                         {k: v for k, v in provider.used.items() if v})

    @marks.turns(12)
    def test_unreachable_services_are_recorded_as_unknown(self) -> None:
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {})
        self.configure_tools(nova=self.closed_port())
        self.prometheus.stop()
        done = self.run_tool('record', self.directory)
        self.assertEqual(1, done.returncode)
        self.assertNotIn('Traceback', done.stderr)
        self.assertIn('recorded as unknown: Nova', done.stderr)
        self.assertIn('imbalance_query', done.stderr)
        replayed = self.run_tool('replay', done.stdout.strip())
        self.assertEqual(1, replayed.returncode)
        self.assertEqual('', replayed.stdout)
        self.assertIn('recorded as unknown', replayed.stderr)
        self.assertEqual(1, len(replayed.stderr.splitlines()), replayed.stderr)


class TestWhyNot(ToolsCase):

    def why_not(self, *arguments: str) -> dict[str, tuple[str, str]]:
        done = self.ask('why-not', *arguments)
        self.assertEqual(0, done.returncode, done.stderr)
        return {row['What']: (row['Verdict'], row['Detail']) for row in json.loads(done.stdout)}

    @marks.turns(12)
    def test_why_not_reads_live_cloud_without_changes(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        found = self.why_not(server['id'], 'host3')
        self.assertEqual('passed', found['conclusion'][0])
        self.assertEqual('better', found['policy cpu'][0])
        self.admin_api.post_server_action(server['id'], {'lock': None})
        found = self.why_not(server['id'], 'host3')
        self.assertEqual(('refused', 'refused by locked'), found['conclusion'])
        self.assertIn(server['id'], found['locked'][1])
        self.assertEqual([], self.migrations(server))
        self.assertEqual([], self.store.plans.list_plans())
        self.assert_no_database_is_made(server)
        self.configure_tools(nova=self.closed_port())
        done = self.ask('why-not', server['id'], 'host3')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
        self.assertIn('See kronos-test-config', done.stderr)

    def assert_no_database_is_made(self, server: dict[str, Any]) -> None:
        path = os.path.join(self.directory, 'none.sqlite')
        with open(self.config) as f:
            text = f.read()
        with open(self.config, 'w') as f:
            f.write(re.sub('connection = .*', f'connection = sqlite:///{path}', text))
        done = self.ask('why-not', server['id'], 'host3')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('is locked by its owner', done.stdout, 'an empty database is read')
        self.assertFalse(os.path.exists(path))


class TestReport(ToolsCase):

    def report(self) -> 'subprocess.CompletedProcess[str]':
        return self.kronos('report', '-o', '-')

    @marks.turns(3)
    def test_report_shows_cycle_of_live_cloud_without_changes(self) -> None:
        server = self.boot(host='host1')
        self.admin_api.put_server(server['id'], {'server': {'name': '<script>alert(1)</script>'}})
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        now = time.time()
        self.store.plans.save_plan(None, model.Plan(
            model.UNASSIGNED, combined_before=0.3141, reason='earlier'), [],
            plan_id=str(uuid.uuid4()), now=now - 600, dry_run=True, cooldown=0,
            instance_cooldown=0)
        done = self.report()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertNotIn('<script', done.stdout)
        self.assertIn('&lt;script&gt;alert(1)&lt;/script&gt;', done.stdout)
        text = ' '.join(re.sub('<[^>]*>', ' ', done.stdout).split())
        for said in ('1 instance of 1 host moves to 1 host, in 1 wave.', server['id'],
                     'The cloud, and the plan that a cycle would make from it.',
                     'host1 nova', 'The line shows the imbalance before each of 2 plans', '0.3141'):
            self.assertIn(said, text)
        self.assertEqual([], self.migrations(server))
        self.assertEqual(['earlier'], [row.plan.reason for row in self.store.plans.list_plans()])
        self.configure_tools(nova=self.closed_port())
        done = self.report()
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)


class TestAgain(ToolsCase):

    def setUp(self) -> None:
        super().setUp()
        with open(self.config) as f:
            text = f.read()
        with open(self.config, 'w') as f:
            f.write(text.replace('dry_run = true', 'dry_run = false'))
        self.server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {self.server['id']: 0.35})
        self.plan()
        self.plan_id = self.store.plans.list_plans()[0].plan_id

    def again(self, *arguments: str) -> tuple[int, list[dict[str, str]], str]:
        done = self.ask('plan', *arguments, '--reason', 'it was better')
        self.assertNotIn('Traceback', done.stderr)
        return done.returncode, json.loads(done.stdout or '[]'), done.stderr

    @marks.turns(12)
    def test_revert_moves_back_unless_rule_refuses(self) -> None:
        status, _, error = self.again('revert', self.plan_id)
        self.assertEqual(1, status)
        self.assertIn('it has no move of which that could be asked', error)
        self.work()
        self.assertEqual('host3', self.host_of(self.server))
        self.admin_api.post_server_action(
            self.server['id'], {'os-migrateLive': {'host': 'host2', 'block_migration': 'auto'}})
        self.wait_for(lambda: self.host_of(self.server) == 'host2', 'an operator to move it')
        self.wait_for(lambda: self.api.get_server(self.server['id'])['status'] == 'ACTIVE', 'it')
        status, rows, error = self.again('revert', self.plan_id)
        self.assertEqual((1, ''), (status, rows[0]['Task']), error)
        self.assertIn(f'moved-away: instance {self.server["id"]} is on host2', rows[0]['Verdict'])
        self.admin_api.post_server_action(
            self.server['id'], {'os-migrateLive': {'host': 'host3', 'block_migration': 'auto'}})
        self.wait_for(lambda: self.host_of(self.server) == 'host3', 'it to be back')
        self.wait_for(lambda: self.api.get_server(self.server['id'])['status'] == 'ACTIVE', 'it')
        with open(self.config) as f:
            text = f.read()
        with open(self.config, 'w') as f:
            f.write(text.replace('[engine]', '[engine]\nfreeze_windows = 0 0 * * * 24h'))
        status, _, error = self.again('revert', self.plan_id)
        self.assertIn('freeze window', error)
        done = self.ask('why-nothing')
        self.assertIn('freeze window', done.stdout)
        with open(self.config, 'w') as f:
            f.write(text)
        with self.disabled('host1'):
            status, rows, error = self.again('revert', self.plan_id)
            self.assertEqual((1, ''), (status, rows[0]['Task']), error)
            self.assertIn('service-disabled: host host1', rows[0]['Verdict'])
            self.assertIn('Nothing was stored', error)
        _, rows, _ = self.again('revert', self.plan_id, '--dry-run')
        self.assertEqual(('host3', 'host1', 'wave 0', ''), (
            rows[0]['From'], rows[0]['To'], rows[0]['Verdict'], rows[0]['Task']))
        self.assertEqual((), self.store.tasks.list_in_flight_moves())
        status, rows, error = self.again('revert', self.plan_id, '--move', self.server['id'])
        self.assertEqual(0, status, error)
        row = self.store.tasks.find_task(rows[0]['Task'])
        assert row is not None
        self.assertIn(row.task.plan_id, error)
        self.work()
        self.assertEqual('host1', self.host_of(self.server))
        self.assertEqual(['completed'], [str(r.task.state)
                                         for r in self.store.tasks.list_plan_tasks(
                                             row.task.plan_id)])
        (said,) = self.store.approvals.list_decisions(row.task.plan_id)
        self.assertEqual(('reverted', f'plan {self.plan_id}: it was better'),
                         (said.verb, said.reason))
        self.assertIsNotNone(self.plan(), 'the engine goes on')

    @marks.turns(12)
    def test_documented_retry_and_revert_commands_work(self) -> None:
        self.work()
        (row,) = self.store.tasks.list_plan_tasks(self.plan_id)
        self.load({'host1': 0.45, 'host2': 0.5, 'host3': 0.45}, {self.server['id']: 0.35})
        said = [done for _name, done in self.documented(
            ['plan revert'], {'UUID': self.plan_id})]
        self.assertEqual([0, 0], [done.returncode for done in said], said[-1].stderr)
        self.assertIn(f'{self.server["id"]} | host3 | host1 | wave 0', said[0].stdout)
        self.assertIn('is stored; executors begin', said[1].stderr)
        asked = self.store.plans.list_plans()[0].plan_id
        self.store.approvals.cancel_plan(asked, self.store.now(),
                                         plan_decisions.OperatorDecision('me', 'why not'), 0)
        uuids = iter((asked, self.server['id']))
        (shown,) = [arguments for _page, command in docs.blocks()
                    if command.startswith('kronos plan retry')
                    for _name, arguments in [docs.split(command)]]
        done = commands.main('kronos_nova.cli.app', 'plan', 'retry', *(
            next(uuids) if word == 'UUID' else word for word in shown), env=self.environment)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f'{self.server["id"]} | host3 | host1', done.stdout)
        ((_name, done),) = self.documented(['explain move'], {'UUID': row.task.task_id})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('it has been made', done.stdout)

    @marks.long
    def test_drain_check_estimates_time_from_measurements(self) -> None:
        done = self.ask('drain', 'check', 'host1')
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn('evacuate_disabled_hosts is not set',
                      self.verdicts(done.stdout)['conclusion'][1])
        self.engine_options('evacuate_disabled_hosts = true')
        done = self.ask('drain', 'check', 'host1')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual('not known', self.verdicts(done.stdout)['time'][0])
        (row,) = self.store.tasks.list_plan_tasks(self.plan_id)
        done = self.ask('explain', 'move', row.task.task_id)
        self.assertEqual(0, done.returncode, done.stderr)
        found = self.verdicts(done.stdout)
        self.assertIn('of the combined imbalance', found['gain'][1])
        self.assertEqual('passed', found['conclusion'][0], 'the task is no reason against itself')
        self.assertEqual('better', found['policy cpu'][0])
        self.work()
        done = self.ask('explain', 'move', row.task.task_id)
        self.assertEqual('it has been made', self.verdicts(done.stdout)['today'][1])
        done = self.ask('drain', 'check', 'host3')
        self.assertEqual(0, done.returncode, done.stderr)
        found = self.verdicts(done.stdout)
        self.assertEqual(('possible', 'all 1 instance can leave host host3'),
                         found['conclusion'])
        self.assertIn('by 1 measured migration ', found['time'][1])
        self.assertEqual('host3', self.host_of(self.server), 'nothing is moved')
        self.load({'host1': 0.45, 'host2': 0.5, 'host3': 0.45}, {self.server['id']: 0.35})
        done = self.ask('why-nothing')
        self.assertEqual(0, done.returncode, done.stderr)
        found = {row['What']: row['Detail'] for row in json.loads(done.stdout)}
        self.assertIn('imbalance 0.0500, threshold 0.1500: not above it', found['policy cpu'])
        self.assertEqual('nothing: no live executor; no disabled host to drain; every policy is '
                         'at or below its threshold', found['conclusion'])
        done = self.ask('instance', 'show', self.server['id'])
        self.assertEqual(0, done.returncode, done.stderr)
        shown = json.loads(done.stdout)
        self.assertEqual('cooling', shown['Held'][0]['rule'])
        self.assertEqual([('host1', 'host3', 'completed')], [
            (t['from_host'], t['to_host'], t['state']) for t in shown['Tasks']])
        self.assertNotIn(shown['Next move'], ('', 'now'))
        done = self.ask('what-if', '--add-host', '1=host2', '--drain', 'host3')
        self.assertEqual(0, done.returncode, done.stderr)

    def verdicts(self, text: str) -> dict[str, tuple[str, str]]:
        return {row['What']: (row['Verdict'], row['Detail']) for row in json.loads(text)}

    def engine_options(self, *lines: str) -> None:
        with open(self.config) as f:
            text = f.read()
        with open(self.config, 'w') as f:
            f.write(text.replace('[engine]', '\n'.join(['[engine]', *lines])))

    def drain(self, *arguments: str) -> 'subprocess.CompletedProcess[str]':
        return self.kronos('drain', *arguments)

    @marks.turns(12)
    def test_documented_drain_commands_drain_host(self) -> None:
        self.work()
        self.engine_options('evacuate_disabled_hosts = true')
        shown = [['host3' if word == 'compute-07' else word
                  for word in shlex.split(command)[1:]]
                 for _page, command in docs.blocks()
                 if command.startswith(('kronos drain start ', 'kronos drain watch '))]
        self.assertEqual(['start', 'start', 'watch'], [words[1] for words in shown])
        for words in shown:
            if words[1] == 'watch':
                self.drain_by_an_engine()
            done = self.kronos(*words)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(('disabled', 'memory module'), self.status('host3'))
        moved = [row.task for row in self.store.tasks.list_tasks_from_host('host3', 0.0)]
        self.assertEqual([True], [task.arrive_by is not None for task in moved])
        self.assertRegex(done.stdout, rf'{self.server["id"]} \| host[12] +\| completed')
        self.assertEqual('Host host3 is empty.\n', done.stderr)

    def drain_by_an_engine(self) -> None:
        self.conf.set_override('evacuate_disabled_hosts', True, 'engine')
        with self.store.engine.begin() as connection:
            connection.exec_driver_sql('DELETE FROM cooldown')
        self.assertEqual(1, len(self.plan()['moves']))
        self.work()

    @marks.long
    def test_drain_check_and_watch_show_blockers(self) -> None:
        self.engine_options('evacuate_disabled_hosts = true')
        self.work()
        server = self.boot(host='host1')
        pause = self.store.pauses.pause_scope(None, self.store.now(), seconds=3600, paused_by='me',
                                              reason='a storm')
        done = self.ask('drain', 'check', 'host1')
        rows = [tuple(row.values()) for row in json.loads(done.stdout)]
        self.assertEqual((1, 'waits'), (done.returncode, rows[-1][1]))
        self.assertIn(('engines', 'refuse', str(pause)), rows)
        self.assertIn((f'instance {server["id"]}', 'moves'), [row[:2] for row in rows])
        done = self.drain('start', 'host1', '--reason', 'a change')
        self.assertEqual(1, done.returncode)
        self.assertIn('a storm', done.stderr)
        done = self.ask('drain', 'check', 'host2')
        rows = [tuple(row.values()) for row in json.loads(done.stdout)]
        self.assertEqual((0, 'empty'), (done.returncode, rows[-1][1]), 'nothing is to be held')
        done = self.drain('watch', 'host1')
        self.assertEqual((1, 1), (done.returncode, done.stderr.count('\n')))
        self.assertIn('Host host1 is enabled, and no engine empties it: 1 instance is', done.stderr)
        with self.disabled('host1'):
            done = self.drain('watch', 'host1', '--timeout', '0.1')
        self.assertEqual(f'Nothing begins now: {pause}\nHost host1 is not empty yet.\n',
                         done.stderr)
        self.store.pauses.resume_scope(None, self.store.now())
        self.conf.set_override('mode', 'approve', 'engine')
        self.conf.set_override('evacuate_disabled_hosts', True, 'engine')
        with self.disabled('host1'):
            self.assertEqual(1, len(self.plan()['moves']))
            (waits,) = self.store.approvals.list_waiting_plans(self.store.now())
            done = self.ask('drain', 'check', 'host1')
            rows = [tuple(row.values()) for row in json.loads(done.stdout)]
            self.assertEqual((1, 'waits'), (done.returncode, rows[-1][1]))
            self.assertIn(('engines', 'refuse', str(waits)), rows)
            done = self.drain('watch', 'host1', '--timeout', '0.1')
        self.assertIn(waits.plan_id, str(waits))
        self.assertEqual(f'Nothing begins now: {waits}\nHost host1 is not empty yet.\n',
                         done.stderr)

    def status(self, host: str) -> tuple[str, str | None]:
        found = next(s for s in self.admin_api.get_services(binary='nova-compute')
                     if s['host'] == host)
        return found['status'], found.get('disabled_reason')

    @marks.long
    def test_drain_start_disables_host_and_watch_follows_drain(self) -> None:
        self.work()
        done = self.drain('start', 'host3', '--reason', 'a change')
        self.assertEqual(1, done.returncode)
        self.assertIn('evacuate_disabled_hosts: it is not set', done.stderr)
        self.engine_options('evacuate_disabled_hosts = true', 'drain_reason_regex = ^change-')
        done = self.drain('start', 'host3', '--reason', 'a change')
        self.assertIn("reason: engines would not drain it: its disabled_reason 'a change' does "
                      "not match drain_reason_regex '^change-'", done.stderr)
        self.admin_api.post_server_action(self.server['id'], {'lock': None})
        done = self.drain('start', 'host3', '--reason', 'change-7')
        self.assertEqual(1, done.returncode)
        self.assertIn(f'1 instance would stay, the first {self.server["id"]}: locked',
                      done.stderr)
        self.assertEqual(('enabled', None), self.status('host3'))
        self.admin_api.post_server_action(self.server['id'], {'unlock': None})
        done = self.drain('start', 'host3', '--reason', 'change-7')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('1 instance is to leave it. It takes about', done.stdout)
        self.assertEqual(('disabled', 'change-7'), self.status('host3'))
        self.assertEqual([('drain started', 'host host3', 'change-7')], [
            (row.command, row.target, row.reason)
            for row in self.store.audit.list_newest_entries(9)])
        done = self.drain('watch', 'host3', '--timeout', '0.1')
        self.assertEqual(1, done.returncode)
        self.assertIn('Host host3 is not empty yet.', done.stderr)
        done = self.drain('watch', 'hots3')
        self.assertEqual(1, done.returncode)
        self.assertIn('hots3: no such compute host. Is host3 meant?', done.stderr)
        self.drain_by_an_engine()
        done = self.drain('watch', 'host3', '-f', 'json')
        self.assertEqual(0, done.returncode, done.stderr)
        (row,) = json.loads(done.stdout)
        self.assertEqual((self.server['id'], 'completed', ''),
                         (row['Instance'], row['State'], row['Error']))
        self.assertEqual(self.host_of(self.server), row['To'])

    @marks.long
    def test_drain_stop_enables_host_and_keeps_foreign_reason(self) -> None:
        self.engine_options('evacuate_disabled_hosts = true', 'drain_reason_regex = ^change')
        done = self.drain('start', 'host1', '--reason', 'change 7', '--force')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(('disabled', 'change 7'), self.status('host1'))
        for _name, done in self.documented(['drain stop'], {'compute-07': 'host1'}):
            self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual('enabled', self.status('host1')[0])
        service = next(s['id'] for s in self.admin_api.get_services(binary='nova-compute')
                       if s['host'] == 'host1')
        self.admin_api.put_service(service, {
            'status': 'disabled', 'disabled_reason': 'disk broken'})
        done = self.drain('stop', 'host1')
        self.assertEqual(1, done.returncode)
        self.assertEqual(('disabled', 'disk broken'), self.status('host1'))

    def test_disabled_host_keeps_reason_without_force(self) -> None:
        self.engine_options('evacuate_disabled_hosts = true')
        service = next(s['id'] for s in self.admin_api.get_services(binary='nova-compute')
                       if s['host'] == 'host1')
        self.admin_api.put_service(service, {
            'status': 'disabled', 'disabled_reason': 'disk broken, do not enable'})
        done = self.drain('start', 'host1', '--reason', 'change 7')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn("it is disabled already, for the reason 'disk broken, do not enable'",
                      done.stderr)
        self.assertIn('With force', done.stderr)
        self.assertEqual(('disabled', 'disk broken, do not enable'), self.status('host1'))
        self.assertEqual([], self.written())
        done = self.drain('start', 'host1', '--reason', 'disk broken, do not enable')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('Host host1 was disabled already for this reason, and nothing was written; '
                      '1 instance is to leave it.', done.stdout)
        self.assertEqual([], self.written(), 'a repeat has nothing to write')
        done = self.drain('start', 'host1', '--reason', 'change 7', '--force')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(('disabled', 'change 7'), self.status('host1'))
        self.assertEqual(1, len(self.written()))

    def written(self) -> list[tuple[str, str]]:
        """What our commands have asked Nova for, but to read."""
        return [request for request in self.nova_api.door.requests
                if request[0] not in api.READING and '/action' not in request[1]]

    @marks.turns(12)
    def test_lost_answer_of_drain_start_is_looked_up(self) -> None:
        self.work()
        self.engine_options('evacuate_disabled_hosts = true')
        self.nova_api.door.lose_answer_of = lambda method, path: method == 'PUT'
        done = self.drain('start', 'host3', '--reason', 'change 7')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(('disabled', 'change 7'), self.status('host3'))

    def test_move_that_operator_requests_waits_for_second_person(self) -> None:
        keys = os.path.join(self.directory, 'keys')
        key_repository.create_keys(keys)
        with open(self.config, 'a') as f:
            f.write(f'[signing]\nkey_repository = {keys}\n')
        self.engine_options(
            f'scope_mode = {model.UNASSIGNED}:approve\nmin_approvals = 2')
        self.work()
        verifier = task_authorization.TaskVerifier(key_repository.KeyRepository(keys))
        self.worker = worker.Worker(
            self.store, authorized_executor.AuthorizedExecutor(
                nova_executor.NovaExecutor(self.conf, self.connection), verifier),
            dataclasses.replace(retry.build_settings(self.conf), poll_interval=0.1))
        status, rows, error = self.again('revert', self.plan_id)
        self.assertEqual(0, status, error)
        self.assertIn('it waits for the approval of 1 other person', error)
        row = self.store.tasks.find_task(rows[0]['Task'])
        assert row is not None
        self.assertEqual(model.TaskState.PENDING, row.task.state)
        done = commands.main('kronos_nova.cli.app', 'plan', 'approve', row.task.plan_id,
                             '--config-file', self.config)
        self.assertEqual(1, done.returncode)
        self.assertIn('Another person must approve', done.stderr)
        self.worker.run_once(self.store.now())
        self.assertEqual('host3', self.host_of(self.server))
        with operations.Session(self.config, operator='alice', person='keystone:1') as session:
            result = operations.approve_plan(session, row.task.plan_id)
        self.assertEqual((1, 0), (len(result.tasks), result.missing))
        self.work()
        self.assertEqual('host1', self.host_of(self.server))
        self.queue_task_by_hand(rows[0]['Task'])
        before = len(self.migrations(self.server))
        self.work()
        self.assertEqual('host1', self.host_of(self.server))
        self.assertEqual(before, len(self.migrations(self.server)))
        self.assertEqual([], self.store.tasks.list_tasks_in_states((model.TaskState.QUEUED,)))

    def queue_task_by_hand(self, task_id: str) -> None:
        """Copy a task with its signature into another task for another host."""
        table = tables.task
        with self.store.engine.begin() as connection:
            row = dict(connection.execute(sa.select(table).where(
                table.c.task_id == task_id)).mappings().one())
            connection.execute(sa.insert(table).values(row | {
                'task_id': str(uuid.uuid4()), 'active_instance': self.server['id'],
                'from_host': 'host1', 'to_host': 'host2', 'destinations': '["host2"]',
                'state': 'queued', 'attempt': 0, 'expires_at': time.time() + 3600, **dict.fromkeys((
                    'worker', 'heartbeat_at', 'marker', 'reference', 'submitted_at', 'error',
                    'completed_at', 'error_type', 'attempts', 'timings', 'deadline'))}))

    @marks.long
    def test_retry_repeats_cancelled_move(self) -> None:
        (row,) = self.store.tasks.list_plan_tasks(self.plan_id)
        self.store.tasks.cancel_task(row.task.task_id, self.worker._clock(), cancelled_by='me',
                          reason='x', instance_cooldown=900)
        status, rows, error = self.again('retry', self.plan_id)
        self.assertEqual(0, status, error)
        self.work()
        self.assertEqual('host3', self.host_of(self.server))
        status, _, error = self.again('retry', self.plan_id, '--move', 'nobody')
        self.assertEqual(1, status)
        self.assertIn('has no move of such an instance', error)
        status, _, error = self.again('retry', 'nobody')
        self.assertIn('no such plan', error)


class TestSimulate(ToolsCase):

    def simulate(self, *arguments: str) -> 'subprocess.CompletedProcess[str]':
        return self.ask('simulate', *arguments)

    @marks.turns(3)
    def test_simulate_reads_live_cloud_without_changes(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        report = os.path.join(self.directory, 'report.json')
        done = self.simulate('--from', '-1h', '--step', '5m', '--report', report)
        self.assertEqual(0, done.returncode, done.stderr)
        with open(report) as f:
            found = json.load(f)
        self.assertEqual(13, found['window']['times'])
        self.assertEqual((3, 1), (found['hosts'], found['instances']))
        history, candidate = found['candidates']
        self.assertEqual([], history['move_list'])
        (moved,) = candidate['move_list']
        self.assertEqual(
            (server['id'], 'host1', 'host3'),
            (moved['instance_uuid'], moved['from_host'], moved['to_host']))
        self.assertEqual('host1', self.host_of(server))

    @marks.long
    def test_documented_simulate_and_tune_commands_run(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        ours = dict.fromkeys(('now.yaml', 'candidate.yaml', '/etc/kronos/policies.yaml'),
                             self.policies_file)
        # Of those in the example's own directory tests/docs compares what they print.
        ran = list(self.documented(['simulate', 'weigh tune'], ours, but='kronos.conf'))
        self.assertEqual(['simulate'] * 2 + ['weigh tune'] * 2, [name for name, _ in ran])
        for _name, done in ran:
            self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(os.path.exists(os.path.join(self.directory, 'week.svg')))

    @marks.turns(12)
    def test_simulate_without_nova_prints_one_error_line(self) -> None:
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {})
        self.configure_tools(nova=self.closed_port())
        done = self.simulate('--from', '-1h')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
        self.assertIn('from Nova', done.stderr)


class TestTestConfig(ToolsCase):

    def check(self) -> tuple[int, dict[str, dict[str, str]]]:
        done = self.run_tool('test_config', '--format', 'json')
        self.assertNotIn('Traceback', done.stdout + done.stderr)
        return done.returncode, {i['name']: i for i in json.loads(done.stdout)['items']}

    def test_check_passes_on_healthy_cloud(self) -> None:
        self.aggregate('rack1', 'host1', 'host2', **{'kronos:cell': 'cell1'})
        self.configure_tools(aggregates='rack1')
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        status, items = self.check()
        self.assertEqual(0, status, items)
        for name in ('options', 'policies', 'source: prometheus', 'keystone', 'placement',
                     'placement allocation candidates',
                     'nova', 'aggregate: rack1', 'hosts in no aggregate',
                     'query: cpu imbalance_query', 'query: cpu vm_profile_query',
                     'policy: cpu in rack1', 'database'):
            self.assertEqual('ok', items[name]['status'], items[name])
        self.assertIn('3 of 3 hosts', items['query: cpu imbalance_query']['text'])
        self.assertIn('1 of 1 active instances', items['query: cpu vm_profile_query']['text'])
        self.assertEqual(('warning', '1 host without the name of a cell: host3'),
                         (items['nova: cells']['status'], items['nova: cells']['text']))
        self.assertIn('imbalance 0.300', items['policy: cpu in rack1']['text'])

    @marks.turns(3)
    def test_check_names_each_problem(self) -> None:
        self.boot(host='host1')
        self.configure_tools(aggregates='no-such-aggregate')
        self.load({'host1': 0.8, 'host2': 1.5, 'host3': 0.1}, {'stranger': 0.35})
        status, items = self.check()
        self.assertEqual(1, status)
        failed = {n: i['text'] for n, i in items.items() if i['status'] == 'failed'}
        self.assertIn('no aggregate', failed['aggregate: no-such-aggregate'])
        self.assertIn('host2', failed['query: cpu imbalance_query'])
        self.assertIn('no series', failed['query: cpu vm_profile_query'])

    @marks.long
    def test_missing_engine_right_gives_warning(self) -> None:
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {})
        self.placement_api.door.answers = [
            (lambda method, path: path.endswith('/allocation_candidates'), '403 Forbidden',
             b'{}')]
        _status, items = self.check()
        found = items['placement allocation candidates']
        self.assertEqual('warning', found['status'])
        self.assertIn('policy placement:allocation_candidates:list', found['text'])
        self.assertIn('confirm_moves', found['remedy'])

    @marks.long
    def test_host_without_value_is_named_in_warning(self) -> None:
        self.load({'host1': 0.8, 'host2': 0.5}, {})
        _status, items = self.check()
        self.assertEqual('warning', items['query: cpu imbalance_query']['status'])
        self.assertIn('host3', items['query: cpu imbalance_query']['text'])

    @marks.turns(3)
    def test_check_reports_unreachable_nova(self) -> None:
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {})
        self.configure_tools(nova=self.closed_port())
        status, items = self.check()
        self.assertEqual(1, status)
        self.assertEqual('failed', items['nova']['status'])
        self.assertIn('Nova', items['nova']['text'])


class TestPolicyTest(ToolsCase):

    def check(self, *arguments: str) -> tuple[int, dict[tuple[str, str], tuple[str, str]]]:
        """Status and text by query and check."""
        done = self.ask('policy', 'test', *arguments)
        self.assertNotIn('Traceback', done.stderr)
        return done.returncode, {(r['Query'], r['Check']): (r['Status'], r['What'])
                                 for r in json.loads(done.stdout)}

    @marks.turns(12)
    def test_policy_test_compares_queries_with_live_cloud(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        status, found = self.check('--policy', 'cpu')
        self.assertEqual((0, {'ok', 'warning'}), (status, {s for s, _ in found.values()}), found)
        self.assertEqual(('ok', '3 are hosts of Nova\'s'), found['imbalance_query', 'labels'])
        self.assertEqual(('ok', '0.1 to 0.8'), found['imbalance_query', 'range'])
        self.assertEqual(('ok', 'none of 1 instances'), found['vm_profile_query', 'missing'])
        self.assertEqual('ok', found['vm_profile_query', 'coverage'][0])
        self.assertIn('imbalance 0.700', found['', '_unassigned_'][1])

    @marks.turns(12)
    def test_policy_test_explains_likely_cause(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 80, 'host2': 50, 'stranger': 10}, {server['id']: 35})
        status, found = self.check()
        self.assertEqual(1, status)
        self.assertIn('percent', found['imbalance_query', 'range'][1])
        self.assertIn('1 are unknown to Nova: stranger', found['imbalance_query', 'labels'][1])
        self.assertEqual(('warning', '1 of 3 hosts have no value: host3'),
                         found['imbalance_query', 'missing'])
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 60})
        status, found = self.check()
        self.assertEqual((1, 'failed'), (status, found['vm_profile_query', 'coverage'][0]))
        self.assertIn('percent', found['vm_profile_query', 'coverage'][1])
        self.assertEqual([], self.migrations(server))
