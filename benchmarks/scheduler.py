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


"""What our filters and weigher cost nova-scheduler, beside Nova's own.

Each runs alone inside Nova's handler on real HostState objects. Printed is
CPU time of the thread in microseconds per host, the least of several runs,
all in one process and in turn: ``own`` is what remains when the time with a
filter or weigher that does nothing is subtracted, ``all`` when only the time
of the empty handler is; the row of the one that does nothing (IdleFilter,
IdleWeigher) is what the handler itself spends. Ratios are what to compare
between machines. Hosts are in two aggregates, one of which sets multipliers;
every tenth has changed since the sample; a member of the request's server
group is migrating. KronosCapacityFilter is also measured where each host keeps
a reserve for a failed one. The weigher is also measured in the first request after a
refresh, and when every tenth host has changed since the request before.

A refresh is all that the background does each ``refresh_interval``: CPU time
of the whole process, with two policies that an HTTP server of another process
answers as Prometheus would, one series per host::

    python benchmarks/scheduler.py --hosts 1000 10000 --json
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from typing import Any
from unittest import mock

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', '1')

from nova import objects
import nova.conf
from nova.scheduler import filters as nova_filters
from nova.scheduler import host_manager
from nova.scheduler import weights as nova_weights
import yaml

from benchmarks import answers
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova.feed import feed_channel
from kronos_nova.feed import raw_cache
from kronos_nova.scheduler import runtime
from kronos_nova.sources import base
from kronos_nova.weighers import failure_domains
from kronos_nova.weighers import project_cache

CONF = nova.conf.CONF
OURS = ('KronosPlacementFilter', 'KronosCapacityFilter', 'KronosWeigher')
#: Nova's default ones that ask no service of its own.
STOCK_FILTERS = ('ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
                 'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter')
#: The scope of all hosts.
SCOPE = 'all'
WITH_RESERVE = 'KronosCapacityFilter, a reserve'
CHANGED, REFRESHED = 'KronosWeigher, a tenth changed', 'KronosWeigher, after a refresh'
GROUP_SPREAD = 'KronosDomainWeigher, a group'
PROJECT_SPREAD = 'KronosDomainWeigher, a project on all hosts'
INSTANCES = 20
#: The default of refresh_interval, seconds.
INTERVAL = 30.0
MEMBERS = 5


class Source(base.MetricsSource):
    """Scores that are there at once; the cost of asking is not measured here."""

    def __init__(self, names: list[str]) -> None:
        self._series = {name: (i % 90) / 100 for i, name in enumerate(names)}

    def fetch(self, policy: Any, *, profile: bool = True) -> model.PolicySamples:
        return model.PolicySamples(policy.name, model.QueryResult(
            policy.imbalance_query, model.SourceHealth.HEALTHY, series=self._series))

    def health(self) -> tuple[model.SourceHealth, str]:
        return model.SourceHealth.HEALTHY, ''


def states_of(count: int) -> list[Any]:
    """HostState objects as HostManager leaves them, of hosts with instances."""
    everywhere = objects.Aggregate(id=1, name='az', metadata={'availability_zone': 'az1'})
    racks = [objects.Aggregate(
        id=2 + i, name=f'rack{i}', hosts=[f'cn{n}' for n in range(i, count, 20)],
        metadata={'kronos_weight_multiplier': str(1 + i % 3), 'kronos:domain': f'rack:r{i}'})
        for i in range(20)]
    found = []
    for i in range(count):
        state = host_manager.HostState(f'cn{i}', f'cn{i}.example.org', 'cell')
        state.hypervisor_hostname = state.nodename
        state.hypervisor_type, state.hypervisor_version = 'QEMU', 8000000
        state.supported_instances = [['x86_64', 'kvm', 'hvm']]
        state.vcpus_total, state.vcpus_used = 64, 16 + i % 32
        state.total_usable_ram_mb, state.free_ram_mb = 262144, 65536 + 1024 * (i % 64)
        state.total_usable_disk_gb, state.free_disk_mb = 4000, 2000 * 1024
        state.cpu_allocation_ratio, state.ram_allocation_ratio = 4.0, 1.5
        state.disk_allocation_ratio = 1.0
        state.metrics, state.stats = objects.MonitorMetricList(objects=[]), {}
        state.updated = datetime.datetime.now(datetime.UTC)
        state.aggregates = [everywhere, racks[i % len(racks)]]
        state.instances = {f'u{i}-{k}': None for k in range(INSTANCES)}
        found.append(state)
    return found


def spec_of(**extra_specs: str) -> Any:
    members = [f'u{i}-0' for i in range(MEMBERS)]
    return objects.RequestSpec(
        instance_uuid='new', num_instances=1, scheduler_hints={}, requested_destination=None,
        ignore_hosts=None, force_hosts=None, force_nodes=None, project_id='p',
        flavor=objects.Flavor(name='f', vcpus=2, memory_mb=4096, root_gb=10, ephemeral_gb=0,
                              swap=0, extra_specs={
                                  k.replace('_', ':'): v for k, v in extra_specs.items()}),
        image=objects.ImageMeta(properties=objects.ImageMetaProps()), pci_requests=None,
        numa_topology=None, requested_resources=[],
        instance_group=objects.InstanceGroup(uuid='g', policy='anti-affinity', rules={},
                                             policies=['anti-affinity'],
                                             members=members, hosts=[]))


def asked(states: list[Any]) -> Any:
    """Whoever loads the source meanwhile gets one that knows these hosts."""
    source = Source([state.host for state in states])
    return mock.patch.object(plugins, 'load_plugin', autospec=True,
                             return_value=lambda conf: source)


@contextlib.contextmanager
def prepared(states: list[Any]) -> Iterator[None]:
    """A door whose scores, allocations and notices are there."""
    raw_cache.register(CONF)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, 'policies.yaml')
        with open(path, 'w') as f:
            yaml.safe_dump({'policies': [
                {'name': 'cpu', 'weight': 0.5, 'imbalance_query': 'cpu', 'boot_ceiling': 0.8},
                {'name': 'memory', 'weight': 0.5, 'imbalance_query': 'memory',
                 'boot_ceiling': 0.8}]}, f)
        overrides = (('policies_file', [path], 'kronos'), ('refresh_interval', 3600.0, 'kronos'),
                     ('directory', directory, 'kronos_channel'))
        for name, value, group in overrides:
            CONF.set_override(name, value, group)
        now = time.time()
        feed_channel.FeedChannel(CONF).write(feed_channel.PublishedState(
            draining=frozenset({'cn7'}), quarantined=frozenset({'cn8'}),
            flights=(model.InFlightMove('u0-0', 'cn0', 'cn9', 'kronos'),), written_at=now,
            expires_at=now + 3000, scopes=frozenset({SCOPE})))
        # Each host keeps a reserve; every tenth has no more to give.
        feed_channel.FeedChannel(CONF).write_boot_limits(SCOPE, {
            state.host: model.BootLimit(0 if i % 10 == 0 else 250, 393216, 4000)
            for i, state in enumerate(states)}, now, now + 3000)
        runtime.close()
        with asked(states):
            wait(lambda: (groups := runtime.get_runtime().list_scored_groups(states))[
                0].snapshot is not None
                 and len(groups[0].snapshot.loads) == len(states))
        wait(lambda: len(runtime.get_runtime().notices.read_boot_limits()) == len(states))
        yield
        runtime.close()
        for name, _, group in overrides:
            CONF.clear_override(name, group)


def grow(states: list[Any], vcpus: int) -> None:
    """Every tenth host has more allocated."""
    for state in states[::10]:
        state.vcpus_used += vcpus


class IdleFilter(nova_filters.BaseHostFilter):
    """What the handler itself spends on any filter."""

    def filter_all(self, filter_obj_list: Any, spec_obj: Any) -> Any:
        return filter_obj_list


class IdleWeigher(nova_weights.BaseHostWeigher):
    """What the handler itself spends on any weigher whose weights differ."""

    minval = 0
    maxval = 1

    def __init__(self, count: int) -> None:
        self._weights = [round(i / count, 5) for i in range(count)]
        # Nova sorts: in order already would be cheaper than what any other does.
        random.Random(0).shuffle(self._weights)

    def weight_multiplier(self, host_state: Any) -> float:
        return 1.0

    def weigh_objects(self, weighed_obj_list: Any, weight_properties: Any) -> list[float]:
        return self._weights

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        return 0.0


class SpreadWeigher(failure_domains.KronosDomainWeigher):
    """KronosDomainWeigher with its multiplier set."""

    def _read_option_value(self) -> float:
        return 1.0


def wait(condition: Callable[[], bool], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise SystemExit('The scores did not come.')
        time.sleep(0.01)


def cost(runs: dict[str, Callable[[], Any]], rounds: int,
         before: dict[str, Callable[[], Any]] | None = None,
         clock: Callable[[], float] = time.thread_time) -> dict[str, float]:
    """The least CPU seconds of each, taken in turn.

    :param before: what is done before a run, and not measured.
    """
    found = dict.fromkeys(runs, float('inf'))
    for _ in range(rounds):
        for name, run in runs.items():
            (before or {}).get(name, int)()
            started = clock()
            run()
            found[name] = min(found[name], clock() - started)
    return found


def refresh_cost(states: list[Any], rounds: int) -> float:
    """CPU seconds of a refresh, in all threads, with answers over HTTP."""
    with answers.running(len(states)) as url:
        CONF.set_override('url', url, 'prometheus')
        runtime.close()
        board = runtime.get_runtime().scores
        # Its own thread asks once, then not for an hour.
        wait(lambda: (groups := board.group_scored_hosts(states))[0].snapshot is not None
             and len(groups[0].snapshot.loads) == len(states))
        found = cost({'refresh': board.refresh_scores}, rounds, clock=time.process_time)['refresh']
        runtime.close()
    return found


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Microseconds per host of every filter and weigher, and the ratios."""
    # The hosts of a request are other objects, with other strings, than those
    # of the requests before; so are these.
    earlier, states, spec = states_of(count), states_of(count), spec_of()
    filters = nova_filters.HostFilterHandler()
    weighers = nova_weights.HostWeightHandler()
    filter_classes = filters.get_matching_classes(
        ['nova.scheduler.filters.all_filters', 'kronos_nova.filters.all_filters'])
    weigher_classes = weighers.get_matching_classes(
        ['nova.scheduler.weights.all_weighers', 'kronos_nova.weighers.all_weighers'])
    runs: dict[str, Callable[[], Any]] = {
        'no filter': lambda: filters.get_filtered_objects([], states, spec),
        'no weigher': lambda: weighers.get_weighed_objects([], states, spec)}
    filters_of = [IdleFilter(), *(cls() for cls in filter_classes
                                  if cls.__name__ in (*STOCK_FILTERS, *OURS))]
    weighers_of = [IdleWeigher(count), *(cls() for cls in weigher_classes)]
    for one in filters_of:
        runs[type(one).__name__] = lambda one=one: filters.get_filtered_objects(
            [one], states, spec)
    runs[WITH_RESERVE] = runs['KronosCapacityFilter']
    for one in weighers_of:
        runs[type(one).__name__] = lambda one=one: weighers.get_weighed_objects(
            [one], states, spec)
    spread, ungrouped = spec_of(kronos_spread='rack'), spec_of(kronos_spread='rack')
    ungrouped.instance_group = None
    spread.instance_group.hosts = [f'cn{i}' for i in range(MEMBERS)]
    domains = SpreadWeigher()
    for name, request in ((GROUP_SPREAD, spread), (PROJECT_SPREAD, ungrouped)):
        runs[name] = lambda request=request: weighers.get_weighed_objects(
            [domains], states, request)
    with prepared(earlier):
        book = runtime.get_runtime().get_shared_state(project_cache.ProjectBook)
        book._refresher.ensure_running = lambda: None  # it would ask Nova's database
        book._replace_projects({f'u{i}-1': 'p' for i in range(count)})
        grow(states, 4)
        runs[REFRESHED] = runs[CHANGED] = runs['KronosWeigher']
        more = itertools.cycle((1, -1))
        seconds = cost(runs, rounds, before={
            REFRESHED: runtime.get_runtime().scores._update_readings,
            CHANGED: lambda: grow(states, next(more)),
            **{name: lambda name=name: CONF.set_override(
                'failover_reserve', 'keep' if name == WITH_RESERVE else 'ignore', 'kronos')
                for name in (WITH_RESERVE, 'KronosCapacityFilter')}})
        refresh = refresh_cost(states, min(rounds, 5))
        faults = dict(runtime.get_runtime().faults.counts)
    if faults:
        raise SystemExit(f'Errors of ours were swallowed, which is fast: {faults}')
    result: dict[str, Any] = {
        kind: {type(one).__name__: {
            'own': (seconds[type(one).__name__] - seconds[f'Idle{kind.capitalize()}'])
            / count * 1e6,
            'all': (seconds[type(one).__name__] - seconds[f'no {kind}']) / count * 1e6}
            for one in some}
        for kind, some in (('filter', filters_of), ('weigher', weighers_of))}
    result['filter'][WITH_RESERVE] = {
        'own': (seconds[WITH_RESERVE] - seconds['IdleFilter']) / count * 1e6,
        'all': (seconds[WITH_RESERVE] - seconds['no filter']) / count * 1e6}
    for what in ('own', 'all'):
        result[f'reserve_to_none_{what}'] = (
            result['filter'][WITH_RESERVE][what] / result['filter']['KronosCapacityFilter'][what])
    for name in (CHANGED, REFRESHED, GROUP_SPREAD, PROJECT_SPREAD):
        result['weigher'][name] = {
            'own': (seconds[name] - seconds['IdleWeigher']) / count * 1e6,
            'all': (seconds[name] - seconds['no weigher']) / count * 1e6}
    result['refresh_milliseconds'] = refresh * 1e3
    result['refresh_percent_of_a_core'] = refresh / INTERVAL * 100
    for what in ('own', 'all'):
        stock = [row[what] for name, row in result['weigher'].items()
                 if not name.startswith(('Kronos', 'Idle'))]
        ours = result['weigher']['KronosWeigher'][what]
        result[f'weigher_to_stock_{what}'] = {
            'median': ours / statistics.median(stock), 'cheapest': ours / min(stock)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--hosts', type=int, nargs='+', default=[1000, 10000])
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    CONF([], project='nova', default_config_files=[])
    objects.register_all()
    results = {str(count): measure(count, options.rounds) for count in options.hosts}
    if options.json:
        print(json.dumps(results))
        return
    for count, result in results.items():
        print(f'{count} hosts, microseconds per host{"":12} own    all')
        for kind in ('filter', 'weigher'):
            for name, row in sorted(result[kind].items(),
                                    key=lambda item: (not item[0].startswith('Kronos'), item[0])):
                print(f'  {name:36} {row["own"]:6.2f} {row["all"]:6.2f}')
        print(f'  refresh in the background: {result["refresh_milliseconds"]:.1f} ms, '
              f'{result["refresh_percent_of_a_core"]:.2f} % of a core')
        for what in ('own', 'all'):
            print(f'  KronosCapacityFilter, with / without a reserve ({what}): '
                  f'{result[f"reserve_to_none_{what}"]:.2f}')
            ratio = result[f'weigher_to_stock_{what}']
            print(f'  KronosWeigher / stock weigher ({what}): median {ratio["median"]:.2f}, '
                  f'cheapest {ratio["cheapest"]:.2f}')


if __name__ == '__main__':
    main()
