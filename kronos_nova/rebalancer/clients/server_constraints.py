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


"""The constraints on a server's host in a record of /servers.

The flavor's extra specs (if policy shows them), the image's properties (2.98), hints for the
scheduler (2.100), contracts, the spread over failure domains, and the owner's opt-out. Metadata and
tags are the tenant's: only opt-out, contracts and spread are kept.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_utils import strutils
from oslo_utils import uuidutils

from kronos_nova import model
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.rebalancer.clients import contract_statements
from kronos_nova.rebalancer.clients import records

#: Hints that a rule looks at: their values are UUIDs of instances.
HINTS = ('different_host', 'same_host')
#: Most UUIDs of a hint.
MOST_HINTED = 100


@dataclasses.dataclass(frozen=True, slots=True)
class DisruptionSettings:
    """The settings by which owners and the operator state what may be done to an instance.

    ``metadata_key`` and ``tag``: by which an owner may opt out; empty: not possible. ``projects``:
    the operator's contracts. ``remembered``: seconds for which moves are kept.
    """

    metadata_key: str = ''
    tag: str = ''
    projects: contracts_conf.ProjectContracts = contracts_conf.ProjectContracts()
    remembered: int = 30 * 86400


NOWHERE = DisruptionSettings()


def make_disruption_settings(conf: cfg.ConfigOpts) -> DisruptionSettings:
    """Return the settings of [engine] and [contracts].

    :raises ConfigError: the operator's file of contracts cannot be used.
    """
    return DisruptionSettings(
        conf.engine.opt_out_metadata_key, conf.engine.opt_out_tag,
        contracts_conf.load_project_contracts(conf), contracts_conf.count_remembered_seconds(conf))


def read_constraints(record: records.JsonRecord, where: DisruptionSettings,
                     statements: contract_statements.StatementValues) -> dict[str, Any]:
    """Return the fields of an Instance that a server's record holds.

    :raises ApiError: a field does not have the type that Nova's API promises.
    """
    extra_specs, project_id = _extra_specs(record), record.optional_text('tenant_id') or ''
    return {'extra_specs': extra_specs, 'image_properties': _image_properties(record),
            'scheduler_hints': _parse_scheduler_hints(record),
            'power_state': record.optional_amount('OS-EXT-STS:power_state'),
            'opted_out': _opted_out(record, where),
            'contracts': contract_statements.read_contracts(
                record, extra_specs, project_id, where.projects, where.remembered, statements,
                (where.metadata_key, where.tag)),
            'spread': contract_statements.read_spread(
                record, extra_specs, project_id, where.projects, statements)}


def _extra_specs(record: records.JsonRecord) -> Mapping[str, str] | None:
    flavor = record.read_part('flavor')
    return flavor.texts_by_name('extra_specs') if flavor.has_key('extra_specs') else None


def _image_properties(record: records.JsonRecord) -> Mapping[str, str] | None:
    """Return the properties of the boot image; Nova does not show a volume's."""
    if not record.has_value('image'):
        return None
    image = record.read_part('image')
    return image.texts_by_name('properties') if image.has_key('properties') else None


def _parse_scheduler_hints(record: records.JsonRecord) -> dict[str, tuple[str, ...]]:
    """Return the hints that rules read.

    A tenant writes them: leave out values that are no UUIDs, and hints with too many values to read
    again for each move. Nova judges both.
    """
    if not record.has_key('scheduler_hints') or not record.has_value('scheduler_hints'):
        return {}
    hints = record.read_mapping('scheduler_hints')
    uuids_by_hint = {}
    for name in HINTS:
        value = hints.get(name)
        values = value if isinstance(value, list) else [value]
        uuids = tuple(str(v) for v in values if uuidutils.is_uuid_like(v))
        if 0 < len(uuids) <= MOST_HINTED:
            uuids_by_hint[name] = uuids
    return uuids_by_hint


def _opted_out(record: records.JsonRecord, where: DisruptionSettings) -> str | None:
    """Return how the owner opted out, or None.

    A value that is no boolean counts as a yes: an owner wrote it on purpose, and a move cannot be
    taken back.
    """
    if where.metadata_key:
        metadata = record.texts_by_name('metadata')
        if where.metadata_key in metadata:
            try:
                if strutils.bool_from_string(metadata[where.metadata_key], strict=True):
                    return f'metadata {where.metadata_key}'
            except ValueError:
                return f'metadata {where.metadata_key}, whose value is no boolean'
    if where.tag and where.tag in record.read_texts('tags'):
        return f'tag {where.tag}'
    return None


class SharedMappings:
    """A pool with one object for equal mappings and contracts: many instances have one flavor.

    ``statements``: the values of contracts' texts.
    """

    def __init__(self) -> None:
        self.statements = contract_statements.StatementValues()
        self._known: dict[frozenset[tuple[str, str]], Mapping[str, str]] = {}
        self._contracts: dict[tuple[model.Contract, ...], tuple[model.Contract, ...]] = {}
        self._spreads: dict[contracts_conf.Spread, contracts_conf.Spread] = {}

    def share_mappings(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the same fields, mappings of texts and contracts shared."""
        for name in ('extra_specs', 'image_properties'):
            value = fields[name]
            if value is not None:
                fields[name] = self._known.setdefault(frozenset(value.items()), value)
        stated, spread = fields['contracts'], fields['spread']
        fields['contracts'] = self._contracts.setdefault(stated, stated)
        fields['spread'] = self._spreads.setdefault(spread, spread)
        return fields
