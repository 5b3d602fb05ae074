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

"""Samples of the daemons and of the database, kept as a line of JSON each."""

from collections.abc import Iterable
import json
import pathlib
import time
from typing import Any

from tools.cloud import mariadb
from tools.cloud import processes
from tools.cloud.run import Run
from tools.cloud.soak.daemons import Daemons
from tools.cloud.soak.daemons import DATABASE

#: Sampled beside our daemons, because it has our filters and weighers.
BESIDE = ('nova-scheduler',)
TABLES = ('plan', 'task', 'outcome', 'owed_hook')
STEP_SUM = 'kronos_cycle_step_seconds_sum'
STEP_COUNT = 'kronos_cycle_step_seconds_count'


def list_descendants(pid: int) -> list[int]:
    """Return the process and its children: nova-scheduler's workers are forks."""
    try:
        children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
    except OSError:
        return [pid]
    return [pid, *(pid for child in children for pid in list_descendants(int(child)))]


def measure_tree(pid: int) -> dict[str, float] | None:
    """Return the sums over a process and its children."""
    measured = [use for use in map(processes.measure_process, list_descendants(pid)) if use]
    if not measured:
        return None
    return {key: sum(use[key] for use in measured) for key in measured[0]}


class Sampler:
    """Writes samples to a file, and keeps them."""

    def __init__(self, run: Run, daemons: Daemons, file: pathlib.Path) -> None:
        self._run, self._daemons, self._file = run, daemons, file
        self.samples: list[dict[str, Any]] = []

    def take(self, **more: Any) -> None:
        """Take a sample: a daemon or a database that is away is left out."""
        sample: dict[str, Any] = {'at': time.time(), 'processes': {}, 'steps': {}, **more}
        for name in (*self._daemons.names, *BESIDE):
            process = self._daemons.find_process(name)
            if process and (measured := measure_tree(process.pid)):
                sample['processes'][name] = {'pid': process.pid, **measured}
        for name in self._daemons.names:
            try:
                series = list(self._daemons.read_metrics(name))
            except (OSError, ValueError):
                continue
            sample['steps'][name] = sum_steps(series)
        sample |= self._measure_database()
        self.samples.append(sample)
        with self._file.open('a') as file:
            file.write(json.dumps(sample) + '\n')

    def _measure_database(self) -> dict[str, Any]:
        try:
            [[size]] = mariadb.execute(self._run, [
                'SELECT SUM(data_length + index_length) FROM information_schema.tables '
                f"WHERE table_schema = '{DATABASE}'"])
            rows = {table: mariadb.execute(
                self._run, [f'SELECT COUNT(*) FROM {DATABASE}.{table}'])[0][0]
                for table in TABLES}
            states = dict(mariadb.execute(self._run, [
                f'SELECT state, COUNT(*) FROM {DATABASE}.task GROUP BY state']))
        except Exception as e:
            # MariaDB dies in a soak.
            return {'database_error': str(e)}
        return {'database_bytes': int(size), 'rows': rows, 'tasks': states}


def sum_steps(series: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Return seconds and number of each step of an engine's cycles, by the step's labels."""
    found: dict[str, list[float]] = {}
    for name, value in series:
        metric, _, labels = name.partition('{')
        if metric in (STEP_SUM, STEP_COUNT):
            pair = found.setdefault(labels.rstrip('}'), [0.0, 0.0])
            pair[metric == STEP_COUNT] = value
    return found


def read_samples(file: pathlib.Path) -> list[dict[str, Any]]:
    """Read the samples of a soak again."""
    return [json.loads(line) for line in file.read_text().splitlines()]
