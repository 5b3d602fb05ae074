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



"""Each host is scored by one file: the rule that selects it, and warnings about doubts."""

from unittest import mock

import pytest

from kronos_nova import policy
from kronos_nova.conf import bindings
from tests.unit import nova_fakes


def policies(*aggregates, mode='spread'):
    return policy.parse_policies({'aggregates': list(aggregates), 'policies': [
        {'name': 'p', 'weight': 1.0, 'imbalance_query': 'q', 'capacity_query': 'q',
         'mode': mode}]})


def host(name, *aggregates):
    state = nova_fakes.HostState(name)
    for aggregate in aggregates:
        state.aggregates.append(mock.Mock())
        state.aggregates[-1].name = aggregate
    return state


def split(files, *hosts):
    """host -> path of its file, and why there were doubts."""
    bound = bindings.PolicyBindings(files)
    found = {h.host: None if index is None else bound.paths[index]
             for index, some in bound.group_hosts_by_index(list(hosts)) for h in some}
    return found, bound.overlaps


HOSTS = [host('a', 'az', 'spread'), host('b', 'az', 'pack'), host('c', 'az'), host('d')]


@pytest.mark.parametrize(('files', 'expected'), [
    ({'one': ()}, 'one one one one'),
    ({'one': ('pack',)}, '- one - -'),
    ({'one': ('pack',), 'two': ('spread',)}, 'two one - -'),
    ({'one': ('pack',), 'two': ()}, 'two one two two'),
    ({'one': (), 'two': ('pack',)}, 'one two one one'),
    ({'one': (), 'two': ('_unassigned_',)}, 'one one one two'),
    ({'one': ('_unassigned_', 'az')}, 'one one one one'),
    ({'one': None, 'two': ()}, 'two two two two'),
    ({'one': None}, '- - - -'),
    ({}, '- - - -')])
def test_a_host_is_scored_by_its_aggregates_file_or_the_default_file(files, expected):
    found, overlaps = split({path: None if names is None else policies(*names)
                             for path, names in files.items()}, *HOSTS)
    assert [found[h] or '-' for h in 'abcd'] == expected.split()
    assert not overlaps


def test_the_first_of_two_files_scores_a_host_in_any_aggregate_order():
    files = {'one': policies('x'), 'two': policies('y')}
    for state in (host('a', 'x', 'y'), host('a', 'y', 'x')):
        found, overlaps = split(files, state)
        assert found == {'a': 'one'}
        assert overlaps == {(0, 1): 'host a is in aggregates of both'}


def test_files_that_name_the_same_aggregate_or_none_are_doubted_at_once():
    bound = bindings.PolicyBindings({'one': policies('x'), 'two': policies('x'),
                                     'three': policies(),
                                     'four': policies()})
    assert bound.overlaps == {(0, 1): 'both name aggregate x',
                              (2, 3): 'both name no aggregates'}
    assert bound.group_hosts_by_index([host('a', 'x'), host('b')])[0][0] == 0
    assert bound.is_default(2) and not bound.is_default(3) and not bound.is_default(0)


def test_the_order_of_hosts_is_kept_in_each_group():
    hosts = [host('c', 'x'), host('a'), host('b', 'x'), host('d')]
    bound = bindings.PolicyBindings({'one': policies('x'), 'two': policies()})
    assert [(i, [h.host for h in some]) for i, some in bound.group_hosts_by_index(hosts)] == [
        (0, ['c', 'b']), (1, ['a', 'd'])]


@pytest.mark.parametrize(('mode', 'multiplier', 'done'), [
    ('spread', 1.0, None), ('spread', -1.0, 'packed'), ('spread', 0.0, None),
    ('pack', -1.0, None), ('pack', 0.5, 'spread'), ('pack', 0.0, None)])
def test_a_sign_against_the_mode(mode, multiplier, done):
    assert bindings.find_contradiction(policies(mode=mode), multiplier) == done


def test_without_a_cloud_only_the_default_file_is_compared_to_the_option():
    files = [('pack.yaml', policies('dense', mode='pack')), ('spread.yaml', policies())]
    assert bindings.check_bindings(files, 1.0) == []
    [text] = bindings.check_bindings(files, -2.0)
    assert 'spread.yaml says mode: spread, but kronos_weight_multiplier is -2' in text
    [text] = bindings.check_bindings([*files, ('more.yaml', policies())], 1.0)
    assert 'spread.yaml and more.yaml: both name no aggregates' in text
