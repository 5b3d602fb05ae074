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

"""Refuse words that hide who acts and on what; part of tools/test lint.

Reads docstrings, comments and strings of kronos_nova, docstrings and comments of tools,
docstrings and names of tests, the pages of the documentation, release notes, the templates of
the report, and the texts of alerts and dashboards.
tools/words-allowed.yaml has the exceptions: path pattern -> ``reason``, and ``phrases`` that are
right there or how many findings are left to rewrite at ``most``. One that finds nothing is a
problem too, so that the list only shrinks.

Usage: check_words.py [FILE ...]. Without files all are checked; with files each finding is
shown, also an allowed one.
"""

import ast
import collections
from collections.abc import Iterator
import fnmatch
import io
from pathlib import Path
import re
import subprocess
import sys
import tokenize
from typing import Any

import yaml

TOP = Path(__file__).resolve().parent.parent
ALLOWED = TOP / 'tools/words-allowed.yaml'
#: Advice -> phrases that it is about.
PHRASES = {
    'name the actor': (
        'nobody', 'somebody', 'anybody', 'whoever', 'whom'),
    'name the thing': (
        'of it', 'of them', 'of those', 'of these', 'what is', 'what was', 'what has', 'what had',
        'what they', 'what it', 'what we', 'what others', 'whatever'),
    'use the active voice with its subject': (
        'is told', 'are told', 'is said', 'are said', 'is asked', 'are asked', 'is had', 'be had',
        'to be true'),
    'use the usual word': (
        'anew', 'thereby', 'therewith', 'hence', 'by then', 'by itself', 'in its way', 'goes by',
        'go by', 'comes of', 'came of', 'became of', 'as it stands', 'than not', 'no news'),
    'write "no ..." with its verb': (
        'there is no', 'is none', 'and none'),
}
ADVICE = {phrase: advice for advice, phrases in PHRASES.items() for phrase in phrases}
#: Only a sentence begins with a capital letter: "is None" is Python's.
FOUND = re.compile(r'\b(?:' + '|'.join(
    f'[{phrase[0]}{phrase[0].upper()}]{phrase[1:]}' for phrase in sorted(ADVICE)) + r')\b')


def split_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each comment; one comment may have several lines."""
    start, last, texts = 0, -1, []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and texts:
            yield start, ' '.join(texts)
            texts = []
        if not texts:
            start = token.start[0]
        last = token.start[0]
        texts.append(token.string.lstrip('#:! '))
    if texts:
        yield start, ' '.join(texts)


def read_python(source: str, strings: bool, comments: bool,
                names: bool) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, and of further texts as asked.

    :param strings: all strings, docstrings or not.
    :param names: names of functions and classes, with spaces for underscores.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if names and not isinstance(node, ast.Module):
                yield node.lineno, node.name.replace('_', ' ')
            if not strings and ast.get_docstring(node, clean=False):
                yield node.body[0].lineno, ast.get_docstring(node, clean=False) or ''
        elif strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    if comments:
        yield from split_comments(source)


def read_markup(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each paragraph of a page, a note or a template."""
    line = 1
    for paragraph in re.split(r'(\n\s*\n)', source):
        yield line, paragraph
        line += paragraph.count('\n')


def read_texts(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that the rules hold for, with the lines where they begin."""
    if path.endswith('.html'):
        # Statements of Jinja are code; each stands in one line.
        yield from read_markup(re.sub(r'{%.*?%}', '', source))
    elif not path.endswith('.py'):
        yield from read_markup(source)
    elif path.startswith('tests/'):
        yield from read_python(source, strings=False, comments=False, names=True)
    else:
        ours = path.startswith('kronos_nova/')
        yield from read_python(source, strings=ours, comments=True, names=False)


def find_phrases(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the phrase of each finding in a file."""
    for first, text in read_texts(path, source):
        for match in FOUND.finditer(re.sub(r'\s', ' ', text)):
            # A string of several literals has its line breaks elsewhere: its first line then.
            yield first + text.count('\n', 0, match.start()), match[0].lower()


def list_files() -> list[str]:
    """Return the files that the rules hold for, relative to the top."""
    output = subprocess.run(
        ['git', 'ls-files', '--cached', '--others', '--exclude-standard', 'kronos_nova/*.py',
         'tools/*.py', 'tests/*.py', '*.rst', 'releasenotes/notes/*.yaml', 'kronos_nova/*.html',
         'deploy/prometheus/*.rules', 'deploy/grafana/*.json'],
        cwd=TOP, check=True, capture_output=True, text=True).stdout
    return sorted(path for path in set(output.splitlines()) if (TOP / path).exists())


def check_allowances(allowances: dict[str, Any], counts: dict[str, int]) -> Iterator[str]:
    """Yield the problems of the list itself.

    :param counts: findings by the pattern that allows them.
    """
    for pattern, allowance in allowances.items():
        count, most = counts.get(pattern, 0), allowance.get('most', sys.maxsize)
        if not allowance.get('reason'):
            yield f'{ALLOWED.name}: {pattern} has no reason'
        if not count:
            yield f'{ALLOWED.name}: {pattern} finds nothing; remove it'
        elif count > most:
            yield (f'{pattern}: {count} findings, and {ALLOWED.name} allows {most}; show them '
                   'with check_words.py FILE and rewrite the new ones')


def check_files(paths: list[str], allowances: dict[str, Any]) -> list[str]:
    """Return the problems of the files, and those of the list of allowances."""
    problems = []
    counts: dict[str, int] = collections.Counter()
    for path in paths:
        matching = [pattern for pattern in allowances if fnmatch.fnmatch(path, pattern)]
        for line, phrase in find_phrases(path, (TOP / path).read_text()):
            allowing = [pattern for pattern in matching
                        if phrase in allowances[pattern].get('phrases', [phrase])]
            if allowing:
                counts[allowing[0]] += 1
            else:
                problems.append(f'{path}:{line}: "{phrase}": {ADVICE[phrase]}')
    return problems + list(check_allowances(allowances, counts))


def main() -> int:
    paths = sys.argv[1:]
    problems = check_files(paths or list_files(),
                           {} if paths else yaml.safe_load(ALLOWED.read_text()))
    for problem in problems:
        print(problem)
    return int(bool(problems))


if __name__ == '__main__':
    sys.exit(main())
