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

"""``kronos-status upgrade check``, run as an operator runs it."""

import json
import os
from pathlib import Path
import sqlite3
import subprocess
import sys

from keystoneauth1 import loading
from oslo_config import cfg
import pytest

from kronos_nova.cmd import upgrades
from kronos_nova.conf import engine
from kronos_nova.conf import nova as nova_conf
from kronos_nova.conf import policies
from kronos_nova.conf import scheduler
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import schema
from tests import commands
from tests.fixtures import schemas
from tests.fixtures import stores

TOP = Path(__file__).resolve().parents[3]
WEIGHERS = 'nova.scheduler.weights.all_weighers,kronos_nova.weighers.all_weighers'
FILTERS = ('ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,'
           'ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,KronosCapacityFilter')
NOVA = f"""
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = kronos_nova.filters.all_filters
enabled_filters = {FILTERS}
weight_classes = {WEIGHERS}
"""


@pytest.fixture
def run(tmp_path):
    """Runs the check on a configuration; (exit status, report on one line)."""
    def run(policies_file=TOP / 'etc/kronos/policies.yaml', extra=''):
        conf = tmp_path / 'kronos.conf'
        conf.write_text(f'''
[engine]
policies_file = {policies_file}
[database]
connection = sqlite:///{tmp_path}/kronos.sqlite
{extra}
''')
        done = commands.main('kronos_nova.cmd.status', '--config-file', conf, 'upgrade', 'check',
                             env={**os.environ, 'COLUMNS': '400'})
        assert 'Traceback' not in done.stdout + done.stderr
        lines = (line.strip('| \n') for line in done.stdout.splitlines())
        return done.returncode, ' '.join(lines)

    return run


def test_current_configuration_on_an_empty_database_is_ready(run):
    status, report = run()
    assert status == 0, report
    assert report.count('Result: Success') == 6


def test_the_libraries_whose_options_are_compared_say_nothing(tmp_path):
    # A way to log in whose own library is not here: stevedore would tell.
    broken = tmp_path / 'login-1.0.dist-info'
    broken.mkdir()
    (broken / 'METADATA').write_text('Metadata-Version: 2.1\nName: login\nVersion: 1.0\n')
    (broken / 'entry_points.txt').write_text('[keystoneauth1.plugin]\nbroken = gone.module:Login\n')
    path = tmp_path / 'kronos.conf'
    path.write_text(f'[engine]\npolicies_file = {TOP}/etc/kronos/policies.yaml\n'
                    f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n')
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cmd import status; '
         'sys.exit(status.main())', '--config-file', str(path), 'upgrade', 'check'],
        cwd=TOP, capture_output=True, text=True, check=True,
        env=os.environ | {'PYTHONPATH': os.pathsep.join(map(str, (TOP, tmp_path)))})
    assert 'Result: Success' in done.stdout
    assert done.stderr == ''


def test_the_check_does_not_make_the_database_it_would_belong_to_root(run, tmp_path):
    status, report = run()
    assert status == 0
    assert not (tmp_path / 'kronos.sqlite').exists()
    assert 'is made by the first daemon' in report


def test_policy_file_that_does_not_load_is_a_failure_with_its_reason(run, tmp_path):
    bad = tmp_path / 'policies.yaml'
    bad.write_text('policies: []\n')
    status, report = run(policies_file=bad)
    assert status == 2
    assert 'Check: Policies Result: Failure' in report
    assert 'the list is empty' in report


@pytest.mark.parametrize(('mode', 'multiplier', 'expected'), [
    ('spread', 1, 0), ('spread', -1, 1), ('pack', 1, 1), ('nonsense', 1, 2)])
def test_a_nova_conf_s_policy_file_is_held_against_its_multiplier(
        run, tmp_path, mode, multiplier, expected):
    path = tmp_path / 'nova.yaml'
    path.write_text('policies: [{name: p, weight: 1, imbalance_query: q, capacity_query: q, '
                    f'mode: {mode}}}]\n')
    status, report = run(extra=f'[kronos]\npolicies_file = {path}\n[filter_scheduler]\n'
                               f'weight_classes = {WEIGHERS}\n'
                               f'kronos_weight_multiplier = {multiplier}\n')
    assert status == expected, report
    assert ('says mode' in report) == (expected == 1)


