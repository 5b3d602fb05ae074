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

"""The campaign of a run: its hosts reboot, and what the database says of it is looked at."""

import collections
import random
from typing import TYPE_CHECKING

from kronos_nova.model import CampaignHostState
from tests.simulation.world import campaign_faults
from tests.simulation.world import campaign_invariants
from tests.simulation.world import campaign_people
from tests.simulation.world import campaign_programs
from tests.simulation.world import records

if TYPE_CHECKING:
    from tests.simulation.world import approval
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

#: Seconds of a run in which much fails, and those that a campaign has to end afterwards.
TROUBLED, ENDING = 600.0, 7200.0
#: Seconds after its end in which a request may still be under way; then engines have two cycles.
LATE = 320.0
TO_COME, WORKING = CampaignHostState.TO_COME.value, CampaignHostState.WORKING.value


class Campaigns:
    """Of one run, which has one campaign."""

    def __init__(self, run: 'runs.Run', only: frozenset[str] | None) -> None:
        self.run, self.rng = run, random.Random(f'campaigns {run.seed}')
        self.faults = campaign_faults.CampaignFaults(run, only)
        self.services = campaign_faults.ServiceRequests(run, self.faults)
        self.people = campaign_people.CampaignPeople(self)
        self.has_command = self.rng.random() < 0.5
        self.has_check = self.rng.random() < 0.4
        #: Engines make no plans for balance, which cost time.
        self.is_calm = self.rng.random() < 0.6
        self.commands: list[campaign_programs.Command] = []
        self.check_fails_until: dict[str, float] = {}
        self._up_at: dict[str, float] = {}
        #: Reboots by the command, and how many operators have let it make.
        self.reboots: collections.Counter[str] = collections.Counter()
        self.permitted: collections.Counter[str] = collections.Counter()
        # What invariants look at.
        self.record: records.Campaign | None = None
        self.before: records.Campaign | None = None
        #: Since when each host is closed, as one that is to come.
        self.closed_since: dict[str, float] = {}
        #: The host that reboots, and the one that an engine asks Nova to enable.
        self.rebooting = self.enabling = ''

    def configure(self) -> None:
        for conf in self.run.confs:
            for name, value in (
                    ('command', campaign_programs.COMMAND if self.has_command else ''),
                    ('check_command', campaign_programs.CHECK if self.has_check else ''),
                    ('command_timeout', 200), ('return_timeout', 150)):
                conf.set_override(name, value, 'campaign')
            conf.set_override('max_drain_fraction', 0.7, 'engine')
            # Each scope costs time, and the campaign is in one.
            conf.set_override('include_unassigned_hosts', False, 'engine')

    @property
    def is_live(self) -> bool:
        return self.record is not None and not self.record.is_over

    # Time passes.

    def advance(self) -> None:
        """Let requests arrive, hosts reboot and come back, and operators act."""
        self.services.advance()
        for command in self.commands:
            if command.reboots_at <= self.run.now and not command.is_dead:
                command.reboots_at = float('inf')
                self.reboots[command.host] += 1
                self.reboot(command.host)
                self.run._judge_by(campaign_invariants.rebooted_once)
        for name, at in list(self._up_at.items()):
            if at <= self.run.now:
                del self._up_at[name]
                self.run.cloud.hosts[name].up = True
        for process in self.run.engines:
            if process.programs is not None and process.programs.is_running and (
                    not process.inside and self.faults.hit('engine dies while a command runs')):
                process.die()
        self.people.act()

    def begin_command(self, host: str, campaign_id: str) -> campaign_programs.Command:
        """Begin the command of a host, as a process that no engine has to wait for."""
        hit, rng, now = self.faults.hit, self.rng, self.run.now
        command = campaign_programs.Command(
            host, campaign_id, now + rng.uniform(*campaign_programs.BEGINS), 0.0)
        command.ends_at = command.reboots_at + rng.uniform(*campaign_programs.ENDS)
        if hit('command fails before the reboot'):
            command.reboots_at, command.outcome = float('inf'), 'exit status 1'
        elif hit('command fails after the reboot'):
            command.outcome = 'exit status 2: it did not come back'
        elif hit('command hangs'):
            command.ends_at = float('inf')
        self.commands.append(command)
        return command

    def runs_command(self, host: str) -> bool:
        """Return whether a command runs at a host, as an operator sees it there."""
        return any(c.host == host and not c.is_dead and c.ends_at > self.run.now
                   for c in self.commands)

    def reboot(self, host: str) -> None:
        """Reboot a host, by the command or by an operator."""
        self.rebooting = host
        self.run.counts['reboots of hosts'] += 1
        self.run._judge_by(campaign_invariants.reboots_are_empty)
        hit, rng, now = self.faults.hit, self.rng, self.run.now
        self.run.cloud.hosts[host].up = False
        self._up_at[host] = now + rng.uniform(*(
            campaign_programs.LONG if hit('host does not come back for long')
            else campaign_programs.DOWN))
        if hit('check fails for a while'):
            self.check_fails_until[host] = now + rng.uniform(*campaign_programs.LONG)

    def note_enabling(self, process: 'processes.Process', host: str) -> None:
        """Judge that an engine asks Nova to enable a host."""
        self.enabling = host
        for rule in campaign_invariants.AT_ENABLING:
            if process.stood:
                # It may be down again since the engine looked.
                self.run.counts[f'{rule.__name__} did not judge'] += 1
            else:
                self.run._judge_by(rule)

    # The database.

    def note_commit(self) -> None:
        """Judge what a process has committed."""
        if self._read_record():
            for rule in campaign_invariants.AFTER_COMMIT:
                self.run._judge_by(rule)

    def note_order(self) -> None:
        """Read what an operator has ordered."""
        self._read_record()

    def _read_record(self) -> bool:
        """Read the campaign; return whether it has changed, and was there before."""
        now, record = self.run.now, records.campaign(self.run.raw)
        if record is None or record == self.record:
            return False
        self.before, self.record = self.record, record
        closed = record.closed_hosts
        self.closed_since = {host: self.closed_since.get(host, now) for host in closed}
        return self.before is not None

    def strike(self, process: 'processes.Process | approval.Approver', *, after: bool) -> None:
        """Let an engine die at a transaction for its campaign, or stand still after it."""
        if process.name not in {e.name for e in self.run.engines} or not self.is_live:
            return
        engine = next(e for e in self.run.engines if e.name == process.name)
        if not engine.conducts:
            return
        if self.faults.hit(f'engine dies {"after" if after else "before"} a commit for its '
                           'campaign'):
            engine.crash()
        if after and self.record is not None and any(
                state == WORKING and worker == engine.name
                for state, worker in self.record.hosts.values()):
            self.faults.freeze(engine, 'engine freezes before it begins a command')
