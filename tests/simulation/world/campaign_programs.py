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

"""Programs that engines run for hosts of campaigns: the command that reboots, and the check."""

import dataclasses
from typing import TYPE_CHECKING

from kronos_nova.rebalancer.planning import campaign_steps

if TYPE_CHECKING:
    from tests.simulation.world import campaigns
    from tests.simulation.world import processes

KILLED = 'engine deaths while a campaign was under way'
COMMAND, CHECK = 'command', 'check'
#: Seconds until a command that begins reboots its host, until it ends after that, and for which
#: nova-compute is down.
BEGINS, ENDS, DOWN = (0.0, 20.0), (5.0, 60.0), (10.0, 60.0)
#: Seconds for which nova-compute is down when it does not come back, and a check fails.
LONG = 100.0, 400.0


@dataclasses.dataclass
class Command:
    """A process at a host. ``reboots_at``: infinity: it does not, or has."""

    host: str
    campaign_id: str
    reboots_at: float
    ends_at: float
    outcome: campaign_steps.Command | str = campaign_steps.Command.SUCCEEDED
    is_dead: bool = False


class Programs:
    """The programs of one engine; they go on when it dies, as processes of their own session."""

    def __init__(self, campaigns: 'campaigns.Campaigns', process: 'processes.Process') -> None:
        self._campaigns, self._process, self._run = campaigns, process, campaigns.run
        self._commands: dict[str, tuple[Command, float]] = {}
        #: When each check ends, and how.
        self._checks: dict[str, tuple[float, campaign_steps.Command | str]] = {}
        self._killed: dict[str, str] = {}

    def start_program(self, key: str, path: str, host: str, seconds: float,
                      **variables: str) -> str | None:
        faults, rng, now = self._campaigns.faults, self._campaigns.rng, self._run.now
        if path == CHECK:
            fails = now < self._campaigns.check_fails_until.get(host, 0.0)
            self._checks[key] = now + rng.uniform(0, 10), (
                'exit status 1' if fails else campaign_steps.Command.SUCCEEDED)
            return None
        assert path == COMMAND, path
        if faults.hit('engine dies before it begins a command'):
            self._process.crash()
        if faults.hit('command is not started'):
            return f'{path} was not started: No such file or directory'
        command = self._campaigns.begin_command(host, variables['KRONOS_CAMPAIGN'])
        self._commands[key] = command, now + seconds
        if faults.hit('engine dies after it has begun a command'):
            self._process.crash()
        return None

    def poll_program(self, key: str) -> campaign_steps.Command | str:
        if key in self._checks:
            ends_at, outcome = self._checks[key]
            return campaign_steps.Command.RUNNING if self._run.now < ends_at else outcome
        if key in self._killed:
            return self._killed[key]
        if key not in self._commands:
            return campaign_steps.Command.UNKNOWN
        command, killed_at = self._commands[key]
        if command.ends_at <= self._run.now:
            return command.outcome
        if killed_at <= self._run.now:
            command.is_dead = True
            self._killed[key] = 'it was killed, since it did not end in time'
            return self._killed[key]
        return campaign_steps.Command.RUNNING

    def forget_program(self, key: str) -> None:
        for known in (self._checks, self._killed, self._commands):
            known.pop(key, None)  # type: ignore[attr-defined]

    @property
    def is_running(self) -> bool:
        """Whether a command of this engine runs."""
        return any(not command.is_dead and command.ends_at > self._run.now
                   for command, _killed_at in self._commands.values())

    def lose_engine(self) -> None:
        """The engine has died; its commands go on, or die as well."""
        for command, _killed_at in self._commands.values():
            if self._campaigns.faults.hit('command dies with its engine'):
                command.is_dead = True
