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


"""The scoreboard shows fresh, whole, believable scores, or none with a reason."""

import dataclasses
import math
from unittest import mock

from oslo_config import cfg
import pytest
import yaml

from kronos_nova import model
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import periodic
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import score_cache
from kronos_nova.scheduler import shared_source
from kronos_nova.scheduler import tie_breaking
from kronos_nova.sources import base
from tests.unit import nova_fakes

HOSTS = [nova_fakes.HostState('cn1', 'cn1.a.org'), nova_fakes.HostState('cn2', 'cn2.a.org')]


class FakeSource(base.MetricsSource):
    """Answers from ``series`` by query; an Exception there is raised."""

    def __init__(self):
        self.series = {}
        self.ages = {}
        self.asked = []

    def fetch(self, policy, *, profile=True):
        self.asked.append((policy.name, profile))
        return model.PolicySamples(policy.name, self._result(policy.imbalance_query),
                                   capacity=self._result(policy.capacity_query),
                                   age=self.ages.get(policy.name))

    def _result(self, query):
        if query is None:
            return None
        found = self.series[query]
        if isinstance(found, Exception):
            raise found
        if isinstance(found, model.QueryResult):
            return found
        return model.QueryResult(query, model.SourceHealth.HEALTHY, series=found)

    def health(self):
        return model.SourceHealth.HEALTHY, 'fake'


def failed(health):
    return model.QueryResult('q', health, error=f'it is {health}')


@pytest.fixture
def clock():
    with mock.patch.object(policy_scores.time, 'monotonic', autospec=True) as monotonic:
        monotonic.return_value = 1000.0
        yield monotonic


@pytest.fixture
def source():
    found = FakeSource()
    found.series = {'cpu': {'cn1': 0.2, 'cn2.a.org': 0.8}, 'mem': {'cn1': 0.4, 'cn2': 0.0},
                    'peak': {'cn1': 0.6, 'cn2': 0.9}}
    with mock.patch('kronos_nova.plugins.load_plugin', autospec=True,
                    return_value=lambda conf: found):
        yield found


@pytest.fixture
def board(tmp_path, source, clock):
    conf = cfg.ConfigOpts()
    scheduler_conf.register(conf)
    conf([])
    conf.set_override('policies_file', [str(tmp_path / 'policies.yaml')], 'kronos')
    made = score_cache.ScoreCache(conf, periodic.FaultCounters())
    made.conf = conf
    made.write = lambda *entries: (tmp_path / 'policies.yaml').write_text(
        yaml.safe_dump({'policies': list(entries)}))
    made.write(entry('cpu', 0.5), entry('mem', 0.5))
    with mock.patch.object(periodic.BackgroundRefresher, 'ensure_running', autospec=True):
        yield made


def entry(name, weight=1.0, **fields):
    return {'name': name, 'weight': weight, 'imbalance_query': name, **fields}


def seen(board):
    """What a request sees after a refresh."""
    look(board)
    board.refresh_scores()
    return look(board)


def look(board, hosts=HOSTS):
    """The snapshot of the one file."""
    [group] = board.group_scored_hosts(hosts)
    assert group.hosts is hosts and bool(group.reason) == (group.snapshot is None)
    return group.snapshot


def test_headroom_is_what_the_weighted_scores_leave(board):
    assert dict(seen(board).headroom) == pytest.approx({'cn1': 0.7, 'cn2': 0.6})


def test_the_boot_door_asks_for_hosts_only(board, source):
    seen(board)
    assert source.asked == [('cpu', False), ('mem', False)]


def test_before_the_first_answer_there_are_no_scores(board):
    assert look(board) is None and not board.has_queried_source
    assert 'nothing was asked' in board.missing_score_reason
    board.refresh_scores()
    assert board.has_queried_source


def test_a_host_without_one_of_the_scores_has_no_headroom(board, source):
    del source.series['mem']['cn2']
    assert set(seen(board).headroom) == {'cn1'}


