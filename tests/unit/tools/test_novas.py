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

"""tools/test novas installs the versions that it names."""

import ast
import configparser
import importlib.util
from pathlib import Path
import re

from packaging import requirements
import pytest

TOP = Path(__file__).resolve().parents[3]
SERIES = {'32': '14', '33': '15'}


def load(name):
    spec = importlib.util.spec_from_file_location(name, TOP / f'tools/{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


novas = load('novas')


def bounds():
    """Name -> lower bound, of requirements.txt and every extra."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    lines = (TOP / 'requirements.txt').read_text() + '\n'.join(setup['extras'].values())
    found = [requirements.Requirement(line.partition('#')[0].strip())
             for line in lines.splitlines() if line.partition('#')[0].strip()]
    return {one.name: next(iter(one.specifier)).version for one in found}


def functional_tests():
    """Names of the functional tests as stestr has them; nothing is imported."""
    classes = [(path.stem, found)
               for path in sorted((TOP / 'tests/functional').glob('test_*.py'))
               for found in ast.parse(path.read_text()).body if isinstance(found, ast.ClassDef)]
    return [f'tests.functional.{stem}.{found.name}.{method.name}' for stem, found in classes
            for method in found.body
            if isinstance(method, ast.FunctionDef) and method.name.startswith('test_')]


@pytest.mark.parametrize('series', SERIES)
def test_each_nova_has_its_own_placement_and_the_rest_of_constraints(series):
    merged = novas.pins(novas.constraints(series))
    assert merged['nova'].startswith(f'nova=={series}.')
    assert merged['openstack-placement'].startswith(f'openstack-placement=={SERIES[series]}.')
    theirs = novas.pins(novas.overlay(series).read_text())
    usual = novas.pins((TOP / 'constraints.txt').read_text())
    assert merged == usual | theirs
    assert not [line for name, line in theirs.items() if usual.get(name) == line]
    assert list(theirs.values()) == sorted(theirs.values(), key=str.lower)


def test_the_oldest_nova_is_tested_with_the_oldest_openstacksdk():
    oldest = bounds()
    assert min(SERIES) == oldest['nova'].partition('.')[0]
    pinned = novas.pins(novas.overlay(min(SERIES)).read_text())
    for name in ('keystoneauth1', 'openstacksdk', 'oslo.db', 'oslo.messaging', 'oslo.service',
                 'SQLAlchemy', 'stevedore'):
        assert f'{name}=={oldest[name]}' in pinned.values()


def test_the_part_runs_with_each_nova_and_selects_existing_tests():
    assert set(SERIES) == {path.name.split('-')[1]
                           for path in (TOP / 'tools').glob('nova-*-constraints.txt')}
    tests = functional_tests()
    assert 'tests.functional.test_base.' in ' '.join(tests) and len(tests) > 100
    lines = (TOP / 'tools/nova-tests.txt').read_text().splitlines()
    selected = [line for line in lines if not line.startswith('#')]
    assert '|' not in ''.join(selected)
    assert [line for line in selected if not any(re.search(line, name) for name in tests)] == []
