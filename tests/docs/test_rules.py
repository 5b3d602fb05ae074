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


"""The table of rules has every name that code can produce, and no other."""

from pathlib import Path
import re

from kronos_nova.conf import engine
from tests.unit import rule_names

PAGE = Path(__file__).resolve().parents[2] / 'doc/source/reference/rules.rst'
ROW = re.compile(r'^   \* - ``([a-z-]+)``\n     - (\S.*)', re.MULTILINE)


def test_table_lists_each_rule_once():
    rows = ROW.findall(PAGE.read_text())
    names = [name for name, _ in rows]
    assert len(names) == len(set(names))
    assert set(names) == rule_names.produced()


def test_page_names_judged_filters_with_their_rules():
    """And by the options that say whether they are enabled."""
    text = PAGE.read_text()
    help_text = {o.name: o.help for o in engine.OPTS}['nova_enabled_filters']
    for name in ('AggregateInstanceExtraSpecsFilter', 'AggregateMultiTenancyIsolation',
                 'AggregateImagePropertiesIsolation', 'DifferentHostFilter', 'SameHostFilter'):
        assert f'With ``{name}``' in re.sub(r'\s+', ' ', text)
        assert name in help_text
