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

"""Checks of files for ``kronos-status upgrade check``.

Each check returns a code of oslo.upgradecheck and the problems with their remedies: names of
options, never values.
"""

from collections.abc import Iterator
import difflib
from importlib import metadata
import re
from typing import Any

from oslo_config import cfg

from kronos_nova.conf import option_names

ANCESTOR = 'kronos-openstack'
NOVA_FILTERS = 'nova.scheduler.filters.all_filters'
NOVA_WEIGHERS = 'nova.scheduler.weights.all_weighers'
OUR_FILTERS = 'kronos_nova.filters.all_filters'
CAPACITY_FILTER = 'KronosCapacityFilter'
OUR_WEIGHERS = 'kronos_nova.weighers.all_weighers'
SOFT_WEIGHERS = frozenset(
    f'nova.scheduler.weights.affinity.ServerGroupSoft{kind}Weigher'
    for kind in ('Affinity', 'AntiAffinity'))
GROUP_FILTERS = ('ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter')
#: Nova's default of enabled_filters (34.0.0), which a set option replaces.
DEFAULT_FILTERS = ('ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
                   *GROUP_FILTERS)
#: Nova's options, as Nova has them: it need not be installed here.
NOVA_OPTS = (
    cfg.MultiStrOpt('available_filters', default=[NOVA_FILTERS]),
    cfg.ListOpt('enabled_filters', default=list(DEFAULT_FILTERS)),
    cfg.ListOpt('weight_classes', default=[NOVA_WEIGHERS]))

Verdict = tuple[str, str]


def make_check_result(failures: list[str], warnings: list[str]) -> Verdict:
    """Return (code, details): the worst code, and all problems."""
    code = 'FAILURE' if failures else 'WARNING' if warnings else 'SUCCESS'
    return code, ' '.join(failures + warnings)


def check_options(files: list[str]) -> Verdict:
    """Warn of options in the files that look like ours but are not options of this release.

    :param files: readable configuration files; a nova.conf may be among them.
    """
    return make_check_result([], [f'{path}: {finding.text}'
                                  for path, finding in option_names.judge_files(files)])


def check_nova(arguments: list[str]) -> Verdict:
    """Check nova.conf's filters and weighers, comparing names as Nova does: by string.

    :param arguments: the ``--config-file`` and ``--config-dir`` arguments.
    """
    conf = cfg.ConfigOpts()
    conf.register_opts(NOVA_OPTS, group='filter_scheduler')
    conf(arguments, project='kronos', default_config_files=[], default_config_dirs=[])
    group = conf.filter_scheduler
    available, weighers = group.available_filters, group.weight_classes
    enabled = list(group.enabled_filters)
    ours = [name for name in enabled if name.startswith('Kronos')]
    mentioned = [name for name in (*available, *weighers, *enabled)
                 if name.startswith('kronos_nova.')]
    if not (ours or mentioned or _has_our_options(conf)):
        return 'SUCCESS', ''
    warnings = list(_list_traps(enabled, weighers))
    if not any(name.startswith('kronos_nova.') for name in weighers) and (
            not ours or _has_multiplier(conf)):
        warnings.append(f'[filter_scheduler] weight_classes does not name {OUR_WEIGHERS}: the '
                        'load of hosts does not decide where new instances go.')
    return make_check_result([*_cannot_start(available, enabled, ours),
                              *_list_missing_names('available_filters', available,
                                                   'kronos_nova.filters', OUR_FILTERS),
                              *_list_missing_names('weight_classes', weighers,
                                                   'kronos_nova.weighers', OUR_WEIGHERS)], warnings)


def _has_our_options(conf: Any) -> bool:
    """Return True if the files set options of the weighers or of [kronos]."""
    return _has_multiplier(conf) or any(
        'kronos' in sections
        for _path, sections in option_names.read_sections(conf.config_file or []))


def _has_multiplier(conf: Any) -> bool:
    """Return True if the files set a multiplier of ours."""
    return any(name.startswith('kronos_')
               for _path, sections in option_names.read_sections(conf.config_file or [])
               for name in sections.get('filter_scheduler', ()))


def _cannot_start(available: list[str], enabled: list[str], ours: list[str]) -> Iterator[str]:
    """Yield the mistakes in filters with which nova-scheduler does not start."""
    for name in available:
        if ',' in name:
            yield (f'[filter_scheduler] available_filters: {name} is one name to Nova. Write the '
                   'option once for each.')
    if NOVA_FILTERS not in available and set(enabled) - set(ours):
        if not any(name.startswith('nova.') for name in available):
            yield ('[filter_scheduler] available_filters replaces its default: write '
                   f'available_filters = {NOVA_FILTERS} on a line of its own as well, or '
                   'nova-scheduler does not find its own filters.')
    if ours and not any(name.startswith('kronos_nova.') for name in available):
        yield (f'[filter_scheduler] enabled_filters names {", ".join(ours)}: write '
               f'available_filters = {OUR_FILTERS} on a line of its own, or nova-scheduler does '
               'not find it.')
    for name in enabled:
        if name.startswith('kronos_nova.'):
            yield (f'[filter_scheduler] enabled_filters names {name}: Nova looks for the last '
                   f'word alone, and nova-scheduler does not start. Write '
                   f'{name.rpartition(".")[2]}.')
    shipped = {point.name for point in _list_entry_points('kronos_nova.filters')}
    for name in ours:
        if shipped and name not in shipped:
            yield (f'[filter_scheduler] enabled_filters names {name}, which this release does '
                   f'not have; it has {", ".join(sorted(shipped))}.')


