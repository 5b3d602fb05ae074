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


"""The base class of the kronos-nova filters.

``filter_all`` never raises, and passes every host for rebuilds and for requests with a
named host.
"""

import abc
from typing import Any

from nova.scheduler import filters
from nova.scheduler import utils

from kronos_nova.scheduler import guard
from kronos_nova.scheduler import runtime


class KronosFilter(filters.BaseHostFilter, abc.ABC):
    """A filter over all hosts of a request at once.

    It overrides ``filter_all`` and therefore repeats the bypass for rebuilds that Nova has
    in ``_filter_one``. When it fails, every host passes.

    :raises ConfigError: an option cannot be used, so nova-scheduler must not start.
    """

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        runtime.check_options()

    @guard.pass_hosts_on_error
    def filter_all(self, filter_obj_list: list[Any], spec_obj: Any) -> list[Any]:
        if utils.request_is_rebuild(spec_obj) or has_named_destination(spec_obj):
            return filter_obj_list
        return self.judge(filter_obj_list, spec_obj, is_move(spec_obj))

    @abc.abstractmethod
    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        """Return the hosts that pass.

        :param hosts: HostState objects.
        :param moving: the instance is evacuated, unshelved, resized or migrated without a
            named host, not booted.
        """


def has_named_destination(spec: Any) -> bool:
    """Return whether an operator (or our executor) has named the destination."""
    destination = _find_destination(spec)
    if destination is not None and 'host' in destination and destination.host:
        return True
    return bool(('force_hosts' in spec and spec.force_hosts)
                or ('force_nodes' in spec and spec.force_nodes))


def is_move(spec: Any) -> bool:
    """Return whether the request moves an existing instance; False for boots.

    The conductor restricts every move to the instance's cell, and no boot. Of moves across
    cells it knows the source host, which it ignores.
    """
    destination = _find_destination(spec)
    if destination is not None and 'cell' in destination and destination.cell:
        return True
    return bool('ignore_hosts' in spec and spec.ignore_hosts)


def _find_destination(spec: Any) -> Any:
    return spec.requested_destination if 'requested_destination' in spec else None
