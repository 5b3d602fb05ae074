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

"""The daemons of this project in a soak: two engines and two executors, as processes."""

from collections.abc import Iterator
import pathlib
import urllib.request

from tools.cloud import config
from tools.cloud import mariadb
from tools.cloud import ports
from tools.cloud import processes
from tools.cloud import rebalancer
from tools.cloud.run import Run
from tools.cloud.soak.paces import Pace

DATABASE = 'kronos'
ENGINES = ('kronos-engine-1', 'kronos-engine-2')
EXECUTORS = ('kronos-executor-1', 'kronos-executor-2')
#: The account of Keystone as which the daemons speak; users and operators have another one.
ACCOUNT = 'nova'


def build_options(run: Run, pace: Pace) -> config.Sections:
    """Return what differs from the sandbox's options: production's own, and a real database."""
    return {
        'engine': {
            'evaluation_interval': 60,
            'cooldown': 600,
            'instance_cooldown': 900,
            'settle_seconds': 300,
            'evacuate_disabled_hosts': 'true',
            'cold_migrate_stopped': 'true',
            'nova_enabled_filters': ','.join(config.NOVA_FILTERS),
        },
        'executor': {
            'stagger_seconds': pace.stagger_seconds,
            'poll_interval': 10,
            'migration_poll_interval': 10,
            'max_concurrent_migrations': 2,
            'migration_timeout': 120,
            'seconds_per_gib': 0,
            'abort_at_deadline': 'true',
            'reset_state_after_abort': 'true',
        },
        'prometheus': {'staleness_threshold': 120},
        'nova': config.password_auth(run.ports, ACCOUNT),
        'database': {'connection': mariadb.url(run, DATABASE)},
    }


def build_python_path(release: pathlib.Path | None) -> dict[str, str]:
    """Return the environment variable by which Python takes a release before this checkout."""
    return {} if release is None else {'PYTHONPATH': str(release)}


class Daemons:
    """Engines and executors: each has a port for its metrics and a configuration file."""

    def __init__(self, run: Run, pace: Pace) -> None:
        self.run, self._pace = run, pace
        self.names = (*ENGINES, *EXECUTORS)
        self._ports = ports.choose(self.names)
        #: Directory of each daemon's release; None: this checkout.
        self.releases: dict[str, pathlib.Path | None] = {}
        rebalancer.write_configuration(run, build_options(run, pace))

    def stop_signing(self) -> None:
        """Let executors carry out tasks without signatures: an old release does not sign."""
        rebalancer.write_configuration(self.run, config.merge(
            build_options(self.run, self._pace), {'signing': {'key_repository': ''}}))

    def create_database(self) -> None:
        """Make the database and its tables."""
        mariadb.execute(self.run, [f'CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4'])
        self.sync_schema(self.releases.get(self.names[0]))

    def sync_schema(self, release: pathlib.Path | None) -> None:
        """Upgrade the schema to that of a release."""
        self.run.task('kronos-manage', rebalancer.command(self.run, 'kronos-manage', 'db', 'sync'),
                      env=build_python_path(release))()

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a daemon with its own name and port."""
        program = name.rsplit('-', 1)[0]
        own = self.run.layout.etc / f'{name}.conf'
        own.write_text(config.render({
            'engine': {'name': name},
            'monitoring': {f'{program.removeprefix("kronos-")}_port': self._ports[name]},
        }))
        self.run.spawn(
            name, rebalancer.command(self.run, program, '--config-file', str(own)),
            env=build_python_path(self.releases.get(name)))

    def find_process(self, name: str) -> processes.Process | None:
        """Return a process of the sandbox that lives."""
        return next((p for p in self.run.state.processes
                     if p.name == name and processes.is_alive(p)), None)

    def find_name(self, owner: str) -> str | None:
        """Return the daemon that has a name in the database (host:boot:pid:random)."""
        pid = owner.rsplit(':', 2)[-2] if owner.count(':') >= 3 else ''
        return next((name for name in self.names
                     if (process := self.find_process(name)) and str(process.pid) == pid), None)

    def stop_in_order(self, name: str) -> None:
        """Send SIGTERM, and kill the daemon when it lives 30 s later."""
        self.run.stop_one(name, grace=30)

    def read_metrics(self, name: str) -> Iterator[tuple[str, float]]:
        """Yield each series of a daemon's page and its value.

        :raises OSError: it does not answer
        """
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        address = f'http://127.0.0.1:{self._ports[name]}/metrics'
        with opener.open(address, timeout=8) as answer:
            for line in answer.read().decode().splitlines():
                if line and not line.startswith('#'):
                    series, _, value = line.rpartition(' ')
                    yield series, float(value)
