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

"""What setup.cfg and the requirements promise, read from the tree."""

import configparser
from importlib import metadata
from importlib import util
from pathlib import Path
import subprocess
import sys

from packaging import requirements
from packaging import utils
import pytest

TOP = Path(__file__).resolve().parents[2]
#: The only packages that a nova-scheduler image may have to add for us: pydantic
#: and what it needs. requests and tenacity, for Prometheus, Nova has itself.
NEW_IN_A_NOVA_IMAGE = {
    'annotated-types', 'pydantic', 'pydantic-core', 'pymemcache', 'typing-inspection'}


def _setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    return setup


def _lines(text: str) -> list[str]:
    lines = (line.split('#')[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _entry_points() -> list[tuple[str, str]]:
    """(name, module:attribute) of every entry point in setup.cfg."""
    return [tuple(part.strip() for part in line.split('='))
            for text in _setup()['entry_points'].values() for line in _lines(text)]


def _closure(wanted: list[requirements.Requirement]) -> set[str]:
    """Return the names that installing ``wanted`` brings, from the installed distributions."""
    extras: dict[str, set[str]] = {}
    todo = list(wanted)
    while todo:
        requirement = todo.pop()
        name = utils.canonicalize_name(requirement.name)
        if name in extras and requirement.extras <= extras[name]:
            continue
        extras[name] = extras.get(name, set()) | requirement.extras
        for text in metadata.distribution(name).requires or []:
            needed = requirements.Requirement(text)
            if needed.marker is None or any(
                    needed.marker.evaluate({'extra': extra}) for extra in {'', *extras[name]}):
                todo.append(needed)
    return set(extras)


@pytest.mark.needs_nova
def test_a_nova_scheduler_image_gets_few_new_packages():
    ours = [requirements.Requirement(line)
            for line in _lines((TOP / 'requirements.txt').read_text())]
    nova = _closure([requirements.Requirement('nova')])
    assert _closure(ours) - nova == NEW_IN_A_NOVA_IMAGE


def test_our_lower_bounds_admit_what_nova_has():
    for line in _lines((TOP / 'requirements.txt').read_text()):
        requirement = requirements.Requirement(line)
        assert requirement.specifier.contains(metadata.version(requirement.name))


@pytest.mark.long
@pytest.mark.needs_nova
@pytest.mark.parametrize(('name', 'target'), _entry_points(), ids=lambda value: value)
def test_every_entry_point_can_be_imported_alone(name, target):
    module, _, attribute = target.partition(':')
    # In a process of its own: a filter imports nova, which must not shape other tests.
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c',
         f'import {module}' + (f'; assert callable({module}.{attribute})' if attribute else '')],
        cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs_nova
def test_every_module_can_be_imported_and_entry_points_lead_to_attributes():
    # alembic alone imports env.py, with a context; a WSGI server imports wsgi.py, which then reads
    # the configuration.
    code = """
import importlib, pkgutil, sys, kronos_nova
for module in pkgutil.walk_packages(kronos_nova.__path__, 'kronos_nova.'):
    if module.name not in ('kronos_nova.rebalancer.store.migrations.env', 'kronos_nova.api.wsgi'):
        importlib.import_module(module.name)
        print(module.name)
for target in sys.argv[1:]:
    module, _, attribute = target.partition(':')
    # OpenStackClient takes a module.
    assert not attribute or callable(getattr(sys.modules[module], attribute)), target
"""
    targets = [target for _name, target in _entry_points()]
    assert len(targets) > 50
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code, *targets], cwd=TOP,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 200


def test_every_plugin_namespace_is_one_that_the_code_loads():
    from kronos_nova.cli import plugin

    namespaces = {name for name in _setup()['entry_points']
                  if name.startswith('kronos_nova.') and name != 'kronos_nova.cli'}
    assert namespaces == set(plugin.NAMESPACES)


def test_every_layer_of_the_contract_names_existing_modules():
    setup = _setup()
    for section in ('importlinter:contract:layers', 'importlinter:contract:rebalancer-layers'):
        container = setup[section]['containers'].strip()
        for name in setup[section]['layers'].replace('|', ' ').replace(':', ' ').split():
            assert util.find_spec(f'{container}.{name}'), f'{container}.{name}'


def test_help_names_every_part_without_preparing_anything():
    done = subprocess.run(['tools/test', '--help'], cwd=TOP, capture_output=True, text=True,
                          check=True)
    for part in ('lint', 'unit', 'functional', 'integration', 'docs', 'package', 'pythons',
                 'novas', 'long'):
        assert f'\n  {part} ' in done.stdout
    assert 'bootstrap:' not in done.stdout + done.stderr


def test_unknown_part_is_refused_by_name_before_preparing_anything():
    done = subprocess.run(['tools/test', 'unit', 'intergation'], cwd=TOP, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert 'intergation' in done.stderr
    assert 'bootstrap:' not in done.stdout + done.stderr
