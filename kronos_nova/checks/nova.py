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


"""The check of Nova: it is new enough, shows everything, and has the configured aggregates."""

from collections.abc import Iterator
import time

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.checks import base
from kronos_nova.rebalancer.clients import collector

#: How many names an item shows.
SHOWN = 5


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    if context.connection is None:
        yield base.report_skip('nova', 'the token is missing')
        return
    try:
        cluster = collector.CloudCollector(context.conf,
                                           context.connection).collect_cluster(time.time())
    except exception.CollectError as e:
        yield base.report_failure(
            'nova', f'{e.kwargs["service"]}: {e.kwargs["what"]}: {e.kwargs["problem"]}',
            'See that the service answers, and the roles of the user of [nova].')
        return
    context.cluster = cluster
    yield base.report_ok('nova',
                         f'{plurals.count_noun(len(cluster.hosts), "host")} that can be planned, '
                         f'{plurals.count_noun(len(cluster.instances), "instance")}')
    yield from _check_scopes(context, cluster)
    yield from _check_hosts(cluster)
    yield from _check_cells(context, cluster)
    yield from _check_local_disks(context, cluster)


def _check_scopes(context: base.CheckContext, cluster: model.Cluster) -> Iterator[base.CheckItem]:
    engine = context.conf.engine
    if not engine.aggregates and not engine.include_unassigned_hosts:
        yield base.report_failure('scopes', 'there is nothing to plan',
                                  'Name aggregates in [engine] aggregates or set '
                                  'include_unassigned_hosts = true.')
    zone = cluster.planned_zone
    if zone is not None:
        count = sum(map(cluster.has_planned, cluster.hosts))
        yield (base.report_ok('availability zone',
                              f'{zone}: {plurals.count_noun(count, "host")}') if count
               else base.report_failure(
            'availability zone', f'no host that can be planned is in zone {zone}',
            'Correct [engine] availability_zone: openstack compute service list names the zones.'))
    wanted = [*engine.aggregates]
    if context.policy_set is not None:
        wanted += [a for a in context.policy_set.aggregates if a != model.UNASSIGNED]
    for name in dict.fromkeys(wanted):
        if name not in cluster.aggregates:
            yield base.report_failure(f'aggregate: {name}', 'Nova has no aggregate of this name',
                                      'Correct [engine] aggregates, or aggregates in the policy '
                                      'file.')
        elif not cluster.list_hosts_of(name):
            yield base.report_warning(f'aggregate: {name}', 'it has no host that can be planned',
                                      'Add hosts, or see [engine] hypervisor_types and '
                                      'availability_zone.')
        else:
            yield base.report_ok(f'aggregate: {name}',
                                 plurals.count_noun(len(cluster.list_hosts_of(name)), 'host'))
    if engine.include_unassigned_hosts:
        yield base.report_ok('hosts in no aggregate',
                             plurals.count_noun(len(cluster.list_hosts_of(model.UNASSIGNED)),
                                                'host'))


def _check_hosts(cluster: model.Cluster) -> Iterator[base.CheckItem]:
    down = sorted(h for h in cluster.hosts if not cluster.services[h].up)
    if down:
        yield base.report_warning('nova: services',
                                  f'{plurals.count_with_verb(len(down), "host")} down: '
                                  f'{_format_names(down)}',
                                  'Nothing moves to or from them.')
    alone = sorted(h.name for h in cluster.hosts.values() if h.provider is None)
    if alone:
        yield base.report_warning('nova: providers',
                                  f'{plurals.count_noun(len(alone), "host")} without a '
                                  'resource provider: '
                                  f'{_format_names(alone)}',
                                  'See the logs of their nova-compute.')


def _check_cells(context: base.CheckContext, cluster: model.Cluster) -> Iterator[base.CheckItem]:
    """Check that aggregates name the cell of every host, unless they name no cell at all."""
    cell_names = {h.cell for h in cluster.hosts.values()} - {None}
    missing = sorted(h.name for h in cluster.hosts.values() if h.cell is None)
    key = context.conf.engine.cell_metadata_key
    if cell_names and missing:
        yield base.report_warning(
            'nova: cells',
            f'{plurals.count_noun(len(missing), "host")} without the name of a cell: '
            f'{_format_names(missing)}',
            f'Add them to an aggregate whose metadata {key} names their cell.')
    elif cell_names:
        yield base.report_ok('nova: cells',
                             f'{plurals.count_noun(len(cell_names), "cell")}; '
                             'each host has the name of one')


def _check_local_disks(context: base.CheckContext,
                       cluster: model.Cluster) -> Iterator[base.CheckItem]:
    """Report how many instances have disks that are not volumes.

    Without shared storage, imbalance moves leave these instances where they are.
    """
    engine = context.conf.engine
    if engine.allow_disk_copy or engine.instance_storage == 'shared':
        return
    on_local_disks = sum(1 for i in cluster.instances.values() if i.local_disk_gb != 0)
    text = f'{on_local_disks} of {len(cluster.instances)} instances have disks that are no volumes'
    if engine.instance_storage == 'local':
        yield base.report_ok('nova: disks', f'{text}: they are not moved by load')
    elif on_local_disks:
        yield base.report_warning('nova: disks',
                                  f'{text}: where storage is not shared, Nova will refuse '
                                          'to move them by load',
                                  'Set [engine] instance_storage to shared or local, or set '
                                  'allow_disk_copy.')


def _format_names(names: list[str]) -> str:
    return ', '.join(names[:SHOWN]) + (', ...' if len(names) > SHOWN else '')