def test_deprecated_broker_options_are_a_warning(run):
    status, report = run(extra='[messaging]\nhost = rabbit.example.org\n')
    assert status == 1
    assert 'Check: Broker options Result: Warning' in report
    assert 'transport_url' in report


def test_schema_of_a_later_release_is_a_failure(run, tmp_path):
    with sqlite3.connect(tmp_path / 'kronos.sqlite') as connection:
        connection.execute('CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)')
        connection.execute("INSERT INTO alembic_version VALUES ('0ther')")
    connection.close()
    status, report = run()
    assert status == 2
    assert 'revision 0ther, which this release does not know' in report


def test_schema_of_a_pre_release_is_a_failure_with_its_remedy(run, tmp_path):
    with sqlite3.connect(tmp_path / 'kronos.sqlite') as connection:
        connection.execute('CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)')
        connection.execute("INSERT INTO alembic_version VALUES ('0014')")
    connection.close()
    status, report = run()
    assert status == 2
    assert 'revision 0014 of a pre-release' in report and 'last pre-release first' in report


def test_schema_of_an_earlier_release_is_a_warning_that_it_is_upgraded(run, tmp_path):
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    store.close()
    assert run()[0] == 0
    done = schemas.run_next_release(
        schemas.copy_migrations(tmp_path), 'kronos_nova.cmd.status', '--config-file',
        tmp_path / 'kronos.conf', 'upgrade', 'check')
    report = ' '.join(line.strip('| ') for line in done.stdout.splitlines())
    assert done.returncode == 1
    assert f'at revision {schema.get_head_revision()}' in report
    assert 'Back the database up' in report
    assert 'the earlier release starts on it again' in report


def test_schema_of_a_later_release_that_admits_this_one_is_a_warning(run, tmp_path):
    path = f'sqlite:///{tmp_path}/kronos.sqlite'
    with schemas.run_as_next_release() as revision:
        store = api.Store.from_url(path)
        store.upgrade()
        store.close()
    status, report = run()
    assert status == 1
    assert f'at revision {revision} of a later release, which admits this release' in report


def test_unreachable_database_is_a_failure(run, tmp_path):
    (tmp_path / 'kronos.sqlite').mkdir()
    status, report = run()
    assert status == 2
    assert 'Check: Database schema Result: Failure' in report


@pytest.fixture
def nova(tmp_path):
    """Judges a nova.conf that is the right one but for a replacement."""
    def nova(was='', is_now='', text=NOVA):
        assert was in text
        path = tmp_path / 'nova.conf'
        path.write_text(text.replace(was, is_now))
        return upgrades.check_nova(['--config-file', str(path)])

    return nova


def test_the_documented_nova_conf_is_as_it_should_be(nova):
    assert nova() == ('SUCCESS', '')


@pytest.mark.needs_nova
def test_the_defaults_behind_the_traps_are_novas_own():
    """Nova's defaults, and the words that its scheduler looks for."""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', 'import json, inspect; import nova.conf; '
         'from nova.scheduler import utils; group = nova.conf.CONF.filter_scheduler; '
         'print(json.dumps([group.available_filters, group.enabled_filters, '
         'group.weight_classes, inspect.getsource(utils)]))'],
        cwd=TOP, capture_output=True, text=True, check=True,
        env={**os.environ, 'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'})
    available, enabled, weighers, source = json.loads(done.stdout)
    defaults = [option.default for option in upgrades.NOVA_OPTS]
    assert [available, enabled, weighers] == defaults
    for word in (*upgrades.GROUP_FILTERS, upgrades.NOVA_WEIGHERS):
        assert f"'{word}'" in source
    for word in upgrades.SOFT_WEIGHERS:
        assert word.rpartition('.')[2] in source


