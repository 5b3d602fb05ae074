# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Campaigns on a sandbox whose services die: kill -9 in each state of a host.

Two engines and two executors run, on MariaDB. An operator looks at the host's process where the
end of a reboot is not known, says done or repeat, and lets the campaign go on.
"""

import collections
from collections.abc import Callable
import dataclasses
import os
import subprocess
import sys
import time

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.store import api as store_api
from tools.cloud import campaign as campaign_demo
from tools.cloud import client
from tools.cloud import config
from tools.cloud import down
from tools.cloud import host_reboots
from tools.cloud import mariadb
from tools.cloud import processes
from tools.cloud import rebalancer
from tools.cloud import stage
from tools.cloud import tables
from tools.cloud import up
from tools.cloud.layout import CHECKOUT
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.soak import daemons
from tools.cloud.soak import paces

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

HOSTS, SERVERS = 4, (1, 2, 2, 2)
#: Seconds after which a killed process is started again, and within which a campaign ends.
AWAY_SECONDS, PATIENCE = 3.0, 2400.0
#: Seconds that the operator leaves Nova to free what a migration held in Placement.
CLAIMS_SECONDS = 90.0
#: Seconds within which Nova shows all hosts as up after the last kill of a campaign.
UP_SECONDS = 300.0
#: Seconds between two looks at the campaign.
LOOK_SECONDS = 0.01
ENGINE, EXECUTOR, MARIADB, RABBITMQ = 'engine', 'executor', 'mariadb', 'rabbitmq'
STATES = model.CampaignHostState
OPTIONS: config.Sections = {
    'engine': {'evaluation_interval': 5, 'cooldown': 0, 'instance_cooldown': 0},
    'executor': {'poll_interval': 1, 'migration_poll_interval': 1},
}


@dataclasses.dataclass(frozen=True)
class Kill:
    """A process that dies as soon as the host is at a point of its campaign."""

    point: str
    victim: str


#: For each campaign: whether engines do the work, and the kills at each of its hosts in order.
CAMPAIGNS: dict[str, tuple[bool, tuple[tuple[Kill, ...], ...]]] = {
    'command': (True, (
        (Kill('to-come', ENGINE), Kill('disabling', RABBITMQ), Kill('emptying', ENGINE),
         Kill('emptied', MARIADB), Kill('held', ENGINE), Kill('working', ENGINE),
         Kill('returning', ENGINE)),
        (Kill('to-come', MARIADB), Kill('emptying', EXECUTOR), Kill('emptied', ENGINE),
         Kill('rebooting', ENGINE), Kill('enabled', ENGINE)),
        (Kill('disabling', ENGINE), Kill('emptied', RABBITMQ),
         Kill('rebooting', MARIADB), Kill('returning', RABBITMQ)))),
    'operator': (False, (
        (Kill('to-come', RABBITMQ), Kill('emptying', EXECUTOR), Kill('emptied', ENGINE),
         Kill('held', ENGINE), Kill('rebooting', MARIADB), Kill('returning', ENGINE)),
        (Kill('disabling', MARIADB), Kill('emptying', ENGINE), Kill('held', RABBITMQ),
         Kill('rebooting', ENGINE), Kill('enabled', MARIADB)))),
}


class CampaignLab:
    """A sandbox with two engines and two executors, and servers on each host."""

    def __init__(self, run, progress):
        self.run, self.progress = run, progress
        self.stage = stage.Stage(run)
        self.cloud = self.stage.cloud
        pace = paces.build_compressed_pace(20)
        self.daemons = daemons.Daemons(run, pace)
        self.options = config.merge(
            daemons.build_options(run, pace), campaign_demo.build_options(run), OPTIONS)
        self.daemons.create_database()
        self.store = store_api.Store.from_url(mariadb.url(run, daemons.DATABASE))
        flavor = self.stage.flavor(campaign_demo.FLAVOR)
        run.layout.load.write_text('{}')
        self.servers = [self.cloud.boot(f'{host}-{number}', flavor, self.stage.image, host=host)
                        for host, count in zip(run.state.hosts, SERVERS, strict=True)
                        for number in range(count)]
        self.stage.wait_active(self.servers)

    def start_daemons(self, has_command):
        """Start engines that run the command, or leave the work to the operator."""
        for name in self.daemons.names:
            if self.daemons.find_process(name) is not None:
                self.daemons.stop_in_order(name)
        self.run.forget(*self.daemons.names)
        rebalancer.write_configuration(self.run, config.merge(
            self.options, {} if has_command else {'campaign': {'command': ''}}))
        self.daemons.start_all()

    def restart_ended_daemons(self):
        """Start ended daemons again, as systemd does: without MariaDB no daemon starts."""
        for name in self.daemons.names:
            if self.daemons.find_process(name) is None:
                self.run.forget(name)
                self.daemons.start(name)

    def wait_for_services(self):
        """Wait until Nova shows each host as up: RabbitMQ's end stops reports for a minute."""
        deadline = time.monotonic() + UP_SECONDS
        while down_hosts := [host for host in self.run.state.hosts
                             if self.read_service(host).get('state') != 'up']:
            assert time.monotonic() < deadline, f'Nova shows {down_hosts} as down'
            time.sleep(1.0)

    def begin_campaign(self, hosts):
        """Begin to order a campaign; return the process of the command."""
        return subprocess.Popen([
            *rebalancer.command(self.run, 'kronos')[:1], 'campaign', 'start', *hosts, '--together',
            '1', '--reason', 'firmware', '--config-file', str(self.run.layout.kronos_conf)],
            env=self.run.environment())

    def read_campaign(self, old=None):
        """Return the newest campaign but the old one; None while the database is away."""
        try:
            found = next(iter(self.store.campaigns.list_newest_campaigns(1)), None)
        except exception.StoreError:
            return None
        return None if found is None or found.campaign_id == old else found

    def list_begun_reboots(self, campaign, host):
        return [reboot for reboot in host_reboots.read_record(self.run.layout)
                if (reboot.campaign, reboot.host, reboot.ended) == (
                    campaign.campaign_id, host, False)]

    def read_service(self, host):
        """Return the nova-compute of a host as Nova shows it; empty while Nova does not answer."""
        try:
            return host_reboots.find_service(self.cloud, host)
        except client.ApiError:
            return {}

    def kill(self, victim):
        """Kill a process and start it again a moment later; return its name."""
        if victim in (MARIADB, RABBITMQ):
            self.run.kill(victim)
            time.sleep(AWAY_SECONDS)
            self.run.restart(victim)
            return victim
        name = self.find_leader() if victim == ENGINE else self.find_busy_executor()
        self.run.kill(name)
        time.sleep(AWAY_SECONDS)
        self.daemons.start(name)
        return name

    def find_leader(self):
        """Return the engine that has the scope's lease; the first one where neither has it."""
        return self._find_owner('SELECT owner FROM kronos.lease', daemons.ENGINES)

    def find_busy_executor(self):
        return self._find_owner('SELECT worker FROM kronos.task WHERE worker IS NOT NULL '
                                'AND active_instance IS NOT NULL', daemons.EXECUTORS)

    def _find_owner(self, query, names):
        found = [self.daemons.find_name(owner)
                 for [owner] in mariadb.execute(self.run, [query])]
        return next((name for name in found if name in names), names[0])


