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


"""The names of rules that code can produce, read from the code itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[2] / 'kronos_nova'


def produced(folder: str = '') -> set[str]:
    """By every module below a folder of kronos_nova."""
    return {name for path in (TOP / folder).rglob('*.py')
            for node in ast.walk(ast.parse(path.read_text())) for name in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    """Of Rejection('name', ...), rule='name', MigrationProgress(..., 'name') and
    rejections['name']."""
    if isinstance(node, ast.Call):
        called = getattr(node.func, 'attr', getattr(node.func, 'id', ''))
        if called == 'Rejection':
            yield from _texts(node.args[:1])
        if called == 'MigrationProgress':
            yield from _texts(node.args[3:4])
        yield from _texts([k.value for k in node.keywords if k.arg == 'rule'])
    elif isinstance(node, ast.Subscript):
        if getattr(node.value, 'attr', getattr(node.value, 'id', '')) in ('rejections', 'dropped'):
            yield from _texts([node.slice])


def _texts(expressions: list[ast.expr]) -> Iterator[str]:
    for node in expressions:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value
