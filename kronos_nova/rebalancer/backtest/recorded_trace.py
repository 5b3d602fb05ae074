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

"""Recorded data: a cloud at one time, and answers over a stretch of time."""

from collections.abc import Mapping
import dataclasses

import numpy as np
import numpy.typing as npt

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.sources import ranges

Singles = npt.NDArray[np.float32]

#: A query's text, the label that names its series, and the label that names
#: their hosts.
Question = tuple[str, str, str]

#: Fields whose queries measure instances, not hosts.
LONG_TERM = ('vm_mean_query', 'vm_deviation_query')
OF_INSTANCES = ('vm_profile_query', *LONG_TERM)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordedSeries:
    """Series over time: ``values`` is T x S, NaN without a sample."""

    keys: tuple[str, ...]
    marks: tuple[str, ...]
    values: Singles


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordedTrace:
    """A window of T times, the answers to questions over it, and the cloud.

    ``cluster`` is as of ``cluster.taken_at``, inside the window or not.
    ``scopes`` are those that were planned when it was recorded.
    """

    window: ranges.QueryWindow
    cluster: model.Cluster
    scopes: tuple[str, ...]
    answers: Mapping[Question, RecordedSeries]
    warnings: tuple[str, ...] = ()


def list_questions(policy: policies.Policy) -> dict[str, Question]:
    """Return the questions that are recorded over time, by field.

    ``age_query`` is not among them: the age of scores at their use is simulated.
    """
    labels = dict.fromkeys(OF_INSTANCES, policy.vm_profile_label)
    return {field: (query, labels.get(field, policy.host_label), policy.host_label)
            for field, query in policy.queries.items() if field != 'age_query'}
