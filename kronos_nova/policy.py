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

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import difflib
import math
import re
from typing import Annotated, Any, Literal, Self

import pydantic

from kronos_nova import exception
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
#: Fields of early releases of Kronos that 0.2.0 ignored, and the settings that replace them.
_MOVED = {'aggregate': '[engine] aggregates in kronos.conf selects the scopes to plan, and '
                       'aggregates in this file the scopes that it applies to',
          'cooldown': '[engine] cooldown in kronos.conf is obeyed'}
#: difflib's ratio from which a name counts as a misspelt field.
_LIKENESS = 0.8


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
    def window(self) -> float:
        """Seconds over which its scores, fills and usages look back at most."""
        return max(self.score_look.total, self.fill_look.total,
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
        if not self.enabled:
            raise ValueError('every policy is disabled; enable one, with threshold: 1.0 if nothing '
                             'is to be moved for the sake of load')
        total = math.fsum(p.weight for p in self.enabled)
        if abs(total - 1.0) > WEIGHT_TOLERANCE:
            parts = ' + '.join(f'{p.name} {p.weight:g}' for p in self.enabled)
            raise ValueError(f'the weights of the enabled policies must sum to 1.0, '
                             f'they sum to {total:g} ({parts})')
        return self

    @property
    def enabled(self) -> tuple[Policy, ...]:
        return tuple(p for p in self.policies if p.enabled)

    @property
    def mode(self) -> Literal['spread', 'pack']:
        return self.policies[0].mode

    @property
    def budget(self) -> int:
        """Moves per cycle: the largest of the enabled policies'."""
        return max(p.max_migrations_per_cycle for p in self.enabled)

    @property
    def window(self) -> float:
        """Seconds over which a query of the enabled policies looks back at most."""
        return max(p.window for p in self.enabled)

    def policy(self, name: str) -> Policy:
        """Return the policy of that name.

        :raises KeyError: no such policy.
        """
        return {p.name: p for p in self.policies}[name]


@dataclasses.dataclass(frozen=True, slots=True)
class IgnoredField:
    """A field without effect: Kronos 0.2.0 ignored it, and so do we."""

    field: str
    line: int | None
    problem: str

    def __str__(self) -> str:
        where = f'line {self.line}: ' if self.line is not None else ''
        return f'{where}{self.field}: {self.problem}'


def quote_label(name: str) -> str:
    """Return the label as PromQL needs it in ``by``: Prometheus 3 quotes all but plain names."""
    if re.fullmatch('[a-zA-Z_][a-zA-Z0-9_]*', name):
        return name
    return '"' + name.replace('\\', '\\\\').replace('"', '\\"') + '"'


def find_ignored(mapping: Any) -> list[IgnoredField]:
    """List the fields of a valid file that have no effect."""
    return _split_ignored(mapping)[1] if isinstance(mapping, Mapping) else []


def _split_ignored(mapping: Mapping[Any, Any]) -> tuple[dict[Any, Any], list[IgnoredField]]:
    """Split a file into the fields that count and those that cannot change a decision.

    A field that resembles one of ours is kept with the former: it was meant to count, so that
    validation must refuse it.
    """
    ignored: list[IgnoredField] = []
    kept = _keep_fields(mapping, mapping, (), list(PolicySet.model_fields), ignored)
    entries = kept.get('policies')
    if isinstance(entries, list | tuple):
        kept['policies'] = [
            _keep_fields(mapping, entry, ('policies', index), list(Policy.model_fields), ignored)
            if isinstance(entry, Mapping) else entry for index, entry in enumerate(entries)]
    return kept, ignored


def _keep_fields(document: Mapping[Any, Any], entry: Mapping[Any, Any],
                 place: tuple[int | str, ...], known: list[str],
                 ignored: list[IgnoredField]) -> dict[Any, Any]:
    lines: Mapping[Any, int] = getattr(entry, 'lines', {})
    kept = {}
    for field, value in entry.items():
        problem = _judge_field(field, value, known)
        if problem is None:
            kept[field] = value
            continue
        ignored.append(IgnoredField(
            field_name((*place, _show_key(field)), document), lines.get(field), problem))
    return kept


def _show_key(field: Any) -> str:
    try:
        return _shorten_text(str(field))
    except ValueError:  # a whole number of thousands of digits
        return type(field).__name__


def _judge_field(field: Any, value: Any, known: list[str]) -> str | None:
    """Return why a field has no effect; None when it counts, or is refused."""
    if field != 'imbalance_query' and field in QUERIES and value == '':
        return 'an empty query is taken as none'
    if field in known:
        return None
    if field in _MOVED:
        return f'it has no effect: {_MOVED[field]}'
    if isinstance(field, str) and _find_likely(field, known) is not None:
        return None
    return 'no such field; it has no effect'


def _find_likely(field: str, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(field.lower().replace('-', '_'), known, 1, _LIKENESS)
    return found[0] if found else None


def parse(mapping: Any, path: str = 'policies.yaml') -> PolicySet:
    """Validate the content of a policy file.

    :param mapping: the parsed document.
    :param path: for the error's text only.
    :raises PolicyFileError: names the first wrong field and the remedy.
    """
    checked = _require_mapping(mapping, path)
    try:
        return PolicySet.model_validate(_split_ignored(checked)[0])
    except pydantic.ValidationError as e:
        first, *others = _list_errors(e, mapping, path)
        if others:
            first.kwargs['remedy'] += f' ({len(others)} more errors.)'
        raise type(first)(**first.kwargs) from None


def list_problems(mapping: Any, path: str) -> list[exception.PolicyFileError]:
    """Return everything that :func:`parse` would refuse; empty for a valid file.

    Rules between fields are checked only once each field is right.
    """
    try:
        PolicySet.model_validate(_split_ignored(_require_mapping(mapping, path))[0])
    except pydantic.ValidationError as e:
        return _list_errors(e, mapping, path)
    except exception.PolicyFileError as e:
        return [e]
    return []


def _require_mapping(mapping: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(mapping, Mapping):
        raise exception.PolicyFileError(
            path=path, field='document', problem='it is not a mapping',
            remedy='Begin the file with "policies:" and a list below it.')
    return mapping


def _list_errors(error: pydantic.ValidationError, mapping: Mapping[str, Any],
                 path: str) -> list[exception.PolicyFileError]:
    errors = error.errors(include_url=False, include_context=False)
    # When all policies are invalid, pydantic also reports an empty list.
    errors = [e for e in errors if not (
        len(errors) > 1 and e['type'] == 'too_short' and mapping.get('policies'))]
    errors.sort(key=lambda error: error['type'] != 'extra_forbidden')
    return [exception.PolicyFileError(
        path=path, field=field_name(found['loc'], mapping), problem=_format_problem(found),
        remedy=_format_remedy(found)) for found in errors]


def field_name(loc: tuple[int | str, ...], mapping: Mapping[str, Any]) -> str:
    """Format pydantic's location as ``policies[1] (cpu).weight``."""
    out = ''
    node: Any = mapping
    for part in loc:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            node = None
        if isinstance(part, int):
            name = node.get('name') if isinstance(node, Mapping) else None
            out += f'[{part}]' + (f' ({_shorten_text(name)})' if isinstance(name, str) and name
                                  else '')
        else:
            out += f'.{_shorten_text(part)}' if out else _shorten_text(part)
    return out or 'policies'


def _shorten_text(text: str) -> str:
    """Return the first 128 characters of a text as one printable line."""
    line = ''.join(c if c.isprintable() else '?' for c in text[:128])
    return line if len(text) <= 128 else f'{line}...'


def _format_problem(error: Any) -> str:
    message = str(error['msg']).removeprefix('Value error, ')
    kind = error['type']
    if kind == 'extra_forbidden':
        return 'no such field'
    if kind == 'too_short':
        return 'the list is empty'
    if kind == 'missing':
        return 'the field is missing'
    if _concerns_label(error):
        message = 'A label has one character at least, and no control characters'
    try:
        shown = repr(error.get('input'))
    except ValueError:  # a whole number of thousands of digits
        return message
    if kind == 'value_error' or len(shown) > 80:
        return message
    return f'{message[0].lower()}{message[1:]}, not {shown}'


def _concerns_label(error: Any) -> bool:
    return (error['type'] == 'string_pattern_mismatch'
            and error['loc'][-1] in ('host_label', 'vm_profile_label'))


def _format_remedy(error: Any) -> str:
    if _concerns_label(error):
        return 'Write the label that names hosts or instances in the answer of the query.'
    if error['type'] == 'extra_forbidden':
        where = Policy if len(error['loc']) > 1 else PolicySet
        likely = _find_likely(str(error['loc'][-1]), where.model_fields)
        if likely is not None:
            return f'Write {likely}, or remove it.'
        fields = ', '.join(Policy.model_fields)
        return f'Correct or remove it; the fields of a policy are: {fields}.'
    return 'Correct the field and load the file again.'
