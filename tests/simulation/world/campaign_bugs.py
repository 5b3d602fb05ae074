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

"""Seeded bugs of campaigns; see :mod:`bugs`."""

from collections.abc import Callable
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.engine import campaign_conductor
from kronos_nova.rebalancer.planning import campaign_steps
from kronos_nova.rebalancer.store import campaign_stats
from kronos_nova.rebalancer.store import campaigns
from tests.simulation.world import bugs
from tests.simulation.world import campaign_faults

Patch = bugs.Patch
BUGS: dict[str, bugs.Bug] = {}
HOSTS = model.CampaignHostState


def bug(*only: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        made = bugs.make_bug(apply, only)
        BUGS[made.name] = made
        return apply
    return register


def _let_happen(patch: Patch, chance: float, *names: str) -> None:
    """Let faults of campaigns happen more often."""
    for name in names:
        patch.setitem(campaign_faults.FAULTS, name, chance)


@bug()
def command_before_commit(patch: Patch) -> None:
    """A command begins before the database says so."""
    patch.setattr(campaigns.CampaignRepository, 'begin_work', lambda *args: True)
    patch.setattr(campaign_conductor.CampaignConductor, '_works_here', lambda *args: True)


@bug()
def nothing_is_counted(patch: Patch) -> None:
    """No engine looks whether a host is empty."""
    real = campaign_steps.judge_host
    patch.setattr(campaign_steps, 'judge_host', lambda campaign, host, reading, *rest: real(
        campaign, host, dataclasses.replace(reading, instances=0, claimed=()), *rest))


@bug()
def enabled_too_early(patch: Patch) -> None:
    """A host is enabled before it is back."""
    patch.setattr(campaign_steps, '_judge_returning', lambda host, service, *args: (
        campaign_steps.HostStep(state=HOSTS.DONE) if service.enabled else
        campaign_steps.HostStep(deed=campaign_steps.Deed.ENABLE)))


@bug('operator aborts a campaign')
def abort_forgets(patch: Patch) -> None:
    """An abort forgets a disabled host, and no engine looks for it."""
    patch.setitem(campaigns._ABORTED, HOSTS.EMPTYING, HOSTS.SKIPPED)
    patch.setattr(campaigns.CampaignRepository, 'list_left_hosts', lambda *args: [])
    _let_happen(patch, 0.02, 'operator aborts a campaign')


@bug('engine freezes before its PUT arrives', 'operator aborts a campaign')
def late_request_stays(patch: Patch) -> None:
    """No engine enables a host that a late request has disabled."""
    patch.setattr(campaigns.CampaignRepository, 'list_left_hosts', lambda *args: [])
    _let_happen(patch, 0.02, 'operator aborts a campaign')
    _let_happen(patch, 0.9, 'engine freezes before its PUT arrives')


@bug('engine dies after it has begun a command', 'engine dies while a command runs')
def doubt_is_not_known(patch: Patch) -> None:
    """A second engine takes a running command for one that it has to begin."""
    real = campaign_steps._judge_working

    def judge_working(host: Any, reading: Any) -> Any:
        if reading.command is campaign_steps.Command.UNKNOWN:
            return campaign_steps.HostStep(state=HOSTS.HELD)
        return real(host, reading)
    patch.setattr(campaign_steps, '_judge_working', judge_working)
    _let_happen(patch, 0.5, 'engine dies after it has begun a command')


@bug('engine freezes before it begins a command')
def old_command_runs(patch: Patch) -> None:
    """An engine that stood still runs a command that is no longer its own."""
    patch.setattr(campaign_conductor.CampaignConductor, '_works_here', lambda *args: True)
    _let_happen(patch, 0.9, 'engine freezes before it begins a command')


@bug('engine freezes before its PUT arrives', 'PUT gets 403')
def campaign_without_fence(patch: Patch) -> None:
    """An engine changes a campaign without the lease of its scope."""
    def run_unfenced(self: Any, lease: Any, *args: Any, **values: Any) -> Any:
        return self._runner.run_transaction(lambda c: campaigns._update_host(
            c, args[0], args[1].host, tuple(HOSTS), **values))
    patch.setattr(campaigns.CampaignRepository, 'change_host', run_unfenced)
    _let_happen(patch, 0.7, 'engine freezes before its PUT arrives', 'PUT gets 403')


@bug()
def hosts_to_come_are_open(patch: Patch) -> None:
    """Instances move onto hosts that are to come."""
    patch.setattr(campaign_stats, 'list_closed_hosts', lambda connection, scope: frozenset())


@bug('command fails before the reboot', 'command fails after the reboot')
def silent_pause(patch: Patch) -> None:
    """A campaign pauses, and its reason names no host."""
    real = campaigns.CampaignRepository.pause_campaign
    patch.setattr(campaigns.CampaignRepository, 'pause_campaign',
                  lambda self, lease, campaign_id, by, because: real(
                      self, lease, campaign_id, by, 'a program failed'))
    _let_happen(patch, 0.5, 'command fails before the reboot')


@bug('operator skips a host of a campaign')
def withdrawn_for_ever(patch: Patch) -> None:
    """A host that an operator leaves out stays disabled."""
    real = campaign_steps._judge_withdrawn
    patch.setattr(campaign_steps, '_judge_withdrawn', lambda host, service, *args: (
        campaign_steps.HostStep() if not service.enabled else real(host, service, *args)))
    _let_happen(patch, 0.02, 'operator skips a host of a campaign')


#: Bug -> (a seed that catches it, the invariant that is broken first).
CAUGHT: dict[str, tuple[int, str]] = {
    'A command begins before the database says so': (0, 'rebooted_once'),
    'No engine looks whether a host is empty': (12, 'reboots_are_empty'),
    'A host is enabled before it is back': (1, 'enabled_when_back'),
    'An abort forgets a disabled host, and no engine looks for it': (3, 'no_host_stays_disabled'),
    'No engine enables a host that a late request has disabled': (3, 'no_host_stays_disabled'),
    'A second engine takes a running command for one that it has to begin': (
        0, 'campaign_steps_follow'),
    'An engine that stood still runs a command that is no longer its own': (4, 'rebooted_once'),
    'An engine changes a campaign without the lease of its scope': (0, 'campaign_is_fenced'),
    'Instances move onto hosts that are to come': (5, 'hosts_to_come_take_nothing'),
    'A campaign pauses, and its reason names no host': (0, 'pauses_are_explained'),
    'A host that an operator leaves out stays disabled': (3, 'every_campaign_ends'),
}