def test_a_host_seen_later_is_mapped_without_asking_again(board, source):
    source.series['cpu']['cn3'] = source.series['mem']['cn3'] = 0.5
    assert set(seen(board).headroom) == {'cn1', 'cn2'}
    assert set(look(board, [*HOSTS, nova_fakes.HostState('cn3')]).headroom) == {'cn1', 'cn2'}
    asked = len(source.asked)
    board._update_readings()
    assert set(look(board).headroom) == {'cn1', 'cn2', 'cn3'}
    assert len(source.asked) == asked


def test_scores_age_out(board, clock):
    assert seen(board) is not None
    clock.return_value += 299
    assert look(board) is not None
    clock.return_value += 2
    assert look(board) is None and board.missing_score_reason == 'the scores are too old'


def test_the_age_of_the_samples_counts(board, source, clock):
    source.ages = {'cpu': 250.0, 'mem': 10.0}
    assert seen(board) is not None
    clock.return_value += 51
    assert look(board) is None
    source.ages['mem'] = 301.0
    assert seen(board) is None and 'mem: samples are 301 s old' in board.missing_score_reason
    source.ages['mem'] = math.nan
    assert seen(board) is None


def test_require_age_refuses_policies_without_one(board, source):
    board.conf.set_override('require_age', True, 'kronos')
    assert seen(board) is None and 'age_query' in board.missing_score_reason
    source.ages = {'cpu': 1.0, 'mem': 1.0}
    assert seen(board) is not None


@pytest.mark.parametrize('bad', [
    failed(model.SourceHealth.PARTIAL), {}, {'cn1': math.nan}, {'cn1': 2.0}, {'web': 0.5},
    {'cn1': 0.1, 'CN1': 0.2}])
def test_one_policy_that_cannot_be_believed_is_no_scores_at_all(board, source, bad):
    assert seen(board) is not None
    source.series['mem'] = bad
    assert seen(board) is None and board.missing_score_reason.startswith('mem: ')
    source.series['mem'] = {'cn1': 0.4, 'cn2': 0.0}
    assert seen(board) is not None


def test_a_source_out_of_reach_leaves_the_last_scores_until_they_are_old(board, source, clock):
    before = seen(board)
    source.series['cpu'] = source.series['mem'] = failed(model.SourceHealth.UNREACHABLE)
    clock.return_value += 200
    assert seen(board).headroom == before.headroom
    clock.return_value += 101
    assert seen(board) is None and '301 s old' in board.missing_score_reason


def test_a_source_out_of_reach_from_the_start_says_so(board, source):
    source.series['cpu'] = failed(model.SourceHealth.UNREACHABLE)
    assert seen(board) is None and 'it is UNREACHABLE' in board.missing_score_reason
    source.series['cpu'] = failed(model.SourceHealth.PARTIAL)
    assert seen(board) is None and 'it is PARTIAL' in board.missing_score_reason


def test_a_changed_policy_does_not_keep_old_samples(board, source):
    seen(board)
    source.series['new'] = failed(model.SourceHealth.UNREACHABLE)
    board.write(entry('cpu', imbalance_query='new'))
    assert seen(board) is None


def test_ceilings_are_compared_with_the_peak_when_there_is_one(board):
    board.write(entry('cpu', 0.5, boot_ceiling=0.7, capacity_query='peak'),
                entry('mem', 0.5, boot_ceiling=0.3))
    ceilings = {c.policy: (c.limit, {host: load.score for host, load in c.loads.items()})
                for c in seen(board).ceilings}
    assert ceilings == {'cpu': (0.7, {'cn1': 0.6, 'cn2': 0.9}),
                        'mem': (0.3, {'cn1': 0.4, 'cn2': 0.0})}


