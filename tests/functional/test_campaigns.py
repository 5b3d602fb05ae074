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

"""A campaign that an operator starts and engines carry out, on a real Nova."""

import json
import os
import re
from typing import Any
from unittest import mock

from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.engine import host_programs
from kronos_nova.rebalancer.engine import plan_webhook
from kronos_nova.rebalancer.operations import beginning_drains
from kronos_nova.rebalancer.planning import campaign_steps
from kronos_nova.sources import prometheus
from tests import marks
from tests.functional import test_tools
from tests.unit.rebalancer.hooks import servers

#: Cycles in which a campaign over two hosts ends.
CYCLES = 30


class CampaignTestCase(test_tools.ToolsCase):

    def setUp(self) -> None:
        super().setUp()
        with open(self.config) as f:
            text = f.read().replace('dry_run = true',
                                    'dry_run = false\nevacuate_disabled_hosts = true')
        with open(self.config, 'w') as f:
            f.write(text)
        self.conf.set_override('evacuate_disabled_hosts', True, 'engine')
        self.started: list[str] = []
        self.engine = self.make_engine()
        patch = mock.patch.object(campaign_steps, 'SETTLE_SECONDS', 0.0)
        patch.start()
        self.addCleanup(patch.stop)
        self.servers = [self.boot(host=host) for host in ('host1', 'host2', 'host2')]
        self.load({'host1': 0.3, 'host2': 0.3, 'host3': 0.3},
                  {server['id']: 0.05 for server in self.servers})

    def make_engine(self, *listeners: Any) -> engine.Engine:
        return engine.Engine(
            self.conf, collector=collector.CloudCollector(self.conf, self.connection),
            source=prometheus.PrometheusSource(self.conf), store=self.store, listeners=listeners,
            find_service=lambda host: compute_service.ComputeService(self.connection, host),
            programs=self.watch_programs())

    def watch_programs(self) -> host_programs.HostPrograms:
        """Return the real runner of programs; each start looks at the host in Nova."""
        case = self

        class WatchedPrograms(host_programs.HostPrograms):
            def start_program(self, key: str, path: str, host: str, seconds: float,
                              **variables: str) -> str | None:
                case.started.append(host)
                case.assertEqual([], [s for s in case.servers if case.host_of(s) == host])
                status, reason = case.find_service(host)
                case.assertEqual('disabled', status)
                case.assertIn(variables['KRONOS_CAMPAIGN'], str(reason))
                return super().start_program(key, path, host, seconds, **variables)

        return WatchedPrograms()

    def find_service(self, host: str) -> tuple[str, str | None]:
        found = next(s for s in self.admin_api.get_services(binary='nova-compute')
                     if s['host'] == host)
        return found['status'], found.get('disabled_reason')

    def write_program(self, *lines: str) -> str:
        path = os.path.join(self.directory, 'reboot')
        with open(path, 'w') as f:
            f.write('\n'.join(('#!/bin/sh', *lines)) + '\n')
        os.chmod(path, 0o755)
        return path

    def run_campaign(self, until: str) -> str:
        """Run cycles until the status of the campaign has a text; return the status."""
        for _cycle in range(CYCLES):
            self.plan()
            self.work()
            status = self.kronos('campaign', 'status', '--all', '-f', 'csv',
                                 '--quote', 'none').stdout
            if until in status:
                return status
        self.fail(status)

    def test_hosts_are_emptied_rebooted_once_and_enabled(self) -> None:
        log = os.path.join(self.directory, 'log')
        self.conf.set_override('command', self.write_program(f'echo "$1" >> {log}'), 'campaign')
        done = self.kronos('campaign', 'start', 'host1', 'host2', '--together', '1', '--reason',
                           'new firmware')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, 'Campaign [-0-9a-f]{36} over 2 hosts of scope _unassigned_')
        again = self.kronos('campaign', 'start', 'host3', '--reason', 'more')
        self.assertIn('scope _unassigned_ has the campaign', again.stderr)
        status = self.run_campaign(',,done,')
        self.assertEqual(2, len(re.findall(',host.,done,', status)), status)
        self.assertEqual(['host1', 'host2'], sorted(self.started))
        with open(log) as f:
            self.assertEqual(['host1', 'host2'], sorted(f.read().split()))
        self.assertEqual({'enabled'}, {self.find_service(host)[0]
                                       for host in ('host1', 'host2', 'host3')})
        for server in self.servers:
            self.assertEqual('ACTIVE', self.admin_api.get_server(server['id'])['status'])

    @marks.turns(12)
    def test_the_start_of_the_documentation_orders_the_hosts_of_an_aggregate(self) -> None:
        # An aggregate that names a domain alone takes no host out of the scope.
        self.aggregate('rack-12', 'host1', 'host2', **{'kronos:domain': 'rack:r12'})
        ((name, done),) = self.documented(['campaign start'], {})
        self.assertEqual(('campaign start', 0), (name, done.returncode), done.stderr)
        (campaign,) = self.store.campaigns.list_live_campaigns()
        self.assertEqual({'host1', 'host2'}, {host.host for host in campaign.hosts})
        self.assertEqual(['sat 22:00-04:00'], [str(window) for window in campaign.windows])

    @marks.turns(3)
    def test_a_program_behind_the_webhook_does_the_work_and_an_operator_pauses_it(self) -> None:
        program = servers.Server()
        program.__enter__()
        self.addCleanup(program.__exit__)
        secret = os.path.join(self.directory, 'secret')
        with open(secret, 'w') as f:
            f.write('0123456789abcdef' * 2)
        for name, value in (('url', program.url), ('secret_file', secret)):
            self.conf.set_override(name, value, 'plan_webhook')
        webhook = plan_webhook.PlanWebhook(self.conf)
        self.addCleanup(webhook.close)
        self.engine = self.make_engine(webhook)
        self.kronos('campaign', 'start', 'host1', '--reason', 'new firmware')
        self.run_campaign(',host1,held,')
        held: list[dict[str, Any]] = []

        def is_posted() -> bool:
            held[:] = [event for _method, _path, _headers, body in program.requests
                       if (event := json.loads(body))['event'] == 'campaign.host_held']
            return bool(held)

        self.wait_for(is_posted, 'the program to hear of the host')
        (campaign,) = self.store.campaigns.list_live_campaigns()
        self.assertEqual([('host1', campaign.campaign_id)],
                         [(event['host'], event['campaign_id']) for event in held])
        self.assertEqual([], [s for s in self.servers if self.host_of(s) == 'host1'])
        for words in (('pause', '--reason', 'a storm'), ('done', 'host1'), ('resume',)):
            done = self.kronos('campaign', *words)
            self.assertEqual(0, done.returncode, done.stderr)
        self.run_campaign(',,done,')
        self.assertEqual(('enabled', None), self.find_service('host1'))
        self.assertEqual([], self.started)

    @marks.turns(3)
    def test_a_start_that_engines_could_not_carry_out_is_refused(self) -> None:
        service = next(s['id'] for s in self.admin_api.get_services(binary='nova-compute')
                       if s['host'] == 'host2')
        self.admin_api.put_service(service, {'status': 'disabled', 'disabled_reason': 'burnt'})
        self.admin_api.post_server_action(self.servers[0]['id'], {'lock': None})
        for words, problem in (
                (('host2',), "host2: it is disabled already, for the reason 'burnt'"),
                (('host1',), '1 host would keep instances, the first host1: '
                             f'{self.servers[0]["id"]}: locked: '),
                (('host3', *(17 * ('--window', '1:00-2:00'))), 'has 16 windows at most'),
                (('host3', '--together', '2'), '--together: engines drain ')):
            done = self.kronos('campaign', 'start', *words, '--reason', 'x')
            self.assertEqual(1, done.returncode, done.stdout)
            self.assertIn(problem, done.stderr)
        self.assertEqual([], self.store.campaigns.list_newest_campaigns(9))
        # A disabled host of three is as many as max_drain_fraction admits.
        self.admin_api.put_service(service, {'status': 'enabled'})
        done = self.kronos('campaign', 'start', 'host1', '--reason', 'x', '--force')
        self.assertEqual(0, done.returncode, done.stderr)
        for _cycle in range(2):
            self.plan()
        (campaign,) = self.store.campaigns.list_live_campaigns()
        self.assertIn(f'host1: locked: instance {self.servers[0]["id"]}', campaign.waits)
        self.assertEqual(('enabled', None), self.find_service('host1'))

    @marks.turns(12)
    def test_a_command_that_fails_pauses_the_campaign_and_can_be_repeated(self) -> None:
        self.conf.set_override('command', self.write_program('echo no power', 'exit 3'),
                               'campaign')
        self.kronos('campaign', 'start', 'host1', '--reason', 'new firmware')
        status = self.run_campaign('exit status 3: no power')
        self.assertIn('paused by kronos-engine', status)
        self.assertEqual('disabled', self.find_service('host1')[0])
        self.write_program('exit 0')
        for words in (('repeat', 'host1'), ('resume',)):
            done = self.kronos('campaign', *words)
            self.assertEqual(0, done.returncode, done.stderr)
        self.run_campaign(',host1,done,')
        self.assertEqual(('enabled', None), self.find_service('host1'))

    @marks.turns(12)
    def test_an_abort_enables_a_host_that_is_being_emptied(self) -> None:
        self.kronos('campaign', 'start', 'host1', 'host2', '--together', '1', '--reason', 'x')
        self.plan()
        begun = [host for host in ('host1', 'host2') if self.find_service(host)[0] == 'disabled']
        self.assertEqual(1, len(begun))
        done = self.kronos('campaign', 'abort', '--reason', 'a mistake')
        self.assertEqual(0, done.returncode, done.stderr)
        with mock.patch.object(beginning_drains, 'count_rival_seconds', autospec=True,
                               return_value=0.0):
            self.run_campaign(',,aborted,')
        self.assertEqual(('enabled', None), self.find_service(begun[0]))
        self.assertEqual([], self.started)
