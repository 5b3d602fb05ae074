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

"""``kronos failover check`` and ``kronos what-if --fail``, on the example and on small clouds."""

import argparse
import dataclasses
from pathlib import Path
import re
import subprocess
import sys

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.cli import failover
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import failover_checks
from tests.fixtures import terminals
from tests.unit.cli import test_planned
from tests.unit.rebalancer.planning import test_failover

EXAMPLE = Path(__file__).resolve().parents[3] / 'doc/examples/replay'


@pytest.fixture
def session(monkeypatch):
    monkeypatch.chdir(EXAMPLE)
    with cloud_state.Session('kronos.conf', snapshot='snapshot') as opened:
        yield opened


def render(request, count=1):
    certificate = failover_checks.certify(
        request, failover_checks._choose_failures(request.cluster, count))
    return list(failover._render_rows(failover_checks.ScopeFailover(
        'scope', certificate, failover_checks.failover.count_failures(request.cluster, count)),
        600.0))


def test_safe_cloud_is_one_row():
    request = test_failover.small(2, [('a', 'h0', 1), ('b', 'h1', 1)])
    assert render(request) == [
        ('conclusion', 'safe', '2 of 2 hosts safe; by claims alone, since the metrics are not '
                               'trusted')]


def test_unsafe_host_is_named_with_its_instances_and_their_repair():
    host, instance, repair, conclusion = render(
        test_failover.small(3, [('a', 'h0', 3), ('b', 'h1', 2), ('c', 'h2', 2)]))
    assert host == ('host h0', 'unsafe', '0 of 1 instances would find places; no placement exists')
    assert instance[:2] == ('instance a', 'no place') and 'no-room (2 hosts)' in instance[2]
    assert repair[1] == 'repair' and conclusion[:2] == ('conclusion', 'unsafe')


def test_too_many_sets_are_unknown_and_the_fullest_hosts_are_tried(monkeypatch):
    monkeypatch.setattr(failover_checks.failover, 'SETS', 3)
    request = test_failover.small(4, [('a', 'h0', 1), ('b', 'h1', 1)])
    [conclusion] = render(request, 2)
    assert conclusion[1] == 'unknown' and '3 of 6 sets of hosts safe; 3 were tried' in conclusion[2]


def test_example_names_an_affinity_group_that_nova_evacuates_nowhere(session):
    checks = {check.scope: check for check in failover_checks.check_failover(session)}
    unassigned = checks[model.UNASSIGNED]
    [verdict] = unassigned.certificate.list_verdicts(
        failover_checks.failover.FailureState.UNSAFE)
    assert verdict.hosts == ('compute-06',)
    assert {r.rule for r in verdict.unplaced.values()} == {'affinity-unmovable'}


def test_more_hosts_than_the_scope_has_are_never_safe():
    request = test_failover.small(2, [('a', 'h0', 1)])
    for count in (2, 3):
        check = failover_checks.ScopeFailover(
            'scope', failover_checks.certify(request, failover_checks._choose_failures(
                request.cluster, count)), failover_checks.failover.count_failures(
                    request.cluster, count),
            problem=failover_checks._find_problem(request.cluster, count))
        assert check.state in ('unsafe', 'unknown')
        assert 'none is left' in list(failover._render_rows(check, 600.0))[-1][2]
    assert failover_checks._find_problem(request.cluster, 1) is None


def test_hosts_without_a_failure_domain_are_named(session, monkeypatch):
    monkeypatch.setattr(failover_checks, 'map_domain_hosts',
                        lambda cluster, kind: {'r1': frozenset({'compute-01'})})
    for check in failover_checks.check_failover(session, kind='rack'):
        assert check.state != 'safe' and check.uncovered
        assert 'compute-01' not in check.uncovered
        rows = list(failover._render_rows(check, 600.0))
        assert check.uncovered[0] in rows[-2][2] and rows[-2][1] == 'unknown'


def test_all_hosts_of_a_domain_fail_together():
    request = test_failover.small(3, [('a', 'h0', 2), ('b', 'h1', 2)])
    cluster = dataclasses.replace(
        request.cluster, aggregates={'scope': ('h0', 'h1', 'h2'), 'r1': ('h0', 'h1')},
        aggregate_metadata={'r1': {'kronos:domain': 'rack:r1, pdu:a'}})
    assert failover_checks.map_domain_hosts(cluster, 'rack') == {'r1': {'h0', 'h1'}}
    assert failover_checks.map_domain_hosts(cluster, 'PDU') == {'a': {'h0', 'h1'}}
    with pytest.raises(exception.ConfigError, match='Known kinds: pdu, rack'):
        failover_checks.map_domain_hosts(cluster, 'room')