def test_a_bad_capacity_query_matters_only_to_a_ceiling(board, source):
    source.series['peak'] = {'cn1': 9.0}
    board.write(entry('cpu', capacity_query='peak'))
    assert seen(board) is not None
    board.write(entry('cpu', capacity_query='peak', boot_ceiling=0.7))
    assert seen(board) is None


def test_disabled_policies_are_not_asked(board, source):
    board.write(entry('cpu'), entry('mem', 0.5, enabled=False))
    assert dict(seen(board).headroom) == pytest.approx({'cn1': 0.8, 'cn2': 0.2})
    assert source.asked == [('cpu', False)]


def test_raw_weights_are_there_before_the_next_request(board):
    snapshot = seen(board)
    assert snapshot.weights.weigh_hosts(HOSTS, {}) == pytest.approx([0.2, 0.1])


def test_an_answer_of_another_worker_ages_and_is_replaced_in_time(board, source, clock):
    fetch = source.fetch
    ago = 20.0
    with mock.patch.object(source, 'fetch', autospec=True, side_effect=lambda *a, **k: (
            dataclasses.replace(fetch(*a, **k), asked_ago=ago))):
        assert seen(board).expires_at == 1000.0 - ago + 300
        assert board._compute_pause() == 10.0
        ago = 29.9
        seen(board)
        assert board._compute_pause() == 1.0
    seen(board)
    assert board._compute_pause() == 30.0


@pytest.mark.parametrize('shares', [True, False])
def test_answers_are_shared_if_the_option_says_so(board, shares):
    board.conf.set_override('share_scores', shares, 'kronos')
    assert isinstance(board._own_source(), shared_source.SharedMetricsSource) is shares


def test_without_a_valid_file_there_are_no_scores_and_then_there_are(board, tmp_path):
    (tmp_path / 'policies.yaml').write_text('policies: [')
    with mock.patch.object(policy_scores.LOG, 'error', autospec=True) as error:
        assert seen(board) is None and 'policies.yaml' in board.missing_score_reason
        seen(board)
    assert error.call_count == 1
    board.write(entry('cpu'))
    assert seen(board) is not None
    (tmp_path / 'policies.yaml').unlink()
    assert seen(board) is not None


def test_loss_and_return_of_scores_are_logged_once_each(board, source):
    with mock.patch.object(policy_scores.LOG, 'warning', autospec=True) as warning, \
            mock.patch.object(policy_scores.LOG, 'info', autospec=True) as info:
        for _ in range(3):
            seen(board)
        assert (warning.call_count, info.call_count) == (0, 1)
        good, source.series['cpu'] = source.series['cpu'], {'cn1': 7.0}
        for _ in range(3):
            seen(board)
        assert (warning.call_count, info.call_count) == (1, 1)
        source.series['cpu'] = good
        for _ in range(3):
            seen(board)
        assert (warning.call_count, info.call_count) == (1, 2)


@pytest.mark.parametrize(('mode', 'multiplier', 'said'), [
    ('spread', 1.0, 0), ('spread', -1.0, 1), ('pack', 1.0, 1), ('pack', -1.0, 0), ('pack', 0.0, 0)])
def test_a_mode_that_disagrees_with_the_multiplier_is_reported(board, mode, multiplier, said):
    board.conf.set_override('kronos_weight_multiplier', multiplier, 'filter_scheduler')
    board.write(entry('cpu', mode=mode, capacity_query='peak'))
    with mock.patch.object(score_cache.LOG, 'warning', autospec=True) as warning:
        seen(board)
        seen(board)
    assert warning.call_count == said


def test_a_snapshot_that_a_request_holds_does_not_change(board, source):
    before = seen(board)
    held = dict(before.headroom)
    source.series['cpu'] = {'cn1': 0.9, 'cn2': 0.9}
    after = seen(board)
    assert dict(before.headroom) == held and after.headroom != held


def test_an_error_of_the_source_leaves_the_thread_to_count_it(board, source):
    source.series['cpu'] = RuntimeError('boom')
    with pytest.raises(RuntimeError):
        seen(board)
    assert board.has_queried_source


