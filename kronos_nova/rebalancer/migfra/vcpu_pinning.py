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
"""Pins vCPUs of running instances through libvirt, as Nova has no call for it.

Nova writes ``<vcpu cpuset='...'>`` (its ``[compute] cpu_shared_set``) for an instance without
dedicated CPUs and does not read it again; within that set its vCPUs may be pinned. Nova pins
dedicated CPUs itself; these are left to Nova. Pins of this module last until the instance is
migrated, rebuilt or rebooted hard.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import functools
import re
import threading
from typing import Any
import uuid
from xml.etree import ElementTree

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception

LOG = logging.getLogger(__name__)
#: ``hw:cpu_policy`` of which Nova owns the pins.
OWNED_BY_NOVA = frozenset({'dedicated', 'mixed'})
_HOST = re.compile(r'[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?', re.ASCII)
#: More CPUs than any machine has; the numbers may come from a message.
_LARGEST = 65536

VcpuMap = Sequence[Sequence[int]]
Pins = list[tuple[bool, ...]]


class VcpuPinning:
    """The pinning by ``[repin]``; for several threads.

    :param conf: with the options of :mod:`kronos_nova.conf.repin`.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._uri: str = conf.repin.uri
        self._timeout: float = conf.repin.timeout

    def pin_vcpus(self, host: str, instance_uuid: str, vcpu_map: VcpuMap,
                  cpu_policy: str | None = None) -> None:
        """Pin each vCPU of a running instance to its physical CPUs: all vCPUs or none.

        :param host: Nova's name of the host that it runs on.
        :param vcpu_map: one sequence of CPU numbers of the host for each vCPU.
        :param cpu_policy: ``hw:cpu_policy`` of its flavor or image, from Nova.
        :raises RepinUnsupported: not configured, no libvirt-python, or Nova pins it itself.
        :raises RepinRefused: the host, instance or map is not valid.
        :raises RepinFailed: libvirt cannot be reached or refuses; nothing has changed.
        :raises RepinUnknown: something may have changed.
        """
        uri = self.format_uri(host)
        if cpu_policy in OWNED_BY_NOVA:
            raise exception.RepinUnsupported(
                what=f'instance {instance_uuid}', problem=f'has {cpu_policy} CPUs',
                remedy='Nova pins these itself: resize it to a flavor without hw:cpu_policy.')
        wanted = _parse_vcpu_map(vcpu_map)
        try:
            name = str(uuid.UUID(instance_uuid))
        except ValueError:
            raise exception.RepinRefused(
                what='the instance', problem=f'{instance_uuid!r:.80} is no UUID',
                remedy='Name it by its UUID in Nova.') from None
        task = _PinningCall(require_libvirt(), uri, host, name, wanted)
        task.run(self._timeout)
        LOG.info('Pinned the %(count)d vCPUs of instance %(instance)s on host %(host)s.',
                 {'count': len(wanted), 'instance': name, 'host': host})

    def format_uri(self, host: str) -> str:
        """Return the libvirt URI of a host.

        :raises RepinUnsupported: not configured.
        :raises ConfigError: the address has no place for a host's name.
        :raises RepinRefused: the name cannot stand in an address.
        """
        if not self._uri:
            raise exception.RepinUnsupported(
                what='repin', problem='is not enabled',
                remedy='Set [repin] uri to qemu+tls://{host}/system, or to what reaches libvirt '
                       'of a host.')
        if '{host}' not in self._uri:
            raise exception.ConfigError(
                path='the configuration', field='[repin] uri', problem='{host} is not in it',
                remedy='Write {host} where the name of the host belongs, such as in '
                       'qemu+tls://{host}/system')
        if not _HOST.fullmatch(host):
            raise exception.RepinRefused(
                what='the host', problem=f'{host!r:.80} cannot stand in a URI',
                remedy='A name of letters, digits, dots, hyphens and underscores can.')
        return self._uri.replace('{host}', host)


