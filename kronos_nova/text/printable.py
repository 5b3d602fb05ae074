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

"""Printable forms of text from outside: names of tenants and arguments may hold anything."""


def format_printable(cell: object) -> str:
    """Return a cell's text; unprintable characters become ``?``, as names may hold anything."""
    if cell is None:
        return '-'
    if isinstance(cell, float):
        return f'{cell:.4f}'
    return ''.join(c if c.isprintable() else '?' for c in str(cell))


def format_lines(text: str) -> str:
    """Return lines of text as printable lines."""
    return '\n'.join(map(format_printable, text.split('\n')))


def format_single_line(text: str) -> str:
    """Return an argument, which may hold any bytes, as one line of Unicode."""
    return ' '.join(text.encode('utf-8', 'replace').decode().split())