def host(name, *aggregates, **fields):
    state = nova_fakes.HostState(name, name, **fields)
    for aggregate in aggregates:
        state.aggregates.append(mock.Mock(metadata={}))
        state.aggregates[-1].name = aggregate
    return state


def test_allocations_since_the_sample_are_added(board, source, clock):
    board.conf.set_override('settle_seconds', 0, 'kronos')
    board.write(entry('cpu'), entry('mem', 0.5, enabled=False))
    sizes = {'vcpus_total': 10, 'total_usable_ram_mb': 1000, 'free_ram_mb': 500}
    states = [host('cn1', vcpus_used=4, **sizes), host('cn2', vcpus_used=4, **sizes)]
    source.series = {'cpu': {'cn1': 0.2, 'cn2': 0.6}}

    def loads(**used):
        for state in states:
            state.vcpus_used = used.get(state.host, state.vcpus_used)
        snapshot = look(board, states)
        return [load and pytest.approx(load) for load in depletion.project_loads(
            states, snapshot.loads)]

    look(board, states)
    board.refresh_scores()
    # 8 cores are busy for 8 vCPUs.
    assert loads() == [0.2, 0.6]
    clock.return_value += 1
    assert loads(cn1=7) == [0.5, 0.6]
    assert loads(cn2=2) == [0.5, 0.4]
    clock.return_value += 1
    board.refresh_scores()
    # The new sample shows what was there when it was taken: nothing is added.
    assert loads() == [0.2, 0.6]


def test_a_window_keeps_what_a_new_sample_shows_in_part(board, source, clock):
    board.conf.set_override('settle_seconds', 100, 'kronos')
    board.write(entry('cpu'))
    sizes = {'vcpus_total': 10, 'total_usable_ram_mb': 1000, 'free_ram_mb': 500}
    source.series = {'cpu': {'cn1': 0.4}}
    look(board, [host('cn1', vcpus_used=4, **sizes)])
    clock.return_value += 50
    grown = [host('cn1', vcpus_used=6, **sizes)]
    look(board, grown)
    for passed, unshown in ((0, 2.0), (25, 1.5), (50, 1.0), (100, 0.0)):
        clock.return_value = 1050.0 + passed
        board.refresh_scores()
        snapshot = look(board, grown)
        [load] = depletion.project_loads(grown, snapshot.loads)
        # 4 cores are busy for what the sample shows of 6 vCPUs.
        assert load == pytest.approx(0.4 + unshown * 4 / (6 - unshown) / 10)


@pytest.mark.parametrize(('settle', 'query', 'shown'), [
    (100, 'avg_over_time(x[1000s])', 0.5), (100, 'x', 1.0),
    (2000, 'avg_over_time(x[1000s])', 0.25),
    (100, 'avg_over_time(x[1000s] offset 250s)', 0.25), (100, 'max_over_time(x[1000s])', 1.0),
    (0, 'avg_over_time(x[1000s])', 1.0)])
@pytest.mark.parametrize('ceiling', [False, True])
def test_a_longer_mean_shows_an_instance_as_slowly_as_it_does(
        board, source, clock, settle, query, shown, ceiling):
    """500 seconds after it has come."""
    board.conf.set_override('settle_seconds', settle, 'kronos')
    board.conf.set_override('staleness_threshold', 10000, 'prometheus')
    fields = {'imbalance_query': 'other', 'capacity_query': query} if ceiling else {
        'imbalance_query': query}
    board.write(entry('cpu', **{'boot_ceiling': 0.9, **fields}))
    sizes = {'vcpus_total': 10, 'total_usable_ram_mb': 1000, 'free_ram_mb': 500}
    source.series = {query: {'cn1': 0.4}, 'other': {'cn1': 0.4}}
    look(board, [host('cn1', vcpus_used=4, **sizes)])
    grown = [host('cn1', vcpus_used=6, **sizes)]
    look(board, grown)
    clock.return_value += 500
    board.refresh_scores()
    snapshot = look(board, grown)
    [load] = depletion.project_loads(
        grown, snapshot.ceilings[0].loads if ceiling else snapshot.loads)
    unshown = 2 * (1 - shown)
    assert load == pytest.approx(0.4 + unshown * 4 / (6 - unshown) / 10)


