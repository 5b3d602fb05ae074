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
runtime, no option, no log. They also count what the plug-ins did, in plain counters.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import functools
import math
import time
from typing import Any

from kronos_nova.feed import periodic
from kronos_nova.feed import worker_records

#: Errors of this process that did not reach Nova.
FAULTS = periodic.FaultCounters()


class PluginActivity:
    """Counters of the plug-ins' work in this process, by name of the class."""

    def __init__(self) -> None:
        self.requests: collections.Counter[str] = collections.Counter()
        self.seconds: dict[str, float] = {}
        self.refused_hosts: collections.Counter[str] = collections.Counter()

    def count_request(self, name: str, began: float) -> None:
        """Count a request that a plug-in has judged.

        :param began: on the monotonic clock.
        """
        self.requests[name] += 1
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began

    def describe_counters(self) -> dict[str, worker_records.PluginWork]:
        """Return the counters by name of the class."""
        seconds = self.seconds.copy()
        return {name: worker_records.PluginWork(
            requests, seconds.get(name, 0.0), self.refused_hosts.get(name, 0))
            for name, requests in self.requests.copy().items()}

    def clear(self) -> None:
        """Forget all counters."""
        self.requests.clear()
        self.seconds.clear()
        self.refused_hosts.clear()


#: The work of this process.
ACTIVITY = PluginActivity()


def pass_hosts_on_error(method: Callable[[Any, list[Any], Any], list[Any]],
                        ) -> Callable[[Any, Iterable[Any], Any], list[Any]]:
    """Wrap ``filter_all``: every host passes when the method raises."""
    @functools.wraps(method)
    def run_filter_all(plugin: Any, hosts: Iterable[Any], spec: Any) -> list[Any]:
        hosts = list(hosts)
        name, began = type(plugin).__name__, time.monotonic()
        try:
            passing = method(plugin, hosts, spec)
            ACTIVITY.refused_hosts[name] += len(hosts) - len(passing)
            return passing
        except Exception as error:
            FAULTS.count_swallowed_error(name, error)
        finally:
            ACTIVITY.count_request(name, began)
        return hosts
    return run_filter_all


def weigh_nothing_on_error(method: Callable[[Any, list[Any], Any], list[float]],
                           ) -> Callable[[Any, Iterable[Any], Any], list[float]]:
    """Wrap ``weigh_objects``: every host weighs 0 when the method raises.

    Nova raises on a surplus weight, and a NaN would break its sorting: both count as errors.
    """
    @functools.wraps(method)
    def run_weigh_objects(plugin: Any, weighed: Iterable[Any], spec: Any) -> list[float]:
        weighed = list(weighed)
        name, began = type(plugin).__name__, time.monotonic()
        try:
            weights = method(plugin, weighed, spec)
            if len(weights) != len(weighed) or not all(map(math.isfinite, weights)):
                raise ValueError(
                    f'{len(weights)} weights of {len(weighed)} hosts, or not all are finite')
            return weights
        except Exception as error:
            FAULTS.count_swallowed_error(name, error)
        finally:
            ACTIVITY.count_request(name, began)
        return [0.0] * len(weighed)
    return run_weigh_objects


def multiply_by_0_on_error(method: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """Wrap ``weight_multiplier``: the weight does not count when the method raises."""
    @functools.wraps(method)
    def run_weight_multiplier(plugin: Any, host_state: Any) -> float:
        try:
            return method(plugin, host_state)
        except Exception as error:
            FAULTS.count_swallowed_error(type(plugin).__name__, error)
        return 0.0
    return run_weight_multiplier
