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


"""``kronos-manage``, run as an operator runs it."""

import os
import time

import pytest
import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import schema
from tests import commands
from tests.fixtures import schemas
from tests.unit.rebalancer.store import cases


@pytest.fixture
def url(tmp_path):
    return f'sqlite:///{tmp_path}/kronos.sqlite'


@pytest.fixture
def run(tmp_path, url):
    """Runs the command on a database; (exit status, output, last error line)."""
    def run(*args, url=url):
        conf = tmp_path / 'kronos.conf'
        conf.write_text(f'[database]\nconnection = {url}\n')
        done = commands.main('kronos_nova.cmd.manage', '--config-file', conf, *args)
        assert 'Traceback' not in done.stdout + done.stderr
        return done.returncode, done.stdout.strip(), (done.stderr.splitlines() or [''])[-1]

    return run


def test_sync_makes_the_schema_and_may_be_repeated(run, tmp_path):
    for _ in range(2):
        status, out, error = run('db', 'sync')
        assert (status, out) == (0,
                                 f'The schema is at revision {schema.get_head_revision()}.'), error
    assert run('db', 'version')[:2] == (0, schema.get_head_revision())
    assert os.stat(tmp_path / 'kronos.sqlite').st_mode & 0o777 == 0o600


def test_sync_upgrades_an_older_schema_which_version_reports(run, tmp_path):
    assert run('db', 'sync')[0] == 0
    old, new = schema.get_head_revision(), schemas.name_next_revision()
    migrations = schemas.copy_migrations(tmp_path)

    def run_next(action):
        done = schemas.run_next_release(migrations, 'kronos_nova.cmd.manage', '--config-file',
                                        tmp_path / 'kronos.conf', 'db', action)
        return done.returncode, done.stdout.strip(), done.stderr
    status, out, error = run_next('version')
    assert (status, out) == (1, old) and 'kronos-manage db sync' in error
    assert run_next('sync')[:2] == (0, f'The schema is at revision {new}.')
    assert run_next('version')[:2] == (0, new)
    for action, said in (('version', new), ('sync', f'The schema is at revision {new}.')):
        assert run('db', action)[:2] == (0, said), 'the present release is admitted'


def test_schema_that_does_not_admit_this_release_is_refused(run, tmp_path):
    assert run('db', 'sync')[0] == 0
    migrations = schemas.copy_migrations(tmp_path, admits=False)
    done = schemas.run_next_release(migrations, 'kronos_nova.cmd.manage', '--config-file',
                                    tmp_path / 'kronos.conf', 'db', 'sync')
    assert done.returncode == 0, done.stderr
    for action in ('version', 'sync'):
        status, _, error = run('db', action)
        assert status == 1 and 'Install the release that wrote it' in error


@pytest.mark.parametrize('action', ['version', 'sync'])
def test_a_pre_release_s_schema_is_refused_with_two_ways_on(run, url, action):
    assert run('db', 'sync')[0] == 0
    engine = database.from_url(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0014'"))
    engine.dispose()
    status, out, error = run('db', action)
    assert (status, out) == (1, '0014' if action == 'version' else '')
    assert 'db sync of the last pre-release' in error and 'empty database' in error


@pytest.mark.parametrize('args', [('version',), ('purge', '--older-than', '1d')])
def test_a_file_that_is_not_there_is_not_made(run, tmp_path, args):
    status, _, error = run('db', *args)
    assert status == 1 and 'kronos.sqlite does not exist' in error
    assert not (tmp_path / 'kronos.sqlite').exists()


def test_purge_deletes_what_ended_and_keeps_what_lives_or_cools(run, url):
    """A plan that ended long ago, one that is under way, and cooldowns."""
    assert run('db', 'sync')[0] == 0
    store = api.Store.from_url(url)
    now = time.time()
    ended, tasks, _ = cases.save(store, now=now - 10 * 86400)
    row = cases.claim(store, now=now - 10 * 86400)
    cases.end(store, row, model.TaskState.FAILED, now=now - 10 * 86400, error_type='Failed')
    counted, tasks, _ = cases.save(store, now=now - 10 * 86400)
    row = cases.claim(store, now=now - 10 * 86400)
    cases.end(store, row, now=now - 10 * 86400)
    live, _, _ = cases.save(store, scope='red', now=now - 10 * 86400)
    store.plans.save_plan(store.leases.acquire_lease('green', 'engine', 30, 'hash'),
                          model.Plan('green'),
                          [],
                          plan_id=cases.new_id(), now=now, dry_run=False, cooldown=0,
                          instance_cooldown=0)
    status, out, error = run('db', 'purge', '--older-than', '2d')
    assert status == 0 and out == '1 plan that ended more than 2d ago: deleted.', error
    assert store.plans.find_plan(counted) is not None, 'contracts count its move for keep_days'
    assert store.plans.find_plan(ended) is None and store.plans.find_plan(live) is not None
    status, out, error = run('db', 'audit', '--limit', '1')
    assert status == 0 and out.endswith(' db purge 1 plan older than 2d'), (out, error)
    again, _, _ = cases.save(store, now=now)
    assert run('db', 'purge', '--older-than', '0')[0] == 0
    assert store.plans.find_plan(again) is not None
    assert store.history.read_history('blue', now).cooling, 'a running cooldown is never forgotten'
    store.close()


@pytest.mark.parametrize(('role', 'error'), [
    ('kronos_api', 'is SQLite, which has no roles'), ("x'; DROP TABLE task; --", 'no plain name'),
    ('', 'no plain name'), ('1x', 'no plain name'), ('x' * 33, 'no plain name')])
def test_no_grants_are_printed_for_sqlite_or_an_unsafe_name(run, role, error):
    status, out, said = run('db', 'grants', role)
    assert (status, out) == (1, '') and error in said


def test_keys_are_made_listed_and_rotated(run, tmp_path):
    status, _, error = run('signing-key', 'create')
    assert status == 1 and '[signing] key_repository: it names no directory' in error
    keys = tmp_path / 'keys'
    files = ('--config-file', tmp_path / 'signing.conf')
    (tmp_path / 'signing.conf').write_text(f'[signing]\nkey_repository = {keys}\n')
    assert run(*files, 'signing-key', 'create')[:2] == (
        0, f'{keys} has a key that signs, and the next one.')
    status, _, error = run(*files, 'signing-key', 'create')
    assert status == 1 and 'it has keys already' in error
    before = run(*files, 'signing-key', 'list')[1].splitlines()
    assert [line.split(' ', 2)[::2] for line in before] == [['0', 'next'], ['1', 'signs']]
    assert run(*files, 'signing-key', 'rotate')[:2] == (0, 'Key 2 signs from now on.')
    after = run(*files, 'signing-key', 'list')[1].splitlines()
    assert [line.split(' ', 2)[::2] for line in after] == [
        ['0', 'next'], ['2', 'signs'], ['1', 'has signed']]
    assert after[1].split()[1] == before[0].split()[1], 'the next key signs now'


@pytest.mark.parametrize('age', ['soon', '-1', '3 days'])
def test_an_invalid_age_is_refused_before_any_deletion(run, age):
    status, _, error = run('db', 'purge', f'--older-than={age}')
    assert status == 1 and 'write 300, 5m, 1h30m or 2d' in error


def test_a_database_that_is_away_is_one_line(run):
    status, _, error = run('db', 'sync', url='mysql+pymysql://k:secret@127.0.0.1:1/k')
    assert status == 1 and 'cannot be reached' in error and 'secret' not in error