def is_at(lab, campaign, host, point):
    """Return whether the host is at the point."""
    match point:
        case 'to-come':
            return host.state is STATES.TO_COME and not campaign.begun_hosts
        case 'disabling':
            return host.state is STATES.EMPTYING and host.disabled_at is None
        case 'emptying':
            return host.state is STATES.EMPTYING and bool(ask_nova(
                lab, "SELECT uuid FROM nova.migrations WHERE status IN ('preparing', 'running')"))
        case 'emptied':
            return (host.state is STATES.EMPTYING and host.disabled_at is not None
                    and not ask_nova(lab, 'SELECT uuid FROM nova.instances WHERE deleted = 0 '
                                          f"AND host = '{host.host}'"))
        case 'rebooting':
            return (host.state in (STATES.WORKING, STATES.HELD)
                    and bool(lab.list_begun_reboots(campaign, host.host))
                    and host_reboots.find_compute(lab.run.layout, host.host) is None)
        case 'enabled':
            return (host.state is STATES.RETURNING
                    and lab.read_service(host.host).get('status') == 'enabled')
    return host.state == point


#: States in which a host is at a point, or comes to it.
BEFORE = [STATES.TO_COME, STATES.EMPTYING, STATES.HELD, STATES.WORKING, STATES.IN_DOUBT,
          STATES.FAILED, STATES.RETURNING, STATES.DONE]
LATEST = {'to-come': STATES.TO_COME, 'disabling': STATES.EMPTYING, 'emptying': STATES.EMPTYING,
          'emptied': STATES.EMPTYING, 'held': STATES.HELD, 'working': STATES.WORKING,
          'rebooting': STATES.WORKING, 'returning': STATES.RETURNING,
          'enabled': STATES.RETURNING}


def is_past(host, point):
    return BEFORE.index(host.state) > BEFORE.index(LATEST[point])


