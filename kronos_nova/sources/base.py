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

"""The contract of a score source: a live Prometheus, a snapshot, ...

To add one: a class with these methods in one file, a line in setup.cfg under
``kronos_nova.sources``, a test and a release note.
"""

import abc

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.sources import ranges


class MetricsSource(abc.ABC):
    """A source of answers to the queries of policies. It returns data and decides nothing."""

    @abc.abstractmethod
    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        """Ask every query of one policy.

        External faults raise nothing: a failed query is a :class:`~kronos_nova.model.QueryResult`
        with ``error`` set.

        :param profile: also ask the queries for instances, and those that only they need.
            nova-scheduler needs the hosts' scores alone, and ``capacity_query`` when the policy
            has a ``boot_ceiling``.
        """

    @abc.abstractmethod
    def health(self) -> tuple[model.SourceHealth, str]:
        """Return the source's own state, and a sentence that explains it."""

    def check_syntax(self, query: str) -> model.QueryResult:
        """Parse one query without reading samples; for ``kronos policy lint``.

        ``error`` names the fault of the query; when ``health`` is UNREACHABLE, the reason why the
        source could not parse it. A source that does not know PromQL keeps this method.
        """
        return model.QueryResult(query, model.SourceHealth.UNREACHABLE,
                                 error=f'{type(self).__name__} does not parse PromQL')

    def query_range(self, query: str, label: str, mark: str, window: ranges.QueryWindow,
                    progress: ranges.Progress = ranges.ignore_progress) -> ranges.RangeResult:
        """Ask one query at every time of the window; for ``kronos simulate``.

        A source without history keeps this method. External faults raise nothing.

        :param label: the label whose value becomes the key.
        :param mark: a second label to keep, which a series need not have.
        :param progress: called with the number of points of every part that has come, and with 0
            before a query for a smaller part; an exception that it raises ends the query.
        """
        return ranges.RangeResult(query, window, error=f'{type(self).__name__} keeps no history')

    def close(self) -> None:  # noqa: B027 (most sources hold nothing open)
        """Release connections."""
