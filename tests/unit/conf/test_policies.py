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


"""The policy file as an operator writes it: read whole or refused with its line."""

import itertools
import json
import os
import subprocess

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from kronos_nova import exception
from kronos_nova.conf import policies
from kronos_nova.conf import policy_watch

GOOD = '''policies:
  - name: cpu
    weight: 1.0
    imbalance_query: up
'''


@pytest.fixture
def file(tmp_path):
    return tmp_path / 'policies.yaml'


def refusal(file, text):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(exception.PolicyFileError) as caught:
        policies.load_policies(str(file))
    assert str(caught.value).startswith(f'{file}: ')
    return str(caught.value).removeprefix(f'{file}: ')


def test_a_good_file_loads(file):
    file.write_text(GOOD)
    assert policies.load_policies(str(file)).enabled_policies[0].name == 'cpu'


def test_a_byte_order_mark_is_no_fault(file):
    file.write_bytes(b'\xef\xbb\xbf' + GOOD.encode())
    assert policies.load_policies(str(file)).enabled_policies


@pytest.mark.parametrize(('text', 'where', 'what'), [
    (GOOD + '    weight: 0.5\n', 'line 5', 'written twice (first on line 3)'),
    (GOOD + 'policies: []\n', 'line 5', 'written twice'),
    ('a: 1\nb:\n  - *x\n', 'line 3', 'undefined alias'),
    ('a: &x [*x]\n', 'line 1', 'stands for what contains it'),
    ('policies: !secret a\n', 'line 1', 'the tag !secret is not allowed. Remove the tag.'),
    ('policies: !!int many\n', 'document', ''),
    ('policies: !!timestamp soon\n', 'document', ''),
    ('policies: !!binary "@"\n', 'policies', ''),
    (GOOD.replace('threshold', 'x') + '    treshold: 0.2\n', 'policies[0] (cpu).treshold',
     'Write threshold, or remove it'),
    (GOOD + 'agregates: [prod]\n', 'agregates', 'Write aggregates, or remove it'),
    (GOOD + '    enabled: false\n', 'policies', 'threshold: 1.0'),
    ('policies: [\n', 'line 2', ''),
    ('policies:\n\t- a\n', 'line 2', ''),
    ('policies: !!python/object/apply:os.system ["true"]\n', 'line 1', ''),
    ('[' * 30 + ']' * 30, 'line 1', 'nested too deeply'),
    (GOOD + '---\n' + GOOD, 'line 5', ''),
    ('? [a]\n: b\n', 'line 1', 'a key must be plain text'),
    ('<<: 5\n', 'line 1', ''),
    (b'policies:\n  - name: \xff\n', 'line 2', 'not UTF-8'),
    ('policies: "\x00"\n', 'document', ''),
    ('', 'document', 'not a mapping'),
    ('policies: 2026-01-01\n', 'policies', ''),
    ('a: ' + '9' * 5000, '', ''),
])
def test_a_bad_file_is_refused_with_place_and_reason(file, text, where, what):
    message = refusal(file, text)
    assert message.startswith(where) and what in message


def test_a_file_that_would_grow_is_refused_before_it_does(file):
    bomb = 'a: &a [x, x]\n' + ''.join(
        f'{b}: &{b} [*{a}, *{a}]\n' for a, b in zip('abcdefghijklmnop', 'bcdefghijklmnopq',
                                                    strict=True))
    assert 'more than 20000 values' in refusal(file, bomb)


def test_aliases_that_nest_deeper_than_the_text_are_refused(file):
    deep = 'a: &a [x]\n' + ''.join(
        f'{b}: &{b} [*{a}]\n' for a, b in itertools.pairwise('abcdefghijklmnopqrstuvwxyz'))
    assert 'nested too deeply' in refusal(file, deep)


