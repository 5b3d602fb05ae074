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

"""The definitions of the rules are complete and contradict neither each other nor the code."""

import importlib
import pkgutil

from kronos_nova import constraints
from kronos_nova.constraints import rules
from kronos_nova.rebalancer.report import meanings
from tests.unit import rule_names


def test_every_rule_that_a_module_defines_is_judged():
    defined = [value for module in pkgutil.iter_modules(constraints.__path__)
               for value in vars(importlib.import_module(
                   f'kronos_nova.constraints.{module.name}')).values()
               if isinstance(value, rules.Rule)]
    assert len(defined) > 30
    assert sorted(rule.name for rule in defined) == sorted(rule.name for rule in constraints.ALL)
    assert len({rule.name for rule in defined}) == len(defined)


def test_every_code_of_the_judges_is_defined_once():
    defined = [code for rule in constraints.ALL for code in rule.codes]
    assert sorted(defined) == sorted(rule_names.produced('constraints'))
    assert meanings.MEANINGS.keys() == rule_names.produced()


def test_rules_of_metrics_and_failures_alone_have_codes_that_no_executor_meets():
    for rule in constraints.ALL:
        for name, code in rule.codes.items():
            assert (code.retry is None) == (rule.kind in (
                rules.RuleKind.METRICS, rules.RuleKind.FAILURE)), name
