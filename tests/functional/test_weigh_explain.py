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



"""kronos weigh explain says what nova-scheduler then does, and only looks."""

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import sys
from unittest import mock

import fixtures
from nova import context
from nova import objects
import nova.conf
from nova.db.api import api as api_db
from nova.db.main import api as main_db
from nova.scheduler import utils as scheduler_utils
from nova.scheduler.client import report
from placement import deploy
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.cli import weigh
from kronos_nova.scheduler import runtime
from kronos_nova.weighing import findings
from kronos_nova.weighing import request_spec
from tests import marks
from tests.docs import shown as docs
from tests.functional import api
from tests.functional import scores

CONF = nova.conf.CONF


def engines():
    """Of the API database (None) and of every cell's, by the cell's UUID."""
    ctxt = context.get_admin_context()
    found = {None: api_db.context_manager.writer.get_engine()}
    for cell in objects.CellMappingList.get_all(ctxt):
        with context.target_cell(ctxt, cell) as cctxt:
            found[cell.uuid] = main_db.get_engine(context=cctxt)
    return found


class ExplainTestCase(scores.ScoredTestCase):
    """Five hosts: occupied unevenly, so that every sum differs."""

    hosts = ('host1', 'host2', 'host3', 'host4', 'host5')
    scores = {'host1': 0.1, 'host2': 0.5, 'host3': 0.9, 'host4': 0.3, 'host5': 0.7}

    def configure(self):
        super().configure()
        self.flags(shuffle_best_same_weighed_hosts=False, host_subset_size=1,
                   kronos_weight_multiplier=1.0, group='filter_scheduler')
        self.flags(max_attempts=len(self.hosts), group='scheduler')
        self.flags(concurrent_boots=1, group='kronos')

    def arguments(self, *options, form='json'):
        parser = weigh.ExplainWeights(None, None).get_parser('kronos weigh explain')
        return parser.parse_args(['--flavor', self.flavor['name'], '-f', form, *options])

    def explain(self, *options, form='json'):
        """Return the rows as dicts, and the text of standard error."""
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            names, rows = weigh.explain_request(
                self.arguments(*options, form=form), False, lambda files, debug: CONF)
        found = [dict(zip(names, row, strict=True)) for row in rows]
        json.dumps(found, allow_nan=False)
        return found, stderr.getvalue()

    def by_host(self, *options):
        return {row['host']: row for row in self.explain(*options)[0]}

    def select(self, count=1, **order):
        """What the running nova-scheduler answers: the hosts of each instance."""
        ctxt = context.get_admin_context()
        ctxt.project_id, ctxt.user_id = 'project', 'user'
        spec, uuids = request_spec.build_request_spec(
            ctxt, findings.BootOrder(self.flavor['name'], count=count, **order))
        spec.project_id = 'project'
        scheduler_utils.setup_instance_group(ctxt, spec)
        found = self.scheduler_service.manager.select_destinations(
            ctxt, spec_obj=spec, instance_uuids=uuids, return_objects=True,
            return_alternates=True)
        return [[selection.service_host for selection in several] for several in found]

    def wait(self):
        self.wait_for_scores(**self.scores)


class DocumentedTestCase(ExplainTestCase):

    @marks.turns(3)
    def test_documented_explain_commands_run(self):
        self.occupy()
        shown = [arguments for _page, command in docs.blocks()
                 if command.startswith('kronos weigh explain ')
                 for _name, arguments in [docs.split(command)]]
        self.assertEqual(3, len(shown))
        for arguments in shown:
            words = [self.policies_file.join(word.split('/etc/kronos/candidate.yaml'))
                     for word in arguments[arguments.index('--flavor') + 2:]]
            found, _said = self.explain(*words)
            self.assertEqual(set(self.hosts), {row['host'] for row in found})


