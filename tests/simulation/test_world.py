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

"""The whole rebalancer in a simulated cloud in which much fails, seed by seed."""

import collections
import dataclasses
import os
from pathlib import Path
import subprocess
import sys

import pytest

from kronos_nova.constraints import contracts
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.engine import lease_keeper
from kronos_nova.rebalancer.engine import preconditions
from tests.simulation.world import campaign_faults
from tests.simulation.world import campaign_invariants
from tests.simulation.world import campaign_programs
from tests.simulation.world import database
from tests.simulation.world import faults
from tests.simulation.world import invariants
from tests.simulation.world import nova
from tests.simulation.world import outages
from tests.simulation.world import patches
from tests.simulation.world import processes
from tests.simulation.world import prometheus
from tests.simulation.world import run as runs
from tests.simulation.world import settings

#: A seed takes about half a second of processor time. `tools/test unit` takes another range
#: of them with every commit, and all of these ranges are among those of `tools/test long`.
DEFAULT_SEEDS = 50
SEEDS = int(os.environ.get('KRONOS_WORLD_SEEDS', DEFAULT_SEEDS))
#: The first of them; the command tools/simulate_faults.py goes further.
FIRST = int(os.environ.get('KRONOS_WORLD_FIRST', '0'))
CHUNK = 25
CONTRACT_CHUNK = 10
#: A seed with a campaign takes more than twice as long.
CAMPAIGN_CHUNK = 10
#: What `tools/test long` runs, from seed 0.
LONG_SEEDS = 12000

#: Seeds that have found something, and what; kept for ever. A change of the world
#: changes what a seed does: then the fault it needs is named as well.
FOUND_SEEDS = [
    pytest.param(seed, only and frozenset(only), id=what) for seed, only, what in (
        (20, ['database fails over after the commit'],
         'doubt-after-a-lost-commit-was-not-spoken-of'),
        (2238, ['migration is refused for what the instance is', 'Nova answers no JSON'],
         'why-it-failed-was-not-read-and-another-host-was-asked'),
        (220124, None,
         'a-host-left-its-scope-and-its-tasks-were-not-counted'),
        (3999, None,
         'a-request-came-after-an-evacuation-and-its-migration-was-not-watched'),
        (4277, None,
         'an-executor-that-had-lost-its-task-aborted-the-migration'),
        (5058, None,
         'the-migration-of-a-task-without-a-slot-was-aborted-and-slots-counted-it'),
        (3189, None,
         'a-task-that-could-not-be-looked-at-lost-its-slot'),
        (2544, None,
         'the-error-of-an-operators-migration-was-taken-for-that-of-ours'),
        (554, None,
         'a-task-began-beside-one-without-a-slot-and-caps-counted-both'),
        (1061, None,
         'a-cold-migration-began-beside-one-without-a-slot-and-caps-counted-both'),
        (194, None,
         'executors-took-a-task-from-each-other-and-its-slot-stayed-taken'),
    )]


@pytest.mark.parametrize('first', range(FIRST, FIRST + SEEDS, CHUNK))
def test_every_invariant_holds_despite_faults(first):
    for seed in range(first, min(first + CHUNK, FIRST + SEEDS)):
        runs.Run(seed).go()


@pytest.mark.long
@pytest.mark.parametrize('first', range(0, LONG_SEEDS, CHUNK))
def test_every_invariant_holds_in_many_more_runs(first):
    for seed in range(first, first + CHUNK):
        runs.Run(seed).go()


@pytest.mark.parametrize('first', [
    pytest.param(first, marks=pytest.mark.turns(4) if number < 4 else pytest.mark.long)
    for number, first in enumerate(range(0, 4000, CONTRACT_CHUNK))])
def test_no_request_breaks_a_contract_despite_faults(first):
    """Every other invariant holds as well: half of the tasks are of instances with a contract."""
    for seed in range(first, first + CONTRACT_CHUNK):
        runs.Run(seed, contracts=True).go()


