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

"""What a pass has found, as lines of a report: the numbers are those of the plan."""

from collections import Counter
import dataclasses
import math

import hypothesis
import pytest

from kronos_nova import model
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.report import planned_section
from kronos_nova.rebalancer.report import values
from tests.unit import clouds


def outcome_of(knobs, **changes):
    request = dataclasses.replace(clouds.request(knobs), **changes)
    plan = planner.plan(request)
    return planning_pipeline.PassOutcome(request.cluster, request.scores, plan, {}, request)


def section_of(outcome, **kwargs):
    kwargs = {'stagger': 30.0, 'planned': dict.fromkeys(outcome.cluster.scope_hosts, 'scope'),
              **kwargs}
    return planned_section.build_section(outcome, outcome.request.policies, **kwargs)


@clouds.examples(150)
@hypothesis.given(clouds.knobs(clean=True))
def test_scores_before_are_the_hosts_and_after_those_with_every_move_made(knobs):
    outcome = outcome_of(knobs)
    section = section_of(outcome)
    assert {line.name for line in section.lines} == outcome.cluster.scope_hosts
    for line in section.lines:
        for level, policy in zip(line.levels, outcome.request.policies.enabled_policies,
                                 strict=True):
            known = outcome.scores.policies[policy.name]
            change = math.fsum(
                known.usages.get(m.instance_uuid, 0.0) / known.capacity[line.name]
                * ((m.to_host == line.name) - (m.from_host == line.name))
                for m in outcome.plan.moves)
            assert level.before == pytest.approx(known.hosts[line.name])
            assert level.after == pytest.approx(known.hosts[line.name] + change)


@clouds.examples(150)
@hypothesis.given(clouds.knobs())
def test_a_section_counts_every_host_and_move_of_any_cloud(knobs):
    outcome = outcome_of(knobs)
    section = section_of(outcome)
    moves = outcome.plan.moves
    assert section.hosts == len(section.lines) == len(outcome.cluster.scope_hosts)
    assert section.instances == sum(1 for i in outcome.cluster.instances.values()
                                    if i.host in outcome.cluster.scope_hosts)
    for line in section.lines:
        assert line.gives == sum(1 for m in moves if m.from_host == line.name)
        assert line.takes == sum(1 for m in moves if m.to_host == line.name)
    assert [(m.uuid, m.from_host, m.to_host) for m in section.moves] == [
        (m.instance_uuid, m.from_host, m.to_host) for m in moves]
    assert {no.rule: no.count for no in section.refusals} == dict(outcome.plan.rejections)


@clouds.examples(100)
@hypothesis.given(clouds.knobs(clean=False))
def test_a_host_without_a_score_is_frozen_has_no_load_and_is_named(knobs):
    outcome = outcome_of(knobs)
    section = section_of(outcome)
    named = {item for gap in section.gaps if 'no score' in gap.title for item in gap.items}
    for line in section.lines:
        lacking = [known for known in outcome.scores.policies.values()
                   if line.name in known.missing]
        assert not lacking or line.name in named
        assert ('frozen' in line.notes) == any(known.untrusted is None for known in lacking)
        assert (line.load.before is None) == any(
            level.before is None for level in line.levels)


def test_moves_begin_as_tasks_are_staggered_in_each_wave():
    plan = model.Plan('scope', tuple(
        model.Move(f'u{n}', 'a', 'b', model.Phase.SPREAD, wave=n // 3,
                   requires=('u0',) if n >= 3 else ()) for n in range(5)))
    moves = planned_section.build_move_lines(plan, {'u1': 'web'}, 30.0, {})
    assert [m.begins for m in moves] == [0.0, 30.0, 60.0, 0.0, 30.0]
    assert [m.requires for m in moves] == [(), (), (), (1,), (1,)]
    assert [m.number for m in moves] == [1, 2, 3, 4, 5] and moves[1].name == 'web'


def titles(section):
    return ' '.join(gap.title for gap in section.gaps)


