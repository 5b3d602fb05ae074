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


"""kronos-test-config with unreachable services, and the secrets that it must not print."""

import json
import os
from pathlib import Path
import socket
import subprocess
import sys

import pytest

from kronos_nova.rebalancer.store import api as store_api
from tests import commands
from tests.fixtures import prometheus_api
from tests.unit.rebalancer.store import cases

TOP = Path(__file__).resolve().parents[3]
CANARY = 'c4n4ry-s3cret'
POLICIES = '''
policies:
  - name: cpu
    weight: 1.0
    imbalance_query: cpu
    vm_profile_query: vm
'''


@pytest.fixture
def closed_port():
    """Yield a port on which no process listens."""
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        yield sock.getsockname()[1]


@pytest.fixture
def silent_port():
    """Yield a port that accepts connections and never answers."""
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        sock.listen(16)
        yield sock.getsockname()[1]


class Case:
    """A configuration in a directory of its own."""

    def __init__(self, directory, port):
        self.directory = directory
        self.options = {
            'engine': {'policies_file': directory / 'policies.yaml', 'dry_run': 'true'},
            'prometheus': {'url': f'http://127.0.0.1:{port}', 'timeout': 5, 'max_retries': 0},
            'database': {'connection': f'sqlite:///{directory}/kronos.sqlite'},
            'nova': {'auth_type': 'password', 'auth_url': f'http://127.0.0.1:{port}/v3',
                     'username': 'nova', 'password': CANARY, 'project_name': 'service',
                     'user_domain_name': 'Default', 'project_domain_name': 'Default'}}
        self.default = {}
        (directory / 'policies.yaml').write_text(POLICIES)

    def run(self, *arguments):
        text = ''.join(f'{k} = {v}\n' for k, v in self.default.items())
        for group, options in self.options.items():
            text += f'[{group}]\n' + ''.join(f'{k} = {v}\n' for k, v in options.items())
        (self.directory / 'kronos.conf').write_text('[DEFAULT]\n' + text)
        return commands.main('kronos_nova.cmd.test_config', '--config-file',
                             self.directory / 'kronos.conf', *arguments)

    def items(self, *arguments):
        """Items by name, of a run that ended as it should."""
        done = self.run('--format', 'json', *arguments)
        assert 'Traceback' not in done.stdout + done.stderr
        assert CANARY not in done.stdout + done.stderr
        found = json.loads(done.stdout)
        failed = [i for i in found['items'] if i['status'] == 'failed']
        assert done.returncode == (1 if failed else 0), done.stderr
        assert found["ok"] == (not failed)
        assert all(i['text'] and i['remedy'] for i in failed)
        assert done.stderr == ''
        return {i['name']: i for i in found['items']}


@pytest.fixture
def case(tmp_path, closed_port):
    return Case(tmp_path, closed_port)


def test_services_that_are_away_are_named_with_what_to_do(case):
    items = case.items()
    assert {n: i['status'] for n, i in items.items()} == {
        'options': 'ok', 'policies': 'ok', 'source: prometheus': 'failed', 'keystone': 'failed',
        'placement': 'skipped', 'nova': 'skipped', 'queries': 'skipped', 'broker': 'skipped',
        'database': 'ok'}
    assert '127.0.0.1' in items['keystone']['text']


def test_a_table_is_for_people(case):
    done = case.run()
    assert done.returncode == 1
    assert '| keystone' in done.stdout
    assert '2 of 9 items failed.' in done.stdout
    assert CANARY not in done.stdout + done.stderr


def test_the_database_file_is_not_made_by_looking_at_it(case):
    case.items()
    assert not (case.directory / 'kronos.sqlite').exists()


def test_a_database_without_a_schema_is_reported(case):
    (case.directory / 'kronos.sqlite').touch()
    item = case.items()['database']
    assert item['status'] == 'failed' and 'revision' in item['text']


def test_a_database_that_refuses_us_shows_no_password(case, closed_port):
    case.options['database']['connection'] = (
        f'mysql+pymysql://kronos:{CANARY}@127.0.0.1:{closed_port}/kronos')
    item = case.items()['database']
    assert item['status'] == 'failed' and '127.0.0.1' in item['text']


def test_a_wrong_database_url_is_reported_without_the_url(case):
    case.options['database']['connection'] = f'nonsense://kronos:{CANARY}@x/y'
    assert case.items()['database']['status'] == 'failed'


def test_every_wrong_value_is_reported_at_once(case):
    case.options['engine'] |= {'max_down_fraction': 2, 'cooldown': 'soon'}
    items = case.items()
    assert items['options: [engine] max_down_fraction']['status'] == 'failed'
    assert items['options: [engine] cooldown']['status'] == 'failed'


