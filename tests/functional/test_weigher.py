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


"""Boots follow the scores; without scores they follow Nova alone."""

from unittest import mock

from nova import exception

from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache
from tests import marks
from tests.fixtures import prometheus_api
from tests.functional import base
from tests.functional import scores


class StockChoiceTestCase(base.NovaTestCase):
    """What the tests below call stock Nova's choice is stock Nova's."""

    plugins = False

    def test_stock_nova_prefers_empty_host(self):
        for host in ('host1', 'host1', 'host2'):
            self.boot(host=host)
        self.assertEqual(scores.ScoredTestCase.stock_choice, self.host_of(self.boot()))


class FollowScoresTestCase(scores.ScoredTestCase):

    def test_boots_follow_changing_scores(self):
        manager = self.scheduler_service.manager.host_manager
        self.assertEqual(['KronosPlacementFilter', 'KronosCapacityFilter'],
                         [type(f).__name__ for f in manager.enabled_filters][-2:])
        self.assertIn('KronosWeigher', [type(w).__name__ for w in manager.weighers])
        self.occupy()
        self.wait_for_scores(**self.scores)
        self.assertEqual('host1', self.chosen())
        self.prometheus.series['cpu'] = {'host1': 0.9, 'host2': 0.2, 'host3': 0.9}
        self.wait_for_scores(host1=0.9, host2=0.2, host3=0.9)
        self.assertEqual('host2', self.chosen())

    @marks.long
    def test_negative_aggregate_multiplier_reverses_choice(self):
        self.occupy()
        self.wait_for_scores(**self.scores)
        self.aggregate('pack', *self.hosts, kronos_weight_multiplier='-1000')
        self.assertEqual('host3', self.chosen())
        # host1 is the least loaded of all; only host2 packs, and is half used.
        self.prometheus.series['cpu'] = {'host1': 0.8, 'host2': 0.9, 'host3': 0.7}
        self.wait_for_scores(host1=0.8, host2=0.9, host3=0.7)
        self.assertEqual('host2', self.chosen())

    @marks.long
    def test_unknown_host_gets_mean_of_known_scores(self):
        self.prometheus.series['cpu'] = {'host1': 0.9, 'host2': 0.1}
        self.occupy()
        self.wait_for_scores(host1=0.9, host2=0.1)
        self.assertEqual('host2', self.chosen())
        self.prometheus.series['cpu'] = {'host1': 0.2, 'host2': 0.9}
        self.wait_for_scores(host1=0.2, host2=0.9)
        self.assertEqual('host1', self.chosen())

    @marks.turns(12)
    def test_changed_policy_file_is_read_unless_invalid(self):
        self.occupy()
        self.wait_for_scores(**self.scores)
        with open(self.policies_file, 'w') as f:
            f.write('policies: [')
        self.wait_for(lambda: 'The last good policies stay' in self.stdlog.logger.output,
                      'the refusal of the file')
        self.assertEqual('host1', self.chosen())
        self.prometheus.series['memory'] = {'host1': 0.9, 'host2': 0.1, 'host3': 0.9}
        self.write_policies(name='memory', imbalance_query='memory')
        self.wait_for_scores(host1=0.9, host2=0.1, host3=0.9)
        self.assertEqual('host2', self.chosen())


class MovesTestCase(scores.ScoredTestCase):
    """Where Nova chooses a host for a live server, the scores take part.

    Stock Nova would choose host3, which is empty; host2 is less loaded.
    """

    scores = {'host1': 0.4, 'host2': 0.1, 'host3': 0.9}

    def setUp(self):
        super().setUp()
        self.boot(host='host2')
        self.server = self.boot(host='host1')
        self.wait_for_scores(**self.scores)

    def down(self, host):
        self.computes[host].stop()
        service = self.admin_api.get_services(host=host, binary='nova-compute')[0]
        self.admin_api.put_service(service['id'], {'forced_down': True})

    def assert_on(self, host):
        self.assertEqual(host, self.host_of(self.server))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))

    @marks.long
    def test_resize_goes_to_the_least_loaded(self):
        larger = next(f for f in self.api.get_flavors() if f['vcpus'] == 2)
        self._resize_server(self.server, larger['id'])
        self.assert_on('host2')
        self._confirm_resize(self.server)

    @marks.turns(12)
    def test_evacuation_goes_to_the_least_loaded(self):
        self.down('host1')
        self._evacuate_server(self.server)
        self.assert_on('host2')

    @marks.turns(12)
    def test_live_migration_goes_to_the_least_loaded(self):
        self.live_migrate(self.server)
        self.assert_on('host2')

    @marks.long
    def test_unshelving_goes_to_the_least_loaded(self):
        self.flags(shelved_offload_time=0)
        self._shelve_server(self.server)
        self._unshelve_server(self.server)
        self.assert_on('host2')

    @marks.long
    def test_rebuild_stays_on_host(self):
        self.prometheus.series['cpu'] = {'host1': 1.0, 'host2': 0.0, 'host3': 0.0}
        self.wait_for_scores(host1=1.0, host2=0.0, host3=0.0)
        self._rebuild_server(self.server, self.glance.auto_disk_config_enabled_image['id'])
        self.assert_on('host1')


