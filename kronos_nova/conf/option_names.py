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

"""The names of options, and the search for misspelt options in configuration files.

Other programs and libraries also read some groups of kronos.conf and nova.conf: there, only a
name close to a known option is reported. An unknown group of nova.conf may belong to any program;
each group of kronos.conf belongs to us or to a library.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import difflib
import glob
from importlib import metadata
import logging as std_logging
import os
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova.conf import nova as nova_conf
from kronos_nova.conf import opts
from kronos_nova.conf import scheduler

LOG = logging.getLogger(__name__)

#: Groups in which Nova, oslo.db or a plug-in of keystoneauth has options as well.
SHARED = ('nova', 'database', 'filter_scheduler')
#: Prefix of the options in a shared group that are meant for us.
PREFIX = 'kronos'
#: Groups of Nova whose names are as close to ours ([database]) as a typing error.
NOT_MISSPELT = ('api_database',)
#: A file with a group of KRONOS_CONF and without any of NOVA_CONF is a kronos.conf.
KRONOS_CONF = frozenset({'engine', 'executor', 'messaging', 'monitoring'})
NOVA_CONF = frozenset({'filter_scheduler', 'api_database'})
#: Groups whose options are read without being registered, or registered by others.
ANYWHERE = frozenset({'DEFAULT', 'profiler'})
#: Options that name groups: the group of a login, the groups of further configuration.
NAMING = (('nova', 'auth_section'), ('DEFAULT', 'config_source'))
#: difflib's ratio of similar names; five letters of six, or six with two swapped, reach it.
NEAR = 0.8
#: The ratio for multipliers: those of Nova's own weighers end as ours do.
VERY_NEAR = 0.9


@dataclasses.dataclass(frozen=True, slots=True)
class NameFinding:
    """A sentence on an option or group that has no effect as it is written.

    ``certain``: no plug-in and no other service can read it.
    """

    text: str
    certain: bool
    group: str
    name: str = ''

    def __str__(self) -> str:
        return f'[{self.group}] {self.name}'.rstrip()


#: group -> {current or old name: current (group, name)}
Known = dict[str, dict[str, tuple[str, str]]]


@dataclasses.dataclass(frozen=True)
class KnownOptions:
    """Known options: ``ours``, ``theirs`` in shared groups, and those of ``libraries``."""

    ours: Known
    theirs: dict[str, frozenset[str]]
    libraries: dict[str, frozenset[str]]

    def find_unknown_options(
            self, sections: Mapping[str, Mapping[str, Collection[str]]]) -> Iterator[NameFinding]:
        """Find the options and groups of a file that have no effect, in the order of groups.

        :param sections: group -> names of its options, as written -> values.
        :returns: a sentence on each, without the path of the file and without a value.
        """
        alone = not KRONOS_CONF.isdisjoint(sections) and NOVA_CONF.isdisjoint(sections)
        named = {value.strip() for group, name in NAMING
                 for written in sections.get(group, {}).get(name, ())
                 for value in written.split(',')}
        for group in sorted(sections):
            if group in self.ours:
                for name in sections[group]:
                    for text in self._judge_option(group, name):
                        yield NameFinding(text, group not in SHARED, group, name)
            elif alone and group in self.libraries:
                for name in sections[group]:
                    for text in self._is_library_group(group, name):
                        yield NameFinding(text, False, group, name)
            elif group not in NOT_MISSPELT and (near := _find_nearest(group, self.ours, NEAR)):
                yield NameFinding(
                    f'[{group}] is no group of this release (is [{near}] meant?): its options '
                    'have no effect. Remove or correct it.', near not in SHARED, group)
            elif alone and group not in ANYWHERE | named:
                near = _find_nearest(group, self.libraries, NEAR)
                hint = f' (is [{near}] meant?)' if near else ''
                yield NameFinding(
                    f'[{group}] is a group of neither this release nor its libraries{hint}: '
                    'its options have no effect, unless a plug-in of yours reads them. Remove '
                    'or correct it.', False, group)

    def _is_library_group(self, group: str, name: str) -> Iterator[str]:
        known, plain = self.libraries[group], name.replace('-', '_')
        near = None if plain in known else _find_nearest(plain, known, VERY_NEAR)
        if near is not None:
            yield (f'[{group}] {name} is no option (is {near} meant?): it has no effect. Remove '
                   'or correct it.')

    def _judge_option(self, group: str, name: str) -> Iterator[str]:
        known, plain = self.ours[group], name.replace('-', '_')
        current = known.get(plain)
        if group == nova_conf.GROUP.name and plain in nova_conf.IGNORED:
            yield (f'[{group}] {name} is an option of keystoneauth that has no effect here. '
                   'Remove it.')
            return
        if current == (group, plain) or plain in self.theirs.get(group, ()):
            return
        if current is not None:
            yield (f'[{group}] {name} is now called [{current[0]}] {current[1]}. Rename it.')
            return
        near = _find_nearest(plain, known, VERY_NEAR if group == 'filter_scheduler' else NEAR)
        if group in SHARED and near is None and not plain.startswith(PREFIX):
            return
        near = near or _find_nearest(plain, known, 0.6)
        hint = f' (is {near} meant?)' if near else ''
        yield (f'[{group}] {name} is no option of this release{hint}: it has no effect. Remove '
               'or correct it.')


def read_sections(files: Iterable[str]) -> Iterator[tuple[str, dict[str, dict[str, list[str]]]]]:
    """Yield the path and {group: {option: values}} of each configuration file."""
    for path in files:
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(path, sections).parse()
        yield path, sections


def judge_files(files: Iterable[str]) -> Iterator[tuple[str, NameFinding]]:
    """Yield the path and each finding of the files that a configuration was read from."""
    known = of_this_release()
    for path, sections in read_sections(files):
        for finding in known.find_unknown_options(sections):
            yield path, finding


def read_files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the paths that a configuration was read from: files first, then directories."""
    files = list(conf.config_file or [])
    for directory in conf.config_dir or []:
        files += sorted(glob.glob(os.path.join(directory, '*.conf')))
    return files