#: Files that Kronos 0.2.0 loads and we once refused: (text, what is warned of).
LOADED_BY_THE_ANCESTOR = {
    'a field with a mapping': (GOOD + '    x-note: {a: [1, 2]}\n',
                               ['line 5: policies[0] (cpu).x-note']),
    'a date': (GOOD + '    since: 2024-01-01\n', ['line 5: policies[0] (cpu).since']),
    'tags of fields without effect': (
        GOOD + '    since: !!timestamp 2024-01-01\n    hosts: !!set {a, b}\n'
               '    key: !!binary aGk=\n    order: !!omap [a: 1]\n',
        [f'line {line}: policies[0] (cpu).{name}' for line, name in (
            (5, 'since'), (6, 'hosts'), (7, 'key'), (8, 'order'))]),
    'a field that names no value': (GOOD + '    aggregate:\n',
                                    ['line 5: policies[0] (cpu).aggregate']),
    'a merge key of the first policy': (
        GOOD.replace('- name', '- &first\n    name').replace(
            '1.0', '1.0\n    max_migrations_per_cycle: 7')
        + '  - <<: *first\n    name: other\n    enabled: false\n', []),
    'an anchor of the list': (
        'x-all: &all\n  - {name: cpu, mode: spread, weight: 1.0, imbalance_query: up}\n'
        'policies: *all\n', ['line 1: x-all']),
    'numbers as text': (GOOD.replace('1.0', "'1.0'") + "    threshold: '0.2'\n"
                        "    max_migrations_per_cycle: '3'\n", []),
    'a number without a point': (GOOD.replace('1.0', '1e0') + '    threshold: 2e-1\n', []),
    'yes as text': (GOOD + "    enabled: 'yes'\n", []),
    'null for an optional query': (GOOD + '    vm_profile_query: ~\n    capacity_query:\n', []),
    'a label with a space': (GOOD + "    host_label: 'a b'\n", []),
    'a query of several lines': (GOOD + '    capacity_query: |\n      sum(\n        up)\n', []),
    'lines of Windows': (GOOD.replace('\n', '\r\n'), []),
    'a directive, a start and an end': ('%YAML 1.1\n---\n' + GOOD + '...\n', []),
    'JSON': ('{"policies": [{"name": "cpu", "mode": "spread", "weight": 1.0, '
             '"imbalance_query": "up"}]}', []),
    'a field that is unknown': (GOOD + '    owner: team-x\n', ['line 5: policies[0] (cpu).owner']),
    'an unknown field of the file': ('version: 2\n' + GOOD, ['line 1: version']),
    'a key that is a number': ('7: x\n' + GOOD, ['line 1: 7']),
    'the early sample': (
        GOOD + '    aggregate: prod\n    cooldown: 600\n',
        ['line 5: policies[0] (cpu).aggregate', 'line 6: policies[0] (cpu).cooldown']),
    'the early sample, above': ('aggregate: prod\ncooldown: 600\n' + GOOD,
                                ['line 1: aggregate', 'line 2: cooldown']),
    'an anchor': (GOOD.replace('1.0', '&w 1.0') + '    threshold: *w\n', []),
    'a merge key': ('x-common: &c {mode: spread, weight: 1.0}\npolicies:\n- <<: *c\n'
                    '  name: cpu\n  imbalance_query: up\n', ['line 1: x-common']),
    'merge keys in a list': (
        'a: &a {mode: spread}\nb: &b {weight: 1.0}\npolicies:\n- <<: [*a, *b]\n  name: cpu\n'
        '  imbalance_query: up\n', ['line 1: a', 'line 2: b']),
    'a merge key that is overruled': (
        'x-c: &c {mode: spread, weight: 0.3}\npolicies:\n- <<: *c\n  name: cpu\n  weight: 1.0\n'
        '  imbalance_query: up\n', ['line 1: x-c']),
    'tags': (GOOD.replace('1.0', '!!float 1').replace('cpu', '!!str cpu'), []),
    'a label with a dot': (GOOD + '    host_label: k8s.node\n', []),
    'a label with a dash': (GOOD + '    vm_profile_label: instance-name\n', []),
    'a label in another script': (GOOD + '    host_label: узел\n', []),
    'an empty optional query': (GOOD + "    vm_profile_query: ''\n",
                                ['line 5: policies[0] (cpu).vm_profile_query']),
    'an empty capacity query': (GOOD + "    capacity_query: ''\n",
                                ['line 5: policies[0] (cpu).capacity_query']),
    'a key twice with one value': (GOOD + '    weight: 1\n', []),
}