@pytest.mark.parametrize(('was', 'is_now', 'code', 'said'), [
    ('available_filters = nova.scheduler.filters.all_filters\n', '', 'FAILURE',
     'does not find its own filters'),
    ('available_filters = kronos_nova.filters.all_filters\n', '', 'FAILURE',
     'enabled_filters names KronosCapacityFilter'),
    ('KronosCapacityFilter', 'KronosCapacityFilter,KronosSpeedFilter', 'FAILURE',
     'KronosSpeedFilter, which this release does not have; it has KronosCapacityFilter'),
    ('ServerGroupAntiAffinityFilter,', '', 'WARNING', 'name ServerGroupAntiAffinityFilter: Nova'),
    ('ServerGroupAffinityFilter', 'my.ServerGroupAffinityFilter', 'WARNING',
     'name ServerGroupAffinityFilter: Nova'),
    ('KronosCapacityFilter', 'KronosCapacityFilter,KronosPlacementFilter,JsonFilter', 'WARNING',
     'names KronosPlacementFilter, JsonFilter after KronosCapacityFilter'),
    ('ComputeFilter,', '', 'WARNING', "ComputeFilter of Nova's default"),
    ('nova.scheduler.weights.all_weighers,', '', 'WARNING', 'servers of soft groups'),
    ('nova.scheduler.weights.all_weighers', 'nova.scheduler.weights.ram.RAMWeigher', 'WARNING',
     'servers of soft groups'),
    (',kronos_nova.weighers.all_weighers', '\nkronos_weight_multiplier = 2', 'WARNING',
     'weight_classes does not name kronos_nova'),
    ('kronos_nova.weighers.all_weighers', 'kronos_nova.weighers.all_weighers,'
     'kronos_nova.weighers.headroom.KronosWeigher', 'WARNING', 'it counts twice'),
    ('available_filters = kronos_nova.filters.all_filters', 'available_filters = '
     'kronos_nova.filters.all_filter', 'FAILURE', 'Write kronos_nova.filters.all_filters.'),
    ('kronos_nova.weighers.all_weighers', 'kronos_nova.weigher.all_weighers', 'FAILURE',
     'weight_classes names kronos_nova.weigher.all_weighers, which this release does not have'),
    ('kronos_nova.weighers.all_weighers', 'kronos_nova.weighers.headroom.KronosWeiger',
     'FAILURE', 'Write kronos_nova.weighers.headroom.KronosWeigher.'),
    ('KronosCapacityFilter', 'kronos_nova.filters.capacity.KronosCapacityFilter', 'FAILURE',
     'Write KronosCapacityFilter.'),
    ('available_filters = nova.scheduler.filters.all_filters\navailable_filters = kronos',
     'available_filters = nova.scheduler.filters.all_filters,kronos', 'FAILURE',
     'is one name to Nova')])
def test_a_trap_of_nova_conf_is_named_with_what_to_write(nova, was, is_now, code, said):
    found, details = nova(was, is_now)
    assert found == code
    assert said in details


@pytest.mark.parametrize(('was', 'is_now'), [
    # Filters alone; a Nova without us; soft groups' weighers by their own names.
    (',kronos_nova.weighers.all_weighers', ''),
    ('kronos_nova.weighers.all_weighers', 'kronos_nova.weighers.headroom.KronosWeigher'),
    ('kronos_nova.filters.all_filters', 'kronos_nova.filters.capacity.KronosCapacityFilter'),
    ('KronosCapacityFilter', 'KronosPlacementFilter'),
    ('KronosCapacityFilter', 'KronosPlacementFilter,KronosCapacityFilter'),
    (NOVA, '[filter_scheduler]\nenabled_filters = ComputeFilter\n'),
    ('nova.scheduler.weights.all_weighers', ','.join(sorted(upgrades.SOFT_WEIGHERS)))])
def test_harmless_changes_are_not_reported(nova, was, is_now):
    assert nova(was, is_now) == ('SUCCESS', '')


def test_a_trap_reaches_the_report(run):
    status, report = run(extra=NOVA.replace('ServerGroupAffinityFilter,', ''))
    assert status == 1
    assert 'UnsupportedPolicyException' in report


def test_an_unknown_option_is_named_with_its_nearest_and_no_value(run, tmp_path):
    status, report = run(extra='[executor]\nmigration_timeuot = s3cret\n')
    assert status == 1
    assert 'migration_timeuot is no option of this release (is migration_timeout meant?)' in report
    assert 's3cret' not in report


@pytest.fixture
def options(tmp_path):
    """Judges the options of a file; the details without its path."""
    def options(text):
        path = tmp_path / 'some.conf'
        path.write_text(text)
        code, details = upgrades.check_options([str(path)])
        assert code == ('WARNING' if details else 'SUCCESS')
        return details.replace(f'{path}: ', '')

    return options


