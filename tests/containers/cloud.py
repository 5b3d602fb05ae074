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

"""The sandbox' services, an imbalance, and what Nova says about the moves that end it."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

import amqp
import kombu

from tests.integration import servers
from tools.cloud import config
from tools.cloud import down
from tools.cloud import mariadb
from tools.cloud import rebalancer
from tools.cloud import scenario
from tools.cloud import stage
from tools.cloud import up
from tools.cloud.client import poll
from tools.cloud.hypervisors.base import HostSize
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.run import Run
from tools.cloud.soak import moves

GUEST = scenario.Flavor('container-guest', 4, 4096, 5)
#: So long that kolla-ansible can restart containers meanwhile.
MIGRATION_SECONDS = 60.0
#: Statuses of a live migration that has begun and has not ended.
UNDER_WAY = ('preparing', 'running', 'post-migrating')
DAEMONS = ('kronos-executor', 'kronos-engine', 'kronos-migfra')
API = 'kronos-api'


class Cloud:
    """The services of a sandbox that is up, and an MQTT broker."""

    def __init__(self, run: Run, broker: servers.Mosquitto) -> None:
        self.run = run
        self.broker = broker
        self.stage = stage.Stage(run)
        self.client = self.stage.cloud
        self._loads: dict[str, Any] = {}

    def configure(self, policies: str, ports: dict[str, int], database: str,
                  transport_url: str) -> str:
        """Return kronos.conf of daemons in containers, with an empty database."""
        mariadb.execute(self.run, [f'DROP DATABASE IF EXISTS {database}',
                                   f'CREATE DATABASE {database} CHARACTER SET utf8mb4'])
        return config.render(config.merge(rebalancer.build_sections(self.run), {
            'DEFAULT': {'transport_url': transport_url},
            'engine': {'policies_file': policies, 'snapshot_dir': '/var/lib/kronos'},
            'monitoring': {f'{name.partition("-")[2]}_port': port
                           for name, port in ports.items()},
            'database': {'connection': mariadb.url(self.run, database)},
            'mqtt': {'host': '127.0.0.1', 'port': self.broker.port},
            'signing': {'key_repository': '/etc/kronos/signing-keys'},
            # As doc/source/install/api.rst has it; python-memcached is in no image of ours.
            'keystone_authtoken': {'memcached_servers': ''},
        }))

    def make_imbalance(self) -> list[str]:
        """Boot three busy guests on one host; return their UUIDs."""
        flavor = self.stage.flavor(GUEST)
        uuids = [self.client.boot(f'container-{i}', flavor, self.stage.image,
                                  host=self.run.state.hosts[0]) for i in range(3)]
        self.stage.wait_active(uuids)
        self._loads |= {uuid: {'cpu': 4.0, 'memory': 2.0 * scenario.GIB} for uuid in uuids}
        self.stage.load({'instances': self._loads})
        return uuids

    def wait_tasks(self, ask: Callable[..., str], uuids: list[str]) -> None:
        """Wait until an instance has moved and no task is left; each has to be completed.

        :param ask: calls the program kronos with words and returns its output.
        """
        def list_tasks(*more: str) -> list[dict[str, str]]:
            return list(json.loads(ask('task', 'list', '-f', 'json', *more)))

        poll(lambda: 'completed' in str(self.read_live_migrations(uuids)) and not list_tasks(),
             'an instance has moved, and no task is left', timeout=300)
        tasks = [row for row in list_tasks('--all') if row['Instance'] in uuids]
        assert tasks and {row['State'] for row in tasks} == {'completed'}
        states = self.read_live_migrations(uuids)
        assert all(set(statuses) == {'completed'} for statuses in states.values())
        # Each task moved its instance once.
        assert sum(map(len, states.values())) == len(tasks)
        assert len(set(self.read_hosts(uuids).values())) > 1
        poll(lambda: not self.judge_places(), 'Nova and Placement agree on each instance',
             timeout=30)

    def judge_places(self) -> list[str]:
        """Return the instances that Nova and Placement have in different places, in words."""
        return moves.judge_places(self.client.servers(), moves.read_allocations(self.client))

    def judge_moves(self) -> list[str]:
        """Return the moves of kolla's kronos-executor that were lost or doubled, in words."""
        account = moves.find_account(self.client, 'kronos-executor')
        return moves.judge_moves(moves.read_tasks(self.run),
                                 moves.read_migrations(self.run, account))

    def ask_database(self, statement: str) -> Any:
        """Return the one value that a statement reads from a database."""
        [[value]] = mariadb.execute(self.run, [statement])
        return value

    def ask_api(self, address: str, certificate: Path | None = None) -> tuple[int, Any]:
        """Return status and document of kronos-api for the administrator's token."""
        session = self.client.session
        response = session.session.get(
            address, headers={'X-Auth-Token': session.get_token()}, timeout=60,
            verify=str(certificate) if certificate else True)
        return response.status_code, response.json()

    def list_endpoints(self) -> dict[str, str]:
        """Map the interfaces of kronos-api in the catalog to their addresses."""
        def list_all(what: str) -> list[dict[str, Any]]:
            return list(self.client.call('GET', 'keystone', f'/v3/{what}')[what])

        services = {each['id'] for each in list_all('services') if each['type'] == 'rebalance'}
        return {each['interface']: each['url'] for each in list_all('endpoints')
                if each['service_id'] in services}

    def has_queue(self, name: str) -> bool:
        """Return whether RabbitMQ has a queue of this name."""
        address = f'amqp://guest:guest@127.0.0.1:{self.run.ports["rabbitmq"]}//'
        with kombu.Connection(address) as connection:
            try:
                connection.channel().queue_declare(name, passive=True)
            except amqp.NotFound:
                return False
            return True

    def read_revision(self) -> str:
        """Return the revision of the schema of kolla's database."""
        return str(self.ask_database('SELECT version_num FROM kronos.alembic_version'))

    def delete(self, uuids: list[str]) -> None:
        self.stage.delete(uuids)
        for uuid in uuids:
            del self._loads[uuid]

    def read_live_migrations(self, uuids: list[str]) -> dict[str, list[str]]:
        """Map each instance that was live-migrated to the states of its migrations."""
        states_by_uuid: dict[str, list[str]] = {}
        for migration in self.client.migrations():
            if migration['instance_uuid'] in uuids:
                assert migration['migration_type'] == 'live-migration'
                states_by_uuid.setdefault(migration['instance_uuid'],
                                          []).append(migration['status'])
        return states_by_uuid

    def list_under_way(self) -> list[str]:
        """Return the UUIDs of the migrations that Nova carries out now."""
        return [each['uuid'] for each in self.client.migrations()
                if each['status'] in UNDER_WAY]

    def count_migrations_at(self, moment: datetime.datetime) -> int:
        """Count the migrations that began before a moment and ended after."""
        def read(text: str) -> datetime.datetime:
            return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)

        return sum(read(each['created_at']) < moment < read(each['updated_at'])
                   for each in self.client.migrations())

    def read_hosts(self, uuids: list[str]) -> dict[str, str]:
        """Map instances to their hosts; each has to be ACTIVE."""
        server_by_id = {server['id']: server for server in self.client.servers()}
        assert all(server_by_id[uuid]['status'] == 'ACTIVE' for uuid in uuids)
        return {uuid: server_by_id[uuid]['OS-EXT-SRV-ATTR:host'] for uuid in uuids}


@contextlib.contextmanager
def make_cloud(directory: Path) -> Iterator[Cloud]:
    """Bring a sandbox of three hosts up, and take it down."""
    layout = Layout(directory / 'sandbox')
    size = up.Size(hosts=3, host=HostSize(migration_seconds=MIGRATION_SECONDS))
    run = up.up(layout, size, Progress())
    try:
        with servers.mosquitto(directory) as broker:
            yield Cloud(run, broker)
    finally:
        down.down(layout, keep_logs=False, progress=Progress())
