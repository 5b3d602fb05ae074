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

"""The helpers of the tests on libvirt: guests with a heartbeat, and daemons."""

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import json
import os
import re
import time
from typing import Any

from tools.cloud import client
from tools.cloud import config
from tools.cloud import hypervisors
from tools.cloud import mariadb
from tools.cloud import policies
from tools.cloud import processes
from tools.cloud import prometheus
from tools.cloud import rebalancer
from tools.cloud import up
from tools.cloud.hypervisors.libvirt import LibvirtHypervisor
from tools.cloud.run import Run

HEARTBEAT = re.compile(
    rb'HB boot=(?P<boot>[0-9a-f]{8}) up=(?P<up>[0-9.]+) seq=(?P<seq>[0-9]+) '
    rb'cpu=(?P<cpu>[0-9]+) dirty=(?P<dirty>[0-9@]+) passes=(?P<passes>[0-9]+)\r?\n')
#: QEMU asks once a second whether a terminal is open, and drops what it writes before.
OPEN_SECONDS = 1.5
#: A migration may lose the interrupt on which the guest's serial port waits to write more;
#: any input brings another one.
SILENCE_SECONDS = 3
#: A guest that has just arrived has to fetch its memory from the machine, which other guests use.
ARRIVAL_SECONDS = 90
#: A guest boots in 5 s on a quiet machine.
BOOT_SECONDS = 120
FLAVOR = ('nano', 1, 192, 1)
#: Options of every test: cycles soon after one another, and a drain of one host of two.
OPTIONS: config.Sections = {
    'engine': {
        'cold_migrate_stopped': 'true',
        'evacuate_disabled_hosts': 'true',
        'max_drain_fraction': 0.6,
        'max_down_fraction': 0.6,
    },
}


@dataclasses.dataclass(frozen=True)
class Heartbeat:
    """A line of a guest's console: which boot of the guest, its age, its counter."""

    boot: str
    up: float
    seq: int
    cpu: int
    passes: int


