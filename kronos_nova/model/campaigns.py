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

"""Campaigns: hosts that are emptied, handed over for maintenance and enabled, step by step."""

from collections import Counter
from collections.abc import Mapping
import dataclasses
import enum

from kronos_nova.model import maintenance_windows

#: What Nova's disabled_reason of each campaign has, before its ID.
CAMPAIGN_MARK = '[campaign '


class CampaignState(enum.StrEnum):
    """The state of a campaign."""

    RUNNING = 'running'
    #: Neither a host nor any work begins; hosts that come back are enabled.
    PAUSED = 'paused'
    #: It ends once the hosts that it has begun with are enabled.
    ABORTING = 'aborting'
    DONE = 'done'
    ABORTED = 'aborted'

    @property
    def is_terminal(self) -> bool:
        return self in (CampaignState.DONE, CampaignState.ABORTED)


class CampaignHostState(enum.StrEnum):
    """The state of a host in a campaign."""

    TO_COME = 'to-come'
    #: Disabled, or about to be; engines drain it.
    EMPTYING = 'emptying'
    #: Empty and disabled: an operator may reboot it.
    HELD = 'held'
    #: An engine runs [campaign] command for it.
    WORKING = 'working'
    #: The engine that ran the command is gone: whether it ran to its end is not known.
    IN_DOUBT = 'in-doubt'
    #: The command failed.
    FAILED = 'failed'
    #: The work is done: the host is enabled once its nova-compute reports and the check passes.
    RETURNING = 'returning'
    #: An operator, or an abort, leaves it out: it is enabled without the work.
    WITHDRAWN = 'withdrawn'
    DONE = 'done'
    #: Left out, and enabled if it was disabled for the campaign.
    SKIPPED = 'skipped'

    @property
    def is_over(self) -> bool:
        return self in (CampaignHostState.DONE, CampaignHostState.SKIPPED)

    @property
    def is_begun(self) -> bool:
        """True while the host is disabled for the campaign, or may be."""
        return self is not CampaignHostState.TO_COME and not self.is_over


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignHost:
    """A host of a campaign.

    ``position``: its place in the order of the forecast. ``since``: when the state began (epoch).
    ``disabled_at``: when an engine first read that the host is disabled for the campaign.
    ``worker``: the engine that runs the command. ``announced_at``: when listeners have got the news
    of a held host. ``detail``: why it is as it is, for people. ``asked_at``: when an engine last
    wrote that it asks Nova to disable or enable the host; its answer may be lost, and the request
    come late.
    """

    host: str
    position: int
    state: CampaignHostState = CampaignHostState.TO_COME
    since: float = 0.0
    disabled_at: float | None = None
    worker: str | None = None
    announced_at: float | None = None
    detail: str = ''
    asked_at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign over hosts of one scope, in the order in which they are emptied.

    ``reason``: Nova's disabled_reason of its hosts, which no other campaign has. ``together``: most
    hosts that are emptied at a time. ``opened``: drains of the present step may use hosts that are
    to come, because no other host has room. ``held_by`` and ``held_because``: who has paused or
    aborted it, and why; ``waits``: why no further host begins at the moment. ``migrations`` and
    ``seconds``: as forecast at its start; None: not known. ``authorization``: its signature, empty
    without keys. ``changed_at``: when its row or one of its hosts changed last. ``refusals``: how
    many steps in a row gave way because of Nova.
    """

    campaign_id: str
    scope: str
    reason: str
    together: int
    created_at: float
    created_by: str
    state: CampaignState = CampaignState.RUNNING
    windows: tuple[maintenance_windows.MaintenanceWindow, ...] = ()
    opened: bool = False
    held_by: str = ''
    held_because: str = ''
    waits: str = ''
    migrations: int = 0
    seconds: float | None = None
    ended_at: float | None = None
    hosts: tuple[CampaignHost, ...] = ()
    authorization: str = dataclasses.field(default='', repr=False)
    changed_at: float | None = dataclasses.field(default=None, compare=False)
    refusals: int = 0

    def select_hosts(self, *states: CampaignHostState) -> tuple[str, ...]:
        """Return the names of the hosts in one of the states, in order."""
        return tuple(host.host for host in self.hosts if host.state in states)

    @property
    def has_own_reason(self) -> bool:
        """True if the reason ends with the campaign's ID, as that of no other campaign does."""
        return self.reason.endswith(f'{CAMPAIGN_MARK}{self.campaign_id}]')

    @property
    def begun_hosts(self) -> tuple[CampaignHost, ...]:
        """Hosts that are disabled for the campaign, or may be."""
        return tuple(host for host in self.hosts if host.state.is_begun)


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignOverview:
    """A campaign without its hosts, which are counted.

    ``counts``: the number of its hosts by state, in the order of the states. ``next_host``: the
    first one that is to come. ``begun``: hosts that are disabled for it, or may be; empty where
    they were not read.
    """

    campaign: Campaign
    counts: Mapping[CampaignHostState, int]
    next_host: str | None
    begun: tuple[CampaignHost, ...] = ()

    @property
    def campaign_id(self) -> str:
        return self.campaign.campaign_id

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def summarise_campaign(campaign: Campaign) -> CampaignOverview:
    """Return the overview of a campaign that was read with its hosts."""
    numbers = Counter(host.state for host in campaign.hosts)
    return CampaignOverview(
        campaign, {state: numbers[state] for state in CampaignHostState if numbers[state]},
        next(iter(campaign.select_hosts(CampaignHostState.TO_COME)), None), campaign.begun_hosts)


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadableCampaign:
    """A campaign with a value in the database that no program of ours writes.

    ``field``: the column of the value; ``problem``: the value, and why it is wrong.
    """

    campaign_id: str
    scope: str
    field: str
    problem: str

    @property
    def remedy(self) -> str:
        return (f'Correct {self.field} of campaign {self.campaign_id} in the database, and abort '
                'the campaign. Find out who can write to the database')

    def __str__(self) -> str:
        return f'campaign {self.campaign_id} cannot be read: {self.field}: {self.problem}'
