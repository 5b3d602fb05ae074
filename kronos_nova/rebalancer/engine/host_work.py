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

"""The command and the check of hosts in a campaign, as programs of one engine."""

from typing import Protocol

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.rebalancer.planning import campaign_steps


class ProgramRunner(Protocol):
    """Programs that run, by a key; see host_programs."""

    def start_program(self, key: str, path: str, host: str, seconds: float,
                      **variables: str) -> str | None:
        """Start a program; return why it was not started, or None."""

    def poll_program(self, key: str) -> campaign_steps.Command | str:
        """Return how far a program is, or why it failed."""

    def forget_program(self, key: str) -> None:
        """Forget a program that has ended."""


class HostWork:
    """Starts and follows the programs of hosts.

    :param owner: name of the engine.
    """

    def __init__(self, conf: cfg.ConfigOpts, programs: ProgramRunner, owner: str) -> None:
        self._conf = conf
        self._programs = programs
        self._owner = owner
        #: Hosts whose check succeeded since they began to return.
        self._checked: dict[str, float] = {}

    def poll_program(self, campaign: model.Campaign, host: model.CampaignHost,
                     service: model.Service | None) -> campaign_steps.Command | str:
        """Return how far the command or the check of a host is; a check begins here."""
        if host.state is model.CampaignHostState.WORKING:
            if host.worker != self._owner:
                return campaign_steps.Command.UNKNOWN
            return self._programs.poll_program(_build_key(campaign, host, 'command'))
        group = self._conf.campaign
        if not group.check_command or not campaign_steps.may_check(campaign, host, service):
            return campaign_steps.Command.UNKNOWN
        key = _build_key(campaign, host, 'check')
        if self._checked.get(key) == host.since:
            return campaign_steps.Command.SUCCEEDED
        found = self._programs.poll_program(key)
        if found is campaign_steps.Command.SUCCEEDED:
            self._checked[key] = host.since
        elif found is not campaign_steps.Command.RUNNING:
            return self._start_program(campaign, host, 'check', group.check_command,
                                       group.check_timeout) or found
        return found

    def start_command(self, campaign: model.Campaign, host: model.CampaignHost) -> str | None:
        """Start the command of a host; return why it was not started, or None."""
        group = self._conf.campaign
        return self._start_program(campaign, host, 'command', group.command,
                                   group.command_timeout)

    def forget_command(self, campaign: model.Campaign, host: model.CampaignHost) -> None:
        """Forget the command of a host, which has ended."""
        self._programs.forget_program(_build_key(campaign, host, 'command'))

    def _start_program(self, campaign: model.Campaign, host: model.CampaignHost, what: str,
                       path: str, seconds: float) -> str | None:
        return self._programs.start_program(
            _build_key(campaign, host, what), path, host.host, seconds,
            KRONOS_CAMPAIGN=campaign.campaign_id, KRONOS_SCOPE=campaign.scope)


def _build_key(campaign: model.Campaign, host: model.CampaignHost, what: str) -> str:
    return f'{what} {campaign.campaign_id} {host.host}'