class Guest:
    """A server that runs the test guest."""

    def __init__(self, lab: 'Lab', uuid: str) -> None:
        self._lab = lab
        self.uuid = uuid
        self.domain = str(self.read()['OS-EXT-SRV-ATTR:instance_name'])

    def read(self) -> dict[str, Any]:
        """Return Nova's record of the server."""
        return self._lab.cloud.server(self.uuid)

    def find_host(self) -> str:
        """Return the host that Nova names."""
        return str(self.read()['OS-EXT-SRV-ATTR:host'])

    def list_domain_states(self) -> dict[str, str]:
        """Return the hosts whose libvirt knows the guest, and the state there."""
        answers = {host: self._lab.hypervisor.run_virsh(self._lab.run, host, 'domstate',
                                                        self.domain)
                   for host in self._lab.list_hosts_up()}
        return {host: done.stdout.strip() for host, done in answers.items()
                if done.returncode == 0}

    def assert_same_boot(self, before: Heartbeat) -> None:
        """Assert that the guest has run on since: its boot is the same, its clock went on."""
        now = self.read_heartbeat()
        assert now.boot == before.boot
        assert now.up > before.up
        assert now.seq > before.seq

    def talk(self, line: str = '', until: re.Pattern[bytes] = HEARTBEAT,
             seconds: float = 30) -> re.Match[bytes]:
        """Send a line to the guest's console and return the first answer that fits.

        :raises TimeoutError: none came within ``seconds``
        """
        deadline = time.monotonic() + seconds
        text = b''
        while time.monotonic() < deadline:
            terminal = os.open(self._find_console(), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                for text in self._listen(terminal, line, deadline):
                    if match := until.search(text):
                        return match
            except OSError as e:
                # The guest has gone to another host, and its console with it.
                if e.errno != errno.EIO:
                    raise
            finally:
                os.close(terminal)
        raise TimeoutError(f'{self.domain} wrote no {until.pattern!r} within '
                           f'{seconds:.0f} s but {text[-300:]!r}: {self._describe_domain()}')

    def _describe_domain(self) -> str:
        """Describe the domain on each host: its state, and twice what its processor has used."""
        reports = []
        for host in self.list_domain_states():
            for _ in range(2):
                done = self._lab.hypervisor.run_virsh(self._lab.run, host, 'domstats', '--state',
                                                      '--vcpu', self.domain)
                reports.append(f'{host}: {" ".join(done.stdout.split())}')
                time.sleep(2)
        return '; '.join(reports)

    def _find_console(self) -> str:
        """Return the terminal of the running domain."""
        for host, state in self.list_domain_states().items():
            done = self._lab.hypervisor.run_virsh(self._lab.run, host, 'ttyconsole', self.domain)
            if state == 'running' and done.returncode == 0:
                return done.stdout.strip()
        raise AssertionError(f'{self.domain} runs nowhere')

    @staticmethod
    def _listen(terminal: int, line: str, deadline: float) -> Iterator[bytes]:
        """Send a line, and yield the text that came since, again and again."""
        time.sleep(OPEN_SECONDS)
        with contextlib.suppress(BlockingIOError):
            os.read(terminal, 1 << 16)
        if line:
            os.write(terminal, line.encode() + b'\n')
        text, wake = b'', time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                text += os.read(terminal, 1 << 16)
            yield text
            if time.monotonic() > wake:
                wake += SILENCE_SECONDS
                os.write(terminal, b'\n')
            time.sleep(0.05)

    def read_heartbeat(self) -> Heartbeat:
        """Return a heartbeat of now.

        :raises TimeoutError: the guest writes none
        """
        match = self.talk()
        return Heartbeat(match['boot'].decode(), float(match['up']), int(match['seq']),
                         int(match['cpu']), int(match['passes']))

    def measure_lag(self, heartbeats: int = 4) -> float:
        """Return by how many seconds the guest's uptime is behind the machine's clock.

        The clock of a guest that stands still stands still, too: the difference of two lags is the
        time for which it did. The smallest of several, since a line may arrive late.
        """
        return min(time.time() - float(self.talk()['up']) for _ in range(heartbeats))

    def load_processor(self, percent: int) -> None:
        """Let the guest use so much of one processor."""
        self.talk(f'cpu {percent}', re.compile(rb'HB [^\n]*cpu=%d ' % percent))

    def rewrite_memory(self, size_mib: int, rate_mib: int) -> None:
        """Let the guest rewrite memory, ``rate_mib`` each second; 0 ends that."""
        self.talk(f'dirty {size_mib} {rate_mib}',
                  re.compile(rb'HB [^\n]*dirty=%d@%d ' % (size_mib, rate_mib)), ARRIVAL_SECONDS)

    def write_disk(self, size_mib: int) -> str:
        """Write data to the guest's disk and return their MD5."""
        return self.talk(f'disk {size_mib}', re.compile(rb'DISK ([0-9a-f]{32})'))[1].decode()

    def sum_disk(self, size_mib: int) -> str:
        """Return the MD5 of the first MiB of the guest's disk."""
        return self.talk(f'sum {size_mib}', re.compile(rb'DISK ([0-9a-f]{32})'))[1].decode()


class Lab:
    """A sandbox of libvirt that is up."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.cloud = client.Cloud(run.ports)
        self.hypervisor = LibvirtHypervisor()
        assert hypervisors.get_hypervisor(run.state.hypervisor).hypervisor_type == 'QEMU'
        self._image = self.cloud.find_image(up.IMAGE)
        self._flavor = self.cloud.ensure_flavor(*FLAVOR)

    @property
    def hosts(self) -> list[str]:
        return self.run.state.hosts

    def list_hosts_up(self) -> list[str]:
        """Return the hosts that were not killed."""
        started = {process.name for process in self.run.state.processes}
        return [host for host in self.hosts if host in started]

    def configure(self, more: config.Sections) -> None:
        """Write kronos.conf with further options; daemons read it when they start."""
        rebalancer.write_configuration(self.run, config.merge(OPTIONS, more))

    def reset(self) -> None:
        """Stop our daemons, delete guests and plans, enable hosts: the next test finds none."""
        for program in ('kronos-migfra', 'kronos-engine', 'kronos-executor'):
            if self.is_running(program):
                self.stop(program)
        self.clear_guests()
        groups = self.cloud.call('GET', 'nova', '/v2.1/os-server-groups?all_projects=True')
        for group in groups['server_groups']:
            self.cloud.call('DELETE', 'nova', f'/v2.1/os-server-groups/{group["id"]}')
        for service in self.cloud.compute_services('nova-compute'):
            if service['status'] == 'disabled':
                self.cloud.set_service(service['host'], 'enabled')
        for file in self.run.layout.kronos.glob('kronos.sqlite*'):
            file.unlink()
        self.configure({})
        self.run_program('kronos-manage', 'db', 'sync')

    # -- guests ----------------------------------------------------------------

    def clear_guests(self) -> None:
        """Delete all guests."""
        for server in self.cloud.servers():
            self.cloud.delete(server['id'])
        self.wait(lambda: not self.cloud.servers(), 'every server is deleted')

    def boot(self, name: str, host: str | None = None, **extra: Any) -> Guest:
        """Boot a guest, by Nova's scheduler or on a host, and wait for its heartbeat."""
        if host is not None:
            extra['host'] = host
        uuid = self.cloud.boot(name, self._flavor, str(self._image), **extra)
        self.wait(lambda: self.cloud.server(uuid)['status'] != 'BUILD', f'{name} is built')
        server = self.cloud.server(uuid)
        assert server['status'] == 'ACTIVE', server.get('fault')
        guest = Guest(self, uuid)
        guest.talk(seconds=BOOT_SECONDS)
        return guest

    def stop_guest(self, guest: Guest) -> None:
        """Stop a guest and wait until it is SHUTOFF; it obeys no ACPI, so it is powered off."""
        self.cloud.call('POST', 'nova', f'/v2.1/servers/{guest.uuid}/action', {'os-stop': None})
        self.wait(lambda: guest.read()['status'] == 'SHUTOFF', f'{guest.uuid} is stopped')

    def start_guest(self, guest: Guest) -> None:
        """Start a stopped guest and wait for its heartbeat."""
        self.cloud.call('POST', 'nova', f'/v2.1/servers/{guest.uuid}/action', {'os-start': None})
        self.wait(lambda: guest.read()['status'] == 'ACTIVE', f'{guest.uuid} is started')
        guest.read_heartbeat()

    def read_pins(self, guest: Guest) -> list[str]:
        """Return the processors of the host for each processor of a guest, by libvirt."""
        done = self.hypervisor.run_virsh(self.run, guest.find_host(), 'vcpupin', guest.domain)
        return [line.split()[1] for line in done.stdout.splitlines()
                if line.strip()[:1].isdigit()]

    def create_server_group(self, name: str, policy: str) -> str:
        """Create a server group and return its UUID."""
        group = self.cloud.call('POST', 'nova', '/v2.1/os-server-groups',
                                {'server_group': {'name': name, 'policy': policy}})
        return str(group['server_group']['id'])

    def change_policy(self, group: str, policy: str) -> None:
        """Change the policy of a server group in Nova's database, which Nova's API cannot."""
        mariadb.execute(self.run, [
            'UPDATE nova_api.instance_group_policy AS p JOIN nova_api.instance_groups AS g '
            f"ON p.group_id = g.id SET p.policy = '{policy}' WHERE g.uuid = '{group}'"])

    def list_allocations(self, uuid: str) -> set[str]:
        """Return the hosts on which Placement holds something for a server."""
        names = {p['uuid']: p['name'] for p in self.cloud.resource_providers()}
        allocations = self.cloud.call('GET', 'placement', f'/allocations/{uuid}')['allocations']
        return {names[provider] for provider in allocations}

    def has_cpu_gap(self, busy: str, idle: str, gap: float = 0.2) -> bool:
        """Ask Prometheus whether the processors of one host are so much busier."""
        text = self.run.layout.policies.read_text()
        scores = prometheus.query(self.run, *policies.query(text, 'cpu'))
        return scores.get(busy, 0.0) - scores.get(idle, 1.0) > gap

    def assert_runs_once(self, guest: Guest, host: str) -> None:
        """Assert that Nova, libvirt and Placement agree on one host of a running guest."""
        assert guest.find_host() == host
        assert guest.list_domain_states() == {host: 'running'}
        assert self.list_allocations(guest.uuid) == {host}

    def list_residents(self) -> dict[str, dict[str, str]]:
        """Return the domains of each host and their states, by libvirt alone."""
        residents = {}
        for host in self.hosts:
            listed = self.hypervisor.run_virsh(self.run, host, 'list', '--all').stdout
            rows = [line.split(maxsplit=2) for line in listed.splitlines() if line.strip()]
            residents[host] = {domain: state.strip() for _, domain, state in rows}
        return residents

    def wait(self, ready: Any, what: str, timeout: float = 180) -> None:
        """Wait until ``ready``, while every daemon lives.

        :raises TimeoutError: it was not so within ``timeout`` seconds
        """
        def check() -> bool:
            self.run.check_alive()
            return bool(ready())

        client.poll(check, what, timeout)

    # -- this project's programs -------------------------------------------------

    def start(self, program: str) -> None:
        """Start a daemon of this project, with libvirt for Python as nova-compute has it."""
        self.run.spawn(program, rebalancer.command(self.run, program),
                       env=self.hypervisor.build_python_path(self.run))

    def start_daemons(self) -> None:
        """Start an executor and an engine, which spreads busy guests from its first cycle on."""
        self.start('kronos-executor')
        self.start('kronos-engine')

    def stop(self, program: str) -> None:
        """Stop a daemon, as its service does."""
        assert self.run.stop_one(program, grace=30) is not None, f'{program} had to be killed'

    def is_running(self, program: str) -> bool:
        return any(p.name == program and processes.is_alive(p)
                   for p in self.run.state.processes)

    def run_program(self, program: str, *arguments: str) -> None:
        """Run one of our programs until it ends well; its output goes to its log."""
        self.run.task(program, [*rebalancer.command(self.run, program), *arguments])()

    def ask(self, *arguments: str, status: int = 0) -> str:
        """Run a subcommand of kronos and return its output; its exit status is as expected."""
        exit_status, output = rebalancer.ask(self.run, *arguments)
        assert exit_status == status, f'kronos {" ".join(arguments)}: {exit_status}\n{output}'
        return output

    def is_service_up(self, host: str) -> bool:
        """Ask Nova whether it counts the host's nova-compute as up."""
        [service] = [service for service in self.cloud.compute_services('nova-compute')
                     if service['host'] == host]
        return bool(service['state'] == 'up')

    def wait_for_tasks(self, count: int = 1, state: str = 'completed',
                       timeout: float = 180) -> None:
        """Wait until so many tasks ended well or as ``state`` says; any other end is an error."""
        def ended() -> bool:
            tasks = self.list_tasks()
            failed = [task for task in tasks
                      if task['state'] in {'failed', 'cancelled'} - {state}]
            assert not failed, failed
            return sum(task['state'] == state for task in tasks) >= count

        self.wait(ended, f'{count} tasks are {state}', timeout)

    def list_open_tasks(self) -> list[dict[str, Any]]:
        """Return the tasks that are not over, as kronos task list shows them."""
        return list(json.loads(self.ask('task', 'list', '-f', 'json')))

    def restart_computes(self) -> None:
        """Restart every nova-compute, which reads its configuration again.

        Nova puts an instance into ERROR whose boot began before nova-compute has started.
        """
        for host in self.hosts:
            self.run.kill(f'nova-compute-{host}')
        before = self._list_reports()
        for host in self.hosts:
            self.run.restart(f'nova-compute-{host}')
        self.wait(lambda: not before & self._list_reports(), 'every nova-compute has reported')

    def _list_reports(self) -> set[tuple[str, str]]:
        """Return the hosts, each with the time of its nova-compute's last report."""
        return {(service['host'], str(service['updated_at']))
                for service in self.cloud.compute_services('nova-compute')}

    def wait_for_services(self) -> None:
        """Wait until Nova lists all its services as up."""
        self.wait(lambda: all(service['state'] == 'up'
                              for service in self.cloud.compute_services()),
                  "Nova's services are up")

    def list_tasks(self) -> list[dict[str, Any]]:
        return rebalancer.tasks(self.run)
