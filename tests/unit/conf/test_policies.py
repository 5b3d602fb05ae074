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
        policies.load(str(file))
    assert str(caught.value).startswith(f'{file}: ')
    return str(caught.value).removeprefix(f'{file}: ')


def test_a_good_file_loads(file):
    file.write_text(GOOD)
    assert policies.load(str(file)).enabled[0].name == 'cpu'


def test_a_byte_order_mark_is_no_fault(file):
    file.write_bytes(b'\xef\xbb\xbf' + GOOD.encode())
    assert policies.load(str(file)).enabled


@pytest.mark.parametrize(('text', 'where', 'what'), [
    (GOOD + '    weight: 0.5\n', 'line 5', 'written twice (first on line 3)'),
    (GOOD + 'policies: []\n', 'line 5', 'written twice'),
    ('a: 1\nb:\n  - *x\n', 'line 3', 'undefined alias'),
    ('a: &x [*x]\n', 'line 1', 'stands for what contains it'),
    ('policies: !!binary aGk=\n', 'line 1', 'the tag tag:yaml.org,2002:binary is not allowed'),
    ('policies: !!int many\n', 'document', ''),
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
def test_what_the_ancestor_loads_and_is_harmless_loads_with_a_warning(file, caplog, case):
    text, warned = LOADED_BY_THE_ANCESTOR[case]
    file.write_text(text)
    (found,) = policies.load(str(file)).policies
    assert (found.name, found.weight, found.vm_profile_query) == ('cpu', 1.0, None)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(warned)
    for message, words in zip(messages, warned, strict=True):
        assert message.startswith(f'{file}: {words}: ')


@pytest.mark.skipif('KRONOS_ANCESTOR' not in os.environ, reason='KRONOS_ANCESTOR is not set')
@pytest.mark.parametrize('case', LOADED_BY_THE_ANCESTOR)
def test_the_ancestor_itself_loads_these(file, case):
    text = LOADED_BY_THE_ANCESTOR[case][0]
    file.write_text(text if 'mode:' in text else text.replace(
        '- name: cpu', '- mode: spread\n    name: cpu').replace(
        '- name: !!str cpu', '- mode: spread\n    name: cpu'))
    done = subprocess.run(
        [os.path.join(os.environ['KRONOS_ANCESTOR'], 'python'), '-c',
         'import sys; from kronos.policies import loader; '
         'print(loader.load_policies(sys.argv[1]).policies[0].weight)', str(file)],
        capture_output=True, text=True, check=False, timeout=120, cwd='/')
    assert (done.returncode, done.stdout) == (0, '1.0\n'), done.stderr[-500:]


def test_a_file_over_1_mib_is_refused(file):
    assert 'larger than 1 MiB' in refusal(file, GOOD + '#' * policies.MAX_BYTES)


def test_a_file_that_cannot_be_read_says_why(file):
    with pytest.raises(exception.PolicyFileError, match='No such file'):
        policies.load(str(file))
    with pytest.raises(exception.PolicyFileError, match='Is a directory'):
        policies.load(str(file.parent))


@settings(max_examples=200)
@given(st.text(st.sampled_from('ab:-[]{}&*!|>#\'"? \n\t0.,%@'), max_size=60))
def test_no_text_does_anything_but_load_or_be_refused(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / 'any.yaml'
    file.write_text(text)
    with pytest.raises(exception.PolicyFileError):
        policies.load(str(file))


# The watcher.

def test_a_changed_file_is_read_and_an_invalid_one_is_not(file):
    file.write_text(GOOD)
    watch = policy_watch.PolicyWatch(str(file))
    assert watch.refresh().enabled[0].name == 'cpu'
    replaced = file.with_suffix('.new')
    replaced.write_text(GOOD.replace('cpu', 'mem'))
    os.replace(replaced, file)
    assert watch.refresh().enabled[0].name == 'mem'
    file.write_text('policies: [')
    assert watch.refresh().enabled[0].name == 'mem'
    file.unlink()
    assert watch.refresh().enabled[0].name == 'mem'


def test_an_unchanged_file_is_not_read_again(file, monkeypatch):
    file.write_text(GOOD)
    watch = policy_watch.PolicyWatch(str(file))
    first = watch.refresh()
    monkeypatch.setattr(policies, 'load', None)
    assert watch.refresh() is first


def test_without_any_good_content_there_is_no_watch(file):
    with pytest.raises(exception.PolicyFileError):
        policy_watch.PolicyWatch(str(file))
