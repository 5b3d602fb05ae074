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

"""A reader of plain YAML from untrusted sources.

It refuses, with the line: aliases and anchors (a small text can stand for gigabytes), tags,
duplicate keys, a second document, too many values, too deep a nesting. An operator's file may use
anchors and aliases, within the same limits.
"""

from typing import Any

import yaml

#: The remedy of a fault that has no better one.
_CORRECT = 'Correct the YAML there.'


class PlainYamlError(Exception):
    """A fault of a YAML text; ``line`` counts from 1. None: no place is known."""

    def __init__(self, problem: str, line: int | None, remedy: str = _CORRECT) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.remedy = remedy


class SpelledInteger(int):
    """A whole number, and ``spelling``, its text in the YAML."""

    spelling: str


class SpelledHexadecimal(SpelledInteger):
    """A number that was written with 0x."""


class SpelledFloat(float):
    """A number, and ``spelling``, its text in the YAML."""

    spelling: str


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys."""


def _construct_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    line_by_key: dict[Any, int] = {}
    out = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, 'a key must be plain text', key_node.start_mark)
        key = loader.construct_object(key_node)
        if key in line_by_key:
            raise yaml.constructor.ConstructorError(
                None, None, f'key {key!r} is written twice (first on line {line_by_key[key]})',
                key_node.start_mark)
        line_by_key[key] = key_node.start_mark.line + 1
        out[key] = loader.construct_object(value_node, deep=True)
    return out


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


class _SpellingLoader(_StrictLoader):
    """Loader that keeps the spelling of numbers, and reads dates as text."""


def _construct_integer(loader: _SpellingLoader, node: yaml.ScalarNode) -> SpelledInteger:
    kind = SpelledHexadecimal if node.value.lstrip('+-').startswith('0x') else SpelledInteger
    spelled = kind(loader.construct_yaml_int(node))
    spelled.spelling = node.value
    return spelled


def _construct_float(loader: _SpellingLoader, node: yaml.ScalarNode) -> SpelledFloat:
    spelled = SpelledFloat(loader.construct_yaml_float(node))
    spelled.spelling = node.value
    return spelled


def _construct_date(loader: _SpellingLoader, node: yaml.ScalarNode) -> str:
    return str(node.value)


_SpellingLoader.add_constructor('tag:yaml.org,2002:int', _construct_integer)
_SpellingLoader.add_constructor('tag:yaml.org,2002:float', _construct_float)
_SpellingLoader.add_constructor('tag:yaml.org,2002:timestamp', _construct_date)


class LinedMapping(dict[Any, Any]):
    """A mapping whose ``lines`` say where each key was written, counted from 1."""

    lines: dict[Any, int]


class _SharingLoader(yaml.SafeLoader):
    """SafeLoader for anchors and merge keys; the same key twice must have the same value."""


def _construct_shared(loader: _SharingLoader, node: yaml.MappingNode) -> LinedMapping:
    _refuse_collections(node)
    own = [pair for pair in node.value if pair[0].tag != 'tag:yaml.org,2002:merge']
    loader.flatten_mapping(node)
    out = LinedMapping()
    out.lines = {}
    written: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        _refuse_collections(node)
        key = loader.construct_object(key_node)
        value = loader.construct_object(value_node, deep=True)
        if any(key_node is mine for mine, _ in own):
            if key in written and written[key] != value:
                raise yaml.constructor.ConstructorError(
                    None, None, f'key {key!r} is written twice (first on line {out.lines[key]})',
                    key_node.start_mark, note='Keep one of the two.')
            written[key] = value
        out[key] = value
        out.lines[key] = key_node.start_mark.line + 1
    return out


def _refuse_collections(node: yaml.MappingNode) -> None:
    for key_node, _value in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, 'a key must be plain text', key_node.start_mark)


_SharingLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_shared)

#: YAML's own tags: each makes a plain value.
_PLAIN_TAGS = frozenset(['!', *(f'tag:yaml.org,2002:{name}' for name in (
    'str', 'int', 'float', 'bool', 'null', 'seq', 'map', 'timestamp', 'binary', 'set', 'omap',
    'pairs'))])


def load_shared(text: str, *, depth: int, nodes: int) -> Any:
    """Return the content of a text that may have anchors, merge keys and YAML's own tags.

    Mappings are :class:`LinedMapping`.

    :param depth: of nesting, at most, with shared parts counted in each of their places.
    :param nodes: keys, values and collections, at most, counted in the same way.
    :raises PlainYamlError: the text is not such a document.
    """
    loader: _SharingLoader | None = None
    try:
        _check(text, depth, nodes, shared=True)
        loader = _SharingLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_expanded_size(root, depth, nodes)
        return loader.construct_document(root)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, LookupError,
            AttributeError) as e:
        # PyYAML raises the last ones for a text that its tag wrongly calls a number or a date.
        raise _build_error(e) from None
    finally:
        if loader is not None:
            loader.dispose()


def _check_expanded_size(root: yaml.Node, deepest: int, most: int) -> None:
    """Refuse a document whose aliases exceed the limits; add sizes, copy nothing."""
    sizes: dict[int, tuple[int, int]] = {}
    entered: set[int] = set()

    def measure_node(node: yaml.Node) -> tuple[int, int]:
        if id(node) in sizes:
            return sizes[id(node)]
        line = node.start_mark.line + 1
        if id(node) in entered:
            raise PlainYamlError('an alias stands for what contains it', line,
                                 'Write the value in place of the alias.')
        entered.add(id(node))
        size, height = 1, 0
        if isinstance(node, yaml.CollectionNode):
            for part in node.value:
                for child in part if isinstance(part, tuple) else (part,):
                    more, below = measure_node(child)
                    size += more
                    height = max(height, below)
            height += 1
        if size > most:
            raise PlainYamlError(f'it holds more than {most} values', line)
        if height > deepest:
            raise PlainYamlError('it is nested too deeply', line)
        sizes[id(node)] = size, height
        return sizes[id(node)]

    measure_node(root)


def load_yaml(text: str, *, depth: int, nodes: int, spelling: bool = False) -> Any:
    """Return the content of a text.

    :param depth: of nesting, at most.
    :param nodes: keys, values and collections, at most.
    :param spelling: read numbers as :class:`SpelledInteger`, :class:`SpelledHexadecimal` (with
        0x) or :class:`SpelledFloat`, and dates as text.
    :raises PlainYamlError: the text is not plain YAML, or exceeds a limit.
    """
    loader: _StrictLoader | None = None
    try:
        _check(text, depth, nodes)
        loader = (_SpellingLoader if spelling else _StrictLoader)(text)
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as e:
        raise _build_error(e) from None
    finally:
        if loader is not None:
            loader.dispose()


def _build_error(error: Exception) -> PlainYamlError:
    mark = getattr(error, 'problem_mark', None)
    problem = getattr(error, 'problem', None) or (
        str(error).splitlines() or [type(error).__name__])[0]
    return PlainYamlError(str(problem), mark.line + 1 if mark is not None else None,
                          getattr(error, 'note', None) or _CORRECT)


def _check(text: str, deepest: int, most: int, *, shared: bool = False) -> None:
    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark is not None else None
        if not shared and (isinstance(event, yaml.AliasEvent) or getattr(event, 'anchor', None)):
            raise PlainYamlError('anchors and aliases are not allowed', line)
        tag = getattr(event, 'tag', None)
        if tag is not None and not (shared and tag in _PLAIN_TAGS):
            raise PlainYamlError(f'the tag {tag} is not allowed' if shared
                                 else 'tags are not allowed', line, 'Remove the tag.')
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > most:
            raise PlainYamlError(f'it holds more than {most} values', line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > deepest:
                raise PlainYamlError('it is nested too deeply', line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
