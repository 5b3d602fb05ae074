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


"""A hook that has pscom close the connections that cannot migrate, and open them again, over MQTT.

The hook publishes a request to suspend for the instance, its processes answer on topics of the
instance, and after the migration a request to resume follows. pscom announces itself under the
guest's name and speaks only when asked. One request is for all processes, or the hook asks each
process that is listed or was seen, one by one ([hook_pscom] request_topic).
"""

from collections.abc import Callable
import json
import re
from typing import Any, Self

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import pscom_client

LOG = logging.getLogger(__name__)

#: The parameter of a task: the number of processes that have to answer.
PROCESSES = 'processes'
_LISTED = re.compile(r'([^/]+)/([^/]+)')
MOST = 100_000


class PscomHook(base.Hook):
    """Hook that suspends and resumes the processes of an instance.

    :param client: the MQTT client.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        hook = cls(conf, pscom_client.PscomClient(conf))
        hook.client.start()
        return hook

    @classmethod
    def examine(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> str:
        """Check the options without a connection: it would look like that of an executor."""
        cls(conf, pscom_client.PscomClient(conf))
        return 'it can be used; its broker is looked at under mqtt'

    def __init__(self, conf: cfg.ConfigOpts, client: pscom_client.PscomClient) -> None:
        self.client = client
        self._listed: dict[str, set[str]] = {}
        for text in conf.hook_pscom.processes:
            parts = _LISTED.fullmatch(text)
            if parts is None or not all(map(pscom_client.is_level, parts.groups())):
                raise exception.ConfigError(
                    path='kronos.conf', field='[hook_pscom] processes',
                    problem=f'{text!r} is not INSTANCE/PROCESS',
                    remedy='Write the UUID or the name of the instance, a slash and the id of '
                           'the process; neither may have +, # or a control character.')
            self._listed.setdefault(parts[1], set()).add(parts[2])

    def marker(self, call: base.HookCall) -> str:
        instance, expected = (
            _values(call.task, call.task.from_host, call.task.instance_name),
            self._parse_expected_count(call))
        if self.client.request.render_topic({**instance, pscom_client.PROCESS: 'x'}) is None:
            if expected:
                raise base.StepFailed(problem=f'cannot have one of {instance} in an MQTT topic')
            processes: set[str] = set()  # No process can listen there.
        else:
            processes = (self._listed.get(call.task.instance_uuid)
                         or self._listed.get(call.task.instance_name)
                         or self.client.list_answering(instance))
        # Another process calls after() with the marker, and knows no names.
        return json.dumps({'processes': sorted(processes), 'expected': expected,
                           'name': call.task.instance_name})

    @staticmethod
    def _parse_expected_count(call: base.HookCall) -> int | None:
        number = call.parameters.get(PROCESSES)
        if number is None:
            return None
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST:
            raise base.StepFailed(problem=f'has no whole number as its parameter {PROCESSES}')
        return number

    def before(self, call: base.HookCall) -> base.HookStep:
        processes, expected, name = _read(call)
        if expected is not None and len(
                processes) < expected and not self.client.has_common_request:
            raise base.StepFailed(
                problem=f'knows {len(processes)} processes of the instance, and {expected} are '
                        'to answer; list them in [hook_pscom] processes')
        if not _has_processes_to_ask(processes, expected):
            return base.FinishedStep()
        return _SuspendStep(self.client, _values(call.task, call.task.from_host, name), processes,
                            len(processes) if expected is None else expected)

    def after(self, call: base.HookCall) -> base.HookStep:
        processes, expected, _name = _read(call)
        if not _has_processes_to_ask(processes, expected):
            return base.FinishedStep()
        return _ResumeStep(self.client, self._list_topic_values(call), processes)

    def _list_topic_values(self, call: base.HookCall) -> list[dict[str, str]]:
        """Return the topic values under which the processes may listen now."""
        hosts = [call.task.from_host]
        if 'host' in self.client.request.names and (
                call.ended is None or call.ended.error_type is None):
            # They listen under the name of the new host, or still under that of the old one.
            hosts.append(call.task.to_host)
        name = _read(call)[2]
        return [_values(call.task, host, name) for host in hosts]

    def remedy(self, call: base.HookCall) -> str:
        processes = _read(call)[0]
        topics = [self.client.request.render_topic({**instance, pscom_client.PROCESS: process})
                  for instance in self._list_topic_values(call)
                  for process in (['x'] if self.client.has_common_request else processes)]
        return (f'Publish [hook_pscom] resume_payload on '
                f'{", ".join(topic for topic in topics if topic) or "no topic"}.')

    def close(self) -> None:
        self.client.stop()


def _read(call: base.HookCall) -> tuple[list[str], int | None, str]:
    """Read the marker: processes, how many have to answer (None: all), name of the instance."""
    data = json.loads(call.marker)
    return list(data['processes']), data['expected'], data.get('name', call.task.instance_name)


def _values(task: model.Task, host: str, name: str) -> dict[str, str]:
    """Map each placeholder, except the process, to its value."""
    return {'host': host, 'name': name, 'uuid': task.instance_uuid}


def _has_processes_to_ask(processes: list[str], expected: int | None) -> bool:
    """Return whether the hook has to ask any process."""
    return expected != 0 and bool(processes or expected)


class _SuspendStep(base.HookStep):
    """Step that asks processes to suspend, once the broker hears us.

    It ends when enough processes have answered.
    """

    def __init__(self, client: pscom_client.PscomClient, instance: dict[str, str],
                 processes: list[str], expected: int) -> None:
        self._client, self._instance = client, instance
        self._processes, self._expected = processes, expected
        self._since: int | None = None

    def poll(self, now: float) -> bool:
        if self._since is None:
            if not self._client.is_ready:
                return False
            self._since = self._client.count_answers()
            for process in _list_addressees(self._client, self._processes):
                self._client.publish_request(self._instance, process, 'suspend')
        answered = self._client.list_newly_answering(self._instance, self._since)
        if not self._client.has_common_request:
            answered &= set(self._processes)
        return len(answered) >= self._expected


class _ResumeStep(base.HookStep):
    """Step that asks all processes to resume, until the broker has the requests."""

    def __init__(self, client: pscom_client.PscomClient, instances: list[dict[str, str]],
                 processes: list[str]) -> None:
        self._client = client
        self._requests = [(instance, process) for instance in instances
                          for process in _list_addressees(client, processes)]
        self._sent: list[Callable[[], bool]] = []

    def poll(self, now: float) -> bool:
        if not self._sent:
            if not self._client.is_ready:
                return False
            self._sent = [self._client.publish_request(instance, process, 'resume')
                          for instance, process in self._requests]
        return all(sent() for sent in self._sent)


def _list_addressees(client: pscom_client.PscomClient, processes: list[str]) -> list[str]:
    """Return the processes that requests name; one request without a name is for all."""
    return [''] if client.has_common_request else processes
