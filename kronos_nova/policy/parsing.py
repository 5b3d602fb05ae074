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

"""Validation of a policy file's content, and the errors that name each wrong field.

A file may have fields that Kronos 0.2.0 ignored and that cannot change a decision: they are listed,
not refused.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import difflib
from typing import Any

import pydantic

from kronos_nova import exception
from kronos_nova.policy import schema

#: Fields of early releases of Kronos that 0.2.0 ignored, and the settings that replace them.
_MOVED = {'aggregate': '[engine] aggregates in kronos.conf selects the scopes to plan, and '
                       'aggregates in this file the scopes that it applies to',
          'cooldown': '[engine] cooldown in kronos.conf is obeyed'}
#: difflib's ratio from which a name counts as a misspelt field.
_LIKENESS = 0.8


@dataclasses.dataclass(frozen=True, slots=True)
class IgnoredField:
    """A field without effect: Kronos 0.2.0 ignored it, and so do we."""

    field: str
    line: int | None
    problem: str

    def __str__(self) -> str:
        where = f'line {self.line}: ' if self.line is not None else ''
        return f'{where}{self.field}: {self.problem}'


def find_ignored(mapping: Any) -> list[IgnoredField]:
    """List the fields of a valid file that have no effect."""
    return _split_ignored(mapping)[1] if isinstance(mapping, Mapping) else []


def _split_ignored(mapping: Mapping[Any, Any]) -> tuple[dict[Any, Any], list[IgnoredField]]:
    """Split a file into the fields that count and those that cannot change a decision.

    A field that resembles one of ours is kept with the former: it was meant to count, so that
    validation must refuse it.
    """
    ignored: list[IgnoredField] = []
    used_fields = _keep_fields(mapping, mapping, (), list(schema.PolicySet.model_fields), ignored)
    entries = used_fields.get('policies')
    if isinstance(entries, list | tuple):
        known = list(schema.Policy.model_fields)
        used_fields['policies'] = [
            _keep_fields(mapping, entry, ('policies', index), known, ignored)
            if isinstance(entry, Mapping) else entry for index, entry in enumerate(entries)]
    return used_fields, ignored


def _keep_fields(document: Mapping[Any, Any], entry: Mapping[Any, Any],
                 place: tuple[int | str, ...], known: list[str],
                 ignored: list[IgnoredField]) -> dict[Any, Any]:
    lines: Mapping[Any, int] = getattr(entry, 'lines', {})
    used_fields = {}
    for field, value in entry.items():
        problem = _judge_field(field, value, known)
        if problem is None:
            used_fields[field] = value
            continue
        ignored.append(IgnoredField(
            format_location((*place, _show_key(field)), document), lines.get(field), problem))
    return used_fields


def _show_key(field: Any) -> str:
    try:
        return _shorten_text(str(field))
    except ValueError:  # a whole number of thousands of digits
        return type(field).__name__


def _judge_field(field: Any, value: Any, known: list[str]) -> str | None:
    """Return why a field has no effect; None when it counts, or is refused."""
    if field != 'imbalance_query' and field in schema.QUERIES and value == '':
        return 'an empty query is taken as none'
    if field in known:
        return None
    if field in _MOVED:
        return f'it has no effect: {_MOVED[field]}'
    if isinstance(field, str) and _find_likely(field, known) is not None:
        return None
    return 'no such field; it has no effect'


def _find_likely(field: str, known: Iterable[str]) -> str | None:
    matches = difflib.get_close_matches(field.lower().replace('-', '_'), known, 1, _LIKENESS)
    return matches[0] if matches else None


def parse_policies(mapping: Any, path: str = 'policies.yaml') -> schema.PolicySet:
    """Validate the content of a policy file.

    :param mapping: the parsed document.
    :param path: for the error's text only.
    :raises PolicyFileError: names the first wrong field and the remedy.
    """
    checked = _require_mapping(mapping, path)
    try:
        return schema.PolicySet.model_validate(_split_ignored(checked)[0])
    except pydantic.ValidationError as e:
        first, *others = _list_errors(e, mapping, path)
        if others:
            first.kwargs['remedy'] += f' ({len(others)} more errors.)'
        raise type(first)(**first.kwargs) from None


def list_problems(mapping: Any, path: str) -> list[exception.PolicyFileError]:
    """Return everything that :func:`parse_policies` would refuse; empty for a valid file.

    Rules between fields are checked only once each field is right.
    """
    try:
        schema.PolicySet.model_validate(_split_ignored(_require_mapping(mapping, path))[0])
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
        path=path, field=format_location(detail['loc'], mapping), problem=_format_problem(detail),
        remedy=_format_remedy(detail)) for detail in errors]


def format_location(loc: tuple[int | str, ...], mapping: Mapping[str, Any]) -> str:
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
        where = schema.Policy if len(error['loc']) > 1 else schema.PolicySet
        likely = _find_likely(str(error['loc'][-1]), where.model_fields)
        if likely is not None:
            return f'Write {likely}, or remove it.'
        fields = ', '.join(schema.Policy.model_fields)
        return f'Correct or remove it; the fields of a policy are: {fields}.'
    return 'Correct the field and load the file again.'