def warn_of_misspelt(conf: cfg.ConfigOpts) -> None:
    """Log a warning for each option and group that has no effect as it is written."""
    for path, finding in judge_files(read_files(conf)):
        LOG.warning('%s: %s', path, finding.text)


def _find_nearest(word: str, words: Collection[str], cutoff: float) -> str | None:
    """Return the one of ``words`` that is most similar to ``word`` in lower case, or None."""
    return next(iter(difflib.get_close_matches(word.lower(), words, 1, cutoff)), None)


def of_this_release() -> KnownOptions:
    """Build the vocabulary of this release's options; needs the extra ``rebalancer``."""
    ours: Known = {}
    for group, options in (*opts.list_opts(), *scheduler.list_opts()):
        for option in options:
            today = (group, option.dest)
            ours.setdefault(group, {})[option.dest] = today
            for old in option.deprecated_opts:
                # Only inside shared groups: in [DEFAULT] and the like the old names are Nova's too.
                if group not in SHARED or (old.group or group) in SHARED:
                    ours.setdefault(old.group or group, {}).setdefault(
                        (old.name or option.name).replace('-', '_'), today)
    return KnownOptions(ours, {'nova': _of_keystoneauth()}, _of_libraries())


def _of_libraries() -> dict[str, frozenset[str]]:
    """Return group -> options, with their old names, of the OpenStack libraries installed here."""
    options_by_group: dict[str, set[str]] = {}
    for point in metadata.entry_points(group='oslo.config.opts'):
        if not point.name.startswith(('oslo.', 'keystonemiddleware')):
            continue
        try:
            listed = point.load()()
        except Exception as e:  # the library of an optional back end is not installed
            LOG.debug('Options of %s are not known: %s', point.name, e)
            continue
        for group, options in listed:
            for option in options:
                _add_option_names(options_by_group, str(group or 'DEFAULT'), option)
    return {group: frozenset(names) for group, names in options_by_group.items()}


def _add_option_names(options_by_group: dict[str, set[str]], group: str, option: cfg.Opt) -> None:
    options_by_group.setdefault(group, set()).add(option.dest)
    for old in option.deprecated_opts:
        options_by_group.setdefault(old.group or group, set()).add(
            (old.name or option.name).replace('-', '_'))


@contextlib.contextmanager
def _silence_library(library: str) -> Iterator[None]:
    """Silence the log of a library: plug-ins without their optional dependencies are expected."""
    log = std_logging.getLogger(library)
    before = log.level
    log.setLevel(std_logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _of_keystoneauth() -> frozenset[str]:
    """Return the options of keystoneauth's login plug-ins and of its adapters."""
    # nova-scheduler may lack the extra "rebalancer".
    from keystoneauth1 import loading  # noqa: PLC0415

    with _silence_library('stevedore'):
        plugins: dict[str, Any] = loading.get_available_plugin_loaders()
    options = [option for plugin in plugins.values()
               for option in loading.get_auth_plugin_conf_options(plugin)]
    return frozenset(option.dest for option in (
        *options, *loading.get_adapter_conf_options(include_deprecated=True)))