@pytest.mark.parametrize('case', LOADED_BY_THE_ANCESTOR)
def test_harmless_files_of_the_ancestor_load_with_a_warning(file, caplog, case):
    text, warned = LOADED_BY_THE_ANCESTOR[case]
    file.write_text(text)
    (found,) = policies.load_policies(str(file)).enabled_policies
    assert (found.name, found.weight, found.vm_profile_query) == ('cpu', 1.0, None)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(warned)
    for message, words in zip(messages, warned, strict=True):
        assert message.startswith(f'{file}: {words}: ')


#: Files that Kronos 0.2.0 loads and we refuse: (text, place, problem, remedy).
LOADED_BY_THE_ANCESTOR_ALONE = {
    'a field that resembles one of ours': (
        GOOD + '    treshold: 0.2\n', 'policies[0] (cpu).treshold', 'no such field',
        'Write threshold, or remove it.'),
    'a field in capitals': (GOOD + '    Threshold: 0.2\n', 'policies[0] (cpu).Threshold',
                            'no such field', 'Write threshold, or remove it.'),
    'a field with a dash': (GOOD + '    host-label: node\n', 'policies[0] (cpu).host-label',
                            'no such field', 'Write host_label, or remove it.'),
    'a key twice with two values': (
        GOOD + '    threshold: 0.2\n    threshold: 0.3\n', 'line 6',
        'written twice (first on line 5)', 'Keep one of the two.'),
    'all policies disabled': (GOOD + '    enabled: false\n', 'policies', 'every policy is disabled',
                              'enable one, with threshold: 1.0'),
    'true for a number': (GOOD + '    threshold: true\n', 'policies[0] (cpu).threshold',
                          'true and false are not numbers', 'Correct the field'),
    'a query of spaces': (GOOD + "    vm_profile_query: ' '\n",
                          'policies[0] (cpu).vm_profile_query',
                          'the query is empty', 'leave the field out'),
    'a long query': (GOOD + '    capacity_query: ' + 'a+' * 10000 + 'a\n',
                     'policies[0] (cpu).capacity_query', 'at most 16384 characters',
                     'Correct the field'),
    'an empty label': (GOOD + "    host_label: ''\n", 'policies[0] (cpu).host_label',
                       'one character at least', 'Write the label'),
    'a label of two lines': (GOOD + '    vm_profile_label: "a\\nb"\n',
                             'policies[0] (cpu).vm_profile_label', 'no control characters',
                             'Write the label'),
    'a long label': (GOOD + f'    host_label: {"a" * 129}\n', 'policies[0] (cpu).host_label',
                     'at most 128 characters', 'Correct the field'),
    'an alias of what contains it': (GOOD + '    x: &a [*a]\n', 'line 5', 'what contains it',
                                     'Write the value in place of the alias.'),
    'too many values': (GOOD + 'x: [' + '1, ' * 20000 + '1]\n', 'line 5',
                        'more than 20000 values', 'Correct the YAML'),
    'too deep': (GOOD + 'x: ' + '[' * 21 + ']' * 21 + '\n', 'line 5', 'nested too deeply',
                 'Correct the YAML'),
    'a field of ours with an unusable value': (
        GOOD + '    vm_profile_unit: cores\n', 'policies[0] (cpu).vm_profile_unit', "'host_ratio'",
        'Correct the field'),
}


@pytest.mark.parametrize('case', LOADED_BY_THE_ANCESTOR_ALONE)
def test_files_of_the_ancestor_that_change_a_decision_are_refused(file, case):
    text, place, problem, remedy = LOADED_BY_THE_ANCESTOR_ALONE[case]
    found = refusal(file, text)
    assert found.startswith(f'{place}: ')
    assert problem in found and remedy in found


