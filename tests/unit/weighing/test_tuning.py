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



"""Recorded boots, placed again: the constructed cloud's truth is known."""

import dataclasses

from nova import objects
from nova.scheduler import weights as nova_weights
import pytest
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.backtest import trace as traces
from kronos_nova.rebalancer.backtest import world as worlds
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import past_loads
from kronos_nova.scheduler import runtime
from kronos_nova.weighing import boot_replay
from kronos_nova.weighing import multiplier_tuner
from tests.unit.rebalancer.backtest import made

CONF = runtime.CONF
#: Nova's objects want UUIDs; these tests are read by people.
pytestmark = pytest.mark.filterwarnings('ignore:.* is an invalid UUID')
#: h1 has one instance, which is hot; h2 and h3 have three each, which idle.
#: Nova's weighers see the allocation alone and put e, f and g on h1.
PLACES = {'a': 'h1', **dict.fromkeys(('b1', 'b2', 'b3'), 'h2'),
          **dict.fromkeys(('c1', 'c2', 'c3'), 'h3'), 'e': 'h1', 'f': 'h1', 'g': 'h1'}
TIMES = 10
USED = {'a': [5.0] * TIMES, **{u: [0.1] * TIMES for u in ('b1', 'b2', 'b3', 'c1', 'c2', 'c3')},
        'e': [None] * 3 + [1.5] * 7, 'f': [None] * 5 + [1.5] * 5, 'g': [None] * 5 + [1.5] * 5}
QUESTION = review.ReviewQuestion(scopes=made.SCOPES)


@pytest.fixture(autouse=True)
def nova_conf():
    objects.register_all()
    CONF([], default_config_files=[], default_config_dirs=[])
    yield
    assert runtime._door is None
    CONF.reset()


def past(used=None, places=None, change=None, scopes=made.SCOPES, **cloud):
    used, places = used or USED, places or PLACES
    scores = made.scores_of(places, {u: [v or 0.0 for v in values]
                                     for u, values in used.items()}, base=0.0)
    cluster = made.cluster(places, taken_at=made.START + made.STEP * (TIMES - 1), **cloud)
    trace = made.trace(change(cluster) if change else cluster, scores, used)
    return pasts.build_past(trace, [made.policy_set()], scopes)


def tuner(found, *, moves=False, policies=None, others=(), of_aggregates=None):
    chosen = policies or made.policy_set()
    candidate = backtest_run.PolicyCandidate('x', made.settings(chosen),
                                             made.SCOPES) if moves else None
    return multiplier_tuner.MultiplierTuner(
        found, [chosen, *others], CONF, candidate,
        backtest_run.TimingAssumptions(interval=made.STEP),
        QUESTION, lambda what, part: None, of_aggregates)


def places_of(found, multiplier, names=('e', 'f', 'g'), **tuned):
    """Where instances boot under a multiplier, by replay of the placement alone."""
    seen = {}

    class Watched(boot_replay.BootReplay):
        def choose_host(self, world, k, n):
            host = super().choose_host(world, k, n)
            seen[found.uuids[n]] = found.hosts[host]
            return host

    original = boot_replay.BootReplay
    boot_replay.BootReplay = Watched
    try:
        tuner(found, **tuned).try_multipliers([multiplier])
    finally:
        boot_replay.BootReplay = original
    return tuple(seen[name] for name in names)


def test_novas_weighers_follow_the_allocation_and_ours_the_load():
    found = past()
    # One vCPU and its memory each: h1 fills up to the others' three.
    assert places_of(found, 0.0) == ('h1', 'h1', 'h1')
    # The second sees what the first has brought.
    assert places_of(found, 8.0)[:2] in (('h2', 'h3'), ('h3', 'h2'))
    assert 'h1' not in places_of(found, 8.0)


def test_instances_of_one_step_see_each_other_before_any_metric_does():
    crowd = [f'n{i}' for i in range(5)]
    places = {**PLACES, **dict.fromkeys(crowd, 'h1')}
    used = {**USED, **{u: [None] * 7 + [1.0] * 3 for u in crowd}}
    # h1 is at 0.5, h2 at 0.18, h3 at 0.33, and one more vCPU adds 0.1.
    found = places_of(past(used, places), 8.0, crowd)
    assert [found.count(host) for host in ('h1', 'h2', 'h3')] == [0, 3, 2]