def ask_nova(lab, query):
    """Return rows of Nova's database; none while it is away."""
    try:
        return mariadb.execute(lab.run, [query])
    except ConnectionError:
        return []


class Operator:
    """A person who looks at hosts, does the work where engines do not, and answers doubts."""

    def __init__(self, lab, has_command, say: Callable[[str], None]):
        self._lab, self._has_command, self._say = lab, has_command, say
        self._work = None
        self._claims_since = None

    def act(self, campaign, may_work):
        """Do what the campaign asks for.

        :param may_work: the operator may begin with the work at a held host.
        """
        for host in campaign.hosts:
            if host.state in (STATES.IN_DOUBT, STATES.FAILED):
                self._answer_doubt(campaign, host)
                return
            if 'Placement still shows claims' in host.detail:
                self._remove_claims(host)
            if host.state is STATES.HELD and not self._has_command:
                self._do_work(campaign, host, may_work)
        # An engine pauses it before it writes that a host is in doubt.
        if (campaign.state is model.CampaignState.PAUSED
                and not campaign.select_hosts(STATES.WORKING)):
            self._order('resume', campaign_orders.resume_campaign, campaign.scope)

    def _answer_doubt(self, campaign, host):
        """Say done where the process is a new one, or repeat where it is the old one."""
        if host_reboots.is_rebooting(self._lab.run.layout, host.host):
            return
        begun = self._lab.list_begun_reboots(campaign, host.host)
        now = host_reboots.find_compute(self._lab.run.layout, host.host)
        assert now is not None, f'no reboot goes on, and {host.host} has no nova-compute'
        is_new = bool(begun) and (now.pid, now.start) != (begun[-1].pid, begun[-1].start)
        self._order_host('done' if is_new else 'repeat', host.host)

    def _remove_claims(self, host):
        """Remove claims that Nova has left in Placement, if they stay."""
        self._claims_since = self._claims_since or host.since
        if time.time() < max(self._claims_since, host.disabled_at) + CLAIMS_SECONDS:
            return
        self._say('nova-manage placement audit --delete')
        subprocess.run(
            [f'{sys.prefix}/bin/nova-manage', '--config-file',
             str(self._lab.run.layout.etc / 'nova.conf'), 'placement', 'audit', '--delete'],
            env=self._lab.run.environment({'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'}), check=False)
        self._claims_since = time.time()

    def _do_work(self, campaign, host, may_work):
        """Reboot the host once, and say so when that is done."""
        if self._work is None and may_work:
            self._say('the operator reboots it')
            self._work = subprocess.Popen(
                [str(self._lab.run.layout.etc / 'reboot-host'), host.host],
                env={**os.environ, 'KRONOS_CAMPAIGN': campaign.campaign_id})
        elif self._work is not None and self._work.poll() is not None:
            assert self._work.returncode == 0
            if self._order_host('done', host.host):
                self._work = None

    def _order_host(self, order, host):
        return self._order(order, campaign_orders.order_host, host,
                           {'done': campaign_orders.DONE, 'repeat': campaign_orders.REPEAT}[order])

    def _order(self, name, function, *arguments):
        """Do what kronos campaign does, without a process for it; return whether it was done."""
        conf = str(self._lab.run.layout.kronos_conf)
        try:
            with sessions.DatabaseSession(conf) as session:
                function(session, *arguments)
        except exception.KronosException as e:
            self._say(f'kronos campaign {name} fails: {e}')
            return False
        self._say(f'kronos campaign {name}')
        return True


@dataclasses.dataclass
class Row:
    """A kill and what followed, until the next one."""

    host: str
    point: str
    killed: str
    state: str
    followed: list[str] = dataclasses.field(default_factory=list)


