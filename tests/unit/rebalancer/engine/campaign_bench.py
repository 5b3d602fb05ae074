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

"""A cloud with a campaign: hosts, Nova's services, engines that die, and programs at hosts.

Plans come from the real planner, and their moves end within the cycle. The conductor, its steps
and the database are the real ones.
"""

from collections import Counter
import dataclasses

from oslo_config import cfg
from oslo_utils import uuidutils

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.engine import campaign_conductor
from kronos_nova.rebalancer.engine import notifications
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.planning import campaign_steps
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import evacuate
from tests.fixtures import stores
from tests.unit import clouds

MEMORY = 8192
SCOPE = model.UNASSIGNED


class Death(BaseException):
    """The engine is gone: nothing after it runs."""


class Bench:
    """A cloud of one scope, and one engine at a time.

    :param sizes: {host: [MiB of each instance]}.
    :param dies: called at each step of the engine that may be its last; it raises Death.
    """

    def __init__(self, sizes, dies=lambda: None, **options):
        self.now = 1_000_000.0
        self.dies = dies
        #: Whether the engine is at work, so that it may die.
        self.at_work = False
        stores.renew()
        self.store = _Store(self)
        self.conf = cfg.ConfigOpts()
        opts.register(self.conf)
        self.conf([], default_config_files=[])
        self.options = {'max_drain_fraction': 0.5, 'evacuate_disabled_hosts': True}
        for name, value in options.items():
            self.conf.set_override(name, value, 'campaign')
        self.services = {host: model.Service(host) for host in sizes}
        self.hosts = {host: host for host in sizes}
        self.instances = {f'{host}{n}': model.Instance(
            f'{host}{n}', host, memory_mb=size, claims={'MEMORY_MB': size})
            for host, mine in sizes.items() for n, size in enumerate(mine)}
        base = clouds.request(clouds.Knobs(seed=1, hosts=2, instances=2, groups=0, policies=1,
                                           budget=99))
        self.policies = base.policies
        self.migrations = Counter()
        #: Reboots by host: those of programs and of operators.
        self.reboots = Counter()
        self.events = []
        self.programs = {}
        self.exit_status = {}
        self.held_moves = False
        #: Claims in Placement without an instance: MiB by host.
        self.orphans = {}
        #: Servers that Nova shows on each host when it is asked about one.
        self.hidden = []
        #: Called once Nova has shown a service, or before it changes one, with the host.
        self.after_read = self.before_change = lambda host: None
        #: Hosts whose changes Nova does not answer, and those whose changes it refuses.
        self.silent, self.refused = set(), set()
        self.payloads = []
        #: Moves for balance that the plan of each cycle has as well; they never begin.
        self.other_moves = ()
        self.number = 0
        #: Of the monotonic clock.
        self.seconds = 0.0
        self.renew_engine()

    # The engine.

    def renew_engine(self):
        """Start another engine: it knows what the database knows."""
        self.number += 1
        self.owner = f'engine-{self.number}'
        self.now += 31.0  # the lease of the one before
        self.running = {}
        self.conductor = campaign_conductor.CampaignConductor(
            self.conf, self.store, lambda host: _Service(self, host), _Programs(self),
            notifications.PlanAnnouncer([self.notify]), self.owner, lambda: self.now,
            lambda: self.seconds)

    def notify(self, event, scope, payload):
        self.events.append((event, payload.get('host')))
        self.payloads.append((event, payload))
        return True

    def run_cycle(self, seconds=61.0):
        """Plan, let the moves end, and carry the campaign on."""
        self.now += seconds
        lease = self.store.leases.acquire_lease(SCOPE, self.owner, 60.0, '')
        assert lease is not None
        request = self.build_request()
        plan = planner.plan(request)
        planning_pipeline.check_plan(plan, request)
        outcome = planning_pipeline.PassOutcome(
            request.cluster, request.scores, dataclasses.replace(
                plan, moves=(*plan.moves, *self.other_moves)), {}, request)
        if not self.held_moves:
            for move in sorted(plan.moves, key=lambda move: move.wave):
                self.instances[move.instance_uuid] = dataclasses.replace(
                    self.instances[move.instance_uuid], host=move.to_host)
                self.migrations[move.instance_uuid] += 1
        self.at_work = True
        try:
            self.conductor.conduct_campaign(lease, outcome)
        finally:
            self.at_work = False

    def may_die(self):
        if self.at_work:
            self.dies()

    def run_cycles(self, number):
        for _cycle in range(number):
            self.run_cycle()

    def build_request(self):
        hosts = {name: model.Host(name, uuid=name, provider=model.Provider(
            name, inventories={'MEMORY_MB': model.Inventory(MEMORY)},
            used={'MEMORY_MB': sum(i.memory_mb for i in self.instances.values()
                                   if i.host == name) + self.orphans.get(name, 0)}))
            for name in self.hosts}
        load = Counter(i.host for i in self.instances.values())
        scores = model.ClusterScores({p.name: model.PolicyScores(
            p.name, {h: 0.01 * load[h] for h in hosts}, {h: 0.01 * load[h] for h in hosts},
            dict.fromkeys(hosts, 100.0), dict.fromkeys(self.instances, 1.0))
            for p in self.policies.enabled_policies})
        cluster = model.Cluster(
            hosts, dict(self.instances), dict(self.services), taken_at=self.now,
            scope=SCOPE, scope_hosts=frozenset(hosts))
        history = dataclasses.replace(
            self.store.history.read_history(SCOPE, self.now, 3600.0), cooling={})
        return planner.PlanningInput(
            cluster, scores, self.policies, [evacuate.Evacuate()], history,
            model.PlanningOptions(**self.options), budget=99, now=self.now)

    # Operators.

    def start(self, hosts, together=1, windows=()):
        """Order a campaign over the hosts in this order."""
        campaign_id = uuidutils.generate_uuid()
        self.store.campaigns.create_campaign(model.Campaign(
            campaign_id, SCOPE, f'firmware [campaign {campaign_id}]', together, self.now, 'ann',
            windows=windows, hosts=tuple(model.CampaignHost(host, n, since=self.now)
                                         for n, host in enumerate(hosts))), 'firmware')

    @property
    def campaign(self):
        """The campaign that began last."""
        (campaign,) = self.store.campaigns.list_newest_campaigns(1)
        return campaign

    def states(self):
        return {host.host: host.state.value for host in self.campaign.hosts}

    def order(self, host, order):
        return self.store.campaigns.order_host(
            self.campaign.campaign_id, host, order, by='ann', reason='said so')

    def reboot_and_say_done(self, host):
        """Do what an operator does at a held host."""
        self.reboot(host)
        assert self.order(host, campaign_orders.DONE)

    def set_state(self, before, after, reason='a storm'):
        return self.store.campaigns.order_state(
            self.campaign.campaign_id, before, after, command='campaign', by='ann', reason=reason)

    def set_service(self, host, **changes):
        self.services[host] = dataclasses.replace(self.services[host], **changes)

    def reboot(self, host):
        """Reboot a host: it must be empty, and disabled for the campaign."""
        assert not self.list_instances(host), f'{host} was rebooted with instances'
        assert self.services[host].disabled_reason == self.campaign.reason, f'{host} was enabled'
        self.reboots[host] += 1

    def list_instances(self, host):
        return [i.uuid for i in self.instances.values() if i.host == host]


