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

"""``kronos host list`` and ``kronos instance show`` on the example's snapshot."""

import json
from pathlib import Path

import pytest

from kronos_nova import model
from kronos_nova.cli import host
from kronos_nova.rebalancer.operations import cloud_views
from kronos_nova.rebalancer.operations import views
from tests import commands

EXAMPLE = Path(__file__).resolve().parents[3] / 'doc/examples/replay'
MOVED = 'ee2a96c5-0647-54d5-8ea1-0df4c1d44587'


def ask(*arguments):
    return commands.main('kronos_nova.cli.app', *arguments, '--config-file', 'kronos.conf',
                         '--snapshot', 'snapshot', cwd=EXAMPLE)


def found(*arguments):
    done = ask(*arguments, '-f', 'json')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_host_has_its_scope_state_and_load():
    rows = found('host', 'list')
    assert len(rows) == 12 and {row['Scope'] for row in rows} == {'fast-storage', '_unassigned_'}
    last = rows[-1]
    assert last['State'][0] == 'up' and last['State'][1].startswith('disabled: maintenance')
    hot = next(row for row in rows if row['Host'] == 'compute-02')
    cpu = hot['Policies'][0]
    assert (cpu['name'], cpu['score'], hot['Instances']) == ('cpu', 1.0, 13)
    assert {row['Scope'] for row in found('host', 'list', '--scope', 'fast-storage')} == {
        'fast-storage'}
    table = ask('host', 'list', '--wide').stdout
    assert 'cpu: 1.0000, base 0.0000, explained 109 %' in table


def list_no_hosts(monkeypatch, *untrusted):
    monkeypatch.setattr(cloud_views, 'list_hosts', lambda session, scope: [
        cloud_views.ScopeHosts('blue', (), untrusted)])
    command = host.ListHosts(None, None)
    args = command.get_parser('kronos host list').parse_args([])
    assert list(command.render_rows(args)) == []
    return command.status


def test_untrusted_scores_are_explained_and_change_the_exit_status(monkeypatch, capsys):
    assert list_no_hosts(monkeypatch, 'cpu: Prometheus cannot be reached') == 1
    assert capsys.readouterr().err == ('kronos host list: scope blue: scores are not trusted: '
                                       'cpu: Prometheus cannot be reached\n')


def test_trusted_scores_leave_the_exit_status_alone(monkeypatch, capsys):
    assert list_no_hosts(monkeypatch) == 0
    assert capsys.readouterr().err == ''


def test_an_instance_has_its_shares_and_what_holds_it():
    shown = found('instance', 'show', MOVED)
    assert (shown['Instance'], shown['Host'], shown['Next move'], shown['Held'],
            shown['Scope held']) == (MOVED, 'compute-02', 'now', [], [])
    assert shown['Usage'][0]['name'] == 'cpu' and 0 < shown['Usage'][0]['ratio'] < 1
    table = ask('instance', 'show', MOVED).stdout
    assert 'of the host' in table and 'not known' not in table


@pytest.mark.parametrize(('arguments', 'said'), [
    (('instance', 'show', 'nobody'), 'UUID: nobody: no host has such an instance'),
    (('host', 'list', '--scope', 'slow'), 'slow is not planned')])
def test_a_missing_object_gives_one_line_on_standard_error(arguments, said):
    done = ask(*arguments)
    assert done.returncode == 1 and done.stdout == ''
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(('held', 'wait', 'holds', 'said'), [
    ((), 0.0, (), 'now'), ((), 0.0, ('paused',), 'when its scope is not held'),
    (('cooling',), 60.0, (), '1970-01-01T00:17:40+00:00'),
    (('cooling',), 60.0, ('paused',), '1970-01-01T00:17:40+00:00, if its scope is not held then'),
    (('in-flight',), None, (), 'not before that is over'),
    (('in-flight', 'cooling'), None, ('paused',), 'not before that is over'),
    (('locked',), None, (), 'not before that is changed'),
    (('quarantined',), None, (), 'not before that is changed'),
    (('locked', 'cooling'), None, (), 'not before that is changed')])
def test_the_next_move_of_an_instance_is_described_in_words(held, wait, holds, said):
    portrait = views.InstancePortrait(
        None, (), tuple(model.Rejection(rule, '') for rule in held), holds, wait, {})
    assert host._format_next_move(portrait, 1000.0) == said


@pytest.mark.parametrize(('usage', 'shown'), [
    (68_719_476_736.0, '68 719 476 736'), (1.25, '1.25'), (0.33333333, '0.3333'), (0.0, '0')])
def test_a_usage_has_no_exponent(usage, shown):
    assert host._format_usage(usage) == shown