def _parse_vcpu_map(vcpu_map: VcpuMap) -> list[frozenset[int]]:
    """Return the CPU numbers of each vCPU.

    :raises RepinRefused: the map is no list of lists of CPU numbers, or a vCPU has none.
    """
    def build_map_refusal(problem: str) -> exception.RepinRefused:
        return exception.RepinRefused(
            what='the vCPU map', problem=problem,
            remedy='Give one list for each vCPU, with numbers of CPUs of the host: [[0], [1, 2]].')

    def is_list(value: object) -> bool:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)

    if not is_list(vcpu_map) or not vcpu_map:
        raise build_map_refusal('is empty or no list')
    cpu_sets = []
    for number, cpus in enumerate(vcpu_map):
        if not is_list(cpus) or not cpus:
            raise build_map_refusal(f'has no list of CPUs for vCPU {number}')
        for cpu in cpus:
            if type(cpu) is not int or not 0 <= cpu < _LARGEST:
                raise build_map_refusal(f'has {cpu!r:.40} for vCPU {number}, which is no number of '
                                        'a CPU')
        cpu_sets.append(frozenset(cpus))
    return cpu_sets


@functools.cache
def _load_libvirt() -> Any:
    # libvirt-python is optional
    import libvirt  # noqa: PLC0415

    # Otherwise libvirt also writes its errors to standard error.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return libvirt


def require_libvirt() -> Any:
    """Return the libvirt module.

    :raises RepinUnsupported: it is not installed.
    """
    try:
        return _load_libvirt()
    except ImportError as e:
        raise exception.RepinUnsupported(
            what='repin', problem=f'needs libvirt-python ({e})',
            remedy='Install the package python3-libvirt of the distribution, or '
                   'kronos-nova[libvirt].') from None