def test_misspelt_options_and_groups_fail_with_the_word_meant(case):
    case.options['engine'] |= {'dryrun': 'true', 'evaluation_intervall': 60}
    case.options |= {'executer': {'driver': 'nova'}, 'my_plugin': {'colour': CANARY},
                     'oslo_messaging_rabbit': {'rabbit_quorum_queue': 'true'}}
    items = case.items()
    for name, meant in (('[engine] dryrun', 'dry_run'), ('[executer]', '[executor]'),
                        ('[engine] evaluation_intervall', 'evaluation_interval')):
        item = items[f'options: {name}']
        assert item['status'] == 'failed' and f'is {meant} meant?' in item['text']
        assert item['remedy'] == 'Remove or correct it.'
    assert items['options: [my_plugin]']['status'] == 'warning'
    assert {name for name in items if name.startswith('options: ')} == {
        'options: [engine] dryrun', 'options: [engine] evaluation_intervall',
        'options: [executer]', 'options: [my_plugin]'}


def test_groups_of_nova_beside_ours_are_no_findings(case):
    nova = case.directory / 'nova.conf'
    nova.write_text('[filter_scheduler]\nenabled_filters = ComputeFilter\n[libvirt]\n'
                    'virt_type = kvm\n[placement]\nauth_type = password\n[vnc]\nenabled = true\n'
                    '[api_database]\nconnection = sqlite://\n')
    names = set(case.items('--config-file', nova))
    assert not [name for name in names if name.startswith('options: ')]


@pytest.mark.parametrize('daemon', ['engine', 'executor', 'migfra'])
def test_daemons_log_misspelt_options_as_they_start(case, daemon):
    case.options['engine']['dryrun'] = 'true'
    # No such database: the daemon ends as soon as it needs it.
    case.options['database']['connection'] = 'nonsense://x/y'
    case.run()  # writes the configuration
    path = case.directory / 'kronos.conf'
    done = commands.main(f'kronos_nova.cmd.{daemon}', '--config-file', path)
    assert done.returncode == 1
    assert 'WARNING kronos_nova.conf.option_names' in done.stderr
    assert '[engine] dryrun is no option of this release (is dry_run meant?)' in done.stderr


def test_a_wrong_policy_file_is_reported(case):
    (case.directory / 'policies.yaml').write_text(POLICIES.replace('1.0', '0.4'))
    item = case.items()['policies']
    assert item['status'] == 'failed' and 'sum to 1.0' in item['text']


def test_a_nova_conf_beside_it_has_its_policy_files_checked(case):
    dense = case.directory / 'dense.yaml'
    dense.write_text(POLICIES + '    mode: pack\n    capacity_query: cpu\naggregates: [dense]\n')
    nova = case.directory / 'nova.conf'

    def items(multiplier, *files):
        nova.write_text('[filter_scheduler]\nkronos_weight_multiplier = '
                        f'{multiplier}\n[kronos]\n'
                        + ''.join(f'policies_file = {path}\n' for path in files))
        return case.items('--config-file', str(nova))

    spread = case.directory / 'policies.yaml'
    item = items(10, dense, spread)['scheduler']
    assert item['status'] == 'ok' and 'dense.yaml' in item['text'] and '10' in item['text']
    item = items(-10, dense, spread)['scheduler']
    assert item['status'] == 'warning' and item['remedy'].startswith('Negate')
    assert 'policies.yaml says mode: spread, but kronos_weight_multiplier is -10' in item['text']
    item = items(10, dense, spread, case.directory / 'none.yaml')['scheduler']
    assert item['status'] == 'failed' and 'none.yaml' in item['text']


def test_display_names_are_warned_of(case):
    (case.directory / 'policies.yaml').write_text(
        POLICIES + '    vm_profile_label_type: nova_display_name\n')
    assert case.items()['policies: cpu']['status'] == 'warning'


@pytest.mark.parametrize(('deadline', 'status'), [
    ('2020-11-01T22:00:00Z', 'warning'), ('9999-11-01T22:00:00Z', None), (None, None)])
def test_the_forgotten_deadline_of_a_maintenance_is_warned_of(case, deadline, status):
    if deadline is not None:
        case.options['contracts'] = {'ignore_after': deadline}
    item = case.items().get('options: [contracts] ignore_after')
    assert (item and item['status']) == status


@pytest.mark.parametrize(('text', 'options', 'status'), [
    ('default: {notify: 24h}', {}, 'warning'), ('projects: {p: {notify: 1h}}', {}, 'warning'),
    ('default: {notify: 24h}', {'messaging': {'plan_notifications': True}}, None),
    ('default: {disruption: live}', {}, None), ('default: 5', {}, None)])
