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



"""Several policy files in one nova-scheduler, each for its aggregates."""

import os

import yaml

from kronos_nova.scheduler import runtime
from tests import marks
from tests.functional import scores


class TwoFilesTestCase(scores.ScoredTestCase):
    """host1 and host2 spread by cpu, host3 and host4 pack by load; judged by
    the other file, each pair would choose the other way."""

    hosts = ('host1', 'host2', 'host3', 'host4')
    series = {'cpu': {'host1': 0.6, 'host2': 0.2, 'host3': 0.1, 'host4': 0.9},
              'load': {'host1': 0.1, 'host2': 0.9, 'host3': 0.7, 'host4': 0.2}}

    def configure(self):
        super().configure()
        self.prometheus.series = {query: dict(values) for query, values in self.series.items()}
        self.pack_file = os.path.join(os.path.dirname(self.policies_file), 'pack.yaml')
        self.write(self.policies_file, ['spread'], imbalance_query='cpu')
        self.write(self.pack_file, ['pack'], imbalance_query='load', capacity_query='load',
                   mode='pack')
        self.flags(policies_file=[self.policies_file, self.pack_file], group='kronos')

    def setUp(self):
        super().setUp()
        self.aggregate('spread', 'host1', 'host2', availability_zone='spread',
                       kronos_weight_multiplier='1000')
        self.pack = self.aggregate('pack', 'host3', 'host4', availability_zone='pack',
                                   kronos_weight_multiplier='-1000')

    def write(self, path, aggregates, **fields):
        with open(path, 'w') as f:
            yaml.safe_dump({'aggregates': aggregates, 'policies': [
                {'name': 'one', 'weight': 1.0, **fields}]}, f)

    def wait_for_files(self, count):
        """Until so many files have scores."""
        self.wait_for(
            lambda: sum(group.snapshot is not None and len(group.snapshot.headroom) == 4
                        for group in runtime.get_runtime().list_scored_groups(self.host_states()))
                        == count,
            f'the scores of {count} files')

    def chosen_in(self, zone):
        server = self.admin_api.post_server({'server': self._build_server(
            flavor_id=self.flavor['id'], networks='none', az=zone)})
        server = self._wait_for_state_change(server, 'ACTIVE')
        host = self.host_of(server)
        self._delete_server(server)
        return host

    def log_count(self, text):
        return self.stdlog.logger.output.count(text)

    @marks.turns(12)
    def test_each_aggregate_uses_its_own_policy_file(self):
        self.wait_for_files(2)
        self.assertEqual('host2', self.chosen_in('spread'))
        self.assertEqual('host3', self.chosen_in('pack'))
        self.assertEqual(0, self.log_count('says mode:'))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))

    @marks.turns(12)
    def test_multiplier_sign_against_mode_is_logged_once(self):
        self.wait_for_files(2)
        self.admin_api.post_aggregate_action(self.pack['id'], {'set_metadata': {
            'metadata': {'kronos_weight_multiplier': '1000'}}})
        self.assertEqual('host4', self.chosen_in('pack'))
        text = 'kronos_weight_multiplier of aggregate pack is 1000: new instances are spread'
        self.wait_for(lambda: self.log_count(text), 'the warning')
        self.chosen_in('pack')
        runtime.get_runtime().scores.refresh_scores()
        self.assertEqual(1, self.log_count(text))

    @marks.long
    def test_file_without_scores_leaves_only_its_hosts_to_nova(self):
        self.prometheus.series['load'] = {}
        self.wait_for_files(1)
        self.assertEqual('host2', self.chosen_in('spread'))
        self.boot(host='host3')
        self.assertEqual('host4', self.chosen_in('pack'))
        self.prometheus.series['load'] = {**self.series['load']}
        self.wait_for_files(2)
        self.assertEqual('host3', self.chosen_in('pack'))

    @marks.turns(3)
    def test_invalid_policy_file_keeps_last_good_version(self):
        self.wait_for_files(2)
        with open(self.pack_file, 'w') as f:
            f.write('policies: [')
        text = 'The last good policies stay'
        self.wait_for(lambda: self.log_count(text), 'the refusal')
        self.prometheus.series['load'] = {**self.series['load'], 'host4': 0.8}
        self.wait_for(lambda: self.chosen_in('pack') == 'host4', 'new scores by the old file')
        self.assertEqual(1, self.log_count(text))
        self.assertEqual('host2', self.chosen_in('spread'))