SMALL, LARGE = flavor_usages.FlavorShape(1, 100), flavor_usages.FlavorShape(2, 50)
SIZES = {'vcpus_total': 10, 'total_usable_ram_mb': 1000}


def hosts_of(**used):
    """HostState objects by (vCPUs, MiB) allocated."""
    return [host(name, vcpus_used=vcpus, free_ram_mb=1000 - ram_mb, **SIZES)
            for name, (vcpus, ram_mb) in used.items()]


def flavored(board, source, *moves, **fields):
    """Half of 10 cores busy for 5 vCPUs on each host, and two flavors known."""
    board.conf.set_override('settle_seconds', 0, 'kronos')
    board.write(entry('cpu', **fields))
    source.series['cpu'] = {'cn1': 0.5, 'cn2': 0.5}
    look(board, hosts_of(cn1=(5, 500), cn2=(5, 500)))
    board.refresh_scores()
    policy_scores.time.monotonic.return_value += 1.0
    board.replace_usages({key: flavor_usages.FlavorUsages({SMALL: 0.1, LARGE: 4.0}, moves)
                          for key in board.usage_keys})
    board._update_readings()


def loads_of(board, **used):
    states = hosts_of(**used)
    return depletion.project_loads(states, look(board, states).loads)


def test_growth_and_shrinkage_count_as_the_flavor_is_measured(board, source):
    flavored(board, source)
    for _ in range(2):  # at once, and when all is computed anew
        assert loads_of(board, cn1=(6, 600), cn2=(7, 550)) == pytest.approx([0.51, 0.9])
        board._update_readings()
    for _ in range(2):
        assert loads_of(board, cn1=(5, 500), cn2=(5, 500)) == pytest.approx([0.5, 0.5])
        board._update_readings()
    # No flavor's: a vCPU uses a core in the mean.
    assert loads_of(board, cn1=(8, 510), cn2=(6, 600)) == pytest.approx([0.8, 0.51])


def test_an_unpublished_usage_falls_back_to_the_mean(board, source):
    flavored(board, source)
    assert loads_of(board, cn1=(6, 600), cn2=(5, 500)) == pytest.approx([0.51, 0.5])
    board.replace_usages({})
    board._update_readings()
    assert loads_of(board, cn1=(6, 600), cn2=(5, 500)) == pytest.approx([0.6, 0.5])


def test_a_ceiling_counts_flavors_and_the_request_s_own(board, source):
    flavored(board, source, boot_ceiling=0.8)
    states = hosts_of(cn1=(6, 600), cn2=(7, 550))
    [ceiling] = look(board, states).ceilings
    for shape, more in ((SMALL, 0.01), (LARGE, 0.4), ((3, 10), 0.3)):
        assert depletion.project_loads(states, ceiling.loads,
                                       *ceiling.compute_expected_use(*shape)) \
            == pytest.approx([0.51 + more, 0.9 + more])


MOVE = flavor_usages.IncomingMove('u1', 'cn2', LARGE, 100.0, 3.0)


@pytest.mark.parametrize(('use', 'load'), [(3.0, 0.8), (None, 0.9)])
def test_a_move_counts_at_its_destination_until_nova_counts_it(board, source, use, load):
    flavored(board, source, MOVE._replace(use=use))
    assert loads_of(board, cn1=(5, 500), cn2=(5, 500)) == pytest.approx([0.5, load])
    # The compute has claimed: it counts once, by its flavor.
    loads_of(board, cn1=(5, 500), cn2=(7, 550))
    board._update_readings()
    assert loads_of(board, cn1=(5, 500), cn2=(7, 550)) == pytest.approx([0.5, 0.9])


