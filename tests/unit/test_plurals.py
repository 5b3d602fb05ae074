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

import pytest

from kronos_nova import plurals


@pytest.mark.parametrize(('number', 'expected'), [
    (0, '0 moves'), (1, '1 move'), (2, '2 moves'), (2000, '2,000 moves')])
def test_a_number_has_its_noun(number, expected):
    assert plurals.count_noun(number, 'move') == expected


def test_a_noun_may_have_a_plural_of_its_own():
    assert plurals.count_noun(2, 'entry', 'entries') == '2 entries'


def test_the_verb_agrees_with_the_number():
    assert [plurals.choose(n, 'is', 'are') for n in (0, 1, 2)] == ['are', 'is', 'are']
