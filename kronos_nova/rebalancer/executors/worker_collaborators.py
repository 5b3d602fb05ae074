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

"""Collaborators that the submission, the watch and the deadlines of one worker share."""

from collections.abc import Callable
import dataclasses

from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import executor_clock
from kronos_nova.rebalancer.executors import outcomes
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import service_breakers


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerCollaborators:
    """Objects that one worker hands to its parts.

    ``monotonic`` returns seconds that no change of a clock affects.
    """

    driver: base.Executor
    settings: retry.RetrySettings
    outcomes: outcomes.OutcomeWriter
    services: service_breakers.ServiceBreakers
    clock: executor_clock.ExecutorClock
    monotonic: Callable[[], float]