def test_a_good_multiplier_beats_novas_own():
    history, stock, good = (lambda t: [t.try_history(), *t.try_multipliers([0.0, 8.0])])(
        tuner(past(), moves=True, policies=made.policy_set(threshold=0.5)))
    assert (history.multiplier, stock.multiplier, good.multiplier) == (None, 0.0, 8.0)
    # h1 is at 0.95 from time 5 on: three of 1.5 beside 5.0.
    assert stock.overload == history.overload == 5 * made.STEP / 60
    assert good.overload == 0.0
    assert good.spread['cpu'] < stock.spread['cpu']
    assert (good.moves, good.overload_moved) == (0, 0.0)
    assert stock.moves > 0
    assert [t.count.booted for t in (history, stock, good)] == [3, 3, 3]
    assert (stock.count.elsewhere, good.count.elsewhere) == (0, 3)


def test_multiplier_0_is_nova_without_us():
    found = past()
    (ours,) = tuner(found).try_multipliers([0.0])

    class Deaf(boot_replay.ReplayDoor):
        """A door for a list of weighers without ours: no weigher calls it."""

        def read_samples(self, hosts, samples, at):
            pass

        def list_scored_groups(self, hosts):
            raise AssertionError('Nova asked us')

    boots = boot_replay.BootReplay(found, {'unused': made.policy_set()},
                                   [kind() for kind in nova_weights.all_weighers()],
                                   Deaf(CONF, {}))
    nova = backtest_run.run_without_moves(found, lambda k: None, boots)
    assert review.count_host_minutes(review.mark_overloaded(nova.score, 0.8).any(axis=0),
                                     made.STEP) == \
        ours.overload
    assert review.compute_statistics(review.compute_imbalances(found, nova.score,
                                                               model.UNASSIGNED)[0])[
        'mean'] == ours.spread['cpu']
    assert boots.count == ours.count


def test_a_negative_multiplier_packs():
    assert places_of(past(), -8.0) == ('h1', 'h1', 'h1')
    spread = {**USED, 'a': [0.2] * TIMES, 'b1': [4.0] * TIMES}
    assert places_of(past(spread), -8.0) == ('h2', 'h2', 'h2')


def test_only_hosts_that_may_take_it():
    down = (model.Service('h2', state='down'),)
    assert set(places_of(past(services=down), 8.0)) == {'h3'}
    disabled = (model.Service('h2', status='disabled'),)
    assert set(places_of(past(services=disabled), 8.0)) == {'h3'}

    def aggregate(cluster):
        return dataclasses.replace(cluster, aggregates={'ssd': ('h1', 'h3'), 'hdd': ('h2',)})

    found = past(change=aggregate, scopes=('ssd', 'hdd'))
    assert set(places_of(found, 8.0)) == {'h3'}


def in_racks(metadata=None):
    """All hosts are in one aggregate with these metadata."""
    def change(cluster):
        return dataclasses.replace(
            cluster, aggregates={'all': ('h1', 'h2', 'h3')},
            aggregate_metadata={'all': metadata or {}})
    return past(change=change, scopes=('all',))


def test_aggregate_metadata_set_the_multiplier_of_their_hosts():
    """As in nova-scheduler: metadata override the option, recorded or given."""
    busy, idle = ('h1', 'h1', 'h1'), places_of(in_racks(), 8.0)
    assert 'h1' not in idle
    recorded = in_racks({'kronos_weight_multiplier': '-8.0'})
    assert places_of(recorded, 8.0) == busy
    assert places_of(in_racks(), 8.0, of_aggregates={'all': -8.0}) == busy
    assert places_of(recorded, 8.0, of_aggregates={'all': 8.0}) == idle
    # Nova's weighers have theirs there, too; ours has none where Nova is alone.
    other = in_racks({'kronos_weight_multiplier': '8', 'cpu_weight_multiplier': '-1000'})
    assert places_of(other, 0.0)[0] != 'h1'
    assert places_of(in_racks(), 0.0, of_aggregates={'all': 8.0}) == busy


def test_an_aggregate_that_is_not_there_is_refused():
    with pytest.raises(exception.ConfigError, match='no aggregate racks'):
        tuner(in_racks(), of_aggregates={'racks': 1.0})


