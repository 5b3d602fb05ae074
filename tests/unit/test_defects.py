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


"""Each defect of Kronos 0.2.0 that the design lists has a test of its number."""

import pathlib
import re

TESTS = pathlib.Path(__file__).parents[1]
#: How many the design lists.
DEFECTS = 25


def test_every_defect_has_a_test_that_is_found_by_its_number():
    found = {int(n) for path in TESTS.rglob('*.py') for n in re.findall(
        r'^ *def test_defect_(\d\d)_', path.read_text(), re.MULTILINE)}
    found |= {int(path.name[7:9]) for path in (TESTS / 'scenarios').glob('defect_*.yaml')}
    assert found == set(range(1, DEFECTS + 1))