@pytest.mark.parametrize(('group', 'name', 'said'), [
    ('filter_scheduler', 'kronos_weigth_multiplier', '(is kronos_weight_multiplier meant?)'),
    ('filter_scheduler', 'krono_weight_multiplier', '(is kronos_weight_multiplier meant?)'),
    ('filter_scheduler', 'kronos_speed', ': it has no effect'),
    ('nova', 'collect_timeuot', '(is collect_timeout meant?)'),
    ('nova', 'Password', '(is password meant?)'),
    ('database', 'conection', '(is connection meant?)'),
    ('kronos', 'share_score', '(is share_scores meant?)')])
def test_a_near_miss_in_a_group_that_others_use_too_is_named(options, group, name, said):
    details = options(f'[{group}]\n{name} = s3cret\n')
    assert details.startswith(f'[{group}] {name} is n')
    assert said in details and 's3cret' not in details


@pytest.mark.parametrize(('text', 'said'), [
    ('[planner]\nx = s3cret\n', '[planner] is a group of neither this release nor its libraries: '
     'its options have no effect, unless a plug-in of yours reads them. Remove or correct it.'),
    ('[oslo_messaging_rabit]\nx = s3cret\n', '(is [oslo_messaging_rabbit] meant?)'),
    ('[cache]\nenabld = s3cret\n', '[cache] enabld is no option (is enabled meant?)'),
    ('[DEFAULT]\ntransport_urll = s3cret\n', '(is transport_url meant?)')])
def test_unknown_groups_and_options_in_kronos_conf_are_named(options, text, said):
    details = options(f'[executor]\n{text}')
    assert said in details and 's3cret' not in details
    assert options(text) == options(f'[filter_scheduler]\n[executor]\n{text}') == '', (
        'a nova.conf, or part of one, has groups that are not ours to know')


def test_groups_of_libraries_and_groups_named_by_options_are_known(options):
    assert options('''[DEFAULT]
debug = true
rpc_backend = x
config_source = vault, more
[engine]
[oslo_messaging_rabbit]
rabbit_quorum_queue = true
[oslo_concurrency]
[cache]
[profiler]
[vault]
[more]
[nova]
auth_section = login
[login]
''') == ''


@pytest.mark.parametrize(('group', 'meant'), [
    ('enigne', 'engine'), ('promethues', 'prometheus'), ('Executor', 'executor'),
    ('databse', 'database'), ('filter-scheduler', 'filter_scheduler')])
def test_a_group_that_is_nearly_one_of_ours_is_named(options, group, meant):
    assert options(f'[{group}]\nx = s3cret\ny = 1\n') == (
        f'[{group}] is no group of this release (is [{meant}] meant?): its options have no '
        'effect. Remove or correct it.')


@pytest.mark.needs_nova
def test_nothing_that_nova_or_keystoneauth_reads_is_taken_for_a_near_miss(options):
    """Each option of each group of Nova and its libraries, and of each way to log in."""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', """
import importlib.metadata, json
from keystoneauth1 import loading
names = [(group, o.dest) for point in importlib.metadata.entry_points(group='oslo.config.opts')
         if point.name == 'nova.conf' or point.name.startswith(('oslo.', 'keystonemiddleware'))
         for group, options in point.load()() for o in options]
names += [('nova', o.dest) for plugin in loading.get_available_plugin_names()
          for o in loading.get_auth_plugin_conf_options(plugin)]