@pytest.mark.parametrize('seed', [0, *(
    pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 700))])
def test_no_request_breaks_a_contract_in_a_cloud_without_faults(seed):
    """Instances move often enough here to use up their moves: 700 seeds have 10^5 cycles."""
    run = runs.Run(seed, only=frozenset(), engines=1, contracts=True)
    run.go_on(7200)
    assert run.counts['cycles'] > 100 and run.checks['contract_is_kept'] > 5


def test_run_notices_contracts_that_are_not_judged(monkeypatch):
    monkeypatch.setattr(contracts, '_is_forbidden', lambda grade, phase: False)
    with pytest.raises(runs.Broken) as caught:
        for seed in range(5):
            runs.Run(seed, only=frozenset(), engines=1, contracts=True).go_on(900)
    assert caught.value.name == 'contract_is_kept'


@pytest.mark.parametrize('first', [
    pytest.param(first, marks=pytest.mark.turns(12) if number < 12 else pytest.mark.long)
    for number, first in enumerate(range(0, 1000, CAMPAIGN_CHUNK))])
def test_no_campaign_harms_a_host_or_an_instance_despite_faults(first):
    """Every other invariant holds as well."""
    counts = collections.Counter()
    for seed in range(first, first + CAMPAIGN_CHUNK):
        counts.update(runs.Run(seed, campaign=True).go().counts)
    assert counts['campaigns'] and counts[campaign_programs.KILLED] >= CAMPAIGN_CHUNK / 5
    assert counts['reboots of hosts'] >= CAMPAIGN_CHUNK / 5


DEATHS = frozenset(campaign_faults.FAULTS) | {
    'engine crashes before a commit', 'engine crashes after a commit',
    'engine freezes beyond its lease', 'migration fails', 'database is away',
    'database fails over after the commit'}


@pytest.mark.parametrize('first', [
    pytest.param(first, marks=pytest.mark.turns(3) if number < 3 else pytest.mark.long)
    for number, first in enumerate(range(0, 60, 5))])
def test_no_death_of_an_engine_harms_a_host_of_a_campaign(first):
    """Engines die more than 200 times in all twelve."""
    deaths = 0
    for seed in range(first, first + 5):
        run = runs.Run(seed, only=DEATHS, campaign=True).go()
        deaths += run.counts[campaign_programs.KILLED]
    assert deaths >= 10


#: Faults before the reboot of a host, with the chance that lets each strike in these seeds. They
#: are in the way of those during and after it, which strike where the former are rare.
OBSTACLES = {'engine dies before it begins a command': 0.3,
             'engine freezes before it begins a command': 0.3,
             'command is not started': 0.3, 'command fails before the reboot': 0.4}
STRUCK, RARE = (6, 21, 26, 47, 49), 0.2


@pytest.mark.turns(2)
def test_each_fault_of_campaigns_happens_and_each_invariant_judges(monkeypatch):
    wanted = frozenset(campaign_faults.FAULTS)
    counts, checks = collections.Counter(), collections.Counter()
    for seed, part, hangs in (*((seed, 1.0, 0.3) for seed in STRUCK),
                              *((seed, RARE, 0.5) for seed in (21, 88, 92, 57, 89))):
        for name, chance in {
                **{name: part * chance for name, chance in OBSTACLES.items()},
                'command hangs': hangs, 'host does not come back for long': 0.6}.items():
            monkeypatch.setitem(campaign_faults.FAULTS, name, chance)
        run = runs.Run(seed, only=wanted, campaign=True).go()
        counts.update(run.counts)
        checks.update(run.checks)
        if all(counts[name] for name in wanted) and all(
                checks[name] for name in campaign_invariants.names()):
            return
    raise AssertionError([name for name in wanted if not counts[name]]
                         + [name for name in campaign_invariants.names() if not checks[name]])


