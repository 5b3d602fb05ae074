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



"""Boots that metrics cannot show yet steer the next ones."""

import collections
from unittest import mock

from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from tests import marks
from tests.functional import scores

COUNT = 6


class OneSampleTestCase(scores.ScoredTestCase):
    """Scores come from one sample of Prometheus, until a test takes the next."""

    def configure(self):
        super().configure()
        self.flags(refresh_interval=3600, concurrent_boots=1, group='kronos')

    def multi_create(self, count):
        """The hosts of instances that one request boots."""
        body = self._build_server(flavor_id=self.flavor['id'], networks='none')
        body.update(min_count=count, max_count=count, name='many')
        before = {s['id'] for s in self.admin_api.get_servers()}
        self.admin_api.post_server({'server': body})
        new = [s for s in self.admin_api.get_servers() if s['id'] not in before]
        self.assertEqual(count, len(new))
        return self.counted(self._wait_for_state_change(s, 'ACTIVE') for s in new)

    def counted(self, servers):
        return dict(collections.Counter(self.host_of(s) for s in servers))

    def new_sample(self):
        runtime.get_runtime().scores.refresh_scores()

    def allocated(self):
        return {state.host: state.vcpus_used for state in self.host_states()}


class DepletionTestCase(OneSampleTestCase):
    """Nearly equal hosts, and a multiplier that drowns the stock weighers:
    without depletion every boot goes to host1."""

    scores = {'host1': 0.30, 'host2': 0.31, 'host3': 0.32}

    @marks.turns(12)
    def test_instances_of_one_request_spread(self):
        self.wait_for_scores(**self.scores)
        self.assertEqual(dict.fromkeys(self.hosts, COUNT // 3), self.multi_create(COUNT))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))

    @marks.long
    def test_boots_pile_up_without_depletion(self):
        def blind(scores, tracks, **kwargs):
            return depletion.LoadOutlook({host: depletion.HostLoad(score, score)
                                          for host, score in scores.items()}, 0.0, False, {})

        with mock.patch.object(policy_scores.depletion, 'compute_outlook', blind):
            self.wait_for_scores(**self.scores)
            self.assertEqual({'host1': COUNT}, self.multi_create(COUNT))

    @marks.turns(3)
    def test_requests_within_one_sample_spread_until_next_sample(self):
        self.wait_for_scores(**self.scores)
        self.assertEqual(dict.fromkeys(self.hosts, COUNT // 3),
                         self.counted(self.boot() for _ in range(COUNT)))
        # What the next sample shows includes them all: host1 is the best again.
        self.new_sample()
        self.assertEqual('host1', self.host_of(self.boot()))
        self.assertEqual('host2', self.host_of(self.boot()))

    @marks.long
    def test_deleted_instance_frees_expected_load(self):
        old = [self.boot(host=host) for host in self.hosts]
        self.prometheus.series['cpu'] = {'host1': 0.36, 'host2': 0.30, 'host3': 0.40}
        self.wait_for_scores(host1=0.36, host2=0.30, host3=0.40)
        self._delete_server(old[0])
        self.wait_for(lambda: self.allocated()['host1'] == 0, 'the deletion to be accounted')
        # A vCPU of ten, which is taken to be all busy: host1 is at 0.26.
        self.assertEqual('host1', self.host_of(self.boot()))
        self.assertEqual('host2', self.host_of(self.boot()))


class CeilingTestCase(OneSampleTestCase):
    """The capacity filter counts what the weigher counts."""

    fields = {'boot_ceiling': 0.75}
    scores = {'host1': 0.4, 'host2': 0.6, 'host3': 0.9}

    def configure(self):
        super().configure()
        self.flags(kronos_weight_multiplier=0.0, group='filter_scheduler')
        self.flags(hard_ceiling=True, group='kronos')

    @marks.turns(12)
    def test_burst_stops_at_ceiling(self):
        for host in self.hosts:
            self.boot(host=host)
        self.wait_for_scores(**self.scores)
        # 0.1 for each: three fit below the ceiling on host1, one on host2.
        self.assertEqual({'host1': 3, 'host2': 1}, self.multi_create(4))
        self.boot(expected_state='ERROR')


class WindowTestCase(OneSampleTestCase):
    """A range of an hour shows little load of new instances in any sample."""

    scores = DepletionTestCase.scores
    settle_seconds = 3600

    @marks.turns(12)
    def test_requests_spread_with_new_sample_after_each(self):
        self.wait_for_scores(**self.scores)
        servers = []
        for _ in range(COUNT):
            servers.append(self.boot())
            self.new_sample()
        self.assertEqual(dict.fromkeys(self.hosts, COUNT // 3), self.counted(servers))
