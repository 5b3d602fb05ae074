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


"""Which machine a process is on, and what SQLite cannot be used for."""

import os
import pwd
import socket

from oslo_config import cfg
import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import process_identity
from kronos_nova.rebalancer.store import tables
from kronos_nova.wiring import daemons
from tests.unit.rebalancer.store import cases

BOOT = '11111111-2222-3333-4444-555555555555'


def test_a_name_is_new_tells_the_machine_and_fits_its_column():
    one, two = process_identity.name_process(), process_identity.name_process()
    assert one != two and len(one) <= 255
    assert one.startswith(f'{socket.gethostname()}:{process_identity.boot_id()}:')
    assert process_identity.list_other_machines([one, two]) == []


@pytest.mark.parametrize(('name', 'found'), [
    (f'ctl2:{BOOT}:7:uuid', ['ctl2']),
    (f'{socket.gethostname()}:{BOOT}:7:uuid', []),  # it was started again
    (f'container:{process_identity.boot_id()}:7:uuid', []),
    ('ctl2::7:uuid', []),  # no Linux: nothing is known
    ('an old name', []), ('w1', []), ('', [])])
def test_another_machine_has_another_name_and_another_kernel(name, found):
    assert process_identity.list_other_machines([name, name]) == found


def test_hosts_are_named_in_short_or_in_full():
    mine = socket.gethostname()
    assert process_identity.named_elsewhere([mine, socket.getfqdn(), 'localhost', 'z',
                                             'a']) == ['a', 'z']


def test_names_of_this_machine_are_its_own_with_and_without_a_domain(monkeypatch):
    monkeypatch.setattr(socket, 'gethostname', lambda: 'ctl1.cell.example')
    monkeypatch.setattr(socket, 'getfqdn', lambda: 'ctl1.example.org')
    others = ['cell', 'ctl2', 'example', 'ctl1.example', '.', '']
    assert process_identity.named_elsewhere(
        ['ctl1', 'ctl1.cell.example', 'ctl1.example.org', 'localhost', *others]) == sorted(others)
    path = '/var/k.sqlite'
    monkeypatch.setattr(process_identity, 'network_file_system', lambda path: None)
    assert process_identity.find_sqlite_problem(path, ['b', 'a', 'ctl1']) == (
        f'file {path} is SQLite, and [executor] hosts names other machines: a, b')


def test_a_name_with_colons_is_one_host(monkeypatch):
    assert process_identity.list_other_machines([f'fe80::1:{BOOT}:7:uuid']) == ['fe80::1']


def test_where_no_kernel_tells_its_number_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(process_identity, 'BOOT_ID', str(tmp_path / 'none'))
    assert process_identity.boot_id() == ''
    assert process_identity.list_other_machines([f'ctl2:{BOOT}:7:uuid']) == []
    assert process_identity.name_process().split(':')[1] == ''


@pytest.mark.parametrize(('lines', 'found'), [
    ('/dev/a / ext4\nnas:/x {0} nfs4', 'nfs4'),  # no options
    ('nas:/x {0}', None), ('', None),
    ('nas:/x {0} nfs4 rw\n/dev/b {0} xfs rw', None),  # the later one is seen
    ('/dev/b {0} xfs rw\nnas:/x {0} nfs4 rw', 'nfs4'),
    ('nas:/x {0} nfs4 rw\n/dev/a / ext4 rw', 'nfs4'),  # the longer one
    ('/dev/b {0} zfs rw\nnas:/x {0} nfs4 rw\n/dev/c {0} xfs rw', None)])
def test_of_several_mounts_that_hold_a_file_the_longest_and_last_counts(tmp_path, lines, found):
    mounts = tmp_path / 'mounts'
    mounts.write_text(lines.format(tmp_path))
    assert process_identity.network_file_system(str(tmp_path / 'k.sqlite'), str(mounts)) == found