@pytest.mark.turns(2)
@pytest.mark.parametrize('command', [False, True])
def test_a_campaign_without_faults_ends_with_each_host_rebooted_once(command):
    for seed in range(40):
        run = runs.Run(seed, only=frozenset(), days=False, campaign=True)
        if run.campaigns.has_command is not command:
            continue
        run.go()
        record = run.campaigns.record
        done = [host for host, (state, _worker) in record.hosts.items() if state == 'done']
        if len(done) >= 2:
            assert run.counts['reboots of hosts'] == len(done)
            assert sum(run.campaigns.reboots.values()) == len(done) * command
            return
    raise AssertionError('no campaign rebooted two hosts')


@pytest.mark.turns(3)
@pytest.mark.parametrize(('seed', 'only'), FOUND_SEEDS)
def test_earlier_finding_does_not_return(seed, only):
    runs.Run(seed, only=only).go()


@pytest.mark.turns(3)
def test_a_drain_that_goes_first_waits_for_cooldowns_of_other_moves(monkeypatch):
    """In seed 370 it goes before a move for balance, and two rejected moves cool beside it."""
    seed, real = 370, preconditions.let_drain_overtake
    assert runs.Run(seed, campaign=True).go().counts['tasks that gave way to a drain']
    monkeypatch.setattr(preconditions, 'let_drain_overtake', lambda *args, **settings: (
        dataclasses.replace(real(*args, **settings), cooling={})))
    with pytest.raises(runs.Broken) as caught:
        runs.Run(seed, campaign=True).go()
    assert caught.value.name == 'cooldown'


def _family(name):
    words = name.split()
    return ' '.join(words[:2] if words[-1] == 'confirmation' or words[1] == 'leaves'
                    or words[-1] == 'migration' and words[0] == 'operator' else words[:1])


FAMILIES = sorted({_family(name) for name in faults.FAULTS})
#: What a family cannot strike without.
NEEDED = {'abort': {faults.ABORTS, 'migration never ends'},
          'migration leaves': {'migration fails'}} | {
    family: {faults.DRAIN, faults.STOPPED}
    for family in ('confirmation', 'executor crashes', 'operator confirms', 'operator reverts')}


@pytest.mark.turns(4)
@pytest.mark.parametrize('family', FAMILIES)
def test_each_fault_happens(family, monkeypatch):
    """Run with all faults of one kind at once, and with no others."""
    wanted = frozenset(name for name in faults.FAULTS if _family(name) == family)
    for name in wanted:
        monkeypatch.setitem(faults.FAULTS, name, min(0.2, 2 * faults.FAULTS[name]))
    needed = NEEDED.get(family, set())
    seen = collections.Counter()
    for seed in range(60):
        seen.update(runs.Run(seed, only=wanted | needed).go().counts)
        if all(seen[name] for name in wanted):
            assert set(seen).intersection(faults.FAULTS) <= wanted | needed
            return
    raise AssertionError(f'never: {[name for name in wanted if not seen[name]]}')


@pytest.mark.turns(4)
@pytest.mark.parametrize('name', outages.NAMES)
def test_each_outage_happens_alone(name):
    for seed in range(1, 12):
        run = runs.Run(seed, only=frozenset({name})).go()
        if run.counts[name]:
            assert set(run.counts).intersection(outages.NAMES) == {name}
            return
    raise AssertionError(f'never: {name}')


def test_table_has_at_least_25_faults():
    assert len(faults.FAULTS) >= 25


def test_each_invariant_is_checked():
    checks = collections.Counter()
    for seed in range(200):
        checks.update(runs.Run(seed).go().checks)
        if all(checks[name] for name in invariants.names()):
            return
    raise AssertionError([name for name in invariants.names() if not checks[name]])


@pytest.mark.parametrize('seed', [5, 7])  # in 5 a swap is undone
def test_same_seed_gives_same_run(seed):
    def trace():
        run = runs.Run(seed).go()
        return run.counts, run.checks, run.now, run.tasks
    assert trace() == trace()


