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

"""Waiting for a drain: until the host is empty, with a bar, and the reason why nothing moves."""

from collections.abc import Collection
import time
from typing import TextIO

from osc_lib import exceptions

from kronos_nova import plurals
from kronos_nova.osc import client
from kronos_nova.osc import host
from kronos_nova.osc import waits
from kronos_nova.text import drain_lines
from kronos_nova.text import progress
from kronos_nova.text import times

#: States of a task that is not over.
LIVE = ('pending', 'queued', 'claimed', 'submitting', 'submitted', 'unknown')
#: Seconds between two looks, at most.
INTERVAL = 10.0
#: Readings that must show an enabled host before its drain counts as over. A reading that began
#: before the host was disabled may come after it.
READINGS = 2


class DrainProgress:
    """The progress of a drain, by looks at the service.

    :param before: the host before its drain was ordered; None: it is at work.
    """

    def __init__(self, rebalance: client.RebalanceClient, name: str,
                 before: client.Document | None = None) -> None:
        self._client, self._name = rebalance, name
        self._unseen = before is not None
        self._since: str | None = None
        self._read_at = '' if before is None else before['read_at']
        self._enabled_readings = 0
        self._most = 0
        self.held = ''
        self.deadline: float | None = None
        self.remaining = 0
        self.tasks: dict[str, client.Document] = {}

    @property
    def part(self) -> float:
        """The part of the instances that have left, in [0, 1]."""
        return 1.0 - self.remaining / self._most if self._most else 1.0

    @property
    def left(self) -> int:
        """The number of instances that have left."""
        return self._most - self.remaining

    def look(self) -> str | None:
        """Look once; return the end of the drain as a clause, '' for an empty host, else None.

        :raises CommandError: no scope has the host, or the service does not answer.
        """
        shown = host.find_host(self._client, self._name)
        if self._since is None:
            self._since = shown['read_at']
        self._read_tasks()
        drain = next((row for row in self._client.send('GET', '/v1/drains')['drains']
                      if row['host'] == self._name), None)
        self.held = '' if drain is None else drain['held'] or ''
        at = None if drain is None else drain.get('deadline')
        self.deadline = None if at is None else times.parse_time(at, 0.0)
        self.remaining = shown['instance_count']
        self._most = max(self._most, self.remaining)
        is_new = shown['read_at'] != self._read_at
        self._read_at = shown['read_at']
        if is_new:
            self._unseen = False
        if self._unseen:
            return None
        if not self.remaining and not self._has_live_tasks():
            return ''
        if drain is not None:
            self._enabled_readings = READINGS - 1  # its drain has begun
            return None
        self._enabled_readings += is_new
        if self._enabled_readings < READINGS:
            return None
        return (f'is enabled, and no drain empties it: '
                f'{plurals.count_with_verb(self.remaining, "instance")} on it')

    def _has_live_tasks(self) -> bool:
        return any(task['state'] in LIVE for task in self.tasks.values())

    def _read_tasks(self) -> None:
        """Read the newest task of each instance off the host, live or changed meanwhile."""
        rows: list[client.Document] = []
        for query in ({'state': LIVE}, {'changes-since': self._since}):
            rows += [row for row in self._client.list_rows('/v1/tasks', 'tasks', query)
                     if row['from_host'] == self._name]
        for row in sorted(rows, key=lambda row: str(row['created_at'])):
            self.tasks[row['instance_id']] = row


def wait_for_drain(rebalance: client.RebalanceClient, name: str, timeout: float,
                   stderr: TextIO, before: client.Document | None = None,
                   ) -> tuple[str, Collection[client.Document]]:
    """Wait until the host is empty or enabled; return the end as of ``look``, and the tasks.

    :param timeout: seconds.
    :param before: see :class:`DrainProgress`.
    :raises CommandError: the time is up, the operator stops, or no scope has the host.
    """
    end = time.monotonic() + timeout
    drain, held, due, problem = DrainProgress(rebalance, name, before), '', '', ''
    try:
        with progress.ProgressLine(stderr) as bar:
            changes = waits.TaskChanges(rebalance)
            while True:
                try:
                    over, problem = drain.look(), ''
                except client.UnavailableError as e:
                    over, problem = None, f' {e}'
                if over is not None:
                    return over, list(drain.tasks.values())
                told, due = due, drain_lines.format_deadline_state(drain.deadline, time.time())
                if due not in ('', told):
                    bar.erase_line()
                    stderr.write(f'{due}\n')
                if drain.held != held:
                    bar.erase_line()
                    stderr.write(f'Nothing begins now: {drain.held}\n' if drain.held else
                                 'Nothing holds the drain any longer.\n')
                    held = drain.held
                bar.show_progress(f'{drain.left} of {drain.left + drain.remaining} have left',
                                  drain.part)
                left = end - time.monotonic()
                if left <= 0:
                    raise exceptions.CommandError(
                        f'--timeout: host {name} is not empty after {timeout:.0f} s; its drain '
                        f'goes on.{problem}')
                changes.wait_for_change({task['id'] for task in drain.tasks.values()},
                                        min(left, INTERVAL))
    except KeyboardInterrupt:
        raise exceptions.CommandError(
            f'stopped waiting; the drain of host {name} goes on. openstack rebalance drain watch '
            'shows it') from None
