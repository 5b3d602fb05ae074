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

import os

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
    ('a: &x [1]\nb: *x\n', 'line 1', 'anchors and aliases'),
    ('a: 1\nb:\n  - *x\n', 'line 3', 'anchors and aliases'),
    ('policies: [\n', 'line 2', ''),
    ('policies:\n\t- a\n', 'line 2', ''),
    ('policies: !!python/object/apply:os.system ["true"]\n', 'line 1', ''),
    ('[' * 30 + ']' * 30, 'line 1', 'nested too deeply'),
    (GOOD + '---\n' + GOOD, 'line 5', ''),
    ('? [a]\n: b\n', 'line 1', 'a key must be plain text'),
    ('<<: {a: 1}\n', 'line 1', ''),
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
    assert 'anchors and aliases' in refusal(file, bomb)


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
