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

"""migfra's results, as they go out over MQTT. Pure but for YAML."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import yaml

from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind

SUCCESS, ERROR = 'success', 'error'
#: The result of each kind of task.
RESULTS = {
    MigfraRequestKind.START: 'vm started', MigfraRequestKind.STOP: 'vm stopped',
    MigfraRequestKind.SUSPEND: 'vm suspended',
    MigfraRequestKind.RESUME: 'vm resumed', MigfraRequestKind.MIGRATE: 'vm migrated',
    MigfraRequestKind.EVACUATE: 'node evacuated',
    MigfraRequestKind.REPIN: 'vm repinned'}
#: Kinds whose results list several instances.
LISTS = frozenset({MigfraRequestKind.START, MigfraRequestKind.STOP, MigfraRequestKind.SUSPEND,
                   MigfraRequestKind.RESUME, MigfraRequestKind.EVACUATE})
#: Kinds whose results name a process; the seed's results of other kinds do not.
_PROCESS = frozenset({MigfraRequestKind.START, MigfraRequestKind.MIGRATE,
                      MigfraRequestKind.EVACUATE})
#: The result of a message that is no task.
UNREADABLE = 'error'


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceResult:
    """The result of one instance.

    ``details``: the error, or the number of retries. ``seconds`` by phase, where the task requests
    them.
    """

    vm_name: str
    status: str
    details: str = ''
    seconds: Mapping[str, float] | None = None

    @property
    def failed(self) -> bool:
        return self.status != SUCCESS


def build_list_result(kind: MigfraRequestKind, request_id: str | int | None, scheduler: str,
                      results: Sequence[InstanceResult],
                      seconds: Mapping[str, float] | None = None) -> str:
    """Return the result of a task about several instances.

    :param seconds: of the whole, where the task requests them.
    """
    return _dump_yaml({'scheduler': scheduler, 'result': RESULTS[kind], 'id': request_id,
                       **_build_time_measurement(seconds),
                       'list': [_build_result_item(kind, result) for result in results]})


def build_single_result(kind: MigfraRequestKind, request_id: str | int | None, scheduler: str,
                        result: InstanceResult) -> str:
    """Return the result of a task about one instance."""
    return _dump_yaml({'scheduler': scheduler, 'result': RESULTS[kind], 'id': request_id,
                       **_build_result_item(kind, result)})


def format_refusal(kind: MigfraRequestKind | None, request_id: str | int | None, scheduler: str,
                   details: str,
                   named: Sequence[str] = ()) -> str:
    """Return the result of a refused task, with the reason, in the shape of its kind.

    A list is never empty: an empty one would mean a host that has no instances any more.

    :param kind: the kind of the task; None: unknown.
    :param named: the instances that it names; empty text where one cannot be read.
    """
    head = {'scheduler': scheduler, 'result': UNREADABLE if kind is None else RESULTS[kind],
            'id': request_id}
    if kind is None:
        return _dump_yaml({**head, 'status': ERROR, 'details': details})
    result_items = [_build_result_item(kind, InstanceResult(name, ERROR, details)) for name in named
                    or ('',)]
    if kind not in LISTS:
        return _dump_yaml({**head, **result_items[0]})
    return _dump_yaml({**head, 'list': result_items, 'status': ERROR, 'details': details})


def _build_result_item(kind: MigfraRequestKind, result: InstanceResult) -> dict[str, Any]:
    return {'vm-name': result.vm_name, 'status': result.status, 'details': result.details,
            **({'process-id': None} if kind in _PROCESS else {}),
            **_build_time_measurement(result.seconds)}


def _build_time_measurement(seconds: Mapping[str, float] | None) -> dict[str, Any]:
    if seconds is None:
        return {}
    return {'time-measurement': [{tag: round(value, 3)} for tag, value in seconds.items()]}


def _dump_yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