@pytest.mark.parametrize(('enabled', 'ceiling', 'expected'), [
    (True, 0.4, {'h2', 'h3'}), (True, 1.0, {'h1'}), (False, 0.4, {'h1'})])
def test_boot_ceilings_hold_where_nova_conf_enables_the_filter(enabled, ceiling, expected):
    """A negative multiplier puts all on h1, which shows 0.5."""
    if enabled:
        CONF.set_override('enabled_filters', ['KronosCapacityFilter'], 'filter_scheduler')
    try:
        found = set(places_of(past(), -8.0, policies=made.policy_set(boot_ceiling=ceiling)))
    finally:
        CONF.clear_override('enabled_filters', 'filter_scheduler')
    assert found <= expected


def bound(name, **fields):
    """A policy file for one aggregate."""
    return made.policy_set(**fields).model_copy(update={'aggregates': (name,)})


def test_each_policy_file_scores_the_hosts_of_its_aggregates():
    """Without a file for h2 and h3 our weigher gives them no weight; with two files each scores
    its own hosts."""
    def change(cluster):
        return dataclasses.replace(cluster, aggregates={'left': ('h1',), 'right': ('h2', 'h3')})
    found = past(change=change, scopes=('left', 'right'))
    door = boot_replay.ReplayDoor(CONF, {'one': bound('left'), 'two': bound('right')})
    boots = boot_replay.BootReplay(found, {'one': bound('left'), 'two': bound('right')}, [], door)
    states = [boots._build_host_state(worlds.InstancePlaces(found, 0.0), h) for h in range(3)]
    groups = door.list_scored_groups(states)
    assert [[s.host for s in group.hosts] for group in groups] == [['h1'], ['h2', 'h3']]
    lonely = boot_replay.ReplayDoor(CONF, {'one': bound('left')})
    assert [(len(g.hosts), g.snapshot) for g in lonely.list_scored_groups(states)][1] == (2, None)
    trials = tuner(found, policies=bound('left'), others=[bound('right')]).try_multipliers([8.0])
    assert trials[0].count.booted == 3


def test_engines_of_several_files_move_side_by_side():
    def change(cluster):
        return dataclasses.replace(cluster, aggregates={'left': ('h1', 'h2'), 'right': ('h3',)})
    found = past(change=change, scopes=('left', 'right'))
    one = backtest_run.PolicyCandidate('one', made.settings(bound('left')), ('left',))
    two = backtest_run.PolicyCandidate('two', made.settings(bound('right')), ('right',))

    def cycles(candidate):
        return backtest_run.run_candidate(found, candidate,
                                          backtest_run.TimingAssumptions(interval=made.STEP),
                                          lambda k: None)
    alone, both = cycles(one), cycles(dataclasses.replace(one, others=(two,)))
    assert alone.moved and both.moved == alone.moved and both.cycles == 2 * alone.cycles
    assert cycles(dataclasses.replace(two, others=(one,))).moved == alone.moved


def test_server_groups_keep_their_rules():
    apart = (model.ServerGroup('group', model.GroupPolicy.ANTI_AFFINITY,
                               frozenset(('e', 'f', 'g'))),)
    assert sorted(places_of(past(groups=apart), 8.0)) == ['h1', 'h2', 'h3']
    together = (model.ServerGroup('group', model.GroupPolicy.AFFINITY,
                                  frozenset(('e', 'f', 'g'))),)
    assert len(set(places_of(past(groups=together), 8.0))) == 1
    soft = (model.ServerGroup('group', model.GroupPolicy.SOFT_AFFINITY,
                              frozenset(('b1', 'e', 'f', 'g'))),)
    CONF.set_override('soft_affinity_weight_multiplier', 1000.0, 'filter_scheduler')
    assert set(places_of(past(groups=soft), 8.0)) == {'h2'}


def test_an_instance_without_room_goes_where_it_went():
    def full(cluster):
        hosts = {name: dataclasses.replace(host, provider=dataclasses.replace(
            host.provider, inventories={
                **host.provider.inventories, 'MEMORY_MB': model.Inventory(
                    sum(i.memory_mb for i in cluster.instances.values() if i.host == name))}))
            for name, host in cluster.hosts.items()}
        hosts['h1'] = dataclasses.replace(hosts['h1'], provider=dataclasses.replace(
            hosts['h1'].provider, inventories={
                **hosts['h1'].provider.inventories, 'MEMORY_MB': model.Inventory(1000)}))
        return dataclasses.replace(cluster, hosts=hosts)

    (trial,) = tuner(past(change=full)).try_multipliers([8.0])
    assert trial.count == boot_replay.BootCounts(booted=3, elsewhere=0, without_room=3)