def test_a_section_names_the_hosts_that_planning_left_out():
    outcome = outcome_of(clouds.Knobs(1, hosts=4, clean=True))
    cluster = outcome.cluster
    down = sorted(cluster.scope_hosts)[0]
    services = {**cluster.services, down: model.Service(down, status='disabled',
                                                        disabled_reason='a disk')}
    hosts = {**cluster.hosts, 'lonely': model.Host('lonely'), 'other': model.Host('other')}
    plan = dataclasses.replace(
        outcome.plan, truncated=True, warnings=('cut off',),
        undrained=(model.Rejection('outage', 'host h9: not now'),))
    request = dataclasses.replace(outcome.request, cluster=dataclasses.replace(
        cluster, services=services, hosts=hosts, placement_known=False))
    section = section_of(
        dataclasses.replace(outcome, plan=plan, request=request, cluster=request.cluster),
        planned={**dict.fromkeys(cluster.scope_hosts, 'scope'), 'other': 'blue'},
        warnings=('half was read',))
    gaps = {gap.title: gap.items for gap in section.gaps}
    assert gaps['Hosts of the scope that take nothing.'] == (f'{down}: disabled (a disk)',)
    assert gaps['Hosts of no planned scope: nothing is moved from or to them.'] == ('lonely',)
    assert gaps['Disabled hosts that keep their instances.'] == ('host h9: not now',)
    assert {'half was read', 'cut off'} <= set(gaps['Warnings.'])
    for said in ('1 host of other planned scopes', 'cut off: not everything',
                 'claims are not judged', 'not asked to confirm'):
        assert said in titles(section)
    (line,) = [line for line in section.lines if line.name == down]
    assert 'disabled' in line.notes


def test_a_policy_that_is_not_believed_is_left_out_with_its_reason():
    outcome = outcome_of(clouds.Knobs(1, clean=True))
    (name,) = outcome.scores.policies
    known = dataclasses.replace(outcome.scores.policies[name], untrusted='too old', hosts={})
    outcome = outcome_of(clouds.Knobs(1, clean=True), scores=model.ClusterScores({name: known}))
    section = section_of(outcome)
    assert section.policies[0].left_out == 'too old' and section.before is None
    assert [gap.items for gap in section.gaps if 'not believed' in gap.title] == [
        (f'{name}: too old',)]
    assert Counter(line.load.before for line in section.lines) == {None: section.hosts}


def test_an_untrusted_policy_takes_no_values_from_another():
    """A drain goes on without one of two policies: it changes the scores of the other."""
    outcome = outcome_of(clouds.Knobs(3, policies=2, drains=True, hosts=5, instances=12))
    one, other = sorted(outcome.scores.policies)
    lost = dataclasses.replace(outcome.scores.policies[one], untrusted='too old', hosts={},
                               missing=frozenset(outcome.cluster.scope_hosts))
    section = section_of(outcome_of(
        clouds.Knobs(3, policies=2, drains=True, hosts=5, instances=12),
        scores=model.ClusterScores({one: lost, other: outcome.scores.policies[other]})))
    assert section.moves and {m.phase for m in section.moves} == {'evacuate'}
    place = [p.name for p in section.policies].index(one)
    for line in section.lines:
        assert line.levels[place] == values.HostLevel(None, None) and 'frozen' not in line.notes
        assert line.load.before is None and line.levels[1 - place].before is not None
    assert any(line.levels[1 - place].before != line.levels[1 - place].after
               for line in section.lines)


def test_an_instance_whose_use_is_not_known_is_counted():
    outcome = outcome_of(clouds.Knobs(1, clean=True))
    (name,) = outcome.scores.policies
    known = dataclasses.replace(outcome.scores.policies[name], usages={})
    section = section_of(outcome_of(clouds.Knobs(1, clean=True),
                                    scores=model.ClusterScores({name: known})))
    count = section.instances
    assert [gap.items for gap in section.gaps if 'use is not known' in gap.title] == [
        (f'{name}: {count} of {count} instances',)]
