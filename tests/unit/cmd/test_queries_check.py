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

"""Scopes in the check of the queries: those that the engine plans, and no others."""

import time

from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova.checks import base
from kronos_nova.checks import queries
from kronos_nova.conf import opts
from kronos_nova.conf import policies

HOSTS = ('h1', 'h2')


class Source:
    """Answers every policy with the same two hosts."""

    def fetch(self, policy):
        return model.PolicySamples(policy.name, model.QueryResult(
            'q', model.SourceHealth.HEALTHY, series={'h1': 0.9, 'h2': 0.4}), age=1.0,
            taken_at=time.time())


@pytest.mark.parametrize(('covered', 'scopes'), [
    ('', ['a']), ('aggregates: [b]\n', ['b']), ('aggregates: [c]\n', [])])
def test_a_host_of_two_aggregates_is_scored_by_the_one_with_policies(tmp_path, covered, scopes):
    path = tmp_path / 'policies.yaml'
    path.write_text('policies: [{name: cpu, weight: 1, imbalance_query: q}]\n' + covered)
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], project='kronos', default_config_files=[], default_config_dirs=[])
    conf.set_override('aggregates', ['a', 'b'], 'engine')
    cluster = model.Cluster(
        hosts={name: model.Host(name) for name in HOSTS}, instances={},
        services={name: model.Service(name) for name in HOSTS},
        aggregates=dict.fromkeys('ab', HOSTS),
        scope_hosts=frozenset(HOSTS))
    items = list(queries.check(base.CheckContext(
        conf, policy_set=policies.load_policies(str(path)), source=Source(), cluster=cluster)))
    assert [(item.name, item.status, item.text) for item in items
            if item.name.startswith('policy: ')] == [
        (f'policy: cpu in {scope}', base.CheckStatus.OK, 'imbalance 0.5000, threshold 0.1500')
        for scope in scopes]
