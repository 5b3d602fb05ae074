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

"""The schema of the policy file: its fields, their bounds and their meaning.

Field names, defaults and bounds are Kronos 0.2.0's, so that its files load unchanged; fields that
are ours are marked so. :mod:`kronos_nova.conf.policies` reads the file.
"""

from collections.abc import Mapping
import math
import re
from typing import Annotated, Any, Literal, Self

import pydantic

from kronos_nova import lookback

#: Maximum number of characters of a query.
LONGEST_QUERY = 16384
#: The fields that hold PromQL.
QUERIES = ('imbalance_query', 'vm_profile_query', 'capacity_query', 'host_capacity_query',
           'age_query', 'vm_mean_query', 'vm_deviation_query', 'vm_dirty_rate_query')
#: Maximum distance of the sum of the enabled weights from 1.0.
WEIGHT_TOLERANCE = 1e-6

Ratio = Annotated[float, pydantic.Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Query = Annotated[str, pydantic.Field(min_length=1, max_length=LONGEST_QUERY)]
# Prometheus 3 has labels of any characters, such as k8s.node.
Label = Annotated[str, pydantic.Field(pattern=r'^[^\x00-\x1f\x7f]+$', max_length=128)]


class Policy(pydantic.BaseModel):
    """One scoring: a host query, an instance query, a weight, a threshold."""

    model_config = pydantic.ConfigDict(extra='forbid', frozen=True, strict=False)

    name: Annotated[str, pydantic.Field(pattern=r'^[a-z][a-z0-9_-]*$', max_length=128)]
    mode: Literal['spread', 'pack'] = 'spread'
    weight: Ratio
    imbalance_query: Query
    vm_profile_query: Query | None = None
    vm_profile_label: Label = 'instance_name'
    vm_profile_label_type: Literal[
        'nova_internal_name', 'nova_instance_uuid', 'nova_display_name'] = 'nova_internal_name'
    vm_profile_fallback: Literal['skip', 'flavor_vcpu_ratio', 'host_average'] = 'skip'
    host_label: Label = 'host'
    threshold: Ratio = 0.15
    capacity_query: Query | None = None
    capacity_threshold: Ratio = 0.80
    # Kronos stopped at 100; a first consolidation is larger.
    max_migrations_per_cycle: Annotated[int, pydantic.Field(ge=1, le=10_000)] = 3
    enabled: bool = True

    # Ours: units and capacity (an instance's ratio differs from host to host).
    vm_profile_unit: Literal['absolute', 'host_ratio'] = 'host_ratio'
    host_capacity_query: Query | None = None
    host_capacity: Annotated[str, pydantic.Field(
        pattern=r'^[A-Z][A-Z0-9_]*$', max_length=255)] | None = None
    # Ours: seconds since the newest sample behind imbalance_query, by host_label.
    age_query: Query | None = None
    # Ours: the operator's mapping of label values to Nova hosts; group 1.
    host_regex: Annotated[str, pydantic.Field(min_length=1, max_length=1024)] | None = None
    # Ours: new boots are kept off hosts above this projected score.
    boot_ceiling: Ratio | None = None
    # Ours: what an instance uses over hours, mean and standard deviation, by
    # vm_profile_label and in vm_profile_unit. Pack foresees peaks with them.
    vm_mean_query: Query | None = None
    vm_deviation_query: Query | None = None
    # Ours: bytes a second that an instance writes to its memory, by vm_profile_label.
    # What a migration costs follows from it.
    vm_dirty_rate_query: Query | None = None
    peak_deviations: Annotated[float, pydantic.Field(ge=0.0, le=10.0, allow_inf_nan=False)] = 2.0
    # Ours, pack: intended mean fill of the hosts in use; share of surplus hosts from
    # which a host is emptied; fill above which a host gives. None: capacity_threshold.
    fill_target: Ratio | None = None
    fill_hysteresis: Ratio = 0.05
    relief_threshold: Ratio | None = None

    @pydantic.field_validator('weight', 'threshold', 'capacity_threshold', 'boot_ceiling',
                              'peak_deviations', 'fill_target', 'fill_hysteresis',
                              'relief_threshold', 'max_migrations_per_cycle', mode='before')
    @classmethod
    def _no_booleans(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError('true and false are not numbers')
        return value

    @pydantic.field_validator(*QUERIES)
    @classmethod
    def _not_blank(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError('the query is empty; write PromQL or leave the field out')
        return value

    @pydantic.field_validator('host_regex')
    @classmethod
    def _regex_with_a_group(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            groups = re.compile(value).groups
        except (re.error, OverflowError, RecursionError) as e:
            raise ValueError(f'not a regular expression: {e}') from None
        if groups < 1:
            raise ValueError('it needs one group, which captures the Nova host')
        return value

    @pydantic.model_validator(mode='after')
    def _check_consistency(self) -> Self:
        if self.mode == 'pack' and self.capacity_query is None:
            raise ValueError('a pack policy needs capacity_query: PromQL that returns each '
                             'host\'s utilisation, compared with capacity_threshold')
        if self.host_capacity_query is not None and self.host_capacity is not None:
            raise ValueError('host_capacity_query and host_capacity exclude each other; '
                             'keep one')
        if (self.vm_profile_unit == 'absolute' and self.host_capacity_query is None
                and self.host_capacity is None):
            raise ValueError('vm_profile_unit: absolute needs host_capacity_query or '
                             'host_capacity, else a usage cannot become a ratio')
        if self.fill_target is not None and self.fill_target > self.capacity_threshold:
            raise ValueError('fill_target is above capacity_threshold: hosts cannot be filled '
                             'that far; lower it')
        if (self.mode == 'pack' and self.relief_threshold is not None
                and self.relief_threshold < self.capacity_threshold):
            raise ValueError('relief_threshold is below capacity_threshold: hosts would be '
                             'filled and relieved in turn; raise it')
        for field in ('vm_mean_query', 'vm_deviation_query'):
            if getattr(self, field) is not None and self.vm_profile_query is None:
                raise ValueError(f'{field} needs vm_profile_query, what the instances use now')
        return self

    @property
    def target(self) -> float:
        """Mean fill that pack aims at."""
        return self.capacity_threshold if self.fill_target is None else self.fill_target

    @property
    def relieved_above(self) -> float:
        """Fill above which instances leave a host at once."""
        if self.relief_threshold is not None:
            return self.relief_threshold
        return self.capacity_threshold if self.mode == 'pack' else math.inf

    @property
    def queries(self) -> Mapping[str, str]:
        """Each query that is set, by field name."""
        return {f: q for f in QUERIES if (q := getattr(self, f)) is not None}

    @property
    def score_look(self) -> lookback.LookbackWindow:
        """Lookback of the query of its scores."""
        return lookback.parse_query(self.imbalance_query)

    @property
    def fill_look(self) -> lookback.LookbackWindow:
        """Lookback of the query that ceilings are compared with."""
        return lookback.parse_query(self.capacity_query or self.imbalance_query)

    @property
    def lookback_seconds(self) -> float:
        """Seconds over which its scores, fills and usages look back at most."""
        return max(self.score_look.total_seconds, self.fill_look.total_seconds,
                   lookback.compute_reach(self.vm_profile_query or ''))


class PolicySet(pydantic.BaseModel):
    """The policies of a whole file. Enabled weights sum to 1, all policies share one mode."""

    model_config = pydantic.ConfigDict(extra='forbid', frozen=True)

    policies: Annotated[tuple[Policy, ...], pydantic.Field(min_length=1)]
    # Ours: the aggregates this file is for; empty means every scope.
    aggregates: tuple[str, ...] = ()

    @pydantic.model_validator(mode='after')
    def _check_invariants(self) -> Self:
        names = [p.name for p in self.policies]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f'policy names must be unique; written twice: {", ".join(twice)}')
        modes = sorted({p.mode for p in self.policies})
        if len(modes) > 1:
            raise ValueError('spread and pack cannot be mixed in one file; '
                             'write a second file for a second engine')
        if not self.enabled_policies:
            raise ValueError('every policy is disabled; enable one, with threshold: 1.0 if nothing '
                             'is to be moved for the sake of load')
        total = math.fsum(p.weight for p in self.enabled_policies)
        if abs(total - 1.0) > WEIGHT_TOLERANCE:
            parts = ' + '.join(f'{p.name} {p.weight:g}' for p in self.enabled_policies)
            raise ValueError(f'the weights of the enabled policies must sum to 1.0, '
                             f'they sum to {total:g} ({parts})')
        return self

    @property
    def enabled_policies(self) -> tuple[Policy, ...]:
        return tuple(p for p in self.policies if p.enabled)

    @property
    def mode(self) -> Literal['spread', 'pack']:
        return self.policies[0].mode

    @property
    def move_budget(self) -> int:
        """Moves per cycle: the largest of the enabled policies'."""
        return max(p.max_migrations_per_cycle for p in self.enabled_policies)

    @property
    def lookback_seconds(self) -> float:
        """Seconds over which a query of the enabled policies looks back at most."""
        return max(p.lookback_seconds for p in self.enabled_policies)

    def find_policy(self, name: str) -> Policy:
        """Return the policy of that name.

        :raises KeyError: no such policy.
        """
        return {p.name: p for p in self.policies}[name]


def quote_label(name: str) -> str:
    """Return the label as PromQL needs it in ``by``: Prometheus 3 quotes all but plain names."""
    if re.fullmatch('[a-zA-Z_][a-zA-Z0-9_]*', name):
        return name
    return '"' + name.replace('\\', '\\\\').replace('"', '\\"') + '"'