def test_notices_that_no_listener_gets_are_warned_of(case, text, options, status):
    path = case.directory / 'contracts.yaml'
    path.write_text(text)
    case.options.update({'contracts': {'file': str(path)}, **options})
    item = case.items().get('options: [contracts] file')
    assert (item and item['status']) == status


@pytest.mark.parametrize(('offline', 'options', 'status'), [
    ('never', {}, None), ('consent', {}, 'warning'), ('allow', {}, 'warning'),
    ('allow', {'abort_at_deadline': True}, None),
    ('allow', {'drain_escalation': 'force-complete', 'reset_state_after_abort': True}, None)])
def test_offline_drains_without_ended_migrations_are_warned_of(case, offline, options, status):
    """An engine, or an API, need not have the options of executors in its file."""
    case.options['engine'] = {**case.options.get('engine', {}), 'drain_offline': offline}
    case.options['executor'] = {**case.options.get('executor', {}), **options}
    items = case.items()
    item = items.get('options: [engine] drain_offline')
    assert (item and item['status']) == status
    assert items['options']['status'] == 'ok'


@pytest.mark.parametrize(('wait', 'query', 'status'), [
    (0, '', None), (3600, '', 'warning'), (3600, 'vm_dirty_rate_query: dirty', None)])
def test_quieter_hours_without_measured_writes_are_warned_of(case, wait, query, status):
    case.options['engine'] = {**case.options.get('engine', {}), 'drain_quiet_wait': wait}
    (case.directory / 'policies.yaml').write_text(POLICIES.rstrip() + (
        f'\n    {query}\n' if query else '\n'))
    items = case.items()
    item = items.get('policies: vm_dirty_rate_query')
    assert (item and item['status']) == status and items['policies']['status'] == 'ok'


def test_deprecated_broker_options_are_reported_without_the_password(case, closed_port):
    case.options['messaging'] = {'host': '127.0.0.1', 'port': closed_port, 'username': 'u',
                                 'password': CANARY}
    items = case.items()
    assert items['options: [messaging]']['status'] == 'warning'
    # A dry run needs no broker, and who prepares its end is told of this one.
    assert items['broker']['status'] == 'warning'
    assert f'127.0.0.1:{closed_port}' in items['broker']['text']


@pytest.mark.parametrize('port', ['closed_port', 'silent_port'])
def test_a_broker_that_does_not_answer_is_reported_within_seconds(port, case, request):
    case.options['engine']['dry_run'] = 'false'
    case.default['transport_url'] = (
        f'rabbit://kronos:{CANARY}@127.0.0.1:{request.getfixturevalue(port)}/')
    item = case.items()['broker']
    assert item['status'] == 'failed'
    assert '127.0.0.1' in item['text']


def test_no_broker_is_no_fault(case):
    case.options['engine']['dry_run'] = 'false'
    assert case.items()['broker']['status'] == 'skipped'


def test_sqlite_and_a_broker_elsewhere_do_not_go_together(case, closed_port):
    case.options['engine']['dry_run'] = 'false'
    case.default['transport_url'] = f'rabbit://u:p@127.0.0.2:{closed_port}/'
    assert case.items()['database: SQLite']['status'] == 'warning'


@pytest.fixture
def claimed(case):
    """The database file, with an executor's claim as of now; by its name."""
    def claim(name):
        store = store_api.Store.from_url(case.options['database']['connection'])
        store.upgrade()
        now = store.now()
        cases.save(store, now=now)
        cases.claim(store, name, now=now + 1)
        store.close()
    return claim


def test_engine_with_other_contracts_is_named(case):
    store = store_api.Store.from_url(case.options['database']['connection'])
    store.upgrade()
    store.leases.acquire_lease('blue', 'engine', 600, 'p' * 64 + 'c' * 64)
    store.close()
    item = case.items()['database: contracts']
    assert item['status'] == 'warning'
    assert item['text'].startswith('engines of blue have other options of [contracts]')


def test_sqlite_in_use_on_another_machine_is_refused(case, claimed):
    claimed('ctl2:11111111-2222-3333-4444-555555555555:7:uuid')
    item = case.items()['database']
    assert item['status'] == 'failed' and 'in use on another machine: ctl2' in item['text']


def test_sqlite_and_executors_named_on_other_hosts_are_refused(case):
    case.options['executor'] = {'hosts': f'{socket.gethostname()},ctl2'}
    for made in (False, True):
        if made:
            (case.directory / 'kronos.sqlite').touch()
        item = case.items()['database']
        assert item['status'] == 'failed' and 'names other machines: ctl2' in item['text']


def test_sqlite_gives_no_warning_if_the_executors_run_on_this_host(case, closed_port):
    case.options['engine']['dry_run'] = 'false'
    case.default['transport_url'] = f'rabbit://u:p@127.0.0.2:{closed_port}/'
    case.options['executor'] = {'hosts': socket.gethostname()}
    items = case.items()
    assert 'database: SQLite' not in items and items['database']['status'] == 'ok'


