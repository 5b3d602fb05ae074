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

"""The option ``--set``: options of nova.conf with another value for this process."""

from collections.abc import Iterable
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova.conf import scheduler

#: Groups to search for a name without a group, in this order.
GROUPS = ('filter_scheduler', scheduler.GROUP.name)

#: Options of ours that nova.conf may repeat.
REPEATED = frozenset((scheduler.GROUP.name, opt.dest) for opt in scheduler.OPTS if opt.multi)

#: (group, name, value) of options before they were overridden.
Taken = list[tuple[str, str, Any]]


def parse_setting(conf: cfg.ConfigOpts, texts: Iterable[str]) -> list[tuple[str, str, str]]:
    """Parse ``NAME=VALUE`` or ``GROUP.NAME=VALUE`` into (group, name, value).

    :raises WeighError: the option does not exist, or explains nothing.
    """
    parsed_settings = []
    for text in texts:
        name, sign, value = text.partition('=')
        name = name.strip().replace('-', '_')
        if not sign or not name:
            raise _make_setting_error(text, 'it is not NAME=VALUE', 'Write for example '
                                                       'kronos_weight_multiplier=2')
        group, _, short = name.rpartition('.')
        groups = [group] if group else [g for g in GROUPS
                                        if short in list_settable_options(conf, g)]
        if not groups or short not in list_settable_options(conf, groups[0]):
            names = sorted(list_settable_options(conf, group)
                           or list_settable_options(conf, GROUPS[0]))
            raise _make_setting_error(text,
                                      f'{name} is neither a multiplier in [filter_scheduler] or '
                               '[metrics] nor an option of ours',
                                      f'Name one of {", ".join(names)}')
        parsed_settings.append((groups[0], short, value.strip()))
    return parsed_settings


def list_settable_options(conf: cfg.ConfigOpts, group: str) -> set[str]:
    """Return the options of a group that may be set."""
    if group == scheduler.GROUP.name:
        return {opt.dest for opt in scheduler.OPTS}
    if group == 'filter_scheduler':
        ours = {opt.dest for opt in scheduler.FILTER_SCHEDULER_OPTS}
        return ours | {name for name in conf.filter_scheduler if name.endswith('_multiplier')}
    return {'weight_multiplier'} if group == 'metrics' else set()


def apply_settings(conf: cfg.ConfigOpts, wanted: Iterable[tuple[str, str, str]]) -> Taken:
    """Override all options for this process, or no option when one fails.

    :returns: the values before, for :func:`restore_options`.
    :raises WeighError: the option does not accept a value.
    """
    lists: dict[tuple[str, str], list[str]] = {}
    for group, name, value in wanted:
        lists.setdefault((group, name), []).append(value)
    former_options: Taken = []
    try:
        for (group, name), values in lists.items():
            former_options.append((group, name, conf[group][name]))
            _override_option(conf, group, name, values)
    except BaseException:
        restore_options(conf, former_options)
        raise
    return former_options


def _override_option(conf: cfg.ConfigOpts, group: str, name: str, values: list[str]) -> None:
    # An option that may be repeated in nova.conf may be repeated here.
    repeats = (group, name) in REPEATED
    try:
        conf.set_override(name, values if repeats
                          else _parse_option_value(conf, group, name, values[-1]),
                          group)
    except (ValueError, TypeError) as e:
        raise _make_setting_error(f'{name}={values[-1]}', ' '.join(str(e).split()),
                                  'Give a value that nova.conf may have') from e


def _parse_option_value(conf: cfg.ConfigOpts, group: str, name: str, value: str) -> object:
    if isinstance(conf[group][name], bool):
        text = value.lower()
        if text not in ('true', 'false', 'yes', 'no', 'on', 'off', '1', '0'):
            raise ValueError(f'{value!r} is neither true nor false')
        return text in ('true', 'yes', 'on', '1')
    return value


def restore_options(conf: cfg.ConfigOpts, former_options: Taken) -> None:
    """Restore the values that :func:`apply_settings` returned."""
    for group, name, value in former_options:
        conf.set_override(name, value, group)


def _make_setting_error(text: str, problem: str, remedy: str) -> exception.WeighError:
    return exception.WeighError(what=f'--set {text}', problem=problem, remedy=remedy)