class ParityTestCase(ExplainTestCase):

    def test_ranks_match_order_of_nova_scheduler(self):
        self.occupy()
        for multiplier in (0.0, 0.3, 1000.0, -2.0):
            with self.subTest(multiplier):
                self.flags(kronos_weight_multiplier=multiplier, group='filter_scheduler')
                found, _said = self.explain()
                self.wait()
                # Sums of hosts with equal multipliers and load may be equal:
                # then the order is a set's, and nobody's promise.
                expected = self.select()[0]
                sums = {row['host']: row['sum'] for row in found}
                self.assertEqual([sums[h] for h in expected], [row['sum'] for row in found])
                if len(set(sums.values())) == len(sums):
                    self.assertEqual(expected, [row['host'] for row in found])
                self.assertEqual(list(range(1, 6)), [row['rank'] for row in found])

    @marks.turns(12)
    def test_distinct_sums_give_order_of_nova_scheduler(self):
        self.occupy()
        found, _said = self.explain()
        self.assertEqual(5, len({row['sum'] for row in found}))
        self.assertEqual([row['host'] for row in found], self.select_after_scores()[0])

    def select_after_scores(self, **kwargs):
        self.wait()
        return self.select(**kwargs)

    @marks.turns(12)
    def test_products_of_all_enabled_weighers_make_the_sum(self):
        self.occupy()
        found, _said = self.explain()
        manager = self.scheduler_service.manager.host_manager
        names = {type(w).__name__ for w in manager.weighers}
        self.assertIn('RAMWeigher', names)
        for row in found:
            self.assertEqual(names, set(row['weighers']))
            self.assertAlmostEqual(row['sum'], sum(
                w['product'] for w in row['weighers'].values()))
            for w in row['weighers'].values():
                self.assertAlmostEqual(w['product'], w['normalised'] * w['multiplier'])
            self.assertEqual({'cpu': self.scores[row['host']]}, row['scores'])
            self.assertAlmostEqual(1 - self.scores[row['host']], row['headroom'])
            self.assertAlmostEqual(row['headroom'] - 0.5, row['weighers']['KronosWeigher']['raw'])

    @marks.turns(12)
    def test_num_places_instances_as_one_request_would(self):
        self.flags(kronos_weight_multiplier=3.0, group='filter_scheduler')
        self.occupy()
        found, _said = self.explain('--num', '7')
        places = {number: row['host'] for row in found for number in row['instances']}
        self.wait()
        # A sample that came between two of them would show the first, here.
        runtime.get_runtime().scores.stop()
        expected = [several[0] for several in self.select(count=7)]
        self.assertEqual(expected, [places[n] for n in range(1, 8)])
        self.assertGreater(len(set(expected)), 1)

    @marks.long
    def test_num_beyond_capacity_is_reported(self):
        self.hosts_hold(2)
        found, said = self.explain('--num', '12')
        self.assertEqual(10, sum(len(row['instances']) for row in found))
        self.assertIn('2 of 12 instances find no host any more', said)

    def hosts_hold(self, instances):
        """Placement has room for so many instances on each host."""
        for host in self.hosts:
            uuid = self._get_provider_uuid_by_host(host)
            inventory = self.placement.get(f'/resource_providers/{uuid}/inventories').body
            inventory['inventories']['MEMORY_MB'].update(
                total=instances * self.flavor['ram'], max_unit=self.flavor['ram'],
                allocation_ratio=1.0, reserved=0)
            self.placement.put(f'/resource_providers/{uuid}/inventories', inventory)


