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

"""The next step of each host in a campaign, by what an engine has read. Pure.

A state is in the database before the engine acts on it, so that the next engine knows what may have
happened: it disables a host again, it enables a host again, and it never runs a command again.
"""

from collections.abc import Collection
import dataclasses
import enum

from kronos_nova import model
from kronos_nova.text import times

#: Seconds for which a disabled host must be empty: a boot that chose it before may still arrive.
SETTLE_SECONDS = 60.0
#: Seconds after which listeners get the news of a held host again: a webhook may have lost it.
REMIND_SECONDS = 600.0


class Deed(enum.Enum):
    """What an engine does for a host, beside the change of its state."""

    DISABLE = 'disable'
    ENABLE = 'enable'
    #: Run the command, once the database says so.
    BEGIN_WORK = 'begin work'
    ANNOUNCE = 'announce'


class Command(enum.Enum):
    """What an engine knows of a command that it runs for a host."""

    RUNNING = 'running'
    SUCCEEDED = 'succeeded'
    #: This engine runs none.
    UNKNOWN = 'unknown'


@dataclasses.dataclass(frozen=True, slots=True)
class HostReading:
    """A host as an engine has read it.

    ``service``: None: Nova lists none. ``instances``: how many are on the host or on their way to
    it. ``claimed``: the resource classes that consumers hold in its providers. ``taken_at``: when
    Nova was read, by the database's clock. ``command``: the state of the command of a host that
    works, or why it failed; of a host that returns, that of the check. ``hold``: why the host must
    not be disabled now; None: it may be.
    """

    service: model.Service | None
    instances: int
    claimed: Collection[str]
    taken_at: float
    command: Command | str = Command.UNKNOWN
    hold: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StepSettings:
    """What the configuration says of steps.

    ``has_command``: engines do the work, and no operator. ``may_begin``: None, or why no work
    begins now. ``return_seconds``: for so long a host may take to come back. ``late_seconds``: for
    so long a request to Nova may be on its way, also that of an engine that has died.
    """

    has_command: bool
    has_check: bool
    may_begin: str | None
    return_seconds: float
    late_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class HostStep:
    """The next step of a host.

    ``state``: its new state; None: as it was. ``disabled``: the host is seen as disabled for the
    campaign from now on. ``trouble``: why the campaign must pause. ``detail``: the text of the new
    state, or why the host waits.
    """

    state: model.CampaignHostState | None = None
    deed: Deed | None = None
    disabled: bool = False
    trouble: str = ''
    detail: str = ''


def judge_host(campaign: model.Campaign, host: model.CampaignHost, reading: HostReading,
               now: float, settings: StepSettings) -> HostStep:
    """Return the next step of a host that has begun.

    :param now: seconds since the epoch, by the database's clock.
    """
    states = model.CampaignHostState
    service = reading.service
    if service is None and host.state is states.WITHDRAWN:
        return HostStep(state=states.SKIPPED, detail='Nova lists no nova-compute there')
    if service is None:
        return HostStep(trouble=f'Nova shows no nova-compute of host {host.host}; kronos campaign '
                                'resume goes on once it does, and skip leaves the host out')
    if service.status == model.UNKNOWN:
        return HostStep(detail='Nova cannot reach its cell')
    foreign = not service.enabled and service.disabled_reason != campaign.reason
    if host.state is states.WITHDRAWN:
        return _judge_withdrawn(host, service, foreign, reading, settings)
    if foreign:
        return HostStep(trouble=f'host {host.host} is disabled for another reason now '
                                f'({service.disabled_reason!r}); enable it and say kronos '
                                'campaign resume, or leave it out with kronos campaign skip')
    match host.state:
        case states.EMPTYING:
            return _judge_emptying(campaign, host, service, reading, now, settings)
        case states.HELD:
            return _judge_held(campaign, host, service, reading, now, settings)
        case states.WORKING:
            return _judge_working(host, reading)
        case states.RETURNING:
            return _judge_returning(host, service, reading, now, settings)
    return HostStep(detail=host.detail, trouble=f'host {host.host} is {host.state}: {host.detail}; '
                    'see the host, then kronos campaign done, repeat or skip')


def find_work_hold(campaign: model.Campaign, settings: StepSettings) -> str | None:
    """Return why no host is handed over for the work, and no command begins; None: nothing."""
    if campaign.state is not model.CampaignState.RUNNING:
        return f'the campaign is {campaign.state}'
    return settings.may_begin


def _judge_emptying(campaign: model.Campaign, host: model.CampaignHost, service: model.Service,
                    reading: HostReading, now: float, settings: StepSettings) -> HostStep:
    if campaign.state is model.CampaignState.ABORTING:
        return HostStep(state=model.CampaignHostState.WITHDRAWN, detail='aborted')
    if service.enabled and host.disabled_at is None:
        return _judge_undisabled(campaign, host, reading, now, settings)
    if service.enabled:
        return HostStep(trouble=f'another user has enabled host {host.host} while the campaign '
                                'emptied it; kronos campaign resume disables it again')
    if host.disabled_at is None:
        return HostStep(disabled=True)
    if reading.instances:
        return HostStep(detail=f'{reading.instances} to leave')
    if reading.claimed:
        return HostStep(detail='no instance is left, and Placement still shows claims of '
                               + ', '.join(sorted(reading.claimed)))
    if reading.taken_at < host.disabled_at + SETTLE_SECONDS:
        return HostStep(detail='empty; boots that chose the host before may still arrive')
    hold = find_work_hold(campaign, settings)
    if hold is not None:
        return HostStep(detail=f'empty, and not handed over for the work: {hold}')
    return HostStep(state=model.CampaignHostState.HELD)