class KilledCampaign:
    """A campaign that goes on while processes die."""

    def __init__(self, lab, has_command, plan, old, start):
        """:param start: the process of the command that orders it."""
        self._lab, self._old, self._start = lab, old, start
        self._plans = plan
        #: The kills that are still to come at each host.
        self._plan = {}
        self.rows = []
        #: Points that passed before a look saw them.
        self.missed = []
        self._operator = Operator(lab, has_command, self._note)
        self._seen = {}

    def _note(self, text):
        self._lab.progress.step(text)
        if self.rows:
            self.rows[-1].followed.append(text)

    def run(self):
        """Let it go on until it ends; return it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            campaign = self._lab.read_campaign(self._old)
            if campaign is None:
                assert not self._start.poll(), 'the campaign was refused'
            else:
                self._plan = self._plan or {
                    host.host: list(kills)
                    for host, kills in zip(campaign.hosts, self._plans, strict=True)}
                self._report(campaign)
                if campaign.state.is_terminal:
                    return campaign
                if not self._kill_at_point(campaign):
                    held = campaign.select_hosts(STATES.HELD)
                    self._operator.act(campaign, not any(
                        kill.point == 'held' for host in held for kill in self._plan[host]))
            self._lab.restart_ended_daemons()
            time.sleep(LOOK_SECONDS)
        raise TimeoutError(f'the campaign has not ended: {self._lab.read_campaign()}')

    def _report(self, campaign):
        for key, value in [(host.host, host.state) for host in campaign.hosts] + [
                ('campaign', f'{campaign.state} {campaign.held_because}'.strip())]:
            if self._seen.get(key, value) != value:
                self._note(f'{key} {value}')
            self._seen[key] = value

    def _kill_at_point(self, campaign):
        """Kill if a host is at the next point of its plan; return whether."""
        for host in campaign.hosts:
            kills = self._plan[host.host]
            while kills and is_past(host, kills[0].point):
                self.missed.append((host.host, kills.pop(0)))
                self._lab.progress.step(f'missed: {self.missed[-1]}')
            if kills and is_at(self._lab, campaign, host, kills[0].point):
                kill = kills.pop(0)
                self.rows.append(Row(host.host, kill.point, kill.victim, str(host.state)))
                name = self._lab.kill(kill.victim)
                self.rows[-1].killed = name
                self._lab.progress.step(f'killed {name} at {host.host} {kill.point}')
                return True
            if kills and host.state is STATES.TO_COME:
                break  # the hosts after it are to come as well
        return False


@pytest.fixture(scope='module')
def lab():
    layout = Layout(CHECKOUT / '.sandbox' / 'campaign-kills')
    progress = Progress()
    down.down(layout, keep_logs=False, progress=progress)
    run = up.up(layout, up.Size(hosts=HOSTS), progress)
    try:
        lab = CampaignLab(run, progress)
        yield lab
        lab.store.close()
    finally:
        down.down(layout, keep_logs=True, progress=progress)


@pytest.fixture(scope='module')
def rows():
    """All kills of this module."""
    return []


@pytest.mark.parametrize('name', CAMPAIGNS)
def test_campaign_reboots_each_host_once_and_empty(lab, rows, name):
    has_command, plan = CAMPAIGNS[name]
    lab.start_daemons(has_command)
    lab.wait_for_services()
    before = lab.read_campaign()
    start = lab.begin_campaign(lab.run.state.hosts[:len(plan)])
    killed = KilledCampaign(lab, has_command, plan, before and before.campaign_id, start)
    try:
        campaign = killed.run()
        assert start.wait() == 0
    finally:
        start.kill()
        start.wait()
        rows += killed.rows
        lab.progress.say(tables.table(('host', 'point', 'state', 'killed', 'followed'), [
            (row.host, row.point, row.state, row.killed, '; '.join(row.followed))
            for row in killed.rows]))
    assert campaign.state is model.CampaignState.DONE
    assert {host.state for host in campaign.hosts} == {STATES.DONE}
    assert_rebooted_once(lab, campaign)
    assert_nothing_left(lab)
    assert len(killed.rows) >= sum(map(len, plan)) - 2, killed.missed


def test_kills_are_enough_and_in_each_state(rows):
    assert len(rows) >= 20
    assert {row.state for row in rows} >= {'to-come', 'emptying', 'held', 'working', 'returning'}
    assert {row.killed.rsplit('-', 1)[0] for row in rows} == {
        'kronos-engine', 'kronos-executor', MARIADB, RABBITMQ}


def assert_rebooted_once(lab, campaign):
    begun = [reboot for reboot in host_reboots.read_record(lab.run.layout)
             if reboot.campaign == campaign.campaign_id and not reboot.ended]
    assert not [reboot for reboot in begun if reboot.servers], 'a host was not empty'
    assert collections.Counter(reboot.host for reboot in begun) == dict.fromkeys(
        [host.host for host in campaign.hosts], 1)


def assert_nothing_left(lab):
    """Assert that each host is enabled, and each server runs."""
    def is_whole():
        services = lab.cloud.compute_services('nova-compute')
        servers = {server['id']: server['status'] for server in lab.cloud.servers()}
        return (all(s['status'] == 'enabled' and s['state'] == 'up' for s in services)
                and servers == dict.fromkeys(lab.servers, 'ACTIVE'))

    client.poll(is_whole, 'each host is enabled and each server ACTIVE', timeout=120)
    assert all(host_reboots.find_compute(lab.run.layout, host) is not None
               for host in lab.run.state.hosts)
    assert not [p for p in processes.marked(lab.run.layout.root) if p.name == 'reboot-host']