class ReasonsTestCase(ExplainTestCase):

    @marks.turns(12)
    def test_disabled_host_is_no_allocation_candidate(self):
        with self.disabled('host2'):
            found = self.by_host()
        self.assertEqual('no allocation candidate', found['host2']['filtered_by'])
        self.assertIn('COMPUTE_STATUS_DISABLED', found['host2']['why'])
        self.assertIsNone(found['host2']['rank'])
        self.assertEqual({}, found['host2']['weighers'])
        self.assertEqual(4, sum(row['rank'] is not None for row in found.values()))

    @marks.turns(12)
    def test_host_without_room_names_missing_resource(self):
        big = self._create_flavor(vcpu=1000, memory_mb=64)
        flavor = self.admin_api.get_flavor(big)
        self.flavor = flavor
        found, said = self.explain()
        for row in found:
            self.assertEqual('no allocation candidate', row['filtered_by'])
            self.assertIn('VCPU: 1000 wanted', row['why'])
        self.assertIn('No valid host', said)

    @marks.turns(12)
    def test_host_shows_rejecting_nova_filter_and_its_log(self):
        self.computes['host4'].stop()
        service = self.admin_api.get_services(host='host4', binary='nova-compute')[0]
        self.admin_api.put_service_force_down(service['id'], True)
        found = self.by_host()['host4']
        self.assertEqual('ComputeFilter', found['filtered_by'])
        self.assertEqual('it has not been heard from in a while', found['why'])

    @marks.long
    def test_zone_limits_ranked_hosts(self):
        east = self.aggregate('east', 'host1', 'host2', availability_zone='east')
        found = self.by_host('--availability-zone', 'east')
        self.assertEqual({'host1', 'host2'}, {h for h, row in found.items() if row['rank']})
        self.assertIn(east['uuid'], found['host3']['why'])

    @marks.long
    def test_anti_affinity_spreads_members_of_one_request(self):
        group = self.server_group('group', 'anti-affinity')
        self.boot(host='host5', hints={'group': group['id']})
        found = self.by_host('--group', group['id'], '--num', '4')
        self.assertEqual('ServerGroupAntiAffinityFilter', found['host5']['filtered_by'])
        self.assertTrue(found['host5']['why'])
        self.assertEqual({'host1', 'host2', 'host3', 'host4'},
                         {h for h, row in found.items() if row['instances']})
        members = self.api.get_server_groups()[0]['members']
        self.assertEqual(1, len(members))

    @marks.turns(12)
    def test_capacity_filter_names_exceeded_ceiling(self):
        self.write_policies(boot_ceiling=0.6)
        found = self.by_host()
        self.assertEqual('KronosCapacityFilter', found['host3']['filtered_by'])
        self.assertIn('above boot_ceiling 0.6', found['host3']['why'])

    @marks.long
    def test_aggregate_limits_rows_but_keeps_ranks(self):
        self.aggregate('some', 'host4', 'host5')
        every, some = self.by_host(), self.by_host('--aggregate', 'some')
        self.assertEqual({'host4', 'host5'}, set(some))
        self.assertEqual(every['host4']['rank'], some['host4']['rank'])

    @marks.long
    def test_multiplier_is_shown_with_its_aggregate(self):
        self.aggregate('packed', 'host1', kronos_weight_multiplier='-7',
                       ram_weight_multiplier='3')
        found = self.by_host()
        self.assertEqual(-7.0, found['host1']['weighers']['KronosWeigher']['multiplier'])
        for name in ('KronosWeigher', 'RAMWeigher'):
            self.assertEqual(['packed'], found['host1']['weighers'][name]['aggregates'])
            self.assertEqual([], found['host2']['weighers'][name]['aggregates'])
        self.assertEqual([], found['host1']['weighers']['DiskWeigher']['aggregates'])
        table, _said = self.explain(form='table')
        cell = next(row['Kronos'] for row in table if row['Host'] == 'host1')
        self.assertIn('x -7 = -2.800 (packed)', cell)


