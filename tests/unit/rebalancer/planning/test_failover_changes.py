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

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.planning import failover_changes
from tests.unit.rebalancer.planning import test_failover

INSTANCES = [('a', 'h0', 2), ('b', 'h1', 1), ('c', 'h2', 1)]
GROUP = model.ServerGroup('g', 'anti-affinity', frozenset({'a', 'b'}))
FLIGHT = model.InFlightMove('c', 'h2', 'h3')


def make_request(**options):
    return test_failover.small(4, INSTANCES, groups=[GROUP], **options)


def change_cluster(request, **fields):
    return dataclasses.replace(request, cluster=dataclasses.replace(request.cluster, **fields))


def change_history(request, **fields):
    return dataclasses.replace(request, history=dataclasses.replace(request.history, **fields))


def change_host(request, **fields):
    hosts = dict(request.cluster.hosts)
    hosts['h1'] = dataclasses.replace(hosts['h1'], **fields)
    return change_cluster(request, hosts=hosts)


def change_provider(request, **fields):
    return change_host(request, provider=dataclasses.replace(
        request.cluster.hosts['h1'].provider, **fields))


def fly(request):
    return change_cluster(request, flights=(FLIGHT,))


def disable(request):
    return change_cluster(request, services={
        **request.cluster.services, 'h1': model.Service('h1', status='disabled')})


def share(request):
    """Let h1 and h3 take disk from one provider, and a migration end on h3."""
    hosts = dict(request.cluster.hosts)
    for name in ('h1', 'h3'):
        hosts[name] = dataclasses.replace(hosts[name], sharing=frozenset({'pool'}))
    return change_cluster(request, hosts=hosts)


@pytest.mark.parametrize(('before', 'now', 'instances', 'hosts'), [
    (lambda r: r, lambda r: r, '', ''),
    (lambda r: r, lambda r: test_failover.replace_instance(r, 'c', extra_specs={'k': 'v'}),
     'c', ''),
    # The rule of a group judges all members when one has changed, or the group.
    (lambda r: r, lambda r: test_failover.replace_instance(r, 'a', extra_specs={'k': 'v'}),
     'a b', ''),
    (lambda r: r, lambda r: change_cluster(r, groups=(dataclasses.replace(
        GROUP, members=frozenset({'a', 'c'})),)), 'a b c', ''),
    (lambda r: r, lambda r: change_cluster(r, groups=()), 'a b', ''),
    (lambda r: r, lambda r: change_history(r, refused={'b': frozenset({'h2'})}), 'a b', ''),
    (lambda r: r, lambda r: change_history(r, quarantined_hosts=frozenset({'h2'})), '', 'h2'),
    (lambda r: r, lambda r: change_history(r, draining=frozenset({'h3'})), '', 'h3'),
    (lambda r: r, disable, '', 'h1'),
    (lambda r: r, lambda r: change_provider(r, traits=frozenset({'CUSTOM_A'})), '', 'h1'),
    (lambda r: r, lambda r: change_provider(
        r, inventories={'VCPU': model.Inventory(8)}), '', 'h1'),
    # Room on a root is compared as a number; where a claim may be on another provider, it is not.
    (lambda r: r, lambda r: change_provider(r, used={'VCPU': 3}), '', ''),
    (share, lambda r: change_provider(share(r), used={'VCPU': 3}), '', 'h1'),
    (lambda r: r, fly, 'c', ''),
    (share, lambda r: fly(share(r)), 'c', 'h1 h3'),
    (lambda r: r, lambda r: change_cluster(
        r, scope_hosts=r.cluster.scope_hosts - {'h3'}), '', 'h3')])
def test_change_names_the_instances_and_hosts_it_touches(before, now, instances, hosts):
    request = make_request()
    assert failover_changes.compare_requests(before(request), now(request)) == (
        failover_changes.CloudChanges(frozenset(instances.split()), frozenset(hosts.split())))


def test_instance_that_a_hint_names_is_touched_when_the_other_changes():
    request = test_failover.replace_instance(
        make_request(nova_enabled_filters=frozenset({'DifferentHostFilter'})), 'c',
        scheduler_hints={'different_host': ('b',)})
    changed = test_failover.replace_instance(request, 'c', extra_specs={'k': 'v'})
    assert failover_changes.compare_requests(request, changed).instances == {'b', 'c'}


@pytest.mark.parametrize('now', [
    lambda r: change_cluster(r, aggregates={'scope': ('h0',)}),
    lambda r: change_cluster(r, aggregate_metadata={'scope': {'k': 'v'}}),
    lambda r: change_cluster(r, planned_zone='z'),
    lambda r: change_history(r, other_cells=frozenset({('h0', 'h1')})),
    lambda r: dataclasses.replace(r, options=dataclasses.replace(
        r.options, enforce_placement_claims=False))])
def test_change_that_rules_may_read_for_all_touches_everything(now):
    request = make_request()
    assert failover_changes.compare_requests(request, now(request)).everything
