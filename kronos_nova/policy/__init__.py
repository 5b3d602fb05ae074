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

"""The policy file: :mod:`schema` has its fields, :mod:`parsing` validates its content.

:mod:`kronos_nova.conf.policies` reads the file.
"""

from kronos_nova.policy.parsing import find_ignored as find_ignored
from kronos_nova.policy.parsing import format_location as format_location
from kronos_nova.policy.parsing import IgnoredField as IgnoredField
from kronos_nova.policy.parsing import list_problems as list_problems
from kronos_nova.policy.parsing import parse_policies as parse_policies
from kronos_nova.policy.schema import LONGEST_QUERY as LONGEST_QUERY
from kronos_nova.policy.schema import Policy as Policy
from kronos_nova.policy.schema import PolicySet as PolicySet
from kronos_nova.policy.schema import QUERIES as QUERIES
from kronos_nova.policy.schema import quote_label as quote_label
from kronos_nova.policy.schema import WEIGHT_TOLERANCE as WEIGHT_TOLERANCE
