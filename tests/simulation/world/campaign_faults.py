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

"""Faults that only runs with campaigns have, and the requests that disable and enable hosts.

All of it draws of its own chance: the other faults of a run do not depend on it.
"""

import random
from typing import Any, TYPE_CHECKING

from keystoneauth1 import exceptions as ks_exceptions
from urllib3 import exceptions as urllib3_exceptions

from tests.simulation.world import cloud
from tests.simulation.world import nova

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

FAULTS = {
    # An engine is gone. The first two: drawn at each of its transactions for a campaign.
    'engine dies before a commit for its campaign': 0.06,
    'engine dies after a commit for its campaign': 0.12,
    'engine dies before a PUT': 0.15,
    'engine dies after a PUT': 0.2,
    'engine dies before it begins a command': 0.2,
    'engine dies after it has begun a command': 0.25,
    # Drawn at each step in which a command runs.
    'engine dies while a command runs': 0.08,
    'command dies with its engine': 0.5,
    # An engine stands still and goes on later, believing what it believed.
    'engine freezes before its PUT arrives': 0.2,
    'engine freezes after its PUT arrived': 0.2,
    'engine freezes before it begins a command': 0.4,
    # The request that disables or enables a host.
    'PUT is refused a connection': 0.12,
    'PUT is lost on its way': 0.15,
    'PUT is lost on its way back': 0.15,
    'PUT arrives late': 0.15,
    'PUT gets 500 and had no effect': 0.1,
    'PUT gets 500 and had an effect': 0.15,
    'PUT gets 403': 0.1,
    # Programs of the operator.
    'command is not started': 0.1,
    'command fails before the reboot': 0.15,
    'command fails after the reboot': 0.15,
    'command hangs': 0.1,
    'check fails for a while': 0.3,
    'host does not come back for long': 0.2,
    # Operators. Drawn at each step.
    'operator pauses a campaign': 0.004,
    'operator aborts a campaign': 0.0007,
    'operator skips a host of a campaign': 0.001,
    'operator enables a host of a campaign': 0.002,
    'operator disables a host of a campaign': 0.001,
}
#: A run has each fault with this chance.
PRESENT = 0.4
#: Seconds for which an engine freezes while a request or a command is about to go.
FROZEN = 31.0, 300.0
#: Seconds by which a request may come late.
LATE = 1.0, 60.0


class CampaignFaults:
    """Draws the faults of one run and counts them."""

    def __init__(self, run: 'runs.Run', only: frozenset[str] | None) -> None:
        self.run, self.rng = run, random.Random(f'campaign faults {run.seed}')
        self.present = (frozenset(FAULTS) & only if only is not None else frozenset(
            name for name in FAULTS if self.rng.random() < PRESENT))

    def hit(self, name: str) -> bool:
        """Return whether the fault happens now."""
        if (self.run.faults.active and name in self.present
                and self.rng.random() < FAULTS[name]):
            self.run.counts[name] += 1
            return True
        return False

    def freeze(self, process: 'processes.Process', name: str) -> None:
        """Let an engine stand still, if the fault happens and another process can go on."""
        run = self.run
        if run.current is process and run.can_stand_still() and self.hit(name):
            run.stand_still(process, self.rng.uniform(*FROZEN))


class ServiceRequests:
    """What Nova makes of requests that disable and enable the nova-compute of a host."""

    def __init__(self, run: 'runs.Run', faults: CampaignFaults) -> None:
        self.run, self.faults = run, faults
        self._late: list[tuple[float, str, dict[str, Any]]] = []

    @property
    def waits(self) -> bool:
        """Whether a request is still on its way."""
        return bool(self._late)

    def advance(self) -> None:
        """Let the late requests arrive whose time has come."""
        for entry in [e for e in self._late if e[0] <= self.run.now]:
            self._late.remove(entry)
            self._change(*entry[1:])

    def put(self, process: 'processes.Process', uuid: str, body: dict[str, Any]) -> nova.Response:
        """Answer a request, or fail as a network or Nova may."""
        faults, hit = self.faults, self.faults.hit
        if body['status'] == 'enabled' and self.run.campaigns is not None:
            self.run.campaigns.note_enabling(process, self._find_host(uuid).name)
        process.may_freeze()
        faults.freeze(process, 'engine freezes before its PUT arrives')
        if hit('engine dies before a PUT'):
            process.crash()
        status = self.run.outage.meet('Nova', process)
        if status is not None:
            return nova.error(status)
        if hit('PUT is refused a connection'):
            raise ks_exceptions.ConnectFailure('refused') from (
                urllib3_exceptions.NewConnectionError(None, 'refused'))  # type: ignore[arg-type]
        if hit('PUT gets 403'):
            return nova.error(403)
        if hit('PUT gets 500 and had no effect'):
            return nova.error(500)
        if hit('PUT is lost on its way'):
            raise ks_exceptions.ConnectFailure('reset')
        if hit('PUT arrives late'):
            self._late.append((self.run.now + faults.rng.uniform(*LATE), uuid, body))
            raise ks_exceptions.ConnectTimeout('no answer')
        self._change(uuid, body)
        faults.freeze(process, 'engine freezes after its PUT arrived')
        process.may_freeze()
        if hit('engine dies after a PUT'):
            process.crash()
        if hit('PUT is lost on its way back'):
            raise ks_exceptions.ConnectFailure('reset')
        if hit('PUT gets 500 and had an effect'):
            return nova.error(500)
        return nova.Response({'service': {'id': uuid}})

    def _find_host(self, uuid: str) -> cloud.Host:
        return next(h for h in self.run.cloud.hosts.values() if h.uuid == uuid)

    def _change(self, uuid: str, body: dict[str, Any]) -> None:
        host = self._find_host(uuid)
        host.enabled = body['status'] == 'enabled'
        host.reason = body.get('disabled_reason')
        self.run.counts['hosts enabled by engines' if host.enabled
                        else 'hosts disabled by engines'] += 1
