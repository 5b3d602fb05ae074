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

"""[contracts]: how far instances' contracts go, and the operator's file of contracts by project."""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import os
import re
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import freeze
from kronos_nova.conf import plain_yaml
from kronos_nova.conf import value_type
from kronos_nova.model import contracts
from kronos_nova.model import movement_hours
from kronos_nova.model import spread_requests
from kronos_nova.text import times

GROUP = cfg.OptGroup('contracts', title='What may be done to an instance')

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 5
#: Keys and values: about 20,000 projects.
MAX_NODES = 200_000
_PROJECT = re.compile(r'[0-9A-Za-z_.-]{1,64}')
_DASHED_UUID = re.compile(r'[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}')
_FIELDS = (contracts.DISRUPTION, contracts.HOURS, contracts.MAX_MOVES, contracts.NOTIFY,
           spread_requests.SPREAD)
Spread = tuple[spread_requests.SpreadRequest, ...]
#: Value of a key.
Value = (model.Disruption | model.MoveQuota | model.NoticePeriod | movement_hours.MovementHours
         | float | Spread)
#: The contract of a project that only asks for a spread.
_NOTHING = model.Contract(model.ContractSource.PROJECT)


class TimeType(value_type.ValueType):
    """A time in RFC 3339, read as epoch seconds; without a zone it is UTC."""

    NAME = 'time'

    def __call__(self, value: Any) -> float:
        if isinstance(value, float):
            return value
        return parse_moment(str(value))

    def _formatter(self, value: Any) -> str:
        return times.format_time(value)


_GRADES = {
    model.Disruption.POWEROFF_OK: 'Statements of tenants forbid nothing.',
    model.Disruption.COLD_OK: 'They forbid that an instance is off until its host is back.',
    model.Disruption.LIVE: 'They also forbid that a running instance is moved cold.',
    model.Disruption.DRAIN_ONLY: 'They also forbid moves for balance, packing and repairs; drains '
                                 'and requested moves are done.',
    model.Disruption.NEVER: 'They also forbid drains and requested moves.'}

OPTS: list[cfg.Opt] = [
    cfg.StrOpt('strongest_for_tenants', default=model.Disruption.POWEROFF_OK.value,
               choices=[(grade.value, text) for grade, text in _GRADES.items()],
               help='The most that metadata and tags of an instance may forbid (kronos:disruption, '
                    'kronos:hours, kronos:max_moves, kronos:notify). Outside its hours, with all '
                    'its moves used up, and before its owner had notice, an instance asks for '
                    'never, so the value counts for these as well. '
                    'By default they forbid nothing; drain-only is recommended. '
                    'Extra specs of flavors and the file are the operator\'s and have no limit. '
                    'Give it to executors as well.'),
    cfg.Opt('ignore_after', type=TimeType(),
            help='The deadline of a maintenance, such as 2026-11-01T22:00:00Z: from then on '
                 'metadata, tags and opt-outs of tenants hold no drain and no requested move. Take '
                 'it away after the maintenance. Give it to executors as well.'),
    cfg.StrOpt('opt_out', default=model.Disruption.NEVER.value, choices=[
        (model.Disruption.DRAIN_ONLY.value, _GRADES[model.Disruption.DRAIN_ONLY]),
        (model.Disruption.NEVER.value, _GRADES[model.Disruption.NEVER])],
        help='The grade of instances that are opted out by [engine] opt_out_metadata_key, '
             'opt_out_tag or opted_out_projects; strongest_for_tenants does not limit it. Give it '
             'to executors as well.'),
    cfg.StrOpt('file', default='',
               help='A YAML file with contracts by project, and spreads over failure domains, read '
                    'at the start of a process. Empty: no file. Give it to executors as well.'),
    cfg.IntOpt('notice_valid_for', default=86400, min=3600, max=30 * 86400,
               help='Seconds for which an instance may move after its owner had the time that '
                    'kronos:notify asks for. Then the notice has lapsed, and a move needs a new '
                    'one. While its host is drained, the notice lasts.'),
    cfg.Opt('timezone', type=freeze.ZoneType(), default='UTC',
            help='By whose clocks kronos:hours count, such as Europe/Berlin. Give it to executors '
                 'as well.'),
]


