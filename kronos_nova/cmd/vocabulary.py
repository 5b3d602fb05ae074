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

"""Which words of a configuration file are options of ours, and which were meant to be.

kronos.conf and nova.conf have groups that other programs and libraries read too: there
only what is nearly one of our words is said to be wrong.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import difflib
from typing import Any

from kronos_nova.conf import opts

#: Groups that Nova, oslo.db or a plug-in of keystoneauth has options in as well.
SHARED = ('nova', 'database', 'filter_scheduler')
#: Whatever begins with this in a shared group is meant for us.
PREFIX = 'kronos'
#: Nova's, and as near to [database] as a typing error would be.
NOT_MISSPELT = ('api_database',)
#: As difflib measures it; a letter left out of six, or two of them swapped.
NEAR = 0.8
#: The multipliers of Nova's own weighers end as ours do.
VERY_NEAR = 0.9

#: group -> {name, also an old one: (group, name) of today}
Known = dict[str, dict[str, tuple[str, str]]]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Our options, and those that others have in the groups we share with them."""

    ours: Known
    theirs: dict[str, frozenset[str]]

    def judge(self, sections: Mapping[str, Collection[str]]) -> Iterator[str]:
        """What is wrong with the options of a file, in the order of groups.

        :param sections: group -> names of its options, as written.
        :returns: a sentence on each, without the path of the file and without a value.
        """
        for group in sorted(sections):
            if group in self.ours:
                for name in sections[group]:
                    yield from self._option(group, name)
            elif group not in NOT_MISSPELT and (near := _nearest(group, self.ours, NEAR)):
                yield (f'[{group}] is no group of this release (is [{near}] meant?): its options '
                       'have no effect. Remove or correct it.')

    def _option(self, group: str, name: str) -> Iterator[str]:
        known, plain = self.ours[group], name.replace('-', '_')
        found = known.get(plain)
        if found == (group, plain) or plain in self.theirs.get(group, ()):
            return
        if found is not None:
            yield (f'[{group}] {name} is now called [{found[0]}] {found[1]}. Rename it.')
            return
        near = _nearest(plain, known, VERY_NEAR if group == 'filter_scheduler' else NEAR)
        if group in SHARED and near is None and not plain.startswith(PREFIX):
            return
        near = near or _nearest(plain, known, 0.6)
        hint = f' (is {near} meant?)' if near else ''
        yield (f'[{group}] {name} is no option of this release{hint}: it has no effect. Remove '
               'or correct it.')


def _nearest(word: str, words: Collection[str], cutoff: float) -> str | None:
    """The one of the words that is most like it, whatever its case; None when none is."""
    return next(iter(difflib.get_close_matches(word.lower(), words, 1, cutoff)), None)


def of_this_release() -> Vocabulary:
    """What the options that are registered now make; needs the extra ``rebalancer``."""
    from kronos_nova.conf import scheduler

    ours: Known = {}
    for group, options in (*opts.list_opts(), *scheduler.list_opts()):
        for option in options:
            today = (group, option.dest)
            ours.setdefault(group, {})[option.dest] = today
            for old in option.deprecated_opts:
                # Of a shared group only: in [DEFAULT] and the like they are Nova's too.
                if group not in SHARED or (old.group or group) in SHARED:
                    ours.setdefault(old.group or group, {}).setdefault(
                        (old.name or option.name).replace('-', '_'), today)
    return Vocabulary(ours, {'nova': _of_keystoneauth()})


def _of_keystoneauth() -> frozenset[str]:
    """Options of every way to log in, and of those who ask for a service by its type."""
    from keystoneauth1 import loading

    plugins: dict[str, Any] = loading.get_available_plugin_loaders()
    options = [option for plugin in plugins.values()
               for option in loading.get_auth_plugin_conf_options(plugin)]
    return frozenset(option.dest for option in (
        *options, *loading.get_adapter_conf_options(include_deprecated=True)))