class SetTestCase(ExplainTestCase):

    @marks.turns(12)
    def test_set_multiplier_changes_choice(self):
        self.occupy()
        found = self.by_host('--set', 'kronos_weight_multiplier=-1000')
        self.assertEqual(1, found['host3']['with_set']['rank'])
        self.assertEqual(5, found['host1']['with_set']['rank'])
        self.assertEqual(1.0, CONF.filter_scheduler.kronos_weight_multiplier)
        before = found['host3']['weighers']['KronosWeigher']
        after = found['host3']['with_set']['weighers']['KronosWeigher']
        self.assertEqual((1.0, -1000.0), (before['multiplier'], after['multiplier']))
        self.flags(kronos_weight_multiplier=-1000.0, group='filter_scheduler')
        self.wait()
        self.assertEqual('host3', self.select()[0][0])

    @marks.long
    def test_set_accepts_kronos_option(self):
        _found, said = self.explain('--set', 'policies_file=/nowhere/policies.yaml')
        self.assertIn('With --set: There are no scores of 5 hosts', said)
        self.assertIn('no valid /nowhere/policies.yaml', said)
        self.assertEqual([self.policies_file], CONF.kronos.policies_file)

    @marks.long
    def test_set_refuses_wrong_names_and_values(self):
        for text, words in (('colour=2', 'ram_weight_multiplier'), ('ram_weight_multiplier', '='),
                            ('workers=2', 'no'), ('ram_weight_multiplier=much', 'much'),
                            ('hard_ceiling=maybe', 'neither true nor false')):
            with self.subTest(text):
                error = self.assertRaises(exception.WeighError, self.explain, '--set', text)
                self.assertIn(words, str(error))
                self.assertIn(text, str(error))


class UnusualTestCase(ExplainTestCase):

    @marks.turns(12)
    def test_missing_scores_give_stock_ranks_and_reason(self):
        self.prometheus.stop()
        self.occupy()
        found, said = self.explain()
        self.assertIn('There are no scores of 5 hosts', said)
        self.assertIn('cannot be reached', said)
        for row in found:
            self.assertEqual(0.0, row['weighers']['KronosWeigher']['product'])
            self.assertIsNone(row['headroom'])

    @marks.long
    def test_wait_option_limits_wait_for_silent_source(self):
        with mock.patch('kronos_nova.scheduler.score_cache.ScoreCache.has_queried_source', False):
            _found, said = self.explain('--wait', '0')
        self.assertIn('has not answered within 0 s', said)

    @marks.long
    def test_unknown_names_give_one_error_line(self):
        for options, words in (
                (('--flavor', 'no\x1bne'), 'no such flavor'),
                (('--group', '7b1f7d3c-0000-4000-8000-000000000000'), 'no such server group'),
                (('--aggregate', 'nowhere'), 'no such aggregate'),
                (('--availability-zone', 'moon'), 'no aggregate makes this zone')):
            with self.subTest(options):
                error = self.assertRaises(exception.WeighError, self.explain, *options)
                self.assertIn(words, str(error))

    @marks.turns(12)
    def test_image_properties_limit_hosts(self):
        with mock.patch('keystoneauth1.loading.load_auth_from_conf_options', autospec=True):
            for name in ('70a599e0-31e7-49b7-b260-868f441e862b', 'fakeimage7'):
                found, _said = self.explain('--image', name)
                self.assertEqual([1, 2, 3, 4, 5], [row['rank'] for row in found])
            self.glance.create(context.get_admin_context(), {
                'name': 'vulkan', 'status': 'active', 'min_ram': 0, 'min_disk': 0,
                'container_format': 'raw', 'disk_format': 'raw',
                'properties': {'trait:HW_GPU_API_VULKAN': 'required'}})
            found, _said = self.explain('--image', 'vulkan')
            self.assertEqual({'it lacks trait HW_GPU_API_VULKAN'}, {row['why'] for row in found})
            for name, words in (('fakeimage123456', ' images have this name'),
                                ('nothing', 'no such image'),
                                ('70a599e0-0000-4000-8000-868f441e862b', 'no such image')):
                error = self.assertRaises(exception.WeighError, self.explain, '--image', name)
                self.assertIn(words, str(error))

    @marks.long
    def test_csv_has_columns_for_every_weigher_value(self):
        rows, _said = self.explain(form='csv')
        self.assertEqual([1, 2, 3, 4, 5], [row['Rank'] for row in rows])
        for name in ('RAMWeigher', 'IoOpsWeigher', 'KronosWeigher'):
            for what in ('raw', 'normalised', 'multiplier', 'aggregates', 'product'):
                self.assertIn(f'{name} {what}', rows[0])

    @marks.long
    def test_table_omits_and_names_weighers_that_add_0(self):
        self.occupy()
        rows, said = self.explain(form='table')
        self.assertIn('RAM', rows[0])
        self.assertNotIn('ServerGroupSoftAffinity', rows[0])
        self.assertRegex(said, 'add 0 to every host: .*ServerGroupSoftAffinityWeigher')
        rows, _said = self.explain('--long', form='table')
        self.assertIn('ServerGroupSoftAffinity', rows[0])

    @marks.turns(12)
    def test_explain_writes_nothing_and_sends_no_notification(self):
        self.occupy()
        before = self.everything()
        self.notifier.reset()
        written = []
        for verb in ('put', 'post', 'delete'):
            self.useFixture(self.refusing(report.SchedulerReportClient, verb, written))
        self.explain('--num', '5', '--set', 'ram_weight_multiplier=9')
        self.assertEqual([], written)
        self.assertEqual(before, self.everything())
        self.assertEqual([], self.notifier.versioned_notifications)

    @staticmethod
    def refusing(owner, name, written):
        return fixtures.MonkeyPatch(f'{owner.__module__}.{owner.__name__}.{name}',
                                    lambda *args, **kwargs: written.append((name, args)))

    def everything(self):
        """All rows of Nova's databases that do not change by themselves."""
        found = []
        for engine in engines().values():
            metadata = sa.MetaData()
            metadata.reflect(engine)
            with engine.connect() as connection:
                for table in metadata.sorted_tables:
                    if table.name in ('services', 'compute_nodes'):
                        continue
                    found.append((table.name, sorted(
                        map(repr, connection.execute(sa.select(table)).all()))))
        self.assertTrue([rows for name, rows in found if name == 'instances' and rows])
        return found

    @marks.long
    def test_explain_closes_scheduler_runtime(self):
        self.explain()
        self.assertIsNone(runtime._door)


