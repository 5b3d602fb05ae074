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

"""Plug-ins are found by namespace and name, and a broken one is not hidden."""

import pytest

from kronos_nova import exception
from kronos_nova import plugins
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import base


@pytest.mark.parametrize('name', planner.ORDER)
def test_a_strategy_is_loaded_by_name(name):
    strategy = plugins.load_plugin(plugins.STRATEGIES, name)
    assert issubclass(strategy, base.Strategy)
    assert strategy.__name__.lower() == name


def test_all_classes_come_in_order_of_their_names():
    found = plugins.all_classes(plugins.STRATEGIES)
    assert [c.__name__ for c in found] == sorted(c.__name__ for c in found)
    assert {c.__name__.lower() for c in found} >= set(planner.ORDER)


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(exception.PluginNotFound) as caught:
        plugins.load_plugin(plugins.STRATEGIES, 'roulette')
    assert "'roulette'" in str(caught.value) and 'evacuate, pack' in str(caught.value)


def test_an_empty_namespace_says_none():
    with pytest.raises(exception.PluginNotFound, match='found: none'):
        plugins.load_plugin('kronos_nova.nothing', 'x')
    assert plugins.all_classes('kronos_nova.nothing') == []


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """An installed package whose plug-in cannot be imported."""
    info = tmp_path / 'broken-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text(
        '[kronos_nova.broken]\nbad = no_such_module_of_ours:Thing\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    # stevedore keeps entry points for the life of the process.
    monkeypatch.setattr('stevedore.extension.ExtensionManager.ENTRY_POINT_CACHE', {})
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


def test_a_plugin_that_cannot_be_imported_is_an_error(broken):
    with pytest.raises(ImportError, match='no_such_module_of_ours'):
        plugins.all_classes('kronos_nova.broken')
    with pytest.raises(ImportError, match='no_such_module_of_ours'):
        plugins.load_plugin('kronos_nova.broken', 'bad')
