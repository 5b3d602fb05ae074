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

"""``kronos campaign status``, ``pause``, ``resume``, ``abort``, ``done``, ``repeat``, ``skip``."""

import json

import pytest

from kronos_nova import model
from kronos_nova.model import maintenance_windows
from tests import commands
from tests.fixtures import stores

STATES = model.CampaignHostState


@pytest.fixture
def run(tmp_path):
    """Runs kronos campaign; (exit status, output, last error line)."""
    conf = tmp_path / 'kronos.conf'
    conf.write_text(f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n')

    def run(*args):
        done = commands.main('kronos_nova.cli.app', 'campaign', *args, '--config-file', conf)
        assert 'Traceback' not in done.stdout + done.stderr
        return done.returncode, done.stdout, (done.stderr.splitlines() or [''])[-1]

    return run


@pytest.fixture
def store(tmp_path):
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    yield store
    store.close()


def start(store, scope='blue', **states):
    """Write a campaign with hosts in these states."""
    campaign = model.Campaign(
        f'id-{scope}', scope, f'new firmware [campaign id-{scope}]', 2, store.now(), 'ann',
        windows=(maintenance_windows.parse_window('Sat 22:00-04:00'),), hosts=tuple(
            model.CampaignHost(host, n, STATES(state), since=store.now())
            for n, (host, state) in enumerate(states.items())))
    store.campaigns.create_campaign(campaign, 'new firmware')


def states(store, scope='blue'):
    (campaign,) = [c for c in store.campaigns.list_newest_campaigns(9) if c.scope == scope]
    return campaign.state, {host.host: host.state.value for host in campaign.hosts}


def test_status_shows_the_campaign_then_its_hosts_and_why_it_waits(run, store):
    assert run('status', '-f', 'json')[:2] == (0, '[]\n')
    start(store, a='held', b='to-come', c='to-come')
    lease = store.leases.acquire_lease('blue', 'engine', 60, '')
    store.campaigns.record_waits(lease, 'id-blue', 'the next window opens at X')
    first, *hosts = json.loads(run('status', '-f', 'json')[1])
    assert (first['Host'], first['State']) == ('', 'running')
    assert first['Detail'] == (
        'new firmware [campaign id-blue]: scope blue, 2 to-come, 1 held of 3 hosts; '
        'windows sat 22:00-04:00; waits: the next window opens at X')
    assert [(row['Host'], row['State']) for row in hosts] == [
        ('a', 'held'), ('b', 'to-come'), ('c', 'to-come')]
    assert json.loads(run('status', '--scope', 'red', '-f', 'json')[1]) == []


def test_a_pause_and_a_resume_name_the_person_and_are_in_the_audit(run, store):
    start(store, a='emptying', b='to-come')
    status, out, error = run('pause', '--reason', 'a\tstorm')
    assert (status, out) == (0, 'Campaign id-blue pauses.\n'), error
    detail = json.loads(run('status', '-f', 'json')[1])[0]['Detail']
    assert 'paused by ' in detail and detail.endswith(': a storm')
    status, _out, error = run('pause', '--reason', 'again')
    assert status == 1 and 'it is paused, and not running' in error
    assert run('resume')[:2] == (0, 'Campaign id-blue goes on.\n')
    assert [(row.command, row.reason) for row in store.audit.list_newest_entries(3)] == [
        ('campaign resumed', ''), ('campaign paused', 'a storm'),
        ('campaign started', 'new firmware')]


def test_an_abort_leaves_out_later_hosts_and_keeps_those_that_are_held(run, store):
    start(store, a='done', b='held', c='emptying', d='to-come')
    status, out, error = run('abort', '--reason', 'a mistake')
    assert status == 0 and 'Campaign id-blue ends' in out, error
    assert states(store) == (model.CampaignState.ABORTING, {
        'a': 'done', 'b': 'held', 'c': 'withdrawn', 'd': 'skipped'})
    (row,) = store.audit.list_newest_entries(1)
    assert (row.command, row.target, row.reason) == (
        'campaign aborted', 'campaign id-blue', 'a mistake')


def test_orders_for_hosts_need_the_right_state(run, store):
    start(store, a='held', b='failed', c='in-doubt', d='to-come', e='working', f='emptying')
    assert run('done', 'a')[:2] == (0, 'Host a: the engine enables it once it is back.\n')
    assert run('repeat', 'b')[0] == 0 and run('skip', 'd')[0] == 0 and run('skip', 'f')[0] == 0
    assert [(row.command, row.target) for row in store.audit.list_newest_entries(4)] == [
        ('campaign skip', 'host f'), ('campaign skip', 'host d'), ('campaign repeat', 'host b'),
        ('campaign done', 'host a')]
    assert states(store)[1] == {'a': 'returning', 'b': 'held', 'c': 'in-doubt', 'd': 'skipped',
                                'e': 'working', 'f': 'withdrawn'}
    for words, problem in ((('done', 'e'), 'it is working in campaign id-blue, and the order needs '
                            'a host that is held for the work'),
                           (('skip', 'e'), 'whose command does not run'),
                           (('repeat', 'a'), 'that failed or is in doubt'),
                           (('done', 'ghost'), 'no campaign that goes on has it')):
        status, _out, error = run(*words)
        assert status == 1 and problem in error, error


def test_of_several_campaigns_the_scope_tells_which(run, store):
    status, _out, error = run('pause', '--reason', 'x')
    assert status == 1 and 'no campaign goes on' in error
    start(store, 'blue', a='to-come')
    start(store, 'red', r='to-come')
    status, _out, error = run('pause', '--reason', 'x')
    assert status == 1 and '2 campaigns go on' in error and 'Name one of blue, red' in error
    assert run('pause', '--scope', 'red', '--reason', 'x')[1] == 'Campaign id-red pauses.\n'
    assert [states(store, scope)[0] for scope in ('blue', 'red')] == ['running', 'paused']


@pytest.mark.parametrize(('words', 'problem'), [
    (('start', 'a', '--reason', 'x\x07'), 'write 1 to 200 printable characters'),
    (('start', 'a', '--reason', 'x' * 201), 'write 1 to 200 printable characters'),
    (('start', 'a'), 'the following arguments are required: --reason')])
def test_a_start_without_a_usable_reason_is_refused(run, words, problem):
    status, _out, error = run(*words)
    assert status == 2 and problem in error, error


def test_a_row_that_was_written_by_hand_is_named_and_hides_no_other_campaign(run, store):
    start(store, a='held')
    start(store, 'green', b='held')
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE campaign SET windows = 'never' WHERE scope = 'green'")
    for options in ((), ('--all',)):
        first, _host, bad = json.loads(run('status', *options, '-f', 'json')[1])
        assert (first['Campaign'], first['State']) == ('id-blue', 'running')
        assert (bad['Campaign'], bad['State']) == ('id-green', 'unreadable')
        assert bad['Detail'] == (
            "scope green; windows: 'never' cannot be read. Correct windows of campaign id-green in "
            'the database, and abort the campaign. Find out who can write to the database')
    status, _out, line = run('pause', '--scope', 'green', '--reason', 'x')
    assert status == 1 and "windows: 'never' cannot be read" in line
    assert run('done', 'b')[0] == 1 and 'id-green' in run('done', 'b')[2]
    assert run('done', 'a')[0] == 0 and run('pause', '--scope', 'blue', '--reason', 'x')[0] == 0