def test_a_past_without_usage_is_refused():
    policies = made.policy_set(vm_profile_query=None)
    found = made.built(made.cluster(PLACES), made.scores_of(
        PLACES, {u: [1.0] * 3 for u in PLACES}), None, policies=policies)
    with pytest.raises(exception.HistoryError, match='vm_profile_query'):
        tuner(found, policies=policies)


def test_options_are_as_before_afterwards():
    before = (CONF.filter_scheduler.kronos_weight_multiplier, CONF.kronos.settle_seconds,
              list(CONF.kronos.policies_file))
    tuner(past()).try_multipliers([3.0])
    assert before == (CONF.filter_scheduler.kronos_weight_multiplier,
                      CONF.kronos.settle_seconds, list(CONF.kronos.policies_file))


def trial(multiplier, overload, moves=0, spread=0.5, empty=0.0, booted=100):
    return multiplier_tuner.MultiplierTrial(multiplier, overload, {'cpu': spread}, empty, moves,
                                            overload,
                                            boot_replay.BootCounts(booted))


@pytest.mark.parametrize('trials, mode, expected, words', [
    # Overload first; what is within 2 % of Nova's counts as equal.
    ([trial(0, 1000), trial(2, 15, 9), trial(4, 0, 3), trial(8, 10, 3)], 'spread', 4,
     'overload 0 host-minutes instead of 1000'),
    ([trial(0, 1000), trial(2, 500, 0), trial(4, 0, 30)], 'spread', 4, '30 moves later'),
    # Then less spread, then the smallest.
    ([trial(0, 0, 5), trial(2, 0, 1, 0.4), trial(4, 0, 1, 0.3)], 'spread', 4, '0.300'),
    ([trial(0, 9), trial(4, 9), trial(-1, 9)], 'spread', 0, 'no other multiplier'),
    ([trial(0, 10), trial(1, 0, booted=7)], 'spread', 1, 'mean'),
    ([trial(0, 10, booted=7), trial(1, 0, booted=7)], 'spread', 1, 'Only 7 instances'),
    ([trial(0, 0, booted=0), trial(1, 0, booted=0)], 'spread', 0, 'nothing has booted'),
    ([trial(0, 10, empty=1), trial(-1, 10, empty=2), trial(-9, 400, empty=5)], 'pack', -1,
     '2.00 empty hosts instead of 1.00'),
])
def test_advice(trials, mode, expected, words):
    found = multiplier_tuner.choose_multiplier(trials, mode)
    assert found.multiplier == expected
    assert words in found.why


def test_only_hosts_of_the_planned_zone_count(tmp_path):
    """h1, the hot host, is in another zone than h2 and h3."""
    cluster = made.cluster(PLACES, services=[
        model.Service(h, zone='east' if h == 'h1' else 'west') for h in ('h1', 'h2', 'h3')])
    used = {u: [5.0 if u == 'a' else 0.1] * TIMES for u in PLACES}
    chosen = made.policy_set()
    traces.write_trace(str(tmp_path / 'trace.npz'), made.trace(
        cluster, made.scores_of(PLACES, used, base=0.0), used), chosen)
    (tmp_path / 'policies.yaml').write_text(
        yaml.safe_dump(chosen.model_dump(mode='json', exclude_unset=True)))

    def measure_spread(zone):
        (tmp_path / 'kronos.conf').write_text(
            f'[engine]\npolicies_file = {tmp_path}/policies.yaml\n{zone}\n')
        with cloud_state.Session(str(tmp_path / 'kronos.conf')) as session:
            found = multiplier_tuner.tune_multipliers(
                session, CONF, past_loads.PastSource(
                    past_loads.LoadPeriod(), str(tmp_path / 'trace.npz')), [1.0], rebalanced=False)
        history, *_ = found.trials
        return history.spread['cpu']

    assert measure_spread('') > 0.4
    assert measure_spread('availability_zone = west') < 0.1
    with pytest.raises(exception.ConfigError, match='none of the planned scopes has a host'):
        measure_spread('availability_zone = north')
