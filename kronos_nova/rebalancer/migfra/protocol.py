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

"""migfra's tasks as they come over MQTT: fields and their values. Pure.

The field names are the protocol's, with hyphens; see doc/source/admin/migfra.rst for the meaning
and the effect of each. Unknown fields are refused: a misspelt ``destination`` must not become a
migration to any host.
"""

import enum
import re
from typing import Annotated, Any, Literal

import pydantic

#: Instances that one task may name.
MAX_LIST = 1000

#: A name in a topic: without MQTT's separators and wildcards.
_HOST = re.compile(r'[^/+#\x00-\x20\x7f]{1,255}')


class MigfraRequestKind(enum.StrEnum):
    """The kind of a request, as it is written in ``task``."""

    START = 'start vm'
    STOP = 'stop vm'
    SUSPEND = 'suspend vm'
    RESUME = 'resume vm'
    MIGRATE = 'migrate vm'
    EVACUATE = 'evacuate node'
    REPIN = 'repin vm'


class MigrationType(enum.StrEnum):
    LIVE = 'live'
    WARM = 'warm'  # paused while it is migrated
    OFFLINE = 'offline'  # shut down, moved, and started again


class MessageDialect(enum.StrEnum):
    """The strictness with which messages are read."""

    STRICT = 'strict'
    FAST_LIB = 'fast-lib'


class DistributionMode(enum.StrEnum):
    """The distribution of a node's instances over the destinations."""

    AUTO = 'auto'
    COMPACT = 'compact'
    SCATTER = 'scatter'


def host_name(text: str) -> str:
    """Return the name of a host.

    :raises ValueError: it cannot be part of a topic.
    """
    if not _HOST.fullmatch(text):
        raise ValueError('is no name of a host')
    return text


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError('has characters that cannot be printed')
    return text


def _parse_device(value: object) -> object:
    """Parse a PCI identifier.

    YAML reads 0x15b3 as a number, and '15b3' as text; other numbers are refused before.
    """
    if isinstance(value, str):
        if not re.fullmatch(r'(0x)?[0-9a-fA-F]{1,4}', value):
            raise ValueError('is no PCI identifier such as 0x15b3')
        return int(value, 16)
    return value


def _hyphenate_name(name: str) -> str:
    return name.replace('_', '-')


Host = Annotated[str, pydantic.AfterValidator(host_name)]
Name = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=255),
                 pydantic.AfterValidator(_check_printable)]
Processes = Annotated[int, pydantic.Field(ge=0, le=65535)]
Device = Annotated[int, pydantic.BeforeValidator(_parse_device), pydantic.Field(ge=0, le=0xffff)]
#: By vCPU, the processors of the host that it may run on.
VcpuMap = Annotated[
    tuple[Annotated[tuple[Annotated[int, pydantic.Field(ge=0, le=65535)], ...],
                    pydantic.Field(min_length=1, max_length=4096)], ...],
    pydantic.Field(min_length=1, max_length=4096)]


class _MessagePart(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        extra='forbid', frozen=True, strict=True, alias_generator=_hyphenate_name)


class PciId(_MessagePart):
    """A kind of device, as ``lspci -nn`` names it."""

    vendor: Device
    device: Device


class StartConfiguration(_MessagePart):
    """One instance to start. ``memory`` in KiB."""

    vm_name: Name | None = None
    xml: str | None = None
    memory: Annotated[int, pydantic.Field(ge=1, le=2**63)] | None = None
    vcpus: Annotated[int, pydantic.Field(ge=1, le=65535)] | None = None
    pci_ids: tuple[PciId, ...] = ()
    transient: bool = False

    @pydantic.model_validator(mode='after')
    def _one_of_both(self) -> 'StartConfiguration':
        if (self.vm_name is None) == (self.xml is None):
            raise ValueError('needs vm-name or xml, not both')
        return self


class NamedInstance(_MessagePart):
    vm_name: Name


class StopConfiguration(NamedInstance):
    """An instance to stop; None: the task's own value."""

    force: bool | None = None
    undefine: bool | None = None


class SwapPartner(NamedInstance):
    """The instance that comes here in exchange."""

    pscom_hook_procs: Processes = 0
    vcpu_map: VcpuMap | None = None


class _MigrationSettings(_MessagePart):
    """The settings of migrations; ``retry_counter`` None: [executor] max_retries."""

    retry_counter: Annotated[int, pydantic.Field(ge=0, le=100)] | None = None
    migration_type: MigrationType = MigrationType.LIVE
    rdma_migration: bool = False
    pscom_hook_procs: Processes = 0


class MigrationParameter(_MigrationSettings):
    vcpu_map: VcpuMap | None = None
    swap_with: SwapPartner | None = None


class NodeParameter(_MigrationSettings):
    mode: DistributionMode = DistributionMode.AUTO
    overbooking: bool = False


def _list(item: Any) -> Any:
    return Annotated[tuple[item, ...], pydantic.Field(min_length=1, max_length=MAX_LIST)]


class _TaskMessage(_MessagePart):
    """A task; a second message for the host with the publisher's ``id`` is the same task.

    :func:`task_reader.parse_task` has checked it; None: the dialect does not need one.
    """

    id: str | int | None = None
    host: Host | None = None


class StartVm(_TaskMessage):
    task: Literal[MigfraRequestKind.START]
    vm_configurations: _list(StartConfiguration)  # type: ignore[valid-type]


class StopVm(_TaskMessage):
    task: Literal[MigfraRequestKind.STOP]
    list: _list(StopConfiguration)  # type: ignore[valid-type]
    force: bool = False
    undefine: bool = False


class SuspendVm(_TaskMessage):
    task: Literal[MigfraRequestKind.SUSPEND]
    list: _list(NamedInstance)  # type: ignore[valid-type]


class ResumeVm(_TaskMessage):
    task: Literal[MigfraRequestKind.RESUME]
    list: _list(NamedInstance)  # type: ignore[valid-type]


class MigrateVm(_TaskMessage):
    task: Literal[MigfraRequestKind.MIGRATE]
    vm_name: Name
    destination: Host
    time_measurement: bool = False
    parameter: MigrationParameter = MigrationParameter()


class EvacuateNode(_TaskMessage):
    task: Literal[MigfraRequestKind.EVACUATE]
    destinations: _list(Host)  # type: ignore[valid-type]
    time_measurement: bool = False
    parameter: NodeParameter = NodeParameter()


class RepinVm(_TaskMessage):
    task: Literal[MigfraRequestKind.REPIN]
    vm_name: Name
    vcpu_map: VcpuMap


#: Tasks with a list of servers, each with its own end.
ServersTask = StartVm | StopVm | SuspendVm | ResumeVm
Task = StartVm | StopVm | SuspendVm | ResumeVm | MigrateVm | EvacuateNode | RepinVm

#: Tasks by the text in ``task``.
KINDS: dict[str, type[Task]] = {
    'start vm': StartVm, 'stop vm': StopVm, 'suspend vm': SuspendVm, 'resume vm': ResumeVm,
    'migrate vm': MigrateVm, 'evacuate node': EvacuateNode, 'repin vm': RepinVm}
