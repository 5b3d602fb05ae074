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

"""Swaps against a real Nova, asked for by ``kronos swap`` or planned by spread: both instances
change places, or both stay."""

import json
from typing import Any

from kronos_nova.rebalancer.store import swaps
from tests import commands
from tests import marks
from tests.docs import shown as docs
from tests.functional import test_tools


class SwapCase(test_tools.ToolsCase):

    def setUp(self) -> None:
        super().setUp()
        with open(self.config) as f:
            text = f.read()
        with open(self.config, 'w') as f:
            f.write(text.replace('dry_run = true', 'dry_run = false'))

    def two(self, flavor: str | None = None) -> list[dict[str, Any]]:
        found = [self.boot(host=host, flavor={'id': flavor} if flavor else None)
                 for host in ('host1', 'host2')]
        self.load({'host1': 0.3, 'host2': 0.3, 'host3': 0.1},
                  {server['id']: 0.1 for server in found})
        return found

    def places(self, servers: list[dict[str, Any]]) -> list[str]:
        return [self.host_of(server) for server in servers]

    def state(self) -> str:
        """Of the one swap."""
        found, = [swap for row in self.store.plans.list_plans()
                  for swap in self.store.tasks.list_swaps(row.plan_id)]
        self.assertEqual((), self.store.tasks.list_in_flight_moves())
        return found.state


class TestSwap(SwapCase):

    def swap(self, servers: list[dict[str, Any]], *arguments: str,
             ) -> tuple[int, list[dict[str, str]], str]:
        done = self.ask('swap', *(server['id'] for server in servers), *arguments,
                        '--reason', 'closer to its users')
        self.assertNotIn('Traceback', done.stderr)
        return done.returncode, json.loads(done.stdout or '[]'), done.stderr

    def test_swap_exchanges_two_instances(self) -> None:
        servers = self.two()
        status, rows, error = self.swap(servers, '--dry-run')
        self.assertEqual((0, ['', ''], ''), (status, [r['Task'] for r in rows], error))
        self.assertEqual([], self.store.plans.list_plans())
        status, rows, error = self.swap(servers)
        self.assertEqual(0, status, error)
        self.assertEqual([('host1', 'host2', 'wave 0'), ('host2', 'host1', 'wave 1')],
                         [(r['From'], r['To'], r['Verdict']) for r in rows])
        self.work()
        self.assertEqual(['host2', 'host1'], self.places(servers))
        self.assertEqual(swaps.SWAPPED, self.state())
        (row,) = self.store.plans.list_plans()
        self.assertIn(row.plan_id, error)
        (said,) = self.store.approvals.list_decisions(row.plan_id)
        self.assertEqual(('swapped', 'closer to its users'), (said.verb, said.reason))
        shown = json.loads(self.ask('plan', 'show', row.plan_id).stdout)
        self.assertEqual([{'instances': [s['id'] for s in servers], 'state': 'swapped',
                           'undos': []}], shown['Swaps'])

    @marks.long
    def test_swap_without_room_parks_one_instance_on_third_host(self) -> None:
        servers = self.two(self._create_flavor(vcpu=1, memory_mb=5000, disk=1))
        status, _, error = self.swap(servers, '--parking', 'host2')
        self.assertEqual(1, status)
        self.assertIn('host2: it is no third host', error)
        status, rows, error = self.swap(servers)
        self.assertEqual(0, status, error)
        self.assertEqual([('host1', 'host3'), ('host2', 'host1'), ('host3', 'host2')],
                         [(r['From'], r['To']) for r in rows])
        self.assertEqual('', rows[2]['Task'])
        self.work()
        self.assertEqual(['host2', 'host1'], self.places(servers))
        self.assertEqual(swaps.SWAPPED, self.state())
        self.assertEqual([1, 2],
                         sorted(len(row.plan.moves) for row in self.store.plans.list_plans()))

    @marks.turns(12)
    def test_first_instance_returns_when_second_may_not_move(self) -> None:
        servers = self.two()
        self.assertEqual(0, self.swap(servers)[0])
        self.api.post_server_action(servers[1]['id'], {'lock': None})
        self.work()
        self.assertEqual(['host1', 'host2'], self.places(servers))
        self.assertEqual(swaps.UNDONE, self.state())
        self.assertEqual(2, len(self.migrations(servers[0])))
        self.assertEqual([], self.migrations(servers[1]))

    @marks.long
    def test_refused_undo_marks_swap_stuck(self) -> None:
        servers = self.two()
        self.assertEqual(0, self.swap(servers)[0])
        (row,) = self.store.plans.list_plans()
        with self.disabled('host1'):
            self.work()
            self.worker.run_once(self.worker._clock())
        self.assertEqual(['host2', 'host2'], self.places(servers))
        self.assertEqual(swaps.STUCK, self.state())
        self.assertIn(f'{servers[0]["id"]} is on host2, was on host1',
                      self.store.approvals.list_decisions(row.plan_id)[-1].reason)

    @marks.turns(12)
    def test_swap_refused_by_rules_is_not_stored(self) -> None:
        servers = self.two()
        self.api.post_server_action(servers[1]['id'], {'lock': None})
        status, rows, error = self.swap(servers)
        self.assertEqual((1, ['', '']), (status, [r['Task'] for r in rows]))
        self.assertIn('locked', rows[0]['Verdict'])
        self.assertIn('Nothing was stored', error)
        self.assertEqual([], self.store.plans.list_plans())
        status, _, error = self.swap([servers[0], {'id': 'nobody'}])
        self.assertEqual(1, status)
        self.assertIn('nobody: no such instance', error)

    @marks.long
    def test_documented_swap_command_exchanges_instances(self) -> None:
        servers = self.two()
        uuids = iter([s['id'] for s in servers] * 2)
        for _page, command in docs.blocks():
            if command.startswith('kronos swap'):
                name, arguments = docs.split(command)
                done = commands.main('kronos_nova.cli.app', *name.split(), *(
                    next(uuids) if word == 'UUID' else
                    'host3' if word == 'compute-09' else word
                    for word in arguments), timeout=180, env=self.environment)
                self.assertEqual(0, done.returncode, done.stderr)
        self.work()
        self.assertEqual(['host2', 'host1'], self.places(servers))