class CommandTestCase(ExplainTestCase):
    """The command itself, a process of its own with a nova.conf."""

    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.occupy()
        self.placement_api = self.useFixture(api.Api(
            deploy.deploy(self.placement.fixture.conf_fixture.conf),
            {'HTTP_X_AUTH_TOKEN': 'admin'}))
        paths = {}
        for uuid, engine in engines().items():
            paths[uuid] = os.path.join(self.directory, f'{uuid}.db')
            with sqlite3.connect(paths[uuid]) as copy, engine.connect() as connection:
                connection.connection.dbapi_connection.backup(copy)
            copy.close()
        with sqlite3.connect(paths[None]) as copy:
            for uuid, path in paths.items():
                copy.execute('UPDATE cell_mappings SET database_connection = ? WHERE uuid = ?',
                             (f'sqlite:///{path}', uuid))
        copy.close()
        self.paths = paths
        self.values = {
            'database': {'connection': f'sqlite:///{self.directory}/None.db'},
            'api_database': {'connection': f'sqlite:///{self.directory}/None.db'},
            'placement': {'auth_type': 'none', 'endpoint_override': self.placement_api.url},
            'filter_scheduler': {
                'available_filters': 'kronos_nova.filters.all_filters\n'
                'available_filters = nova.scheduler.filters.all_filters',
                'enabled_filters': ','.join(CONF.filter_scheduler.enabled_filters),
                'weight_classes': ','.join(CONF.filter_scheduler.weight_classes),
                'shuffle_best_same_weighed_hosts': 'false'},
            'kronos': {'policies_file': self.policies_file, 'settle_seconds': '0'},
            'prometheus': {'url': self.prometheus.url, 'max_retries': '0'},
            'oslo_concurrency': {'lock_path': self.directory}}

    def run_command(self, *options, flavor=None, files=None):
        path = os.path.join(self.directory, 'nova.conf')
        with open(path, 'w') as f:
            for group, values in self.values.items():
                f.write(f'[{group}]\n')
                f.writelines(f'{name} = {value}\n' for name, value in values.items())
        arguments = ['weigh', 'explain', '--flavor', flavor or self.flavor['name'], *options]
        for name in [path] if files is None else files:
            arguments += ['--config-file', name]
        return subprocess.run(
            [sys.executable, '-c', 'import sys; from kronos_nova.cli import app; '
                                   'sys.exit(app.main(sys.argv[1:]))', *arguments],
            capture_output=True, text=True, check=False, timeout=600, cwd=self.directory)

    def assert_one_line(self, done, *words):
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertEqual('', done.stdout)
        self.assertNotIn('Traceback', done.stderr)
        last = done.stderr.splitlines()[-1]
        self.assertTrue(last.startswith('kronos weigh explain: '), last)
        for word in words:
            self.assertIn(word, last)

    def test_command_explains_and_only_reads(self):
        before = {uuid: open(path, 'rb').read() for uuid, path in self.paths.items()}
        done = self.run_command('-f', 'json', '--num', '3')
        self.assertEqual(0, done.returncode, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([1, 2, 3, 4, 5], [row['rank'] for row in found])
        self.assertEqual(self.scores, {row['host']: row['scores']['cpu'] for row in found})
        self.assertEqual('', done.stderr)
        self.assertEqual({'GET'}, {method for method, _ in self.placement_api.door.requests})
        self.assertEqual(before, {uuid: open(path, 'rb').read()
                                  for uuid, path in self.paths.items()})
        expected, _said = self.explain('--num', '3')
        self.assertEqual([row['host'] for row in expected], [row['host'] for row in found])
        for one, other in zip(expected, found, strict=True):
            self.assertAlmostEqual(one['sum'], other['sum'])

    @marks.long
    def test_command_prints_errors_in_one_line(self):
        self.assert_one_line(self.run_command(flavor='none'), 'no such flavor', 'openstack flavor')
        self.assert_one_line(self.run_command(files=['/nowhere/nova.conf']), '/nowhere/nova.conf')
        self.assert_one_line(self.run_command('--set', 'ram_weight=1'), 'ram_weight_multiplier')
        self.assert_one_line(self.run_command('--hint', 'x'), '--hint', 'KEY=VALUE')

    @marks.turns(12)
    def test_command_reports_unreachable_placement(self):
        self.values['placement']['endpoint_override'] = api.ApiTestCase.closed_port()
        self.assert_one_line(self.run_command(), 'Placement', '[placement]')

    @marks.long
    def test_command_reports_unreachable_glance(self):
        self.values['glance'] = {'endpoint_override': api.ApiTestCase.closed_port(),
                                 'num_retries': '0'}
        for image in ('name', '70a599e0-31e7-49b7-b260-868f441e862b'):
            self.assert_one_line(self.run_command('--image', image), 'Glance', '[glance]')

    @marks.long
    def test_command_reports_unreachable_database(self):
        self.values['api_database']['connection'] = f'sqlite:///{self.directory}/no/such.db'
        self.assert_one_line(self.run_command(), "Nova's database", '[api_database]')

    @marks.long
    def test_command_skips_unreachable_cell_database(self):
        cell = next(uuid for uuid in self.paths if uuid and '00000000' not in uuid)
        with sqlite3.connect(self.paths[None]) as copy:
            copy.execute('UPDATE cell_mappings SET database_connection = ? WHERE uuid = ?',
                         (f'sqlite:///{self.directory}/no/such.db', cell))
        copy.close()
        done = self.run_command('-f', 'json')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertNotIn('Traceback', done.stderr)
        self.assertIn(f'Failed to get computes for cell {cell}', done.stderr)
        self.assertIn('Nova knows no compute host', done.stderr)

    @marks.long
    def test_command_refuses_invalid_nova_conf(self):
        self.values['kronos']['settle_seconds'] = 'soon'
        self.assert_one_line(self.run_command(), '[kronos] settle_seconds', 'nova.conf')
        self.values['kronos']['settle_seconds'] = '0'
        self.values['filter_scheduler']['enabled_filters'] = 'NoFilter'
        self.assert_one_line(self.run_command(), 'NoFilter')
        del self.values['api_database']
        self.assert_one_line(self.run_command(), '[api_database] connection is not set')