def test_as_many_variants_are_tried_as_the_review_had():
    assert len(LOADED_BY_THE_ANCESTOR) + len(LOADED_BY_THE_ANCESTOR_ALONE) >= 34


@pytest.mark.skipif('KRONOS_ANCESTOR' not in os.environ, reason='KRONOS_ANCESTOR is not set')
def test_the_ancestor_itself_loads_these_and_means_the_same(tmp_path):
    """One process of Kronos 0.2.0 for all variants, and every field of each policy."""
    texts = {case: given[0] for case, given in (
        *LOADED_BY_THE_ANCESTOR.items(), *LOADED_BY_THE_ANCESTOR_ALONE.items())}
    for number, text in enumerate(texts.values()):
        # It has no default for the mode.
        for name in ('name: cpu', 'name: !!str cpu'):
            if 'mode:' not in text and '"mode"' not in text:
                text = text.replace(name, f'{name}\n    mode: spread', 1)
        (tmp_path / f'{number}.yaml').write_text(text, newline='')
    done = subprocess.run(
        [os.path.join(os.environ['KRONOS_ANCESTOR'], 'python'), '-c',
         'import json, sys; from kronos.policies.loader import load_policies; '
         'print(json.dumps([[p.model_dump(mode="json") for p in load_policies(path).policies] '
         'for path in sys.argv[1:]]))',
         *(str(tmp_path / f'{number}.yaml') for number in range(len(texts)))],
        capture_output=True, text=True, check=False, timeout=120, cwd='/')
    assert done.returncode == 0, done.stderr[-500:]
    for case, theirs in zip(texts, json.loads(done.stdout), strict=True):
        if case in LOADED_BY_THE_ANCESTOR_ALONE:
            continue
        number = list(texts).index(case)
        ours = policies.load_policies(str(tmp_path / f'{number}.yaml')).policies
        for mine, their in zip(ours, theirs, strict=True):
            dumped = mine.model_dump(mode='json')
            for field, value in their.items():
                assert (dumped[field] or None) == (value or None), (case, field)


def test_a_file_over_1_mib_is_refused(file):
    assert 'larger than 1 MiB' in refusal(file, GOOD + '#' * policies.MAX_BYTES)


def test_a_file_that_cannot_be_read_says_why(file):
    with pytest.raises(exception.PolicyFileError, match='No such file'):
        policies.load_policies(str(file))
    with pytest.raises(exception.PolicyFileError, match='Is a directory'):
        policies.load_policies(str(file.parent))


@settings(max_examples=200)
@given(st.text(st.sampled_from('ab:-[]{}&*!|>#\'"? \n\t0.,%@'), max_size=60))
def test_no_text_does_anything_but_load_or_be_refused(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / 'any.yaml'
    file.write_text(text)
    with pytest.raises(exception.PolicyFileError):
        policies.load_policies(str(file))


# The watcher.

def test_a_changed_file_is_read_and_an_invalid_one_is_not(file):
    file.write_text(GOOD)
    watch = policy_watch.PolicyWatch(str(file))
    assert watch.refresh().enabled_policies[0].name == 'cpu'
    replaced = file.with_suffix('.new')
    replaced.write_text(GOOD.replace('cpu', 'mem'))
    os.replace(replaced, file)
    assert watch.refresh().enabled_policies[0].name == 'mem'
    file.write_text('policies: [')
    assert watch.refresh().enabled_policies[0].name == 'mem'
    file.unlink()
    assert watch.refresh().enabled_policies[0].name == 'mem'


def test_an_unchanged_file_is_not_read_again(file, monkeypatch):
    file.write_text(GOOD)
    watch = policy_watch.PolicyWatch(str(file))
    first = watch.refresh()
    monkeypatch.setattr(policies, 'load_policies', None)
    assert watch.refresh() is first


def test_a_watch_needs_valid_content_at_first(file):
    with pytest.raises(exception.PolicyFileError):
        policy_watch.PolicyWatch(str(file))