def test_sqlite_in_memory_is_refused(case):
    case.options['database']['connection'] = 'sqlite://'
    item = case.items()['database']
    assert item['status'] == 'failed' and 'no other process sees' in item['text']


def test_an_executor_refuses_to_start_on_it_with_one_line(case, claimed):
    claimed('ctl2:11111111-2222-3333-4444-555555555555:7:uuid')
    case.run()  # writes the configuration
    done = commands.main('kronos_nova.cmd.executor', '--config-file',
                         case.directory / 'kronos.conf')
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith('kronos-executor: The database file ') and 'ctl2' in line
    assert 'Traceback' not in done.stderr


def test_prometheus_credentials_in_the_url_are_masked(case, closed_port):
    case.options['prometheus']['url'] = f'http://user:{CANARY}@127.0.0.1:{closed_port}'
    assert case.items()['source: prometheus']['status'] == 'failed'


def test_queries_are_run_without_nova_too(case):
    with prometheus_api.running() as api:
        api.series = {'cpu': {'compute-1': 0.5}}
        case.options['prometheus']['url'] = api.url
        items = case.items()
    assert items['source: prometheus']['status'] == 'ok'
    assert items['query: cpu imbalance_query']['status'] == 'warning'
    assert items['query: cpu vm_profile_query']['status'] == 'failed'
    assert 'no series' in items['query: cpu vm_profile_query']['text']


def test_missing_credentials_are_reported(case):
    del case.options['nova']
    item = case.items()['keystone']
    assert item['status'] == 'failed' and 'auth_type' in item['text']


def test_a_missing_configuration_file_gives_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cmd import test_config; '
                               'sys.exit(test_config.main())',
         '--config-file', str(tmp_path / 'none')],
        capture_output=True, text=True, check=False, env={**os.environ, 'PYTHONPATH': str(TOP)})
    assert done.returncode == 1
    assert done.stdout == '' and len(done.stderr.splitlines()) == 1


def test_migfra_is_checked_if_a_permit_is_configured(case, closed_port):
    case.options['mqtt'] = {'host': '127.0.0.1', 'port': closed_port, 'username': 'kronos',
                            'password': CANARY}
    case.options['migfra'] = {'allow': 'start-vm:*:*'}
    items = case.items()
    assert items['mqtt']['status'] == 'failed'
    assert f'127.0.0.1:{closed_port}' in items['mqtt']['text']
    assert items['migfra: dry run']['status'] == 'warning'
    assert items['migfra: allow 1']['text'].startswith('start-vm:*:*: ')
    assert 'repin' not in items and not [name for name in items if name.startswith('hook')]
    del case.options['migfra']
    assert case.items()['migfra']['status'] == 'warning'


def test_an_invalid_permit_is_reported_with_its_file(case):
    case.options['migfra'] = {'allow': 'fly-vm:*:*'}
    items = case.items()
    item = items['options: [migfra] allow']
    assert item['status'] == 'failed' and 'fly-vm' in item['text']
    assert 'kronos.conf' in item['text']
    assert items['migfra']['remedy'] == 'Correct what stands under options.'


def test_hooks_that_may_be_called_are_looked_at_and_not_called(case, closed_port):
    (case.directory / 'secret').write_text(CANARY * 2)
    case.options['hooks'] = {'enabled': 'webhook', 'on_request': 'pause,nobody'}
    case.options['hook_webhook'] = {'url': f'http://user:{CANARY}@127.0.0.1:{closed_port}',
                                    'secret_file': case.directory / 'secret'}
    items = case.items()
    assert {name: i['status'] for name, i in items.items() if name.startswith('hook')} == {
        'hook: webhook': 'failed', 'hook: pause': 'ok', 'hook: nobody': 'failed'}


def test_the_plan_webhook_is_checked_and_its_password_hidden(case, closed_port):
    case.options['plan_webhook'] = {'url': f'http://user:{CANARY}@127.0.0.1:{closed_port}'}
    item = case.items()['plan webhook']
    assert (item['status'], item['text']) == (
        'failed', '[plan_webhook] secret_file: it is not set')
    (case.directory / 'secret').write_text(CANARY * 2)
    case.options['plan_webhook']['secret_file'] = case.directory / 'secret'
    item = case.items()['plan webhook']
    assert item['status'] == 'failed' and 'was not reached (ConnectionError)' in item['text']
    assert CANARY not in str(item)


def test_pinning_without_libvirt_or_a_host_is_reported(case):
    case.options['repin'] = {'uri': 'qemu+ssh://{host}/system'}
    assert case.items()['repin']['status'] in ('failed', 'skipped')