def parse_moment(text: str) -> float:
    """Read a time in RFC 3339 as epoch seconds; without a zone it is UTC.

    :raises ValueError: the text is no such time.
    """
    text = text.strip()
    if not text[:4].isdigit() or '-' not in text:
        raise ValueError(f'{text!r} is no time; write 2026-11-01T22:00:00Z')
    return times.parse_time(text, 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class ProjectContracts:
    """The operator's contracts: by project ID, and ``default`` for all other projects.

    ``spreads``: the failure domains over which instances are spread, of the same projects.
    """

    projects: Mapping[str, model.Contract] = dataclasses.field(default_factory=dict)
    default: model.Contract | None = None
    spreads: Mapping[str, Spread] = dataclasses.field(default_factory=dict)
    default_spread: Spread = ()

    def find_contract(self, project_id: str) -> model.Contract | None:
        """Return the contract of a project's instances."""
        stated = self.projects.get(project_id, self.default)
        return None if stated == _NOTHING else stated

    def find_spread(self, project_id: str) -> Spread:
        """Return the requests for a spread that hold for a project's instances."""
        return self.spreads.get(project_id, self.default_spread)


def build_options(conf: cfg.ConfigOpts) -> model.ContractOptions:
    """Return the options that rules read as a frozen value."""
    group = conf.contracts
    return model.ContractOptions(
        model.Disruption(group.strongest_for_tenants), group.ignore_after,
        model.Disruption(group.opt_out), str(group.timezone))


def load_project_contracts(conf: cfg.ConfigOpts) -> ProjectContracts:
    """Read the file that the configuration names; without one there are no contracts.

    :raises ConfigError: names file, field or line, and remedy.
    """
    path = conf.contracts.file
    if not path:
        return ProjectContracts()
    return parse_project_contracts(_read_document(path), path, count_remembered_seconds(conf))


def digest_settings(conf: cfg.ConfigOpts) -> str:
    """Digest what decides about contracts, in engines and executors alike: 64 hex digits.

    The order and the comments of the file do not count.

    :raises ConfigError: as :func:`load_project_contracts`.
    """
    group = conf.contracts
    document = _read_document(group.file) if group.file else None
    text = json.dumps([group.strongest_for_tenants, group.ignore_after, group.opt_out,
                       str(group.timezone), document or {}], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def count_remembered_seconds(conf: cfg.ConfigOpts) -> int:
    """Return for how long the database keeps completed moves."""
    return int(conf.engine.keep_days) * 86400


def parse_project_contracts(document: Any, path: str, remembered: int) -> ProjectContracts:
    """Validate the content of the file.

    :param remembered: seconds for which moves are kept, which ``max_moves`` cannot exceed.
    :raises ConfigError: names the first wrong field and its remedy.
    """
    if document is None:
        return ProjectContracts()
    sections = _require_mapping(document, path, 'document')
    _refuse_unknown(sections, ('default', 'projects'), path, '')
    default = sections.get('default')
    by_project = sections.get('projects')
    projects, spreads = {}, {}
    for name, entry in _require_mapping(
            {} if by_project is None else by_project, path, 'projects').items():
        if not isinstance(name, str) or not _PROJECT.fullmatch(name):
            raise _make_error(path, 'projects', f'{str(name)[:64]!r} is no ID of a project',
                              'Write the ID as Keystone shows it, in quotes.')
        if _DASHED_UUID.fullmatch(name):
            raise _make_error(path, 'projects', f'{name!r} has dashes, which no ID of Keystone has',
                              f'Write "{name.replace("-", "").lower()}".')
        projects[name], spreads[name] = _parse_contract(entry, path, f'projects.{name}', remembered)
    of_others, spread = (None, ()) if default is None else _parse_contract(
        default, path, 'default', remembered)
    return ProjectContracts(projects, of_others, spreads, spread)


def _parse_contract(entry: Any, path: str, where: str,
                    remembered: int) -> tuple[model.Contract, Spread]:
    """Return the contract of an entry and its requests for a spread."""
    fields = _require_mapping(entry, path, where)
    _refuse_unknown(fields, _FIELDS, path, f'{where}.')
    if not fields:
        raise _make_error(path, where, 'it states nothing', f'Write one of {", ".join(_FIELDS)}.')
    values: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            if not isinstance(value, str):
                raise ValueError('it is no text')
            values[name] = parse_value(name, value, remembered)
        except ValueError as e:
            raise _make_error(path, f'{where}.{name}', str(e), _REMEDIES[name]) from None
    spread = values.pop(spread_requests.SPREAD, ())
    return model.Contract(model.ContractSource.PROJECT, **values), spread


_REMEDIES = {
    contracts.DISRUPTION: f'Write {", ".join(contracts.Disruption)}.',
    contracts.HOURS: 'Write minute, hour, day, month and weekday in quotes, such as '
                     '"* 22-23,0-5 * * *".',
    contracts.MAX_MOVES: 'Write a number of moves, a slash and a time, such as 2/7d.',
    contracts.NOTIFY: 'Write a time from 1m to 30d, such as 24h.',
    spread_requests.SPREAD: 'Write a kind of failure domain, such as rack, or rack:SET; commas '
                            'separate several.'}


def parse_value(key: str, text: str, remembered: int) -> Value:
    """Read the value of a key, given without its prefix.

    :raises ValueError: the text is wrong; the message does not repeat it.
    """
    if len(text) > contracts.LONGEST:
        raise ValueError(f'it has more than {contracts.LONGEST} characters')
    if key == contracts.DISRUPTION:
        return contracts.parse_disruption(text)
    if key == contracts.HOURS:
        hours = movement_hours.parse_hours(text)
        if not hours.opens_long_enough():
            raise ValueError(f'it opens for less than {movement_hours.SHORTEST} minutes at a time')
        return hours
    if key == contracts.NOTIFY:
        return contracts.parse_notice(text)
    if key == contracts.RELEASE:
        return parse_moment(text)
    if key == spread_requests.SPREAD:
        return spread_requests.parse_spread(text)
    return contracts.parse_quota(text, remembered)


def _read_document(path: str) -> Any:
    try:
        with open(path, 'rb') as f:
            data = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise _make_error(path, 'file', f'it cannot be read ({os.strerror(e.errno or 0)})',
                          'Correct [contracts] file or the permissions of the file.') from None
    if len(data) > MAX_BYTES:
        raise _make_error(path, 'file', 'it is larger than 4 MiB',
                          'Name the file of contracts, not another one.')
    try:
        return plain_yaml.load_shared(data.decode('utf-8-sig'), depth=MAX_DEPTH, nodes=MAX_NODES)
    except UnicodeDecodeError:
        raise _make_error(path, 'file', 'it is not UTF-8 text',
                          'Save the file as UTF-8.') from None
    except plain_yaml.PlainYamlError as e:
        raise _make_error(path, f'line {e.line}' if e.line else 'document', e.problem,
                          e.remedy) from None


def _require_mapping(value: Any, path: str, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _make_error(path, where, 'it is not a mapping',
                          'Write a name, a colon, and the values below it.')
    return value


def _refuse_unknown(fields: Mapping[Any, Any], known: tuple[str, ...], path: str,
                    where: str) -> None:
    for name in fields:
        if name not in known:
            raise _make_error(path, f'{where}{str(name)[:64]}', 'no such field',
                              f'Write one of {", ".join(known)}, or remove it.')


def _make_error(path: str, field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path=path, field=field, problem=problem, remedy=remedy)