def _list_missing_names(option: str, names: list[str], group: str, whole: str) -> Iterator[str]:
    """Yield the names of our package in an option that this release does not have.

    With such a name nova-scheduler does not start.
    """
    there = {whole, *(point.value.replace(':', '.') for point in _list_entry_points(group))}
    for name in names:
        # A wrong comma has its own message.
        if name.startswith('kronos_nova.') and ',' not in name and len(there) > 1 and (
                name not in there):
            near = difflib.get_close_matches(name, sorted(there), 1) or [whole]
            yield (f'[filter_scheduler] {option} names {name}, which this release does not have: '
                   f'nova-scheduler does not start. Write {near[0]}.')


def _list_traps(enabled: list[str], weighers: list[str]) -> Iterator[str]:
    """Yield the mistakes with which nova-scheduler starts, but works differently than intended."""
    missing = [name for name in DEFAULT_FILTERS if name not in enabled]
    groups = [name for name in missing if name in GROUP_FILTERS]
    if groups:
        yield (f'[filter_scheduler] enabled_filters does not name {" and ".join(groups)}: Nova '
               'looks for these very words, and refuses servers of such groups '
               '(UnsupportedPolicyException) without. Restate them.')
    if others := [name for name in missing if name not in GROUP_FILTERS]:
        yield (f'[filter_scheduler] enabled_filters does not name {", ".join(others)} of Nova\'s '
               'default, which it replaces. Restate them, unless they were left out on purpose.')
    if NOVA_WEIGHERS not in weighers and not set(weighers) >= SOFT_WEIGHERS:
        yield (f'[filter_scheduler] weight_classes does not name {NOVA_WEIGHERS}: Nova looks '
               'for these very words, and refuses servers of soft groups '
               '(UnsupportedPolicyException) without. Restate it.')
    later = enabled[enabled.index(CAPACITY_FILTER) + 1:] if CAPACITY_FILTER in enabled else []
    if later:
        yield (f'[filter_scheduler] enabled_filters names {", ".join(later)} after '
               f'{CAPACITY_FILTER}, which passes reserved hosts, and those above a ceiling, only '
               'where no other host passes: boots whose other hosts a later filter refuses fail '
               f'with No valid host. Write {CAPACITY_FILTER} last.')
    twice = sorted({name for name in weighers if weighers.count(name) > 1})
    if OUR_WEIGHERS in weighers:
        twice += [name for name in weighers if name.startswith('kronos_nova.')
                  and name != OUR_WEIGHERS]
    if twice:
        yield (f'[filter_scheduler] weight_classes names {", ".join(twice)} twice, or beside '
               'the function that gives it as well: it counts twice.')


def _list_entry_points(group: str) -> list[metadata.EntryPoint]:
    """Return our entry points in a group."""
    return [point for point in metadata.entry_points(group=group)
            if re.match(r'kronos_nova\b', point.value)]


def check_leftovers(files: list[str], policies: Any) -> Verdict:
    """Check for the package, the options and the units of Kronos 0.2.0.

    :param policies: the PolicySet of kronos.conf, or None when it does not load.
    """
    failures: list[str] = []
    warnings: list[str] = []
    try:
        installed_version = metadata.version(ANCESTOR)
    except metadata.PackageNotFoundError:
        pass
    else:
        failures.append(
            f'{ANCESTOR} {installed_version} is installed beside kronos-nova, and both bring '
            f'kronos-engine and kronos-executor. Run pip uninstall {ANCESTOR}, then pip install '
            '--force-reinstall --no-deps kronos-nova.')
    warnings += _changed_defaults(files)
    for policy in policies.policies if policies is not None else ():
        if (policy.enabled and policy.vm_profile_query is not None
                and 'vm_profile_unit' not in policy.model_fields_set):
            warnings.append(
                f'Policy {policy.name}: without vm_profile_unit, vm_profile_query is taken for a '
                'share of the host (host_ratio), as Kronos 0.2.0 took it. If it gives cores or '
                'bytes, say vm_profile_unit: absolute; otherwise say vm_profile_unit: '
                'host_ratio.')
    return make_check_result(failures, warnings)


def _changed_defaults(files: list[str]) -> Iterator[str]:
    """Yield defaults that differ from Kronos 0.2.0, for files with its broker options."""
    written: dict[str, set[str]] = {}
    for _path, sections in option_names.read_sections(files):
        for group, names in sections.items():
            written.setdefault(group, set()).update(names)
    if 'messaging' not in written or 'plan_notifications' in written['messaging']:
        return
    if not written['messaging'] and 'transport_url' not in written.get('DEFAULT', ()):
        yield ('[messaging] names no broker: executors find their tasks by polling, and no results '
               'are published. Kronos 0.2.0 used localhost:5672 then. Set transport_url in '
               '[DEFAULT].')
    if not written.get('nova', set()) & {'interface', 'valid_interfaces', 'endpoint_override'}:
        yield ('[nova] interface is internal by default, and Kronos 0.2.0 used the public '
               'endpoints. Set interface = public to go on with them, or say interface = '
               'internal.')