print(json.dumps([(str(group or 'DEFAULT'), name) for group, name in names]))
"""], cwd=TOP, capture_output=True, text=True, check=True,
        env={**os.environ, 'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'})
    names = json.loads(done.stdout)
    assert {'filter_scheduler', 'api_database', 'database', 'notifications', 'nova'} <= {
        group for group, _name in names} and len(names) > 800
    assert options(''.join(f'[{group}]\n{name} = x\n' for group, name in names)) == ''


def test_how_keystoneauth_asks_for_a_service_is_no_near_miss(options):
    """min_version is as near to our tls_min_version as a typing error would be."""
    names = [o.dest for o in loading.get_adapter_conf_options(include_deprecated=True)]
    assert {'min_version', 'interface'} <= set(names)
    used = set(names) - nova_conf.IGNORED
    assert options('[nova]\n' + ''.join(f'{name} = x\n' for name in used)) == ''


def test_ineffective_options_of_keystoneauth_are_named(options):
    """Each option of its adapters is one of ours, or the check names it as ignored."""
    names = {o.dest for o in loading.get_adapter_conf_options(include_deprecated=True)}
    assert names - {o.dest for o in nova_conf.OPTS} == nova_conf.IGNORED
    for name in nova_conf.IGNORED:
        assert options(f'[nova]\n{name} = x\n') == (
            f'[nova] {name} is an option of keystoneauth that has no effect here. Remove it.')


def test_an_old_name_in_a_group_of_others_does_not_make_that_group_ours(monkeypatch, options):
    monkeypatch.setattr(scheduler, 'FILTER_SCHEDULER_OPTS', [
        *scheduler.FILTER_SCHEDULER_OPTS, cfg.IntOpt('kronos_new', deprecated_opts=[
            cfg.DeprecatedOpt('kronos_old', group='DEFAULT'),
            cfg.DeprecatedOpt('kronos_older', group='nova'),
            cfg.DeprecatedOpt('kronos_oldest')])])
    assert options('[DEFAULT]\nkronos_old = 1\nlog_file = x\n') == ''
    renamed = 'is now called [filter_scheduler] kronos_new. Rename it.'
    assert options('[nova]\nkronos_older = 1\n') == f'[nova] kronos_older {renamed}'
    assert options('[filter_scheduler]\nkronos_oldest = 1\n') == (
        f'[filter_scheduler] kronos_oldest {renamed}')


def test_an_option_that_was_renamed_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, 'OPTS', [cfg.IntOpt('new', deprecated_opts=[
        cfg.DeprecatedOpt('old-name', group='planner')])])
    path = tmp_path / 'kronos.conf'
    path.write_text('[planner]\nold_name = 1\n[engine]\nnew = 2\n')
    code, details = upgrades.check_options([str(path)])
    assert code == 'WARNING'
    assert details == f'{path}: [planner] old_name is now called [engine] new. Rename it.'


def test_a_value_out_of_its_bounds_is_a_failure(run):
    status, report = run(extra='[executor]\nmax_concurrent_migrations = 99\n')
    assert status == 2
    assert 'Check: Options Result: Failure' in report


def test_leftovers_of_kronos_0_2_are_named(run, tmp_path):
    old = tmp_path / 'old.yaml'
    old.write_text('policies: [{name: cpu, weight: 1, imbalance_query: q, '
                   'vm_profile_query: q}]\n')
    status, report = run(policies_file=f'{old}\navailability_zone = nova')
    assert status == 1
    assert 'availability_zone' not in report
    assert 'Policy cpu: without vm_profile_unit' in report


def test_the_package_of_kronos_0_2_beside_ours_is_a_failure(tmp_path, monkeypatch):
    info = tmp_path / 'kronos_openstack-0.2.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Name: kronos-openstack\nVersion: 0.2.0\n')
    monkeypatch.syspath_prepend(tmp_path)
    code, details = upgrades.check_leftovers([], None)
    assert code == 'FAILURE'
    assert 'kronos-openstack 0.2.0 is installed beside' in details


def test_a_policy_that_states_its_unit_is_no_leftover():
    found = policies.load_policies(str(TOP / 'etc/kronos/policies.yaml'))
    assert upgrades.check_leftovers([], found) == ('SUCCESS', '')


@pytest.mark.parametrize(('text', 'words', 'absent'), [
    ('[messaging]\n', ['localhost:5672', 'interface = public'], ''),
    ('[messaging]\nhost = mq1\n', ['interface = public'], 'localhost:5672'),
    ('[messaging]\nhost = mq1\n[nova]\ninterface = public\n', [], 'interface'),
    ('[messaging]\nplan_notifications = true\n', [], 'interface'),
    ('[nova]\nauth_type = password\n', [], 'interface')])
def test_changed_defaults_are_reported_for_a_configuration_of_the_ancestor(tmp_path, text, words,
                                                                           absent):
    path = tmp_path / 'kronos.conf'
    path.write_text(text)
    code, details = upgrades.check_leftovers([str(path)], None)
    assert code == ('WARNING' if words else 'SUCCESS'), details
    assert all(word in details for word in words)
    assert not absent or absent not in details