class _Store(stores.Store):
    """The real store; the engine may die before and after each transaction."""

    def __init__(self, bench):
        super().__init__(engine=stores.engine(), clock=lambda: bench.now)
        self._bench = bench

    def _run(self, step, *, begin='IMMEDIATE'):
        self._bench.may_die()
        result = super()._run(step, begin=begin)
        self._bench.may_die()
        return result


class _Service:
    """Nova's answers about a host; the engine may die before and after each change."""

    def __init__(self, bench, host):
        self._bench, self._host = bench, host

    def read_service(self):
        found = self._host, self._bench.services[self._host]
        self._bench.after_read(self._host)
        return found

    def list_left_servers(self):
        return self._bench.list_instances(self._host) + self._bench.hidden

    def disable(self, uuid, reason):
        self._change(status='disabled', disabled_reason=reason)

    def enable(self, uuid):
        self._change(status='enabled', disabled_reason=None)

    def _change(self, **changes):
        self._bench.before_change(self._host)
        self._bench.may_die()
        if self._host in self._bench.silent:
            raise api.ApiError('Nova', 'the service', 'no answer', sent=True)
        if self._host in self._bench.refused:
            raise api.ApiError('Nova', 'the service', 'HTTP 403', 403)
        self._bench.set_service(self._host, **changes)
        self._bench.may_die()


class _Programs:
    """A command that reboots its host at once, and ends in the next cycle."""

    def __init__(self, bench):
        self._bench = bench

    def start_program(self, key, path, host, seconds, **variables):
        bench = self._bench
        bench.may_die()
        if path == 'command':
            bench.reboot(host)
        status = bench.exit_status.get((path, host), 0)
        bench.running[key] = (campaign_steps.Command.SUCCEEDED if status == 0
                              else f'exit status {status}')
        bench.may_die()

    def poll_program(self, key):
        return self._bench.running.get(key, campaign_steps.Command.UNKNOWN)

    def forget_program(self, key):
        self._bench.running.pop(key, None)
