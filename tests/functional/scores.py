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


"""Nova with our plug-ins, and scores that a test can set."""

import os
import tempfile
from typing import Any

import fixtures
from nova import context
import yaml

from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from tests.fixtures import prometheus_api
from tests.functional import base


class ScoredTestCase(base.NovaTestCase):
    """Scores come from a real HTTP server; ``scores`` are the first ones.

    Stock Nova prefers host3: after :meth:`occupy`, host1 has two instances,
    host2 one, host3 none, and every stock weigher counts that.
    """

    scores: dict[str, Any] = {'host1': 0.1, 'host2': 0.5, 'host3': 0.9}
    stock_choice = 'host3'
    #: More fields of the policy.
    fields: dict[str, Any] = {}
    #: 0: a sample shows all that is there.
    settle_seconds = 0

    def configure(self) -> None:
        super().configure()
        runtime.close()
        self.addCleanup(runtime.close)
        self.prometheus = prometheus_api.PrometheusAPI()
        self.prometheus.start()
        self.addCleanup(self.prometheus.stop)
        self.prometheus.series = {'cpu': dict(self.scores)}
        directory = self.useFixture(fixtures.TempDir()).path
        self.policies_file = os.path.join(directory, 'policies.yaml')
        self.write_policies()
        self.flags(url=self.prometheus.url, timeout=5, max_retries=0, group='prometheus')
        self.flags(policies_file=[self.policies_file], refresh_interval=1.0,
                   settle_seconds=self.settle_seconds, group='kronos')
        self.flags(kronos_weight_multiplier=1000.0, group='filter_scheduler')

    def write_policies(self, **fields: Any) -> None:
        """Replace the policy file by one policy with these fields."""
        policy = {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', **self.fields,
                  **fields}
        with tempfile.NamedTemporaryFile(
                'w', dir=os.path.dirname(self.policies_file), delete=False) as f:
            yaml.safe_dump({'policies': [policy]}, f)
        os.replace(f.name, self.policies_file)

    def occupy(self) -> None:
        for host in ('host1', 'host1', 'host2'):
            self.boot(host=host)

    def look(self) -> policy_scores.ScoreReading | None:
        """What a request would see now; wakes what runs in the background."""
        groups = runtime.get_runtime().list_scored_groups(self.host_states())
        return groups[0].snapshot if len(groups) == 1 else None

    def host_states(self) -> list[Any]:
        """Nova's HostState objects, as a request gets them."""
        return list(self.scheduler_service.manager.host_manager.get_host_states_by_uuids(
            context.get_admin_context(), None, None))

    def wait_for_scores(self, **scores: float) -> None:
        """Until exactly these host scores are in use."""
        expected = {host: round(1 - value, 6) for host, value in scores.items()}

        def there() -> bool:
            snapshot = self.look()
            return snapshot is not None and {
                host: round(value, 6) for host, value in snapshot.headroom.items()} == expected

        self.wait_for(there, f'scores {scores}')

    def wait_for_no_scores(self, reason: str) -> None:
        """Until there are none for a reason that contains this text."""
        self.wait_for(lambda: self.look() is None
                      and reason in runtime.get_runtime().scores.missing_score_reason,
                      f'no scores because of {reason!r}')

    def chosen(self, **kwargs: Any) -> str:
        """Where Nova boots an instance now; it is deleted again."""
        server = self.boot(**kwargs)
        host = self.host_of(server)
        self._delete_server(server)
        return host
