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

"""stevedore namespaces, and the loading of their plugins.

A plugin is a class and one line in its package's entry points. nova-scheduler loads all filters
and weighers; sources, strategies, executors and hooks are loaded by name.
"""

from typing import Any

from stevedore import driver
from stevedore import exception as exceptions
from stevedore import extension

from kronos_nova import exception

FILTERS = 'kronos_nova.filters'
WEIGHERS = 'kronos_nova.weighers'
SOURCES = 'kronos_nova.sources'
STRATEGIES = 'kronos_nova.strategies'
EXECUTORS = 'kronos_nova.executors'
HOOKS = 'kronos_nova.hooks'


def _raise_load_error(manager: Any, entry_point: Any, error: BaseException) -> None:
    raise error


def all_classes(namespace: str) -> list[type]:
    """Return every class of a namespace, in order of name.

    :raises ImportError: a plugin cannot be loaded; a scheduler must not start with half of its
        filters.
    """
    manager: extension.ExtensionManager[Any] = extension.ExtensionManager(
        namespace, on_load_failure_callback=_raise_load_error)
    return [ext.plugin for ext in sorted(manager, key=lambda ext: str(ext.name))]


def load_plugin(namespace: str, name: str) -> Any:
    """Return the plugin of that name.

    :raises PluginNotFound: the namespace has no such plugin.
    """
    try:
        manager: driver.DriverManager[Any] = driver.DriverManager(
            namespace, name, on_load_failure_callback=_raise_load_error)
    except exceptions.NoMatches:
        known = list_names(namespace)
        raise exception.PluginNotFound(
            namespace=namespace, name=name, found=', '.join(known) or 'none') from None
    return manager.driver


def list_names(namespace: str) -> list[str]:
    """Return the names of all plugins of a namespace, sorted."""
    manager: extension.ExtensionManager[Any] = extension.ExtensionManager(namespace)
    return sorted(manager.entry_points_names())