class UnknownHostTestCase(scores.ScoredTestCase):
    """host3, the empty one that stock Nova prefers, has no exporter."""

    scores = {'host1': 0.7, 'host2': 0.9}

    def setUp(self):
        super().setUp()
        self.occupy()
        self.wait_for_scores(**self.scores)

    def unknown(self, what):
        self.flags(unknown_hosts=what, group='kronos')

    @marks.turns(12)
    def test_mean_ranks_unknown_host_above_worst_host(self):
        with self.disabled('host1'):
            # Of those that the request has, host2 is the mean.
            self.assertEqual('host3', self.chosen())

    @marks.long
    def test_penalty_makes_unknown_host_last_resort(self):
        self.unknown('penalty')
        with self.disabled('host1'):
            self.assertEqual('host2', self.chosen())
            with self.disabled('host2'):
                self.assertEqual('host3', self.chosen())

    @marks.long
    def test_penalty_applies_to_packing_too(self):
        self.unknown('penalty')
        self.flags(kronos_weight_multiplier=-1000.0, group='filter_scheduler')
        self.assertEqual('host2', self.chosen())
        with self.disabled('host2'):
            self.assertEqual('host1', self.chosen())

    @marks.turns(3)
    def test_excluded_host_gets_only_moves_and_named_boots(self):
        self.unknown('exclude')
        self.flags(kronos_weight_multiplier=0.0, group='filter_scheduler')
        self.assertNotEqual('host3', self.chosen())
        server = self.boot(host='host3')
        self.assertEqual('host3', self.host_of(server))
        moved = self.boot(host='host1')
        with self.disabled('host2'):
            self.live_migrate(moved)
        self.assertEqual('host3', self.host_of(moved))
        with self.disabled('host1'), self.disabled('host2'):
            # None of those that are left is known.
            self.assertEqual('host3', self.chosen())

    @marks.long
    def test_loss_and_return_of_score_are_logged_once(self):
        lost = 'no score for 1 host, treated as unknown_hosts = mean says: host3'
        back = 'scores are back for 1 host: host3'

        def said(text):
            return self.stdlog.logger.output.count(text)

        self.wait_for(lambda: said(lost), 'the loss to be said')
        for _ in range(3):
            runtime.get_runtime().scores.refresh_scores()
        self.assertEqual((1, 0), (said(lost), said(back)))
        self.prometheus.series['cpu'] = {**self.scores, 'host3': 0.2}
        self.wait_for_scores(**self.scores, host3=0.2)
        for _ in range(3):
            runtime.get_runtime().scores.refresh_scores()
        self.assertEqual((1, 1), (said(lost), said(back)))


class AlternatesTestCase(scores.ScoredTestCase):
    """What fails to build goes to the next best, and is counted there."""

    hosts = ('host1', 'host2', 'host3', 'host4', 'host5')
    scores = {'host1': 0.1, 'host2': 0.2, 'host3': 0.30, 'host4': 0.35, 'host5': 0.9}

    def configure(self):
        super().configure()
        self.flags(refresh_interval=3600, concurrent_boots=1, group='kronos')

    @marks.turns(3)
    def test_reschedule_uses_next_weighed_host_and_is_counted(self):
        failing = mock.Mock(side_effect=exception.ComputeResourcesUnavailable(reason='a test'))
        # The capacity filter is asked first: nothing is built, all is seen.
        self.wait_for_scores(**self.scores)
        for host in ('host1', 'host2'):
            self.computes[host].manager.driver.spawn = failing
        self.assertEqual('host3', self.host_of(self.boot()))
        self.assertEqual(2, failing.call_count)
        # A vCPU of ten is taken to be all busy: host3 is at 0.4 now.
        self.wait_for(lambda: [h.vcpus_used for h in sorted(
            self.host_states(), key=lambda h: h.host)] == [0, 0, 1, 0, 0],
            'what failed to be given back')
        self.assertEqual('host4', self.host_of(self.boot()))
        self.assertEqual('host3', self.host_of(self.boot()))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))


