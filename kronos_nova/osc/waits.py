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

"""Waiting for tasks: until they are over, with a bar or a line for each change."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import datetime
import time
from typing import Any, TextIO

from osc_lib import exceptions

from kronos_nova import plurals
from kronos_nova.osc import client
from kronos_nova.osc import command
from kronos_nova.osc import event_feed
from kronos_nova.text import progress

#: States of a task that ends.
TERMINAL = ('completed', 'failed', 'cancelled')
#: Seconds between two questions.
POLL_INTERVAL = 2.0
#: Longest time without a question, in seconds, although no event came.
_QUIET = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--wait``, ``--watch`` and ``--timeout``."""
    command.add_wait_options(
        parser, 'the tasks are over; exit with 1 unless all are completed', '', '1h',
        'The tasks go on.')


class TaskChanges:
    """Waits for changes of tasks: by events, or by time where there are no events."""

    def __init__(self, rebalance: client.RebalanceClient) -> None:
        self._client = rebalance
        self._feed: event_feed.EventFeed | None = None
        self._refused = False
        self._begin()

    def wait_for_change(self, task_ids: Collection[str], seconds: float) -> None:
        """Return when a task may have changed, or the time is up.

        Between two questions passes at least the interval, also if many tasks change.
        """
        now = time.monotonic()
        end = now + seconds
        # Changes before the first event are seen by the next question.
        events = self._feed is not None
        time.sleep(min(POLL_INTERVAL, seconds))
        if not events:
            self._begin()
            return
        end = min(end, now + _QUIET)
        while (left := end - time.monotonic()) > 0:
            try:
                page = self._feed.read(left) if self._feed is not None else []
            except exceptions.CommandError:
                self._feed = None
                return
            if any(event['task'] is not None and event['task']['id'] in task_ids
                   for event in page):
                return

    def _begin(self) -> None:
        """Begin with the events after now, unless the operator's role may see none."""
        if self._refused:
            return
        try:
            self._feed = event_feed.EventFeed(self._client)
        except client.UnavailableError:
            self._feed = None
        except exceptions.CommandError:
            self._refused = True


def wait_for_tasks(rebalance: client.RebalanceClient,
                   read_tasks: Callable[[], Sequence[client.Document]], args: argparse.Namespace,
                   stderr: TextIO) -> Sequence[client.Document]:
    """Return the tasks once all are over.

    :param read_tasks: asks for the tasks as they are now.
    :raises CommandError: the time is up, or the operator stops.
    """
    end = time.monotonic() + args.timeout
    states: dict[str, str] = {}
    problem = ''
    try:
        with progress.ProgressLine(stderr) as bar:
            changes = TaskChanges(rebalance)
            while True:
                try:
                    tasks, problem = read_tasks(), ''
                except client.UnavailableError as e:
                    tasks, problem = None, f' {e}'
                if tasks is not None:
                    if args.watch:
                        _write_changes(tasks, states, stderr)
                    ended = [task for task in tasks if task['state'] in TERMINAL]
                    if len(ended) == len(tasks):
                        return tasks
                    if not args.watch:
                        bar.show_progress(f'{len(ended)} of '
                                          f'{plurals.count_noun(len(tasks), "task")} over',
                                          len(ended) / len(tasks))
                left = end - time.monotonic()
                if left <= 0:
                    raise exceptions.CommandError(
                        f'--timeout: the tasks are not over after {args.timeout:.0f} s, and go on; '
                        f'openstack rebalance task list shows them.{problem}')
                if tasks is None:
                    time.sleep(min(POLL_INTERVAL, left))
                else:
                    changes.wait_for_change({task['id'] for task in tasks}, left)
    except KeyboardInterrupt:
        raise exceptions.CommandError('stopped waiting; the tasks go on. openstack rebalance task '
                                      'list shows them') from None


def have_failed(tasks: Collection[client.Document]) -> bool:
    """Return True if a task is over and not completed."""
    return any(task['state'] != 'completed' for task in tasks)


def _write_changes(tasks: Sequence[client.Document], states: dict[str, str], stderr: Any) -> None:
    now = datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
    for task in tasks:
        before, state = states.get(task['id']), task['state']
        if before != state:
            error = f': {task["error"]}' if task['error'] and state in TERMINAL else ''
            stderr.write(f'{now} task {task["id"]} of instance {task["instance_name"]} '
                         f'({task["instance_id"]}): {f"{before} to " if before else ""}{state}'
                         f'{error}\n')
            states[task['id']] = state
    stderr.flush()
