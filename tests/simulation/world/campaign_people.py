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

"""Operators of a campaign: they start it, do the work at held hosts, and settle doubts."""

import collections
from typing import TYPE_CHECKING
import uuid

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.store import campaigns as stored_campaigns
from kronos_nova.text import times
from tests.simulation.world import cloud
from tests.simulation.world import records

if TYPE_CHECKING:
    from tests.simulation.world import campaigns

STATES, HOSTS = model.CampaignState, model.CampaignHostState
#: Seconds until the campaign starts and until an operator comes to a host; those without a change
#: until they look what is in the way, and until they give up.
START, COMES, HELPS, PATIENCE = (5.0, 60.0), (5.0, 60.0), 120.0, 350.0


class CampaignPeople:
    """Of one run; they have their own chance."""

    def __init__(self, campaigns: 'campaigns.Campaigns') -> None:
        self._campaigns, self.run, self.rng = campaigns, campaigns.run, campaigns.rng
        self._starts_at = self.run.now + self.rng.uniform(*START)
        #: When an operator comes to a host in a state, or to a campaign that pauses.
        self._comes_at: dict[tuple[str, str], float] = {}
        self._changed: tuple[object, float] = (None, self.run.now)
        #: Hosts at which an operator works, and until when.
        self._works: dict[str, float] = {}
        self._helped_at = self._calm_since = self.run.now
        #: How often each host was enabled or disabled by hand.
        self.hands: collections.Counter[str] = collections.Counter()

    def act(self) -> None:
        """One step's worth."""
        if self._starts_at <= self.run.now:
            self._try(self._start)
        if not self._campaigns.is_live:
            return
        self._meddle()
        self._work()
        record = self._campaigns.record
        assert record is not None
        for host, (state, _worker) in record.hosts.items():
            if self._has_come(host, state):
                self._decide(host, state)
        if self._has_come('', record.state if record.state == STATES.PAUSED else ''):
            self._order(STATES.RUNNING, STATES.PAUSED)
        self._lose_patience()

    def _try(self, order: object, *args: object, **kw: object) -> bool:
        """Give an order; the database may refuse it, and then it is given again."""
        assert callable(order)
        try:
            return bool(order(*args, **kw))
        except exception.StoreError:
            self.run.counts['commands that the database refused'] += 1
            return False
        finally:
            self._campaigns.note_order()

    def _start(self) -> None:
        """Start the campaign over all or some of the hosts of a scope that are enabled."""
        enabled = [h for h in self.run.cloud.aggregates[cloud.AGGREGATE]
                   if self.run.cloud.hosts[h].enabled and self.run.cloud.hosts[h].up]
        if not enabled:
            return
        spare = cloud.SPARE if self.rng.random() < 0.7 else ''
        hosts = [h for h in enabled if h != spare and self.rng.random() < 0.8] or enabled[:1]
        self.rng.shuffle(hosts)
        campaign_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        opens = times.format_time(self.run.now + self.rng.uniform(60, 300))
        windows = () if self.rng.random() < 0.8 else (maintenance_windows.parse_window(
            f'{opens[11:16]}-{(int(opens[11:13]) + 12) % 24}:00'),)
        self.run.store.campaigns.create_campaign(model.Campaign(
            campaign_id, cloud.AGGREGATE, f'firmware [campaign {campaign_id}]',
            self.rng.choice([1, 1, 2]), self.run.now, 'ann', windows=windows,
            hosts=tuple(model.CampaignHost(host, n, since=self.run.now)
                        for n, host in enumerate(hosts))), 'firmware')
        self._starts_at = float('inf')
        self.run.counts['campaigns'] += 1
        self.run.counts['hosts of campaigns'] += len(hosts)

    def _has_come(self, what: str, state: str) -> bool:
        """Return whether an operator has come to something since it has its state."""
        key = what, state
        for known in [k for k in self._comes_at if k[0] == what and k != key]:
            del self._comes_at[known]
        if not state:
            return False
        at = self._comes_at.setdefault(key, self.run.now + self.rng.uniform(*COMES))
        if at > self.run.now:
            return False
        del self._comes_at[key]
        return True

    def _decide(self, host: str, state: str) -> None:
        """Act at a host as an operator does who has looked at it."""
        service = self.run.cloud.hosts[host]
        record = self._campaigns.record
        assert record is not None
        if state == HOSTS.HELD:
            if service.enabled or service.reason != record.reason:
                self._say(host, campaign_orders.SKIP)
            elif not self._campaigns.has_command and host not in self._works:
                self._campaigns.reboot(host)
                self._works[host] = self.run.now + self.rng.uniform(5, 60)
        elif state in (HOSTS.IN_DOUBT, HOSTS.FAILED) and not self._campaigns.runs_command(host):
            if self._campaigns.reboots[host]:
                self._say(host, campaign_orders.DONE)
            elif self.rng.random() < 0.8:
                self._permit_repeat(host)
            else:
                self._say(host, campaign_orders.SKIP)

    def _permit_repeat(self, host: str) -> None:
        seen = self._campaigns.reboots[host]
        if self._say(host, campaign_orders.REPEAT):
            self._campaigns.permitted[host] = seen

    def _work(self) -> None:
        """Say that the work at a host is done."""
        for host, until in list(self._works.items()):
            if until <= self.run.now and (self._say(host, campaign_orders.DONE)
                                          or not self._is_held(host)):
                del self._works[host]

    def _is_held(self, host: str) -> bool:
        record = self._campaigns.record
        return record is not None and record.hosts[host][0] == HOSTS.HELD

    def _say(self, host: str, order: stored_campaigns.HostOrder) -> bool:
        record = self._campaigns.record
        assert record is not None
        said = self._try(self.run.store.campaigns.order_host, record.campaign_id, host, order,
                         by='ann', reason='looked at it')
        self.run.counts[f'{order.command}'] += said
        return said

    def _order(self, after: model.CampaignState, *before: model.CampaignState) -> None:
        record = self._campaigns.record
        assert record is not None
        self.run.counts[f'campaigns ordered to be {after}'] += self._try(
            self.run.store.campaigns.order_state, record.campaign_id, before, after,
            command='campaign', by='ann', reason='the weather')

    def _meddle(self) -> None:
        """Do at times what a campaign must bear."""
        record, hit = self._campaigns.record, self._campaigns.faults.hit
        assert record is not None
        if hit('operator pauses a campaign'):
            self._order(STATES.PAUSED, STATES.RUNNING)
        if hit('operator aborts a campaign'):
            self._order(STATES.ABORTING, STATES.RUNNING, STATES.PAUSED)
        host = self.rng.choice(list(record.hosts))
        service = self.run.cloud.hosts[host]
        if host not in self._works and hit('operator skips a host of a campaign'):
            self._say(host, campaign_orders.SKIP)
        if not service.enabled and hit('operator enables a host of a campaign'):
            service.enabled, service.reason = True, None
            self.hands[host] += 1
            self.run.cloud.changed()
        if hit('operator disables a host of a campaign'):
            service.enabled, service.reason = False, 'maintenance'
            self.hands[host] += 1
            self.run.cloud.changed()

    def _help(self, record: records.Campaign) -> None:
        """Put right what keeps instances on the hosts of the campaign, and the hosts themselves."""
        for host in record.hosts:
            if host not in self.run.cloud.aggregates[cloud.AGGREGATE]:
                self.run.cloud.aggregates[cloud.AGGREGATE].append(host)
        for command in self._campaigns.commands:
            # One that hangs, and whose engine is gone, is ended at the host.
            command.is_dead |= command.ends_at == float('inf')
        for migration in self.run.cloud.migrations:
            migration.held_until = min(migration.held_until, self.run.now)
        for instance in self.run.cloud.instances.values():
            if instance.host in record.hosts and instance.task_state is None:
                instance.locked = False
                if instance.status in ('SHUTOFF', 'ERROR'):
                    instance.status = 'ACTIVE'
        for engine in self.run.engines:
            engine.put_clock_right()
        self._try(self._lift_quarantines)
        self.run.people.enable()
        self.run.cloud.changed()

    def _lift_quarantines(self) -> None:
        quarantine = self.run.store.quarantine
        for entry in quarantine.list_quarantines(self.run.now):
            quarantine.lift_quarantine(entry.kind, entry.name, self.run.now, 'ann')

    def _lose_patience(self) -> None:
        """Abort a campaign in which nothing has changed for long, when all else is well."""
        record, (known, since) = self._campaigns.record, self._changed
        assert record is not None
        if record.progress != known:
            self._changed = record.progress, self.run.now
        elif self.run.now > since + HELPS and self.run.now > self._helped_at + HELPS:
            self._helped_at = self.run.now
            self._help(record)
        if self.run.faults.active:
            self._calm_since = self.run.now
        elif self.run.now > max(since, self._calm_since) + PATIENCE:
            self.run.counts['campaigns that operators gave up'] += 1
            self._changed = known, self.run.now
            self._order(STATES.ABORTING, STATES.RUNNING, STATES.PAUSED)