class NoScoresTestCase(scores.ScoredTestCase):
    """Every boot succeeds, and the choice is stock Nova's."""

    fields = {'age_query': 'age'}

    def configure(self):
        super().configure()
        self.flags(staleness_threshold=3, group='prometheus')
        self.prometheus.series['age'] = dict.fromkeys(self.hosts, 0.1)

    def assert_stock(self, reason):
        self.wait_for_no_scores(reason)
        self.assertEqual(self.stock_choice, self.chosen())
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))

    def assert_scores_are_back(self):
        self.wait_for_scores(**self.scores)
        self.assertEqual('host1', self.chosen())

    def test_boots_survive_prometheus_outage(self):
        self.occupy()
        self.assert_scores_are_back()
        self.prometheus.stop()
        self.assert_stock('old')
        self.prometheus.restart()
        self.assert_scores_are_back()

    @marks.turns(12)
    def test_boots_succeed_without_prometheus(self):
        self.prometheus.stop()
        self.occupy()
        self.assert_stock('cannot be reached')

    @marks.long
    def test_untrustworthy_answers_leave_choice_to_nova(self):
        self.occupy()
        good = dict(self.prometheus.series['cpu'])
        for what, cpu, extra, reason in (
                ('a warning', good, {'warnings': ['a store did not answer']}, 'degraded'),
                ('partial', good, {'isPartial': True}, 'degraded'),
                ('only NaN', dict.fromkeys(good, 'NaN'), {}, 'not finite'),
                ('out of range', {**good, 'host1': 12.5}, {}, 'outside [0, 1]'),
                ('a duplicate', {**good, 'host1': [0.1, 0.2]}, {}, 'more than one series'),
                ('empty', {}, {}, 'no series'),
                ('somebody else', {'web1': 0.1}, {}, 'names no host')):
            with self.subTest(what):
                self.prometheus.series['cpu'], self.prometheus.extra = cpu, extra
                self.assert_stock(reason)
                self.prometheus.series['cpu'], self.prometheus.extra = good, {}
                self.wait_for_scores(**self.scores)

    @marks.long
    def test_defect_10_stale_samples_are_ignored(self):
        self.occupy()
        self.assert_scores_are_back()
        self.prometheus.series['age'] = dict.fromkeys(self.hosts, 500)
        self.assert_stock('500 s old')
        # One dead exporter is a missing host, not a stale policy.
        self.prometheus.series['age'] = {'host1': 500, 'host2': 0, 'host3': 0}
        self.wait_for_scores(host2=0.5, host3=0.9)
        self.assertEqual('host2', self.chosen())

    @marks.long
    def test_nan_makes_host_unknown(self):
        self.occupy()
        self.prometheus.series['cpu']['host1'] = 'NaN'
        self.wait_for_scores(host2=0.5, host3=0.9)
        self.assertEqual('host2', self.chosen())

    @marks.long
    def test_server_errors_leave_choice_to_nova(self):
        self.occupy()
        for status in (500, 400, 302):
            with self.subTest(status):
                self.prometheus.respond = lambda handler, form, status=status: (
                    prometheus_api.PrometheusAPI.send(
                        handler, status, {'status': 'error', 'error': 'boom'}, Location='/'))
                self.assert_stock(str(status))

    @marks.turns(12)
    def test_missing_scores_are_neutral_for_both_multiplier_signs(self):
        self.prometheus.stop()
        self.aggregate('spread', 'host1', kronos_weight_multiplier='100000')
        self.aggregate('pack', 'host2', kronos_weight_multiplier='-100000')
        self.occupy()
        self.assert_stock('cannot be reached')


class BrokenTestCase(scores.ScoredTestCase):

    def test_plugin_error_is_swallowed_counted_and_logged_once(self):
        self.occupy()
        log = mock.Mock()
        with mock.patch.object(score_cache.ScoreCache, 'group_scored_hosts', autospec=True,
                               side_effect=RuntimeError('boom')), \
                mock.patch('kronos_nova.feed.periodic.LOG.error', log):
            self.assertEqual(self.stock_choice, self.chosen())
            self.assertEqual(self.stock_choice, self.chosen())
        counts = runtime.get_runtime().faults.counts
        self.assertEqual(2, counts['KronosWeigher: RuntimeError'])
        self.assertEqual(2, counts['KronosCapacityFilter: RuntimeError'])
        self.assertEqual(2, log.call_count)