class TestSpread(SwapCase):
    """A hot spot where no single move helps: host1 holds one instance that is too large."""

    def planned(self) -> tuple[list[dict[str, Any]], str]:
        """The servers that an engine's cycle has change places, and its plan."""
        servers = [self.boot(host=host) for host in ('host1', 'host2')]
        self.load({'host1': 0.8, 'host2': 0.4, 'host3': 0.6},
                  {servers[0]['id']: 0.5, servers[1]['id']: 0.3})
        report = self.plan()
        self.assertEqual(
            {(servers[0]['id'], 'host1', 'host2'), (servers[1]['id'], 'host2', 'host1')},
            {(m['instance_uuid'], m['from_host'], m['to_host']) for m in report['moves']})
        self.assertEqual([0, 1], [m['wave'] for m in report['moves']])
        (row,) = self.store.plans.list_plans()
        servers.sort(key=lambda s: [m['instance_uuid'] for m in report['moves']].index(s['id']))
        return servers, row.plan_id

    @marks.turns(12)
    def test_planned_swap_is_carried_out(self) -> None:
        servers, plan_id = self.planned()
        homes = self.places(servers)
        self.work()
        self.assertEqual(homes[::-1], self.places(servers))
        self.assertEqual(swaps.SWAPPED, self.state())
        shown = json.loads(self.ask('plan', 'show', plan_id).stdout)
        self.assertEqual([{'instances': [s['id'] for s in servers], 'state': 'swapped',
                           'undos': []}], shown['Swaps'])
        self.assertEqual({'spread'}, {m['phase'] for m in shown['Moves']})

    @marks.long
    def test_first_half_returns_when_second_half_fails(self) -> None:
        servers, plan_id = self.planned()
        homes = self.places(servers)
        self.api.post_server_action(servers[1]['id'], {'lock': None})
        self.work()
        self.assertEqual(homes, self.places(servers))
        self.assertEqual(swaps.UNDONE, self.state())
        self.assertEqual(2, len(self.migrations(servers[0])))
        self.assertEqual([], self.migrations(servers[1]))
        self.assertEqual(['undoing', 'undone'],
                         [said.verb for said in self.store.approvals.list_decisions(plan_id)])

    @marks.long
    def test_first_half_returns_when_other_instance_is_deleted(self) -> None:
        servers, _ = self.planned()
        homes = self.places(servers)

        def half() -> bool:
            self.worker.run_once(self.worker._clock())
            return self.host_of(servers[0]) != homes[0]

        self.wait_for(half, 'the first one to move')
        self._delete_server(servers[1])
        self.work()
        self.assertEqual(homes[0], self.host_of(servers[0]))
        self.assertEqual(swaps.UNDONE, self.state())
