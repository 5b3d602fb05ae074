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


"""Reasons in the history of an instance to leave it alone."""

from collections.abc import Iterator

from kronos_nova import model

#: Rule that refuses an instance whose last migration failed, for those that compare it.
QUARANTINED = 'quarantined'


def list_hold_reasons(history: model.MoveHistory, uuid: str) -> Iterator[model.Rejection]:
    """Yield every reason to leave the instance alone, the one that holds longest first."""
    if uuid in history.quarantined:
        seconds = history.quarantined[uuid]
        text = 'for ever' if seconds < 0 else f'for another {seconds:.0f} s'
        yield model.Rejection('quarantined', f'instance {uuid} is quarantined {text}')
    if uuid in history.cooling:
        yield model.Rejection('cooling', f'instance {uuid} cools down for another '
                                         f'{history.cooling[uuid]:.0f} s')
    if uuid in history.refused_everywhere:
        yield model.Rejection(
            'placement-refuses-everywhere',
            f'Placement has lately confirmed none of the hosts tried for instance {uuid}')