# Without any fault.

@pytest.mark.parametrize('seed', [0, pytest.param(1, marks=pytest.mark.long)])
def test_converged_cluster_stays_still_for_100_cycles(seed):
    run = runs.Run(seed, only=frozenset(), engines=1, days=False)
    run.go_on(600)
    assert run.counts['moves'], 'there was nothing to converge'
    before = run.counts['cycles'], run.counts['queued tasks']
    run.go_on(102 * settings.OPTIONS['engine']['evaluation_interval'])
    assert run.counts['cycles'] >= before[0] + 100
    assert run.counts['queued tasks'] == before[1], 'something moves again'


def test_dry_run_writes_nothing():
    for seed in range(3):
        run = runs.Run(seed, only=frozenset(), engines=1)
        try:
            run.confs[0].set_override('dry_run', True, 'engine')
            run.go_on(6 * settings.OPTIONS['engine']['evaluation_interval'])
        finally:
            run.confs[0].set_override('dry_run', False, 'engine')
        assert run.counts['cycles'] > 2 and not run.counts['requests']
        for table in ('task', 'cooldown', 'quarantine', 'budget', 'drain', 'outcome', 'wish'):
            assert run.raw.execute(f'SELECT count(*) FROM "{table}"').fetchone() == (0,), table
        assert run.raw.execute(
            "SELECT count(*) FROM lease WHERE owner != 'earlier'").fetchone() == (0,)
        planned = run.raw.execute('SELECT sum(moves), min(dry_run) FROM plan').fetchone()
        assert planned[0] > 0 and planned[1] == 1, 'its plans are kept, and marked'


def test_thawed_engine_writes_nothing_after_takeover():
    """The lease of an engine that stands still passes within 60 s."""
    run = runs.Run(1, only=frozenset(), days=False)
    with patches.around(run):
        one, two = run.engines
        for process in (one, two):
            process.start()
        first = one.engine.run_cycle()
        assert all(row['hosts'] is not None for row in first)
        assert {records[0] for records in run.raw.execute('SELECT owner FROM lease')} == {
            one.name}
        run.now += lease_keeper.LEASE_SECONDS + processes.BEAT_SECONDS
        two.engine.keep_leases()
        two.engine.run_cycle()
        assert {records[0] for records in run.raw.execute('SELECT owner FROM lease')} == {
            two.name}
        changes = database.version(run.raw)
        lease = next(iter(one.engine._leases.leases.values()))
        assert not one.engine._store.leases.renew_lease(lease, 30)
        assert database.version(run.raw) == changes
    assert lease_keeper.LEASE_SECONDS + processes.BEAT_SECONDS <= 60


def test_real_collector_and_source_read_world():
    run = runs.Run(5, only=frozenset())
    with patches.around(run):
        process = run.engines[0]
        cluster = collector.CloudCollector(
            run.confs[0], nova.Connection(run, process)).collect_cluster(run.now)
        assert set(cluster.instances) == set(run.cloud.instances)
        assert {g.uuid for g in cluster.groups} == set(run.cloud.groups)
        for host in run.cloud.hosts:
            assert cluster.hosts[host].provider.used == run.cloud.used(host)
        process.start()
        [policy] = process.engine._watch.current.enabled_policies
        samples = prometheus.Source(run.confs[0], run, process).fetch(policy)
        assert set(samples.imbalance.series) == set(run.cloud.hosts)
        assert samples.age == 5
    assert database.START <= run.now


def test_first_seed_of_a_process_counts_as_a_later_one_does():
    """Else the counts of tools/simulate_faults.py follow the number of its processes."""
    program = ('from tools import simulate_faults as found\n'
               'first, later = (found.simulate(219, 1)[:2] for _ in range(2))\n'
               'assert first == later, [one - other for one, other in zip(first, later)]\n')
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', program], check=False,
                          cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
