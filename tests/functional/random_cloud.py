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


"""A random cloud on a real Nova, and its watcher.

Drawn are hosts of different size, nearly full; scopes, zones and traits; server groups of
every policy, some broken; locked and stopped instances; and, before each plan, load,
disabled hosts and options.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import random
import re
import threading
from typing import Any

from nova import context
from nova.db.api import api as db_api
from nova.db.api import models
from nova.db.main import models as main_models
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer.executors import base as executors
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.sources import base as sources

#: A trait that a flavor may demand, and one of CPUs.
FAST = 'CUSTOM_FAST'
AVX = 'HW_CPU_X86_AVX512F'
#: vCPUs and MiB of the flavors.
SHAPES = ((1, 512), (1, 1024), (2, 1024), (2, 3072), (4, 2048))
REASONS = ('maintenance', 'maintenance', '', 'AUTO: Connection to libvirt lost', 'broken fan')
SCOPES = ('pool', 'racks', 'zones')


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What stays as long as a cloud lives; ``sizes``: vCPUs and MiB by host."""

    sizes: Mapping[str, tuple[int, int]]
    ratio: float
    scoping: str
    mode: str
    fast: frozenset[str]
    avx: frozenset[str]


def drawn(rng: random.Random, count: int) -> Drawn:
    hosts = [f'host{n}' for n in range(1, count + 1)]
    sizes = {h: (rng.choice((4, 6, 8)), rng.choice((4096, 6144, 8192))) for h in hosts}
    return Drawn(sizes, rng.choice((1.0, 1.0, 1.5)), rng.choice(SCOPES),
                 rng.choice(('spread', 'spread', 'spread', 'pack')),
                 frozenset(h for h in hosts if rng.random() < 0.6),
                 frozenset(h for h in hosts if rng.random() < 0.7))


class Load(sources.MetricsSource):
    """A source that knows what :meth:`draw` has drawn, of the hosts' ratio."""

    def __init__(self) -> None:
        self._hosts: dict[str, float] = {}
        self._usages: dict[str, float] = {}

    def draw(self, rng: random.Random, cluster: model.Cluster) -> None:
        """Some hosts are hot; what instances use is part of their host's score."""
        heat = {h: rng.choice((0.5, 1.0, 1.0, 2.0)) for h in sorted(cluster.hosts)}
        self._usages = {u: rng.uniform(0.02, 0.2) * heat.get(i.host, 1.0)
                        for u, i in sorted(cluster.instances.items())}
        self._hosts = {h: min(1.0, rng.uniform(0.02, 0.2) + sum(
            self._usages[u] for u, i in cluster.instances.items() if i.host == h))
            for h in heat}

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        def answer(values: Mapping[str, float]) -> model.QueryResult:
            return model.QueryResult('drawn', model.SourceHealth.HEALTHY, dict(values))
        return model.PolicySamples(
            policy.name, answer(self._hosts), profile=answer(self._usages),
            capacity=answer(self._hosts) if policy.capacity_query else None, age=0.0,
            taken_at=2.0**31)

    def health(self) -> tuple[model.SourceHealth, str]:
        return model.SourceHealth.HEALTHY, 'drawn'


class Witness(nova_executor.NovaExecutor):
    """Our driver; it remembers every no, ours at pre-flight and Nova's answer."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pre_flights: list[exception.MigrationError] = []
        self.answers: list[exception.MigrationError] = []

    def pre_flight(self, task: model.Task, known: executors.StoredFacts) -> str:
        with self._remembered(self.pre_flights):
            return super().pre_flight(task, known)

    def submit(self, task: model.Task, *may_send: Any) -> str | None:
        with self._remembered(self.answers):
            return super().submit(task, *may_send)

    @staticmethod
    @contextlib.contextmanager
    def _remembered(where: list[exception.MigrationError]) -> Iterator[None]:
        try:
            yield
        except exception.MigrationError as e:
            where.append(e)
            raise


def surplus(group: model.ServerGroup, hosts: Iterable[str]) -> int:
    """By how many members a hard group is broken; ``hosts`` of its members."""
    spread = Counter(hosts)
    if group.policy is model.GroupPolicy.AFFINITY:
        return sum(spread.values()) - max(spread.values(), default=0)
    return sum(max(0, count - group.max_server_per_host) for count in spread.values())


class Watcher:
    """Reads Nova's database all the time for where instances are, and compares.

    A group that was broken before may be mended step by step; it is never to
    be more broken than at the start.
    """

    def __init__(self, engine: sa.Engine, groups: Iterable[model.ServerGroup]) -> None:
        self._engine = engine
        self._groups = [g for g in groups if g.policy.is_hard]
        self._before: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.looks = 0
        self.broken: list[str] = []
        self.problem: str | None = None

    def __enter__(self) -> 'Watcher':
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join(60.0)
        self._look()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                self._look()
        except Exception as e:
            self.problem = repr(e)

    def _look(self) -> None:
        at = places(self._engine)
        self.looks += 1
        for group in self._groups:
            count = surplus(group, [at[u] for u in group.members if u in at])
            if count > self._before.setdefault(group.uuid, count):
                self.broken.append(f'group {group.uuid} ({group.policy}, '
                                   f'{group.max_server_per_host}): '
                                   f'{ {u: at.get(u) for u in sorted(group.members)} }')


def engine_of(cell: Any) -> sa.Engine:
    """Return the database of a cell.

    Nova's fixture locks each thread that targets a cell, so call this once, before other
    threads run.
    """
    with context.target_cell(context.get_admin_context(), cell) as targeted:
        return targeted.db_connection.writer.get_engine()


def places(engine: sa.Engine) -> dict[str, str]:
    """Host by instance, at one moment."""
    table = main_models.Instance.__table__
    with engine.connect() as connection:
        rows = connection.execute(sa.select(table.c.uuid, table.c.host).where(
            table.c.deleted == 0, table.c.host.isnot(None)))
        return {row.uuid: row.host for row in rows}


def change_group(uuid: str, policy: str, limit: int | None) -> None:
    """Change a group in the database, as a race between two boots would break it.

    The API has no call for this. Nova's scheduler uses the current policy and members, and
    the limit that each instance was booted with (1 if it had none): never raise it.
    """
    with db_api.context_manager.writer.using(context.get_admin_context()) as session:
        group = session.query(models.InstanceGroup).filter_by(uuid=uuid).one()
        session.query(models.InstanceGroupPolicy).filter_by(group_id=group.id).update({
            'policy': policy,
            'rules': '{}' if limit is None else f'{{"max_server_per_host": {limit}}}'})


def filter_that_refused(log: str, uuid: str) -> str:
    """By nova-scheduler's log: the filter that left no host for the instance."""
    matches = re.findall(rf"Filtering removed all hosts for the request with instance ID '{uuid}'.*"
                         r"'(\w+): \(start: \d+, end: 0\)'", log)
    if matches:
        return str(matches[-1])
    if re.search(rf'Got no allocation candidates from the Placement API.*{uuid}|'
                 rf'{uuid}.*Got no allocation candidates', log):
        return 'placement'
    return 'not told'
