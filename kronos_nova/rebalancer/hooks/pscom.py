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


"""Has pscom close what cannot be migrated, and open it again afterwards, over MQTT.

The protocol: ``task: suspend`` is published on
``fast/pscom/HOST/PROCESS/request``, every process says on ``.../response`` that its
connections are closed, and after the migration ``task: resume`` goes to the same ones.
Which processes there are is what has been seen on the topics of the host, or listed.
"""

from collections.abc import Callable
import json
import re
from typing import Any, Self

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import pscom_client

LOG = logging.getLogger(__name__)

#: The parameter of a task: how many processes have to answer.
PROCESSES = 'processes'
_LISTED = re.compile(r'([^/]+)/([^/]+)')
MOST = 100_000


class PscomHook(base.Hook):
    """:param client: what speaks MQTT."""

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        found = cls(conf, pscom_client.Client(conf))
        found.client.start()
        return found

    @classmethod
    def examine(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> str:
        """Without a connection: it would be that of an executor, by its name."""
        cls(conf, pscom_client.Client(conf))
        return 'it can be used; its broker is looked at under mqtt'

    def __init__(self, conf: cfg.ConfigOpts, client: pscom_client.Client) -> None:
        self.client = client
        self._listed: dict[str, set[str]] = {}
        for text in conf.hook_pscom.processes:
            parts = _LISTED.fullmatch(text)
            if parts is None or not all(map(pscom_client.is_level, parts.groups())):
                raise exception.ConfigError(
                    path='kronos.conf', field='[hook_pscom] processes',
                    problem=f'{text!r} is not HOST/PROCESS',
                    remedy='Write the name of the compute host, a slash and the id of the '
                           'process; neither may have +, # or a control character.')
            self._listed.setdefault(parts[1], set()).add(parts[2])

    def marker(self, call: base.Call) -> str:
        host = call.task.from_host
        if not pscom_client.is_level(host):
            raise base.Failed(problem=f'cannot have host {host!r} in an MQTT topic')
        found = self._listed.get(host) or self.client.seen(host)
        return json.dumps({'processes': sorted(found), 'expected': self._expected(call)})

    @staticmethod
    def _expected(call: base.Call) -> int | None:
        number = call.parameters.get(PROCESSES)
        if number is None:
            return None
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST:
            raise base.Failed(problem=f'has no whole number as its parameter {PROCESSES}')
        return number

    def before(self, call: base.Call) -> base.Step:
        processes, expected = _read(call)
        if expected is not None and len(processes) < expected:
            raise base.Failed(
                problem=f'knows {len(processes)} processes of {call.task.from_host}, and '
                        f'{expected} are to answer; list them in [hook_pscom] processes')
        if not processes or expected == 0:
            return base.Done()
        return _Suspend(self.client, call.task.from_host, processes,
                        len(processes) if expected is None else expected)

    def after(self, call: base.Call) -> base.Step:
        processes, expected = _read(call)
        if not processes or expected == 0:
            return base.Done()
        hosts = [call.task.from_host]
        if call.ended is None or call.ended.error_type is None:
            # It listens under the name of the host that it is on now, or still under the old.
            hosts.append(call.task.to_host)
        return _Resume(self.client, [host for host in hosts if pscom_client.is_level(host)],
                       processes)

    def remedy(self, call: base.Call) -> str:
        processes, _expected = _read(call)
        return (f'Publish "task: resume" on {self.client.prefix}/HOST/PROCESS/request, HOST '
                f'{call.task.from_host} and {call.task.to_host}, PROCESS '
                f'{", ".join(processes) or "none"}.')

    def close(self) -> None:
        self.client.stop()


def _read(call: base.Call) -> tuple[list[str], int | None]:
    """The marker: processes, and how many have to answer (None: all)."""
    data = json.loads(call.marker)
    return list(data['processes']), data['expected']


class _Suspend(base.Step):
    """Asked of all once the broker hears us, until so many have answered."""

    def __init__(self, client: pscom_client.Client, host: str, processes: list[str],
                 expected: int) -> None:
        self._client, self._host = client, host
        self._processes, self._expected = processes, expected
        self._since: int | None = None

    def poll(self, now: float) -> bool:
        if self._since is None:
            if not self._client.ready:
                return False
            self._since = self._client.answers()
            for process in self._processes:
                self._client.ask(self._host, process, 'suspend')
        answered = self._client.answered(self._host, self._processes, self._since)
        return len(answered) >= self._expected


class _Resume(base.Step):
    """Asked of all; done when the broker has it."""

    def __init__(self, client: pscom_client.Client, hosts: list[str],
                 processes: list[str]) -> None:
        self._client = client
        self._topics = [(host, process) for host in hosts for process in processes]
        self._sent: list[Callable[[], bool]] = []

    def poll(self, now: float) -> bool:
        if not self._sent:
            if not self._client.ready:
                return False
            self._sent = [self._client.ask(host, process, 'resume')
                          for host, process in self._topics]
        return all(sent() for sent in self._sent)
