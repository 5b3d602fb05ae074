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

"""A Prometheus that knows the load of every host and instance, or does not."""

import json
from typing import Any, TYPE_CHECKING

from oslo_config import cfg

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.sources import prometheus
from kronos_nova.sources import prometheus_http
from tests.simulation.world import cloud

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

QUERY, PROFILE, AGE = 'host_load', 'vm_load', 'host_age'
#: What a host uses besides its instances.
BASE = 0.05


class Source(prometheus.PrometheusSource):
    """The real source; what would come over the network is simulated.

    ``bad`` are the hosts of whose load the last answers said nothing that
    could be believed.
    """

    def __init__(self, conf: cfg.ConfigOpts, run: 'runs.Run',
                 process: 'processes.Process') -> None:
        super().__init__(conf)
        self.run, self.process = run, process
        self.bad: frozenset[str] = frozenset()
        self._fault = ''

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        self.process.may_freeze()
        names = ('is down', 'gives stale samples', 'gives a degraded answer', 'gives NaN',
                 'misses hosts', 'uses other labels', 'gives a host twice')
        self._fault = next((n for n in names if self.run.faults.hit(f'Prometheus {n}')), '')
        hosts = list(self.run.cloud.hosts)
        self.bad = frozenset()
        if self._fault in ('gives NaN', 'misses hosts', 'gives a host twice'):
            self.bad = frozenset(self.run.rng.sample(hosts, self.run.rng.choice([1, 2, 3])))
        elif self._fault:
            self.bad = frozenset(hosts)
        return super().fetch(policy, profile=profile)

    def _fetch_answer(self, method: str, path: str, form: dict[str, str] | None) -> bytes:
        assert form is not None
        if self._fault == 'is down':
            raise prometheus_http.ServerUnreachable('Prometheus cannot be reached')
        body: dict[str, Any] = {'status': 'success', 'data': {
            'resultType': 'vector', 'result': self._series(form['query'])}}
        if self._fault == 'gives a degraded answer':
            body['warnings'] = ['a store did not answer']
        return json.dumps(body).encode()

    def _series(self, query: str) -> list[dict[str, Any]]:
        def sample(value: float | str, **labels: str) -> dict[str, Any]:
            return {'metric': labels, 'value': [self.run.now, str(value)]}

        instances = self.run.cloud.instances.values()
        if query == PROFILE:
            return [sample(i.load, uuid=i.uuid) for i in instances if i.status == 'ACTIVE']
        if query == AGE:
            return [sample(1000 if self._fault == 'gives stale samples' else 5, host=h)
                    for h in self.run.cloud.hosts]
        label = 'nodename' if self._fault == 'uses other labels' else 'host'
        samples = []
        for host in self.run.cloud.hosts:
            load = BASE + sum(i.load for i in instances if i.host == host
                              and i.status == 'ACTIVE') / cloud.CORES
            if host in self.bad and self._fault == 'misses hosts':
                continue
            nan = host in self.bad and self._fault == 'gives NaN'
            samples.append(sample('NaN' if nan else min(1.0, load), **{label: host}))
            if host in self.bad and self._fault == 'gives a host twice':
                samples.append(sample(0.01, **{label: host, 'job': 'other'}))
        return samples
