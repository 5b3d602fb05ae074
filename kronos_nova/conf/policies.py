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

"""Reads the policy file: YAML from an operator, checked before it is parsed.

Refused with one clear error: a file over 1 MiB, aliases and anchors (a small
file can stand for gigabytes), tags, duplicate keys, a second document.
"""

import os
from typing import Any

import yaml

from kronos_nova import exception
from kronos_nova import policy

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
#: Keys, values and lists; hundreds of policies have less.
MAX_NODES = 20_000


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses what a policy file has no use for."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    out = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, 'a key must be plain text', key_node.start_mark)
        key = loader.construct_object(key_node)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f'key {key!r} is written twice (first on line {seen[key]})',
                key_node.start_mark)
        seen[key] = key_node.start_mark.line + 1
        out[key] = loader.construct_object(value_node, deep=True)
    return out


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(path: str) -> policy.PolicySet:
    """Read and validate a policy file.

    :raises PolicyFileError: names file, line or field, and remedy.
    """
    return policy.parse(document(path), path)


def document(path: str) -> Any:
    """What a policy file holds, not validated yet.

    :raises PolicyFileError: it cannot be read, or is no YAML of ours.
    """
    return _document(path, _read(path))


def _read(path: str) -> str:
    try:
        with open(path, 'rb') as f:
            data = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise exception.PolicyFileError(
            path=path, field='file', problem=f'it cannot be read ({os.strerror(e.errno or 0)})',
            remedy='Correct policies_file or the file\'s permissions.') from None
    if len(data) > MAX_BYTES:
        raise exception.PolicyFileError(
            path=path, field='file', problem='it is larger than 1 MiB',
            remedy='Name the policy file, not another one.')
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError as e:
        line = data[:e.start].count(b'\n') + 1
        raise exception.PolicyFileError(
            path=path, field=f'line {line}', problem='it is not UTF-8 text',
            remedy='Save the file as UTF-8.') from None


def _document(path: str, text: str) -> Any:
    loader: _Loader | None = None
    try:
        depth = nodes = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, 'anchor', None):
                raise yaml.YAMLError(_Marked('anchors and aliases are not allowed', event))
            if getattr(event, 'tag', None) is not None:
                raise yaml.YAMLError(_Marked('tags are not allowed', event))
            nodes += isinstance(event, yaml.NodeEvent)
            if nodes > MAX_NODES:
                raise yaml.YAMLError(_Marked(f'it holds more than {MAX_NODES} values', event))
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    raise yaml.YAMLError(_Marked('it is nested too deeply', event))
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        loader = _Loader(text)
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as e:
        line, problem = _where(e)
        raise exception.PolicyFileError(
            path=path, field=f'line {line}' if line else 'document', problem=problem,
            remedy='Correct the YAML there.') from None
    finally:
        if loader is not None:
            loader.dispose()


class _Marked:
    """A problem with its place, carried by a YAMLError."""

    def __init__(self, problem: str, event: Any) -> None:
        self.problem = problem
        self.line = event.start_mark.line + 1


def _where(error: Exception) -> tuple[int | None, str]:
    if error.args and isinstance(error.args[0], _Marked):
        return error.args[0].line, error.args[0].problem
    mark = getattr(error, 'problem_mark', None)
    problem = getattr(error, 'problem', None) or str(error).splitlines()[0]
    return (mark.line + 1 if mark is not None else None), str(problem)
