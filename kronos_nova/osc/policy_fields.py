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

"""Lines about the imbalance of a scope under its policies."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from kronos_nova.text import plan_lines


def format_change(policy: Mapping[str, Any]) -> str:
    """Return the measured imbalance and the one after the plan, or the reason for its absence."""
    return _format_policy(policy, plan_lines.format_policy_change)


def format_measured(policy: Mapping[str, Any]) -> str:
    """Return the measured imbalance and, apart from it, the planned one."""
    return _format_policy(policy, plan_lines.format_measured_policy)


def _format_policy(policy: Mapping[str, Any], format_values: Callable[..., str]) -> str:
    name = policy['policy']
    line = (plan_lines.format_skipped_policy(name, policy['reason']) if policy['skipped'] else
            format_values(name, policy['imbalance_measured'], policy['imbalance_predicted'],
                          policy['threshold']))
    return line + plan_lines.format_sample_age(policy['sample_age_seconds'])