class _PinningCall:
    """One call. A thread talks to libvirt, since its calls have no deadline."""

    def __init__(self, libvirt: Any, uri: str, host: str, instance: str,
                 wanted: list[frozenset[int]]) -> None:
        self._libvirt, self._uri, self._host = libvirt, uri, host
        self._instance, self._wanted = instance, wanted
        self._late = threading.Event()
        self._begun = False
        self._error: BaseException | None = None

    def run(self, timeout: float) -> None:
        thread = threading.Thread(target=self._run_in_thread, name=f'repin-{self._instance}',
                                  daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            # The thread restores the pins as soon as libvirt lets it.
            self._late.set()
            kind = exception.RepinUnknown if self._begun else exception.RepinFailed
            raise kind(host=self._host, instance=self._instance,
                       problem=f'libvirt gave no answer within {timeout:g} s',
                       remedy='See whether the host and its libvirt daemon are well.')
        if self._error is not None:
            raise self._error

    def _run_in_thread(self) -> None:
        try:
            self._connect_and_pin()
        except self._libvirt.libvirtError as e:
            self._error = self._build_failure(e)
        except BaseException as e:
            self._error = e

    def _build_failure(self, error: Exception) -> exception.RepinFailed:
        return exception.RepinFailed(
            host=self._host, instance=self._instance, problem=_format_error(error),
            remedy='See whether [repin] uri, its TLS certificates and the libvirt daemon of the '
                   'host are right.')

    def _connect_and_pin(self) -> None:
        connection = self._libvirt.open(self._uri)
        try:
            domain = self._find_running_domain(connection)
            size = self._check(connection, domain)
            self._pin_vcpus(domain,
                            [tuple(cpu in cpus for cpu in range(size)) for cpus in self._wanted])
        finally:
            with contextlib.suppress(self._libvirt.libvirtError):
                connection.close()

    def _find_running_domain(self, connection: Any) -> Any:
        try:
            domain = connection.lookupByUUIDString(self._instance)
            if domain.isActive():
                return domain
            problem = 'does not run'
        except self._libvirt.libvirtError as e:
            if e.get_error_code() != self._libvirt.VIR_ERR_NO_DOMAIN:
                raise
            problem = 'is not known to libvirt'
        raise self._build_refusal(f'{problem} on host {self._host}', 'Ask Nova where it runs.')

    def _build_refusal(self, problem: str, remedy: str) -> exception.RepinRefused:
        return exception.RepinRefused(
            what=f'instance {self._instance}', problem=problem, remedy=remedy)

    def _check(self, connection: Any, domain: Any) -> int:
        """Return the number of CPUs in libvirt's maps.

        :raises RepinRefused: the map does not fit to the instance or the host.
        """
        vcpus = domain.vcpusFlags(self._libvirt.VIR_DOMAIN_AFFECT_LIVE)
        if vcpus != len(self._wanted):
            raise self._build_refusal(f'has {vcpus} vCPUs, the vCPU map {len(self._wanted)}',
                                      'Give one list of CPUs for each vCPU.')
        size, online, _count = connection.getCPUMap()
        wanted_cpus = frozenset().union(*self._wanted)
        here = {cpu for cpu in range(size) if online[cpu]}
        if absent := sorted(wanted_cpus - here):
            raise self._build_refusal(f'cannot use CPU {_format_numbers(absent)}, not online on '
                                      f'host {self._host}',
                                      f'Online are: {_format_numbers(sorted(here))}.')
        if _has_vcpu_pins(domain.XMLDesc(self._libvirt.VIR_DOMAIN_XML_INACTIVE)):
            # Dedicated CPUs, or NUMA nodes: then the domain has no set of shared ones.
            raise exception.RepinUnsupported(
                what=f'instance {self._instance}', problem='is pinned by Nova itself',
                remedy='Resize it to a flavor without dedicated CPUs and NUMA nodes.')
        allowed = _shared_set(domain.XMLDesc())
        if allowed is not None and (foreign := sorted(wanted_cpus - allowed)):
            raise self._build_refusal(
                f'may not use CPU {_format_numbers(foreign)} of host {self._host}, which Nova has '
                'not given to it', f'Choose among those of its cpu_shared_set: '
                               f'{_format_numbers(sorted(allowed))}.')
        return int(size)

    def _pin_vcpus(self, domain: Any, wanted: Pins) -> None:
        before = self._read_vcpu_pins(domain)
        self._begun = True
        try:
            for vcpu, cpus in enumerate(wanted):
                self._in_time()
                # Without flags this pins the running domain, not its definition.
                domain.pinVcpu(vcpu, cpus)
            self._in_time()
        except (self._libvirt.libvirtError, TimeoutError) as e:
            self._undo(domain, before, e)
            raise

    def _read_vcpu_pins(self, domain: Any) -> Pins:
        return list(domain.vcpuPinInfo(self._libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def _in_time(self) -> None:
        if self._late.is_set():
            raise TimeoutError('its client no longer waits')

    def _undo(self, domain: Any, before: Pins, why: Exception) -> None:
        """Restore the former pins.

        :raises RepinUnknown: the vCPUs are not pinned as they were before.
        """
        for vcpu, cpus in enumerate(before):
            with contextlib.suppress(self._libvirt.libvirtError):
                domain.pinVcpu(vcpu, cpus)
        after: Pins = []
        with contextlib.suppress(self._libvirt.libvirtError):
            after = self._read_vcpu_pins(domain)
        if after != before:
            raise exception.RepinUnknown(
                host=self._host, instance=self._instance,
                problem=f'{_format_error(why)}, and they could not be pinned back',
                remedy='Migrate it or reboot it hard: Nova then defines it again.') from why


def _has_vcpu_pins(xml: str) -> bool:
    """Return whether the definition has pins, which Nova has written."""
    return ElementTree.fromstring(xml).find('cputune/vcpupin') is not None  # noqa: S314


def _shared_set(xml: str) -> frozenset[int] | None:
    """Parse ``/domain/vcpu/@cpuset``: CPU numbers, or None for all."""
    # libvirt has written the XML, and escapes foreign names.
    vcpu_element = ElementTree.fromstring(xml).find('vcpu')  # noqa: S314
    text = None if vcpu_element is None else vcpu_element.get('cpuset')
    if text is None:
        return None
    cpus: set[int] = set()
    for part in text.split(','):
        first, _, last = part.lstrip('^').partition('-')
        span = range(int(first), int(last or first) + 1)
        if part.startswith('^'):
            cpus.difference_update(span)
        else:
            cpus.update(span)
    return frozenset(cpus)


def _format_numbers(numbers: Iterable[int]) -> str:
    shown = [str(number) for number in numbers]
    return ', '.join(shown[:16]) + (' ...' if len(shown) > 16 else '')


def _format_error(error: Exception) -> str:
    """Return libvirt's message on one line."""
    return ' '.join(str(error).split())[:300]