def _judge_undisabled(campaign: model.Campaign, host: model.CampaignHost, reading: HostReading,
                      now: float, settings: StepSettings) -> HostStep:
    """Judge a host that has begun and that Nova still shows as enabled.

    It takes instances and holds drains of people, so it is to come again unless it is disabled
    soon: the next step is planned with the cloud as it is then. While a request may still disable
    it, it is not: it counts for ``max_drain_fraction``.
    """
    hold = reading.hold or find_work_hold(campaign, settings)
    if hold is None and now < host.since + settings.late_seconds:
        return HostStep(deed=Deed.DISABLE)
    if host.asked_at is not None and reading.taken_at < host.asked_at + settings.late_seconds:
        return HostStep(detail=host.detail if hold is None else
                        f'{hold}; an earlier request may still disable it')
    return HostStep(state=model.CampaignHostState.TO_COME, detail=describe_return(
        hold or host.detail or 'no engine has done so in time'))


def describe_return(why: str) -> str:
    """Return the detail of a host that began, was not disabled, and is to come again."""
    return f'not disabled: {why}'


def is_refused(host: model.CampaignHost) -> bool:
    """Return whether a host is to come again because Nova has not disabled it."""
    return host.state is model.CampaignHostState.TO_COME and host.detail.startswith(
        describe_return('Nova: '))


def _judge_held(campaign: model.Campaign, host: model.CampaignHost, service: model.Service,
                reading: HostReading, now: float, settings: StepSettings) -> HostStep:
    if service.enabled:
        return HostStep(trouble=f'another user has enabled host {host.host}, which is held for '
                                'maintenance; kronos campaign done or skip says how it goes on')
    if reading.instances or reading.claimed:
        return HostStep(trouble=f'host {host.host} is held for maintenance and is no longer '
                                'empty; empty it and say kronos campaign resume, or leave it out '
                                'with kronos campaign skip')
    hold = find_work_hold(campaign, settings)
    if settings.has_command and host.announced_at is None:
        if campaign.state is model.CampaignState.ABORTING:
            return HostStep(state=model.CampaignHostState.WITHDRAWN, detail='aborted')
        return HostStep(deed=Deed.BEGIN_WORK) if hold is None else HostStep(detail=hold)
    # A host that was handed over to people is theirs, also when engines have a command now.
    is_known = host.announced_at is not None and now < host.announced_at + REMIND_SECONDS
    return HostStep(deed=None if is_known or hold is not None else Deed.ANNOUNCE)


def _judge_working(host: model.CampaignHost, reading: HostReading) -> HostStep:
    if reading.command is Command.RUNNING:
        return HostStep()
    if reading.command is Command.SUCCEEDED:
        return HostStep(state=model.CampaignHostState.RETURNING)
    if reading.command is Command.UNKNOWN:
        return HostStep(
            state=model.CampaignHostState.IN_DOUBT,
            detail=f'engine {host.worker} ran the command, and is gone or has lost the scope',
            trouble=f'whether the command of host {host.host} ran to its end is not known, and no '
                    'engine runs it again: see the host, then kronos campaign done or repeat')
    return HostStep(state=model.CampaignHostState.FAILED, detail=str(reading.command),
                    trouble=f'the command of host {host.host} failed: {reading.command}; '
                            'kronos campaign repeat runs it again')


def _judge_returning(host: model.CampaignHost, service: model.Service, reading: HostReading,
                     now: float, settings: StepSettings) -> HostStep:
    if service.enabled:
        return HostStep(state=model.CampaignHostState.DONE)
    waits = None
    if not service.up:
        waits = 'its nova-compute is down'
    elif not _has_reported(service, host):
        waits = 'its nova-compute has not reported since the work ended'
    elif settings.has_check and reading.command is not Command.SUCCEEDED:
        waits = ('the check has not ended' if isinstance(reading.command, Command) else
                 f'the check failed: {reading.command}')
    if waits is None:
        return HostStep(deed=Deed.ENABLE)
    if now < host.since + settings.return_seconds:
        return HostStep(detail=waits)
    return HostStep(detail=waits, trouble=(
        f'host {host.host} has not come back since {times.format_time(host.since)}: {waits}; '
        'kronos campaign resume goes on once it is back'))


def may_check(campaign: model.Campaign, host: model.CampaignHost,
              service: model.Service | None) -> bool:
    """Return whether the check may run for a host.

    No row of the database alone lets it run: Nova must show the host disabled for the campaign.
    """
    return (host.state is model.CampaignHostState.RETURNING and service is not None
            and not service.enabled and service.disabled_reason == campaign.reason
            and service.up and _has_reported(service, host))


def _has_reported(service: model.Service, host: model.CampaignHost) -> bool:
    """Return whether a nova-compute has reported since the state of its host began.

    Nova shows a service as up for service_down_time after it has gone.
    """
    return service.reported_at is None or service.reported_at > host.since


def _judge_withdrawn(host: model.CampaignHost, service: model.Service, foreign: bool,
                     reading: HostReading, settings: StepSettings) -> HostStep:
    if foreign:
        return HostStep(state=model.CampaignHostState.SKIPPED,
                        detail='it is disabled for another reason, and stays so')
    if not service.enabled:
        return HostStep(deed=Deed.ENABLE)
    if reading.taken_at < host.since + settings.late_seconds:
        # An engine that died may have sent the request that disables the host.
        return HostStep(detail='it is enabled; a late request may still disable it')
    return HostStep(state=model.CampaignHostState.SKIPPED)