def test_a_move_that_was_given_up_counts_no_longer(board, source):
    flavored(board, source, MOVE)
    board.replace_usages({key: flavor_usages.FlavorUsages({SMALL: 0.1, LARGE: 4.0})
                          for key in board.usage_keys})
    board._update_readings()
    assert loads_of(board, cn1=(5, 500), cn2=(5, 500)) == pytest.approx([0.5, 0.5])


def test_a_move_to_an_unknown_host_is_ignored(board, source):
    flavored(board, source, MOVE._replace(to_host='cn9'), MOVE)
    assert loads_of(board, cn1=(5, 500), cn2=(5, 500)) == pytest.approx([0.5, 0.8])


@pytest.mark.parametrize(('concurrent', 'mode', 'count'), [
    (1, 'spread', 0), (4, 'spread', tie_breaking.RANKINGS), (4, 'pack', 0)])
def test_rankings_are_made_where_boots_may_be_unseen(board, source, concurrent, mode, count):
    board.conf.set_override('concurrent_boots', concurrent, 'kronos')
    flavored(board, source, mode=mode, capacity_query='cpu')
    snapshot = look(board, hosts_of(cn1=(6, 600), cn2=(5, 500)))
    assert len(snapshot.rankings) == count
    # What has come to a host counts in each of them.
    for loads, _ in snapshot.rankings:
        found = depletion.project_loads(hosts_of(cn1=(6, 600)), loads)[0]
        before = depletion.project_loads(hosts_of(cn1=(5, 500)), snapshot.loads)[0]
        assert abs(found - before) <= 0.1 * 4.1 + 0.09


def test_loss_and_return_of_a_hosts_score_are_logged_once_each(board, source):
    with mock.patch.object(score_cache.LOG, 'warning', autospec=True) as warning, \
            mock.patch.object(score_cache.LOG, 'info', autospec=True) as info:
        for _ in range(2):
            seen(board)
        assert (warning.call_count, info.call_count) == (0, 0)
        del source.series['cpu']['cn1']
        for _ in range(3):
            seen(board)
        assert (warning.call_count, info.call_count) == (1, 0)
        assert warning.call_args.args[-1] == 'cn1'
        # When there are no scores at all, that is what is said.
        good, source.series['mem'] = source.series['mem'], {'cn1': 7.0}
        seen(board)
        source.series['mem'] = good
        seen(board)
        assert (warning.call_count, info.call_count) == (1, 0)
        source.series['cpu']['cn1'] = 0.3
        for _ in range(3):
            seen(board)
        assert (warning.call_count, info.call_count) == (1, 1)


def test_many_hosts_without_a_score_are_one_line(board):
    many = [nova_fakes.HostState(f'x{i:02}') for i in range(30)]
    with mock.patch.object(score_cache.LOG, 'warning', autospec=True) as warning:
        look(board, [*HOSTS, *many])
        board.refresh_scores()
    assert warning.call_count == 1
    assert warning.call_args.args[-1].endswith('x09 and 20 more')


def test_a_host_left_that_no_file_is_for_is_not_missed(boards):
    boards.write('policies.yaml', entry('cpu'), aggregates=['az'])
    with mock.patch.object(score_cache.LOG, 'warning', autospec=True) as warning:
        boards.group_scored_hosts([*PAIR, host('cn3', 'other'), host('cn4', 'dense')])
        boards.refresh_scores()
        boards.refresh_scores()
    assert [call.args[-1] for call in warning.call_args_list] == ['cn4']


