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

"""Catalogue of the hooks of one executor: which are installed, and which a task may bring."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import plugins
from kronos_nova.rebalancer.hooks import base


class HookCatalogue:
    """Hooks by name, each made when first needed.

    :param make: returns the hook of a name; raises PluginNotFound or ConfigError.
    :param allowed: names of the hooks that may begin; None: all.
    """

    def __init__(self, make: Callable[[str], base.Hook],
                 allowed: frozenset[str] | None = None) -> None:
        self._make = make
        self._allowed = allowed
        self._hooks: dict[str, base.Hook] = {}

    @classmethod
    def load_hooks(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> 'HookCatalogue':
        """Make the installed hooks that are enabled or that a task may bring.

        They are made at once: some have to listen for a while before they are of use.

        :raises PluginNotFound: a hook is not installed.
        :raises ConfigError: a hook cannot be used.
        """
        known = dict.fromkeys((*conf.hooks.enabled, *conf.hooks.on_request))

        def load_hook(name: str) -> base.Hook:
            hook: base.Hook = plugins.load_plugin(plugins.HOOKS, name).create(conf, connect)
            return hook

        catalogue = cls(load_hook, frozenset(known))
        for name in known:
            catalogue[name]
        return catalogue

    def __getitem__(self, name: str) -> base.Hook:
        """Return a hook that may begin.

        :raises NotAllowed: the options do not allow it before a migration.
        """
        if self._allowed is not None and name not in self._allowed:
            raise base.NotAllowed(problem='is in neither [hooks] enabled nor on_request')
        return self.find_installed_hook(name)

    def find_installed_hook(self, name: str) -> base.Hook:
        """Return a hook, even one that may not begin any more: it ends its earlier work."""
        if name not in self._hooks:
            self._hooks[name] = self._make(name)
        return self._hooks[name]

    def close(self) -> None:
        for hook in self._hooks.values():
            hook.close()


def build_catalogue(hooks: Mapping[str, base.Hook]) -> HookCatalogue:
    """Build a catalogue of existing hooks: for tests, simulations, and workers without hooks."""
    def find_hook(name: str) -> base.Hook:
        try:
            return hooks[name]
        except KeyError:
            raise exception.PluginNotFound(
                namespace=plugins.HOOKS, name=name, found=', '.join(sorted(hooks))) from None
    return HookCatalogue(find_hook)