def test_network_file_systems_are_found_by_the_mount_of_the_file(tmp_path):
    mounts = tmp_path / 'mounts'
    shared = tmp_path / 'two words'
    shared.mkdir()
    mounts.write_text(
        f'/dev/sda1 / ext4 rw 0 0\nproc /proc proc rw 0 0\n'
        f'nas:/x {tmp_path}/two\\040words nfs4 rw 0 0\nnas:/y {tmp_path}/t nfs4 rw 0 0\n'
        f'nas:/z {tmp_path}/over nfs rw 0 0\n/dev/sdb1 {tmp_path}/over xfs rw 0 0\n')

    def kind(path):
        return process_identity.network_file_system(str(path), str(mounts))
    assert kind(shared / 'kronos.sqlite') == 'nfs4'
    assert kind(tmp_path / 'tx' / 'kronos.sqlite') is None
    assert kind(tmp_path / 'over' / 'kronos.sqlite') is None
    (tmp_path / 'link').symlink_to(shared)
    assert kind(tmp_path / 'link' / 'kronos.sqlite') == 'nfs4'
    assert process_identity.network_file_system(str(shared), str(tmp_path / 'none')) is None
    assert process_identity.network_file_system(str(tmp_path)) is None, 'the tests need a local one'


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('connection', f'sqlite:///{tmp_path}/k.sqlite', 'database')
    return conf


def test_engines_of_another_machine_are_refused_while_their_lease_lives(conf):
    store = daemons.open_store(conf)
    assert store.leases.is_empty()
    other = f'ctl2:{BOOT}:7:uuid'
    lease = store.leases.acquire_lease('blue', other, 60, 'hash')
    assert not store.leases.is_empty()
    with pytest.raises(exception.StoreError, match='in use on another machine: ctl2'):
        daemons.open_store(conf)
    store.leases.release_lease(lease)
    daemons.open_store(conf).close()
    store.leases.acquire_lease('blue', process_identity.name_process(), 60, 'hash')
    daemons.open_store(conf).close()
    store.close()


def test_a_refused_configuration_creates_no_tables(conf):
    conf.set_override('hosts', ['ctl2'], 'executor')
    with pytest.raises(exception.StoreError, match='names other machines: ctl2'):
        daemons.open_store(conf)
    with pytest.raises(exception.StoreError, match='revision none'):
        api.Store(conf).check()


def test_executors_of_another_machine_are_refused_while_they_are_heard_of(conf):
    store = daemons.open_store(conf)
    other = f'ctl3:{BOOT}:8:uuid'
    now = store.now()
    cases.save(store, 2, now=now)
    claimed = cases.claim(store, other, now=now)
    cases.claim(store, 'one of ours', now=now)
    path = store.engine.url.database
    with pytest.raises(exception.StoreError) as error:
        store.refuse_other_machines()
    assert str(error.value) == str(exception.StoreError(
        problem=f'file {path} is SQLite and in use on another machine: ctl3',
        remedy=process_identity.REMEDY))
    for change in ({'heartbeat_at': now - api.WRITER_SECONDS - 60},
                   {'active_instance': None, 'state': 'failed', 'completed_at': now}):
        with store.engine.begin() as connection:
            connection.execute(sa.update(tables.task).where(
                tables.task.c.task_id == claimed.task.task_id).values(**change))
        store.refuse_other_machines()
        with store.engine.begin() as connection:
            connection.execute(sa.update(tables.task).where(
                tables.task.c.task_id == claimed.task.task_id).values(heartbeat_at=now))
    store.close()


@pytest.mark.parametrize('url', ['sqlite://', 'sqlite:///:memory:'])
def test_a_database_in_memory_is_refused_with_what_to_use(url):
    with pytest.raises(exception.StoreError) as error:
        api.Store.from_url(url).refuse_other_machines()
    assert str(error.value) == str(exception.StoreError(
        problem='is SQLite in memory, which no other process sees',
        remedy='Give [database] connection a file, or use MariaDB or PostgreSQL.'))


@pytest.mark.parametrize('variable', ['LOGNAME', 'SUDO_USER', 'USER'])
def test_an_operator_is_named_by_uid_and_not_by_the_environment(monkeypatch, variable):
    for each in ('LOGNAME', 'SUDO_USER', 'USER'):
        monkeypatch.delenv(each, raising=False)
    name = pwd.getpwuid(os.getuid()).pw_name
    mine = f'local:{name}@{socket.gethostname()}'
    assert process_identity.name_operator() == mine
    monkeypatch.setenv(variable, 'mallory\n\x1b[2J')
    assert process_identity.name_operator() == f'{mine} (not authenticated: mallory \x1b[2J)'
    assert process_identity.name_local_person() == f'local:{name}'
    monkeypatch.setenv(variable, name)
    assert process_identity.name_operator() == mine


def test_a_uid_without_an_account_is_its_number(monkeypatch):
    for each in ('LOGNAME', 'SUDO_USER', 'USER'):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setattr(os, 'getuid', lambda: 4_000_000_000)
    assert process_identity.name_operator() == f'local:uid 4000000000@{socket.gethostname()}'