def test_a_host_that_left_is_known_no_longer(board, source, clock):
    assert set(seen(board).headroom) == {'cn1', 'cn2'}
    board.refresh_scores()
    clock.return_value += 2 * allocation_history.REPLACED_AFTER
    new = [host('cn1.b.org')]
    look(board, new)
    assert set(board._ledger.copy_tracks()) == {'cn1', 'cn2', 'cn1.b.org'}
    board.refresh_scores()
    assert set(board._ledger.copy_tracks()) == {'cn2', 'cn1.b.org'}
    # The label is the new host's now.
    assert set(look(board, new).headroom) == {'cn1.b.org', 'cn2'}


@pytest.fixture
def boards(board, tmp_path, clock):
    """Two files: pack.yaml for aggregate dense, policies.yaml for the rest."""
    board.conf.set_override('policies_file', [
        str(tmp_path / 'pack.yaml'), str(tmp_path / 'policies.yaml')], 'kronos')
    made = score_cache.ScoreCache(board.conf, periodic.FaultCounters())
    made.conf = board.conf

    def write(name, *entries, aggregates=()):
        (tmp_path / name).write_text(yaml.safe_dump(
            {'policies': list(entries), 'aggregates': list(aggregates)}))

    made.write = write
    write('pack.yaml', entry('mem', mode='pack', capacity_query='mem'), aggregates=['dense'])
    write('policies.yaml', entry('cpu'))
    return made


PAIR = [host('cn1', 'dense'), host('cn2', 'az')]


def headrooms(board, hosts=PAIR):
    """Return host -> its headroom, or the reason for its absence."""
    board.group_scored_hosts(hosts)
    board.refresh_scores()
    return {h.host: group.reason if group.snapshot is None else group.snapshot.headroom[h.host]
            for group in board.group_scored_hosts(hosts) for h in group.hosts}


def test_each_host_has_the_scores_of_its_file(boards):
    assert headrooms(boards) == {'cn1': pytest.approx(0.6), 'cn2': pytest.approx(0.2)}


def test_each_policy_of_each_file_is_fetched_once(boards, source):
    headrooms(boards)
    assert source.asked == [('mem', False), ('cpu', False)]


def test_a_file_that_cannot_be_believed_costs_its_own_hosts_only(boards, source):
    source.series['mem'] = {'cn1': 7.0}
    found = headrooms(boards)
    assert found['cn1'].startswith('mem: ') and found['cn2'] == pytest.approx(0.2)
    assert boards.missing_score_reason == found['cn1']
    source.series['mem'] = RuntimeError('boom')
    with pytest.raises(RuntimeError):
        headrooms(boards)
    assert [g.snapshot is None for g in boards.group_scored_hosts(PAIR)] == [True, False]


def test_a_file_that_cannot_be_shown_costs_its_own_hosts_only(boards, source, monkeypatch):
    headrooms(boards)

    def show(*args):
        raise RuntimeError('boom')
    monkeypatch.setattr(boards._cards[0], 'replace_reading', show)
    source.series['cpu'] = {'cn1': 0.5, 'cn2': 0.5}
    with pytest.raises(RuntimeError):
        boards.refresh_scores()
    assert {h.host: g.snapshot.headroom[h.host] for g in boards.group_scored_hosts(PAIR)
            for h in g.hosts} == {
                'cn1': pytest.approx(0.6), 'cn2': pytest.approx(0.5)}


def test_a_file_that_was_never_valid_may_be_anyone_s(boards, tmp_path):
    (tmp_path / 'pack.yaml').write_text('policies: [')
    assert headrooms(boards)['cn2'] == pytest.approx(0.2)
    # Its aggregates are not known: the default scores its hosts meanwhile.
    assert headrooms(boards)['cn1'] == pytest.approx(0.8)
    boards.write('policies.yaml', entry('cpu'), aggregates=['other'])
    assert 'no valid' in headrooms(boards)['cn1']
    boards.write('pack.yaml', entry('mem', mode='pack', capacity_query='mem'),
                 aggregates=['dense'])
    assert headrooms(boards) == {'cn1': pytest.approx(0.6), 'cn2': ''}


