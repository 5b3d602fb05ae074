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

"""Reasons why a filter refuses a host: from the log of Nova's filters, and our own."""

from collections.abc import Iterator
import contextlib
import threading
from typing import Any

from nova import filters
from oslo_log import log as logging

from kronos_nova.filters import capacity
from kronos_nova.filters import placement
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import runtime

#: By rule, why KronosPlacementFilter refuses a host to the instance.
_PLACEMENT_REASONS = {
    'anti-affinity': 'members of its server group with policy anti-affinity are there, or move '
                     'there or away',
    'affinity': 'no member of its server group with policy affinity is there once all moves have '
                'ended',
    'different-host': 'an instance that its scheduler hint different_host names is there, or '
                      'moves there or away',
    'same-host-hint': 'the instances that its scheduler hint same_host names are not there, or '
                      'move away'}


def apply_filter(filter_: Any, hosts: list[Any], spec: Any,
                 ) -> tuple[list[Any] | None, dict[int, str]]:
    """Run a filter as Nova's handler does.

    :returns: the hosts that pass (None: the filter stops everything), and the reason for
        each of the others by its id.
    """
    if type(filter_).filter_all is not filters.BaseFilter.filter_all:
        # The filter judges all hosts together.
        filter_answer = filter_.filter_all(hosts, spec)
        passed = None if filter_answer is None else list(filter_answer)
        passed_ids = {id(host) for host in passed or ()}
        refused = [host for host in hosts if id(host) not in passed_ids]
        own = _explain_own_filter(filter_, refused, hosts, spec)
        return passed, {id(host): own.get(id(host)) or _format_filter_purpose(filter_)
                        for host in refused}
    passed, why = [], {}
    with _capture_filter_log(filter_) as heard:
        for host in hosts:
            heard.clear()
            if list(filter_.filter_all([host], spec)):
                passed.append(host)
            else:
                # Nova names the host with all its attributes.
                why[id(host)] = heard.find_newest_message().replace(str(host),
                                                                    'it') or _format_filter_purpose(
                                                                        filter_)
    return passed, why


def _format_filter_purpose(filter_: Any) -> str:
    """Return the purpose of a filter that gave no reason, from its docstring."""
    lines = (type(filter_).__doc__ or '').strip().splitlines()
    return f'(it does not say why; it is to: {lines[0].rstrip(".")})' if lines else ''


def _explain_own_filter(filter_: Any, refused: list[Any], hosts: list[Any],
                        spec: Any) -> dict[int, str]:
    """Return, by id, why a filter of ours refused hosts; empty: it is not ours."""
    name = type(filter_).__name__
    if name == 'KronosCapacityFilter':
        return {id(host): _too_full(host, spec) for host in refused}
    if name == 'KronosPlacementFilter':
        return _explain_placement_filter(refused, hosts, spec)
    return {}


def _too_full(host: Any, spec: Any) -> str:
    door = runtime.get_runtime()
    group = door.list_scored_groups([host])[0]
    if (group.snapshot is not None and door.conf.kronos.unknown_hosts == 'exclude'
            and host.host not in group.snapshot.loads):
        return 'it has no score, and unknown_hosts is exclude'
    limit = door.notices.read_boot_limits().get(host.host)
    if limit is not None and door.conf.kronos.failover_reserve != 'ignore' and (
            reserved := capacity.find_limit_excesses(host, limit, spec)):
        return f'instances of a failed host need its room: {"; ".join(reserved)}'
    if group.snapshot is None:
        return f'fail_closed is set and there are no scores: {group.reason}'
    excesses = []
    for ceiling in group.snapshot.ceilings:
        load = depletion.project_loads([host], ceiling.loads,
                                       *ceiling.compute_expected_use(spec.vcpus, spec.memory_mb))[0]
        if load is not None and load > ceiling.limit:
            excesses.append(f'{ceiling.policy} would be {load:.3f}, above boot_ceiling '
                            f'{ceiling.limit:g}')
    return '; '.join(excesses)


def _explain_placement_filter(refused: list[Any], hosts: list[Any], spec: Any) -> dict[int, str]:
    """Return the reason for each refused host by its id.

    The server group and the hints come first: the filter refuses a drained or quarantined host
    only while another one is left.
    """
    door = runtime.get_runtime()
    notice = door.notices.read_publication()
    if notice is None:
        return {}
    rejections = placement.find_rejections(hosts, spec, notice.flights, door.conf)
    reason_by_id = {}
    for host in refused:
        if id(host) in rejections:
            reason_by_id[id(host)] = '; '.join(
                _PLACEMENT_REASONS.get(rejection.rule, rejection.detail)
                for rejection in rejections[id(host)])
        elif host.host in notice.draining:
            reason_by_id[id(host)] = 'the rebalancer is draining it'
        elif host.host in notice.quarantined:
            reason_by_id[id(host)] = 'the rebalancer has it in quarantine: it refused moves lately'
    return reason_by_id


class _LogRecorder:
    """A handler of log records, with the interface of the logging module."""

    level = 0

    def __init__(self, module: str) -> None:
        self._module = module
        self._thread = threading.get_ident()
        self._own: list[str] = []
        self._others: list[str] = []

    def handle(self, record: Any) -> None:
        if record.thread == self._thread:
            messages = self._own if record.name == self._module else self._others
            messages.append(' '.join(str(record.getMessage()).split()))

    def clear(self) -> None:
        self._own.clear()
        self._others.clear()

    def find_newest_message(self) -> str:
        """Return the last message of the filter itself, else of the code it called."""
        return (self._own or self._others or [''])[-1]


@contextlib.contextmanager
def _capture_filter_log(filter_: Any) -> Iterator[_LogRecorder]:
    """Capture the log of the filter and of Nova, and propagate it to no other logger meanwhile."""
    module = type(filter_).__module__
    heard = _LogRecorder(module)
    # oslo.log's adapter holds the logger of the logging module.
    loggers: list[Any] = [logging.getLogger(name).logger
               for name in dict.fromkeys((module.partition('.')[0], 'nova'))]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(heard)
        logger.setLevel('DEBUG')
        logger.propagate = False
    try:
        yield heard
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(heard)
            logger.setLevel(level)
            logger.propagate = propagate
