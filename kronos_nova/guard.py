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

"""The guard between nova-scheduler and our plug-ins: an error of ours is "no opinion".

A filter that raises puts a live server into ERROR, and a weigher that raises fails the boot. So
each method that Nova calls is wrapped here, and the wrappers use nothing that can fail: no
runtime, no option, no log.
"""

from collections.abc import Callable
from collections.abc import Iterable
import functools
from typing import Any

from kronos_nova import background

#: Errors of this process that did not reach Nova.
FAULTS = background.Faults()


def pass_hosts_on_error(method: Callable[[Any, list[Any], Any], list[Any]],
                        ) -> Callable[[Any, Iterable[Any], Any], list[Any]]:
    """Wrap ``filter_all``: every host passes when the method raises."""
    @functools.wraps(method)
    def guarded(plugin: Any, hosts: Iterable[Any], spec: Any) -> list[Any]:
        hosts = list(hosts)
        try:
            return method(plugin, hosts, spec)
        except Exception as error:
            FAULTS.swallow(type(plugin).__name__, error)
        return hosts
    return guarded


def weigh_nothing_on_error(method: Callable[[Any, list[Any], Any], list[float]],
                           ) -> Callable[[Any, Iterable[Any], Any], list[float]]:
    """Wrap ``weigh_objects``: every host weighs 0 when the method raises."""
    @functools.wraps(method)
    def guarded(plugin: Any, weighed: Iterable[Any], spec: Any) -> list[float]:
        weighed = list(weighed)
        try:
            return method(plugin, weighed, spec)
        except Exception as error:
            FAULTS.swallow(type(plugin).__name__, error)
        return [0.0] * len(weighed)
    return guarded


def multiply_by_0_on_error(method: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """Wrap ``weight_multiplier``: the weight does not count when the method raises."""
    @functools.wraps(method)
    def guarded(plugin: Any, host_state: Any) -> float:
        try:
            return method(plugin, host_state)
        except Exception as error:
            FAULTS.swallow(type(plugin).__name__, error)
        return 0.0
    return guarded