def test_a_bad_version_of_a_file_keeps_the_good_one_with_one_log_line(boards, tmp_path):
    before = headrooms(boards)
    with mock.patch('kronos_nova.conf.policy_watch.LOG.error', autospec=True) as error:
        (tmp_path / 'pack.yaml').write_text('policies: [')
        assert headrooms(boards) == before == headrooms(boards)
    assert error.call_count == 1


def test_the_option_twice_with_one_path_is_one_file(board, tmp_path):
    board.conf.set_override('policies_file', [str(tmp_path / 'policies.yaml')] * 2, 'kronos')
    assert seen(score_cache.ScoreCache(board.conf, periodic.FaultCounters())) is not None


class Said:
    """What the scoreboard warns of."""

    def __init__(self, board):
        self._board = board

    def __call__(self, **multipliers):
        """Multipliers by the aggregate of the host; None where none is set."""
        for name, value in multipliers.items():
            self._board.record_multiplier(host('cn9', name), 0.0 if value is None else value,
                                          () if value is None else (name,))
        with mock.patch.object(score_cache.LOG, 'warning', autospec=True) as warning:
            headrooms(self._board)
        return [call.args[1] for call in warning.call_args_list]


def test_a_multiplier_against_the_mode_of_a_file_is_logged_once(boards):
    headrooms(boards)
    said = Said(boards)
    assert said() == [] == said(dense=-1.0, az=1.0, rack=None)
    [text] = said(dense=2.0)
    assert 'pack.yaml says mode: pack, but kronos_weight_multiplier of aggregate dense is 2' \
        in text
    assert said() == []
    assert said(dense=-1.0) == []
    assert len(said(dense=3.0)) == 1
    [text] = said(dense=-1.0, az=-1.0)
    assert 'policies.yaml says mode: spread' in text and 'aggregate az is -1' in text


def test_an_aggregate_without_a_multiplier_has_the_option_s(boards):
    headrooms(boards)
    [text] = Said(boards)(dense=None)
    assert 'pack.yaml says mode: pack, but kronos_weight_multiplier is 1' in text
    boards.conf.set_override('kronos_weight_multiplier', -1.0, 'filter_scheduler')
    [text] = Said(boards)()
    assert 'policies.yaml says mode: spread' in text


def test_two_files_for_one_host_are_logged_once(boards):
    boards.write('policies.yaml', entry('cpu'), aggregates=['az'])
    both = [host('cn1', 'az', 'dense'), PAIR[1]]
    assert headrooms(boards, both)['cn1'] == pytest.approx(0.6)
    with mock.patch.object(score_cache.LOG, 'warning', autospec=True) as warning:
        for _ in range(3):
            headrooms(boards, both)
    texts = [call.args[1] for call in warning.call_args_list]
    assert len(texts) == 1 and 'host cn1 is in aggregates of both' in texts[0]


def test_remembered_aggregates_are_bounded(boards):
    for i in range(score_cache.MAX_HEARD + 10):
        boards.record_multiplier(PAIR[0], 1.0, (f'aggregate{i}',))
    assert 0 < len(boards._heard) <= score_cache.MAX_HEARD


def test_a_multiplier_of_any_aggregate_counts_for_the_file_of_the_host(boards):
    headrooms(boards)
    boards.record_multiplier(host('cn1', 'dense', 'other'), -5.0, ('other',))
    assert Said(boards)() == []
    boards.record_multiplier(host('cn2', 'other'), -5.0, ('other',))
    [text] = Said(boards)()
    assert 'policies.yaml says mode: spread' in text and 'aggregate other is -5' in text
    # Files that change their aggregates are judged anew.
    boards.write('policies.yaml', entry('cpu'), aggregates=['az'])
    assert Said(boards)() == []
    assert not boards._logged_contradictions
