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


"""What a policy file may say, and the one clear error when it says something else."""

import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import exception
from kronos_nova import policy


def entry(**fields):
    return {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'q', **fields}


def parse(*entries, **document):
    return policy.parse_policies({'policies': list(entries), **document}, 'p.yaml')


def refusal(*entries, **document):
    with pytest.raises(exception.PolicyFileError) as caught:
        parse(*entries, **document)
    return str(caught.value)


def test_defaults_are_kronos_0_2_0_s():
    found = parse(entry()).policies[0]
    assert (found.mode, found.threshold, found.capacity_threshold) == ('spread', 0.15, 0.80)
    assert (found.host_label, found.vm_profile_label) == ('host', 'instance_name')
    assert (found.vm_profile_label_type, found.vm_profile_fallback) == \
        ('nova_internal_name', 'skip')
    assert (found.max_migrations_per_cycle, found.enabled) == (3, True)
    assert (found.vm_profile_unit, found.boot_ceiling, found.age_query) == \
        ('host_ratio', None, None)


def test_a_file_of_kronos_0_2_0_loads_unchanged():
    found = parse(
        entry(name='cpu', mode='spread', weight=0.6, threshold=0.2, host_label='nodename',
              vm_profile_query='p', vm_profile_label='instance_name',
              vm_profile_label_type='nova_internal_name', vm_profile_fallback='host_average',
              max_migrations_per_cycle=5, enabled=True),
        entry(name='mem', weight=0.4), entry(name='off', weight=0.9, enabled=False))
    assert [p.name for p in found.enabled_policies] == ['cpu', 'mem']
    assert (found.mode, found.move_budget) == ('spread', 5)


@pytest.mark.parametrize(('fields', 'words'), [
    ({'name': 'CPU'}, ('policies[0] (CPU).name',)),
    ({'name': '9cpu'}, ('.name',)),
    ({'name': 'a' * 129}, ('.name',)),
    ({'name': 'cpu\n'}, ('.name',)),
    ({'mode': 'both'}, ('.mode', 'spread', 'pack')),
    ({'weight': 1.5}, ('.weight',)),
    ({'weight': -0.1}, ('.weight',)),
    ({'weight': math.nan}, ('.weight',)),
    ({'weight': True}, ('.weight', 'not numbers')),
    ({'weight': 'much'}, ('.weight', "'much'")),
    ({'threshold': math.inf}, ('.threshold',)),
    ({'boot_ceiling': 90}, ('.boot_ceiling', '90')),
    ({'capacity_threshold': 2}, ('.capacity_threshold',)),
    ({'max_migrations_per_cycle': 0}, ('.max_migrations_per_cycle',)),
    ({'max_migrations_per_cycle': 10_001}, ('.max_migrations_per_cycle',)),
    ({'max_migrations_per_cycle': True}, ('not numbers',)),
    ({'imbalance_query': ''}, ('.imbalance_query',)),
    ({'imbalance_query': '  \n'}, ('the query is empty',)),
    ({'age_query': ' '}, ('.age_query', 'the query is empty')),
    ({'imbalance_query': 'q' * 16385}, ('.imbalance_query',)),
    ({'host_label': 'a\x07b'}, ('.host_label',)), ({'host_label': ''}, ('.host_label',)),
    ({'host_regex': '('}, ('.host_regex', 'not a regular expression')),
    ({'host_regex': 'cn[0-9]+'}, ('.host_regex', 'one group')),
    ({'vm_profile_fallback': 'guess'}, ('.vm_profile_fallback',)),
    ({'vm_profile_unit': 'absolute'}, ('host_capacity',)),
    ({'host_capacity': 'vcpu'}, ('.host_capacity',)),
    ({'host_capacity': 'VCPU', 'host_capacity_query': 'q'}, ('exclude each other',)),
    ({'mode': 'pack'}, ('capacity_query',)),
    ({'fill_target': 0.81}, ('fill_target', 'above capacity_threshold')),
    ({'relief_threshold': 0.79, 'mode': 'pack', 'capacity_query': 'q'},
     ('relief_threshold', 'below capacity_threshold')),
    ({'fill_target': True}, ('not numbers',)),
    ({'fill_hysteresis': 1.1}, ('.fill_hysteresis',)),
    ({'peak_deviations': -1}, ('.peak_deviations',)),
    ({'vm_mean_query': 'q'}, ('vm_mean_query needs vm_profile_query',)),
    ({'vm_deviation_query': ' ', 'vm_profile_query': 'q'}, ('.vm_deviation_query', 'empty')),
    ({'imbalance_qery': 'q'}, ('no such field', 'imbalance_query')),
])
def test_a_wrong_field_is_named_with_the_remedy(fields, words):
    text = refusal(entry(**fields))
    assert text.startswith('p.yaml: policies[0]')
    for word in words:
        assert word in text
    assert '\n' not in text.split('. ', 1)[0] or 'name' in text


def test_a_missing_field_is_named():
    assert 'imbalance_query: the field is missing' in refusal({'name': 'cpu', 'weight': 1})


@pytest.mark.parametrize('document', [None, [], 'text', 7])
def test_a_policy_file_must_be_a_mapping(document):
    with pytest.raises(exception.PolicyFileError, match='not a mapping'):
        policy.parse_policies(document)


def test_rules_over_the_whole_file():
    assert 'written twice: cpu' in refusal(entry(weight=0.5), entry(weight=0.5))
    pack = entry(name='b', weight=0.5, mode='pack', capacity_query='c')
    assert 'cannot be mixed' in refusal(entry(weight=0.5), pack)
    assert 'every policy is disabled' in refusal(entry(enabled=False))
    assert 'the list is empty' in refusal()
    assert 'no such field' in refusal(entry(), polices=[])
    assert 'cpu 0.5 + mem 0.4' in refusal(entry(weight=0.5), entry(name='mem', weight=0.4))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_weights_that_are_parts_of_a_whole_are_accepted(parts):
    total = sum(parts)
    found = parse(*(entry(name=f'p{n}', weight=part / total) for n, part in enumerate(parts)))
    assert math.fsum(p.weight for p in found.enabled_policies) == pytest.approx(1.0)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=12))
def test_no_document_does_anything_but_load_or_be_refused(document):
    try:
        policy.parse_policies(document)
    except exception.PolicyFileError as e:
        assert e.code == 'kronos.policy_file'
        assert str(e).startswith('policies.yaml: ')


def test_queries_by_field():
    found = parse(entry(age_query='a', vm_profile_query='v')).policies[0]
    assert found.queries == {'imbalance_query': 'q', 'vm_profile_query': 'v', 'age_query': 'a'}


def test_policies_are_found_by_name():
    loaded = parse(entry())
    assert loaded.find_policy('cpu').name == 'cpu'
    with pytest.raises(KeyError):
        loaded.find_policy('mem')
