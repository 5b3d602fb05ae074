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


"""The record of what decides which instances of drains wait for a quieter hour."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import model


def build_record(histories: Mapping[str, model.MoveHistory],
                 cluster: model.Cluster | str) -> dict[str, Any]:
    """Build the record, without deadlines of earlier drains; empty: no rates are known or awaited.

    Without disabled reasons, as in an anonymised snapshot, they would count for the present ones.
    """
    if not any(h.hourly_write_rates or h.awaited_write_rates for h in histories.values()):
        return {}
    services = {} if isinstance(cluster, str) else cluster.services
    rates: dict[str, Any] = {}
    awaited: dict[str, float] = {}
    last: dict[str, float] = {}
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    deadlines: dict[str, Any] = {}
    freezes: set[tuple[float, float]] = set()
    for history in histories.values():
        rates |= {uuid: [list(hour) for hour in hours]
                  for uuid, hours in history.hourly_write_rates.items()}
        awaited |= history.awaited_write_rates
        last |= history.last_write_rates
        begins |= history.drain_begins
        ends |= history.window_ends
        deadlines |= {host: dataclasses.asdict(deadline)
                      for host, deadline in history.drain_deadlines.items()
                      if model.find_drain_deadline(history.drain_deadlines,
                                                   services.get(host)) is not None}
        freezes.update(history.freezes)
    return {'hourly_write_rates': dict(sorted(rates.items())),
            'freezes': [list(freeze) for freeze in sorted(freezes)],
            'awaited_write_rates': dict(sorted(awaited.items())),
            'last_write_rates': dict(sorted(last.items())),
            'drain_begins': dict(sorted(begins.items())),
            'window_ends': dict(sorted(ends.items())),
            'drain_deadlines': dict(sorted(deadlines.items()))}
