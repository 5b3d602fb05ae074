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

"""Plain YAML of somebody else, read so that it can do no harm.

Refused, with the line: aliases and anchors (a small text can stand for gigabytes), tags,
duplicate keys, a second document, too many values, too deep a nesting.
"""

from typing import Any

import yaml


class PlainYamlError(Exception):
    """``line`` counts from 1 and is None where no place is known."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


class Hexadecimal(int):
    """A number that was written with 0x."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that takes no key twice."""


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


class _Spelling(_Loader):
    """Also tells how numbers were written."""


def _integer(loader: _Spelling, node: yaml.ScalarNode) -> int:
    found = loader.construct_yaml_int(node)
    return Hexadecimal(found) if node.value.lstrip('+-').startswith('0x') else found


_Spelling.add_constructor('tag:yaml.org,2002:int', _integer)


def load(text: str, *, depth: int, nodes: int, spelling: bool = False) -> Any:
    """What the text says.

    :param depth: of nesting, at most.
    :param nodes: keys, values and collections, at most.
    :param spelling: numbers that were written with 0x are :class:`Hexadecimal`.
    :raises PlainYamlError: it is none of ours.
    """
    loader: _Loader | None = None
    try:
        _check(text, depth, nodes)
        loader = (_Spelling if spelling else _Loader)(text)
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as e:
        mark = getattr(e, 'problem_mark', None)
        problem = getattr(e, 'problem', None) or (str(e).splitlines() or [type(e).__name__])[0]
        raise PlainYamlError(
            str(problem), mark.line + 1 if mark is not None else None) from None
    finally:
        if loader is not None:
            loader.dispose()


def _check(text: str, deepest: int, most: int) -> None:
    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark is not None else None
        if isinstance(event, yaml.AliasEvent) or getattr(event, 'anchor', None):
            raise PlainYamlError('anchors and aliases are not allowed', line)
        if getattr(event, 'tag', None) is not None:
            raise PlainYamlError('tags are not allowed', line)
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > most:
            raise PlainYamlError(f'it holds more than {most} values', line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > deepest:
                raise PlainYamlError('it is nested too deeply', line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
