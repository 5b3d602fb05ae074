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

"""Dependencies: each has its reason in CONTRIBUTING.rst, a licence that we can hand on,
a lower bound that is kept, and a place in the bill of materials."""

import ast
import configparser
import functools
from importlib import metadata
import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

from packaging import requirements
from packaging import utils
from packaging import version
import pytest

from tests.deploy import checkers
from tests.unit import test_packaging
from tools import audit
from tools import image_requirements

TOP = Path(__file__).resolve().parents[2]
#: libvirt-python goes with the libvirt of a system; here it is one of Debian's. The tests use
#: psycopg2-binary, which needs no compiler.
NOT_INSTALLED = {'libvirt-python', 'psycopg2'}
#: Not ours to hand on: they are there, or an operator has asked for them by name.
NOT_OURS = {'nova', *NOT_INSTALLED}
#: SPDX identifiers. MPL-2.0 asks for changes of its own files alone (certifi).
ALLOWED = {
    '0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'CC0-1.0', 'ISC', 'MIT', 'MIT-0',
    'MIT-CMU', 'MPL-2.0', 'PSF-2.0', 'Unlicense', 'Zlib'}
#: What older metadata says instead, in classifiers and free text.
NAMED = {
    'LicenseRef-Repoze-BSD-derived': 'BSD-3-Clause',
    'Apache Software License': 'Apache-2.0', 'Apache 2.0': 'Apache-2.0',
    'BSD': 'BSD-3-Clause', 'BSD License': 'BSD-3-Clause', 'MIT License': 'MIT',
    'The MIT License (MIT)': 'MIT',
    'ISC License (ISCL)': 'ISC',
    'Mozilla Public License 2.0 (MPL 2.0)': 'MPL-2.0', 'Public Domain': 'CC0-1.0',
    'Python Software Foundation License': 'PSF-2.0', 'PSF': 'PSF-2.0'}


def _required() -> list[requirements.Requirement]:
    """Everything that requirements.txt and the extras name."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    texts = [(TOP / 'requirements.txt').read_text(), *setup['extras'].values()]
    return [requirements.Requirement(line) for text in texts
            for line in test_packaging._lines(text)]


def _names() -> set[str]:
    return {requirement.name for requirement in _required()}


def _table() -> dict[str, str]:
    """Package -> reason, of the table in CONTRIBUTING.rst."""
    rule, text = None, {}
    for line in (TOP / 'CONTRIBUTING.rst').read_text().splitlines():
        if re.fullmatch(r'=+ =+', line):
            rule = 0 if rule is None else rule + 1
        elif rule == 1:
            name, _, reason = line.partition(' ')
            if name:
                last = name
                text[name] = reason.strip()
            else:
                text[last] += ' ' + reason.strip()
    return text


def test_every_dependency_has_reason_and_no_row_is_stale():
    table = _table()
    assert set(table) == _names()
    assert list(table) == sorted(table, key=str.lower)
    assert all(len(reason) > 20 for reason in table.values()), table


def _licences(text: str) -> bool:
    """Whether an SPDX expression, or what older metadata writes, is allowed."""
    return any(all(NAMED.get(part, part.strip('()')) in ALLOWED
                   for part in re.split(r'\s+AND\s+|/', choice))
               for choice in re.split(r'\s+OR\s+|\s+or\s+', text.strip()))


def _licence(name: str) -> str:
    """What the metadata of an installed distribution says, as one expression."""
    found = metadata.distribution(name).metadata
    if found.get('License-Expression'):
        return found['License-Expression']
    classifiers = [text.rpartition('::')[2].strip() for text in found.get_all('Classifier') or []
                   if text.startswith('License ::')]
    named = [text for text in classifiers if text not in ('OSI Approved', 'DFSG approved')]
    stated = ' OR '.join(named) or (found.get('License') or '').partition('\n')[0]
    return stated or _title(name, found.get_all('License-File') or [])


def _title(name: str, files: list[str]) -> str:
    """The first line of a licence file, where the metadata only names the file."""
    for path in metadata.distribution(name).files or []:
        if path.name in files and path.parent.name in ('licenses', path.parts[0]):
            return path.read_text().strip().partition('\n')[0].strip()
    return 'none'


def test_every_dependency_has_allowed_licence():
    brought = test_packaging._closure(
        [requirement for requirement in _required() if requirement.name not in NOT_OURS])
    assert len(brought) > 40 and {'certifi', 'numpy', 'pymysql', 'pydantic-core'} <= brought
    assert {name: licence for name in sorted(brought)
            if not _licences(licence := _licence(name))} == {}


@pytest.mark.parametrize(('text', 'allowed'), [
    ('Apache-2.0', True), ('MIT AND PSF-2.0', True), ('GPL-3.0-only OR MIT', True),
    ('MIT AND GPL-3.0-only', False), ('LGPL-2.1', False), ('none', False), ('UNKNOWN', False),
    ('GNU General Public License (GPL)', False), ('BSD License', True),
    ('Proprietary OR Commercial', False)])
def test_licence_is_judged_by_whole_expression(text, allowed):
    assert _licences(text) is allowed


def _misstated(text: str) -> dict[str, tuple[str, str]]:
    """Requirement -> (licence in its comment, first one of its metadata), where they differ.

    What comes after the first is of what a package has built in, or another choice that it
    leaves: that may stand in the comment, too.
    """
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith('#'):
            wanted, _, stated = map(str.strip, line.partition('#'))
            name = requirements.Requirement(wanted).name
            if name in NOT_INSTALLED:
                continue
            whole = _licence(name)
            first = re.split(r'\s+(?:AND|OR)\s+', whole)[0]
            if whole != stated and NAMED.get(stated, stated) != NAMED.get(first, first):
                found[name] = (stated, first)
    return found


def test_licence_comment_matches_package_metadata():
    """The comment that OpenStack's requirements check reads."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    for text in ((TOP / 'requirements.txt').read_text(), *setup['extras'].values()):
        assert _misstated(text) == {}


