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

"""What must hold of campaigns after any failure.

Those of ``AFTER_COMMIT`` see every change of a campaign in the database by a process,
``AFTER_PLAN`` each plan, ``AT_REBOOT`` each reboot, ``AT_ENABLING`` each request that enables a
host; the others look at the end.
"""

from collections.abc import Callable
import itertools
from typing import TYPE_CHECKING

from kronos_nova.model import CampaignHostState as States
from kronos_nova.model import CampaignState
from kronos_nova.rebalancer.engine import campaign_conductor
from tests.simulation.world import records

if TYPE_CHECKING:
    from tests.simulation.world import campaigns
    from tests.simulation.world import run as runs

Found = str | None
#: States that an engine may give a host, by the state before.
NEXT = {
    States.TO_COME: {States.EMPTYING},
    # Back, where a drain of a person began at the same time.
    States.EMPTYING: {States.HELD, States.TO_COME},
    States.HELD: {States.WORKING, States.WITHDRAWN},
    States.WORKING: {States.RETURNING, States.FAILED, States.IN_DOUBT},
    States.RETURNING: {States.DONE},
    States.WITHDRAWN: {States.SKIPPED},
}
#: What a pause by an engine names besides the host: the command of an operator that helps.
REMEDY = 'kronos campaign'


def _find(run: 'runs.Run') -> tuple['campaigns.Campaigns', records.Campaign]:
    assert run.campaigns is not None and run.campaigns.record is not None
    return run.campaigns, run.campaigns.record


# Of AFTER_COMMIT.

def campaign_is_fenced(run: 'runs.Run') -> Found:
    """Of processes, only the engine that holds the live lease of the scope changes a campaign."""
    _campaigns, record = _find(run)
    writer, lease = run.writer, records.lease(run.raw, record.scope)
    if (writer is None or writer not in run.engines or lease is None
            or lease[0] != writer.name or lease[2] <= run.now):
        return f'{writer and writer.name} changed the campaign under the lease {lease}'
    return None


def campaign_steps_follow(run: 'runs.Run') -> Found:
    """Engines give hosts only the states that follow, and a host works for its engine alone."""
    found, record = _find(run)
    assert found.before is not None and run.writer is not None
    for host, (after, worker) in record.hosts.items():
        before, _worker = found.before.hosts[host]
        if before != after and after not in NEXT.get(States(before), ()):
            return f'host {host} went from {before} to {after} by an engine'
        if before != after == States.WORKING and worker != run.writer.name:
            return f'host {host} works for {worker} by {run.writer.name}'
    if found.before.state != record.state and (found.before.state, record.state) not in (
            ('running', 'paused'), ('running', 'done'), ('paused', 'done'),
            ('aborting', 'aborted')):
        return f'the campaign went from {found.before.state} to {record.state} by an engine'
    return None


def pauses_are_explained(run: 'runs.Run') -> Found:
    """A pause by an engine names its host and a command that helps; a failure says why."""
    _campaigns, record = _find(run)
    if record.state == CampaignState.PAUSED and record.held_by == campaign_conductor.AUTHOR and (
            REMEDY not in record.held_because
            or not any(f'host {host}' in record.held_because for host in record.hosts)):
        return f'the campaign pauses: {record.held_because}'
    return None


AFTER_COMMIT: tuple[Callable[['runs.Run'], Found], ...] = (
    campaign_is_fenced, campaign_steps_follow, pauses_are_explained)


# Of AFTER_PLAN.

def hosts_to_come_take_nothing(run: 'runs.Run') -> Found:
    """No plan moves an instance onto a host that was still to come when its engine looked."""
    found, record = _find(run)
    assert run.writer is not None
    began = run.now - run.writer.stood
    for plan in run.new_plans:
        for task in plan.tasks if plan.scope == record.scope else ():
            if found.closed_since.get(task.to_host, float('inf')) < began:
                return f'{task.instance} is to move to {task.to_host}, which is to come'
    return None


AFTER_PLAN: tuple[Callable[['runs.Run'], Found], ...] = (hosts_to_come_take_nothing,)


# At each reboot.

def reboots_are_empty(run: 'runs.Run') -> Found:
    """No host is rebooted while an instance is on it, or on its way to it."""
    found, _record = _find(run)
    host = found.rebooting
    there = [i.uuid for i in run.cloud.instances.values() if i.host == host]
    coming = [m.uuid for m in run.cloud.active() if m.to_host == host and m.status != 'accepted']
    if there or coming:
        return f'host {host} is rebooted with the instances {there} and the migrations {coming}'
    return None


def rebooted_once(run: 'runs.Run') -> Found:
    """The command reboots a host once for a campaign, and again only for an operator's repeat."""
    found, _record = _find(run)
    host = found.rebooting
    if found.reboots[host] > found.permitted[host] + 1:
        return f'host {host} is rebooted {found.reboots[host]} times'
    return None


# At each request that enables a host.

def enabled_when_back(run: 'runs.Run') -> Found:
    """No engine enables a host after the work before its nova-compute is up."""
    found, record = _find(run)
    state = record.hosts.get(found.enabling, ('', None))[0]
    if state == States.RETURNING and not run.cloud.hosts[found.enabling].up:
        return f'host {found.enabling} is enabled, and its nova-compute is down'
    return None


AT_ENABLING: tuple[Callable[['runs.Run'], Found], ...] = (enabled_when_back,)
AT_REBOOT: tuple[Callable[['runs.Run'], Found], ...] = (reboots_are_empty, rebooted_once)


# At the end.

def every_campaign_ends(run: 'runs.Run') -> Found:
    """When the troubles end, a campaign ends, with the help that its texts ask for."""
    found, record = _find(run)
    if not record.is_over:
        return (f'the campaign stays {record.state} ({record.held_because}; {record.waits}), its '
                f'hosts are {record.hosts}')
    if any(not States(state).is_over for state, _worker in record.hosts.values()):
        return f'the campaign is {record.state}, and its hosts are {record.hosts}'
    return None


def no_host_stays_disabled(run: 'runs.Run') -> Found:
    """No host stays disabled for a campaign that has ended."""
    _campaigns, record = _find(run)
    left = [h.name for h in run.cloud.hosts.values() if not h.enabled
            and h.reason == record.reason]
    return f'{left} stay disabled: {record.reason}' if left else None


AT_END: tuple[Callable[['runs.Run'], Found], ...] = (every_campaign_ends, no_host_stays_disabled)


def names() -> list[str]:
    return [f.__name__ for f in itertools.chain(
        AFTER_COMMIT, AFTER_PLAN, AT_REBOOT, AT_ENABLING, AT_END)]
