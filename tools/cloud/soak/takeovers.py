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

"""How long leases and tasks of a dead or frozen daemon wait for another one. Pure but for SQL."""

from collections.abc import Iterable
import dataclasses
import threading
import time

from tools.cloud import mariadb
from tools.cloud.run import Run

#: Seconds between two looks.
LOOK_SECONDS = 0.5
LEASES = 'SELECT scope, owner FROM kronos.lease WHERE until > UNIX_TIMESTAMP(NOW(6))'
CLAIMS = ('SELECT task_id, worker FROM kronos.task '
          'WHERE active_instance IS NOT NULL AND worker IS NOT NULL')


@dataclasses.dataclass
class Takeover:
    """Something that a daemon held when it fell at ``fell_at``; epoch seconds."""

    kind: str
    item: str
    owner: str
    fell_at: float
    seconds: float | None = None


class TakeoverRecord:
    """The takeovers that are under way and those that ended."""

    def __init__(self) -> None:
        self.all: list[Takeover] = []

    def begin(self, held: Iterable[tuple[str, str, str]], owner: str, at: float) -> None:
        """Note what an owner holds as it falls: (kind, item, its owner)."""
        self.all += [Takeover(kind, item, owner, at) for kind, item, holder in held
                     if holder == owner]

    def observe(self, held: Iterable[tuple[str, str, str]], at: float) -> None:
        """End takeovers of items that another owner holds; a task that is over ends one, too."""
        owners = {(kind, item): owner for kind, item, owner in held}
        for takeover in self.all:
            if takeover.seconds is None:
                owner = owners.get((takeover.kind, takeover.item))
                is_over = (owner is None and takeover.kind == 'task')
                if is_over or owner not in (None, takeover.owner):
                    takeover.seconds = at - takeover.fell_at

    def release(self, owner: str, at: float) -> None:
        """Drop what an owner still holds when it goes on: it has lost nothing."""
        for takeover in self.all:
            if takeover.owner == owner and takeover.seconds is None:
                takeover.seconds = at - takeover.fell_at


class TakeoverWatch:
    """A thread that looks at leases and claims twice a second."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.record = TakeoverRecord()
        self.held: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def note_fall(self, owner: str) -> None:
        """Note that the process with this name in the database has just fallen."""
        with self._lock:
            self.record.begin(self.held, owner, time.time())

    def note_return(self, owner: str) -> None:
        """Note that a frozen process goes on."""
        with self._lock:
            self.record.release(owner, time.time())

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                with mariadb.connect(self._run) as connection, connection.cursor() as cursor:
                    self._look_while_connected(cursor)
            except Exception as e:
                # MariaDB dies in a soak; a look that misses one state is no fault.
                print(f'takeovers: {e}', flush=True)

    def _look_while_connected(self, cursor: object) -> None:
        while not self._over.wait(LOOK_SECONDS):
            held: list[tuple[str, str, str]] = []
            for kind, query in (('lease', LEASES), ('task', CLAIMS)):
                cursor.execute(query)  # type: ignore[attr-defined]
                held += [(kind, item, owner)
                         for item, owner in cursor.fetchall()]  # type: ignore[attr-defined]
            with self._lock:
                self.held = held
                self.record.observe(held, time.time())