def test_misstated_licence_is_found():
    assert _misstated('requests>=2.30.0 # MIT\nnumpy>=1.26.0 # BSD\ntenacity>=9.0.0\n') == {
        'requests': ('MIT', 'Apache Software License'), 'tenacity': ('', 'Apache-2.0')}


def test_lower_constraints_equal_lower_bounds():
    done = subprocess.run([sys.executable, 'tools/check_lower_constraints.py'], cwd=TOP,
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, '')
    done = subprocess.run([sys.executable, 'tools/check_lower_constraints.py', '--installed'],
                          cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 1, 'here are the newest versions, not the oldest'
    assert 'the bound is' in done.stdout


#: Package -> the first version without a known vulnerability, and the advisory for the one
#: before it. urllib3 is what requests and keystoneauth1 bring.
SAFE = {
    'requests': ('2.32.4', 'CVE-2024-47081'), 'Jinja2': ('3.1.6', 'CVE-2025-27516'),
    'PyMySQL': ('1.1.1', 'CVE-2024-36039'), 'urllib3': ('2.6.3', 'CVE-2026-21441')}


def test_lower_bounds_exclude_known_vulnerable_versions():
    admitted = {each.name: each.specifier for each in _required()}
    for name, (safe, advisory) in SAFE.items():
        (lower,) = (each.version for each in admitted[name] if each.operator == '>=')
        assert version.Version(lower) >= version.Version(safe), f'{name}: {advisory}'


def test_image_requirements_are_complete_and_pinned_by_hash():
    text = image_requirements.FILE.read_text()
    constraints = (TOP / 'constraints.txt').read_text()
    assert image_requirements.find_problems(text, constraints) == []
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    wanted = [requirements.Requirement(line) for source in (
        (TOP / 'requirements.txt').read_text(),
        *(setup['extras'][name] for name in image_requirements.EXTRAS))
        for line in test_packaging._lines(source)]
    assert test_packaging._closure(wanted) <= set(image_requirements.read_pins(text))


def test_unhashed_or_unpinned_image_requirement_is_found():
    text = image_requirements.FILE.read_text()
    constraints = (TOP / 'constraints.txt').read_text()
    name, pinned = re.search(r'^(requests)==(\S+)', text, re.MULTILINE).groups()
    changed = text.replace(f'{name}=={pinned}', f'{name}==2.0')
    assert image_requirements.find_problems(changed, constraints) == [
        f'requests: 2.0 here, {pinned} in constraints.txt']
    bare = re.sub(r'(?m)^requests==(\S+).*\n(    --hash.*\n)+', r'requests==\1\n', text)
    assert image_requirements.find_problems(bare, constraints) == [
        f'requests=={pinned}: no hash']


CLEAN = (0, '', 'WARNING:pip_audit._cli:x\nNo known vulnerabilities found\n')
FOUND = (1, 'jinja2 3.1.2 CVE-2025-27516 3.1.6\n', 'Found 1 known vulnerability in 1 package\n')
UNREACHABLE = (1, '', "Traceback (most recent call last):\nrequests.exceptions.ConnectionError: "
                      "Failed to resolve 'api.osv.dev'\n")
SKIPPED = (1, '', 'ERROR:pip_audit._cli:alembic: Dependency not found on PyPI and could not be '
                  'audited: alembic (1.13.0)\n')


@pytest.mark.parametrize(('results', 'status', 'printed'), [
    ((CLEAN, CLEAN), 0, 'no known vulnerability'), ((CLEAN, FOUND), 1, 'Found 1 known'),
    ((FOUND, UNREACHABLE), 1, 'Found 1 known'), ((CLEAN, UNREACHABLE), 3, 'audit: not done: '),
    ((SKIPPED, CLEAN), 3, 'audit: not done: '), (((0, '', ''), CLEAN), 3, 'said nothing')])
def test_audit_without_answer_never_passes(results, status, printed, capsys):
    """The texts are those of pip-audit 2.10.1."""
    answers = iter(subprocess.CompletedProcess((), *result) for result in results)
    assert audit.audit((), lambda command: next(answers)) == status
    assert printed in capsys.readouterr().out


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    """What a file imports when it is imported, and every package above; tests import names
    of modules, so each name may be one."""
    found, todo = set(), [*ast.parse(path.read_text()).body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, 'module', None)
            names = [f'{module}.{a.name}' if module else a.name for a in node.names]
            found |= {name[:end] for name in names
                      for end in (*(m.start() for m in re.finditer(r'\.', name)), len(name))}
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += ast.iter_child_nodes(node)
    return frozenset(found)


def _reaches_nova(path: Path) -> bool:
    seen, todo = {path}, [path]
    while todo:
        for name in _imported(todo.pop()):
            if name == 'nova':
                return True
            at = TOP / name.replace('.', '/')
            ours = {file for file in (at / '__init__.py', at.with_suffix('.py')) if file.exists()}
            todo += ours - seen
            seen |= ours
    return False


def test_lower_constraints_ignores_exactly_tests_importing_nova():
    """Any other test that wants Nova says so by the marker needs_nova."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(TOP / 'tox.ini')
    command = tox['testenv:lower-constraints']['commands']
    assert '-m "not long and not mutant and not needs_nova"' in command
    assert not re.search(r'--deselect|\s-k\s', command)
    ignored = [TOP / path for path in re.findall(r'--ignore=(\S+)', command)]
    assert [path for path in ignored if not path.exists()] == []
    tests = [path for part in ('unit', 'scenarios')
             for path in (TOP / 'tests' / part).rglob('test_*.py')]
    assert {path for path in tests if any(path.is_relative_to(each) for each in ignored)} == {
        path for path in tests if _reaches_nova(path)}


#: Stands in for pip in tox: notes its arguments, a line each.
NOTE = 'import json, sys; open(sys.argv[1], "a").write(json.dumps(sys.argv[2:]) + "\\n")'
#: What tox and the build backend read of this tree.
READ = ('tox.ini', 'setup.cfg', 'setup.py', 'pyproject.toml', 'README.rst', 'LICENSE',
        'requirements.txt', 'test-requirements.txt', 'doc/requirements.txt',
        'constraints.txt', 'lower-constraints.txt', 'tools/lower-requirements.txt',
        'tests/deploy/checkers-requirements.txt', 'kronos_nova/__init__.py')


@pytest.fixture(scope='module')
def installs(tmp_path_factory) -> dict[str, list[list[str]]]:
    """Environment -> what tox would have pip install into it, call by call.

    In a copy of this tree, with upper constraints as Zuul hands them over.
    """
    home = tmp_path_factory.mktemp('tox')
    for name in READ:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, home / name)
    (home / 'upper-constraints.txt').write_text('requests===2.99.9\n')
    notes = home / 'notes'
    note = f"python -c '{NOTE}' {notes} {{envname}} {{packages}}"
    (site,) = (checkers.home() / 'lib').glob('python3.*/site-packages')
    environments = ('functional', 'functional-nova32', 'lower-constraints', 'sbom')
    done = subprocess.run(
        [checkers.program('tox'), '--notest', '-q', '-e', ','.join(environments),
         '-x', f'testenv.install_command={note}',
         # In CI tox lists what is there, with a pip that is not.
         '-x', 'testenv.list_dependencies_command=python -c pass',
         # What the build backend asks for is here.
         '-x', f'pkgenv.install_command={note}',
         '-x', f'pkgenv.set_env=PYTHONPATH={site}\nPBR_VERSION=1.0'],
        cwd=home, capture_output=True, text=True, check=False,
        env={**os.environ, 'TOX_CONSTRAINTS_FILE': str(home / 'upper-constraints.txt'),
             'VIRTUALENV_NO_SEED': '1'})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not os.path.lexists(home / '.venv'), 'tools/test makes its environment there'
    found: dict[str, list[list[str]]] = {name: [] for name in environments}
    for line in notes.read_text().splitlines():
        name, *arguments = json.loads(line)
        if '--no-deps' not in arguments:
            found.setdefault(name, []).append(arguments)
    return found


def _constraints(arguments: list[str], home: Path = TOP) -> set[str]:
    """Return the pins of the constraints files in pip's arguments, and of included files."""
    words = re.findall(r'-c\s*(\S+)', '\n'.join(arguments).replace('-c\n', '-c '))
    found: set[str] = set()
    for path in (home / word for word in words):
        lines = path.read_text().splitlines()
        found |= {line for line in lines if re.match(r'[\w.-]+==', line)}
        found |= _constraints([line for line in lines if line.startswith('-c')], path.parent)
    return found


@pytest.mark.parametrize(('environment', 'calls', 'pin'), [
    ('functional', 2, 'requests===2.99.9'), ('functional-nova32', 1, None),
    ('lower-constraints', 2, 'numpy==1.26.0'), ('sbom', 1, None)])
def test_tox_constrains_all_its_requirements(installs, environment, calls, pin):
    """tox 4 does not constrain the requirements of the package by default."""
    assert len(installs[environment]) == calls
    for arguments in installs[environment]:
        pins = _constraints(arguments)
        assert pins, arguments
        assert pin is None or pin in pins, arguments
    brought = ' '.join(installs[environment][-1])
    assert ('oslo.messaging>=' in brought) == (calls == 2)


@pytest.mark.long
def test_bill_of_materials_names_installed_packages(tmp_path):
    """Of this environment, by the program that ``tox -e sbom`` runs."""
    output = tmp_path / 'kronos-nova.cdx.json'
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(TOP / 'tox.ini')
    command = tox['testenv:sbom']['commands'].strip().splitlines()[-1].split()
    done = subprocess.run(
        [checkers.program(command[0]), *command[1:-2], str(output), sys.executable],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bom = json.loads(output.read_text())
    assert (bom['bomFormat'], bom['specVersion']) == ('CycloneDX', '1.6')
    listed = {utils.canonicalize_name(component['name']): component
              for component in bom['components']}
    brought = test_packaging._closure(_required())
    assert brought <= set(listed)
    for name in brought:
        assert listed[name]['version'] == metadata.version(name)
        assert listed[name]['purl'].startswith('pkg:pypi/')