class Clock:
    """A clock that is one second later with each look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_sets_that_are_not_searched_in_time_are_unknown_and_counted(session):
    searched = {check.scope: check for check in failover_checks.check_failover(session)}
    progress = []
    checks = failover_checks.check_failover(
        session, max_seconds=3.5, clock=Clock(),
        report_progress=lambda what, part: progress.append((what, part)))
    assert progress[-1] == (f'scope {checks[-1].scope}', 1.0)
    assert [part for what, part in progress if what == f'scope {checks[0].scope}'] == [
        n / checks[0].possible for n in range(1, checks[0].possible + 1)]
    missing = {check.scope: check.list_unsearched() for check in checks}
    assert missing[checks[0].scope] == sorted(searched[checks[0].scope].certificate.verdicts)[3:]
    for check in checks:
        whole = searched[check.scope].certificate
        for hosts, verdict in check.certificate.verdicts.items():
            assert hosts in missing[check.scope] or verdict == whole.verdicts[hosts]
        assert check.state != 'safe'
        rows = list(failover._render_rows(check, 3.5))
        assert not {f'host {name}' for (name,) in missing[check.scope]} & {row[0] for row in rows}
        counted = [detail for what, state, detail in rows
                   if state == 'unknown' and 'not known within 3.5 s (--max-seconds)' in detail]
        assert len(counted) == 1 and missing[check.scope][0][0] in counted[0]
        assert f'{check.possible - len(missing[check.scope])} were tried' in rows[-1][2]


def test_unknown_domain_of_a_session_is_an_error(session):
    with pytest.raises(exception.ConfigError, match='kronos:domain = rack:NAME'):
        failover_checks.check_failover(session, kind='rack')


def test_number_of_hosts_is_bounded():
    assert failover._parse_count('8') == 8
    for text in ('0', '9', 'two', '-1'):
        with pytest.raises(argparse.ArgumentTypeError):
            failover._parse_count(text)


def test_checker_refuses_a_wrong_certificate(monkeypatch):
    request = test_failover.small(2, [('a', 'h0', 3), ('b', 'h1', 3)])
    wrong = failover_checks.failover.FailureVerdict(
        ('h0',), failover_checks.failover.FailureState.SAFE, {'a': 'h1'})
    monkeypatch.setattr(failover_checks.failover, 'certify_failures', lambda *args, **more:
                        failover_checks.failover.FailoverCertificate({('h0',): wrong}, request))
    verdict = failover_checks.certify(request, [('h0',)]).verdicts['h0',]
    assert verdict.state == 'unknown' and 'no-room' in verdict.fault
    assert 'no-room' in failover.describe_verdict(verdict)


def test_command_ends_in_time_and_says_that_it_does_not_know():
    rows = test_planned.rows('failover', 'check', '--max-seconds', '0', status=1)
    assert rows and all(state == 'unknown' for _, _, state, _ in rows)
    assert sum('not known within 0 s (--max-seconds)' in detail for *_, detail in rows) == len(
        {scope for scope, *_ in rows})
    assert '; 0 were tried' in rows[-1][3]
    for *_, detail in test_planned.rows('failover', 'check', status=1):
        assert '--max-seconds' not in detail and 'tried' not in detail
    assert test_planned.ask('failover', 'check', '--max-seconds', 'soon').returncode == 2


@pytest.mark.parametrize('is_terminal', [True, False])
def test_terminal_sees_the_work_and_then_the_bar(is_terminal):
    program = ('import sys; from kronos_nova import activity; activity.INTERVAL = 0.001; '
               'from kronos_nova.cli.app import main; sys.exit(main())')
    terminal = terminals.Terminal()
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', program, 'failover', 'check', '--config-file',
         'kronos.conf', '--snapshot', 'snapshot'], cwd=EXAMPLE, check=False,
        stdout=subprocess.PIPE, stderr=terminal.stream if is_terminal else subprocess.PIPE)
    sent = terminal.close()
    assert done.returncode == 1 and done.stdout
    if not is_terminal:
        assert done.stderr == b''
        return
    # The snapshot may be read before the thread that writes the line gets its turn.
    line = re.search('(Reading the snapshot|Computing the answer), 0 s', sent)
    assert line and line.start() < sent.index('100% scope'), sent
    assert '100% scope' not in sent.rpartition('\r')[2] and sent.endswith('\r')


def test_closed_standard_error_takes_no_answer_away():
    program = 'import sys; from kronos_nova.cli.app import main; sys.exit(main())'
    done = subprocess.run(
        ['sh', '-c', 'exec "$@" 2>&-', 'sh', sys.executable, '-W', 'ignore', '-c', program,
         'failover', 'check', '--config-file', 'kronos.conf', '--snapshot', 'snapshot'],
        cwd=EXAMPLE, check=False, stdout=subprocess.PIPE)
    assert done.returncode == 1 and b'7 of 8 hosts safe' in done.stdout


def test_what_if_shows_the_places_of_a_failed_host():
    rows = [row for row in test_planned.rows('what-if', '--fail', 'compute-06')
            if row[0] == model.UNASSIGNED]
    places = {what: (here, there) for _, what, here, there in rows
              if what.startswith('evacuation')}
    assert len(places) == 14 and {here for here, _ in places.values()} == {'compute-06'}
    assert sum('affinity-unmovable' in there for _, there in places.values()) == 2
    assert rows[-1][1:3] == ('failure', 'compute-06') and rows[-1][3].startswith('unsafe: 12 of 14')
