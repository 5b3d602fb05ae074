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


"""Several forked workers of nova-scheduler, each placing what the others cannot see.

A program: ``python -m tests.functional.burst_workers POLICIES URL CACHE WORKERS
MULTIPLIER CONCURRENT``. It loads Nova's weighers and ours as nova-scheduler
does, forks, and gives every worker the same HostState objects and a boot of
its own; when all have chosen the computes claim, and the next round begins.
Printed is max - min of what the hosts really do at the end, as JSON, with the
choices by host.
"""

import collections
import json
import multiprocessing
import sys
import time
import uuid

from nova import objects
from nova.scheduler import host_manager
from nova.scheduler import weights

from kronos_nova import policy
from kronos_nova.feed import feed_channel
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import raw_cache
from kronos_nova.scheduler import runtime
from tests.functional import burst_hosts

BOOTS = 96
PATIENCE = 60.0


def states(allocated):
    """Nova's HostState objects, as a request gets them."""
    host_states = []
    for name, size in burst_hosts.SIZES.items():
        state = host_manager.HostState(name, name, 'cell')
        vcpus, ram_mb, instances = allocated[name]
        state.hypervisor_hostname, state.hypervisor_version = name, 1000000
        state.vcpus_total, state.vcpus_used = size, vcpus
        state.total_usable_ram_mb = size * 8192
        state.free_ram_mb = state.total_usable_ram_mb - ram_mb
        state.free_disk_mb, state.num_instances = 10**7, instances
        state.cpu_allocation_ratio, state.aggregates, state.instances = 4.0, [], {}
        host_states.append(state)
    return host_states


def spec_of(name, instance_uuid):
    vcpus, ram_mb = burst_hosts.SHAPES[name]
    flavor = objects.Flavor(vcpus=vcpus, memory_mb=ram_mb, root_gb=1, ephemeral_gb=0, swap=0,
                            extra_specs={})
    return objects.RequestSpec(
        instance_uuid=instance_uuid, flavor=flavor, instance_group=None, num_instances=1,
        requested_destination=None, force_hosts=None, force_nodes=None, ignore_hosts=None,
        scheduler_hints={}, image=objects.ImageMeta(properties=objects.ImageMetaProps()),
        pci_requests=objects.InstancePCIRequests(requests=[]))


def choose(weighers, allocated, name, instance_uuid):
    weighed = weights.HostWeightHandler().get_weighed_objects(
        weighers, states(allocated), spec_of(name, instance_uuid))
    return weighed[0].obj.host


def worker(weighers, pipe):
    """What a forked worker does; it sees the scores before it is ready."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        [group] = runtime.get_runtime().list_scored_groups(states(burst_hosts.allocated()))
        if group.snapshot is not None and group.snapshot.extras:
            break
        time.sleep(0.05)
    else:
        pipe.send(None)
        return
    pipe.send('ready')
    while (asked := pipe.recv()) is not None:
        pipe.send(choose(weighers, *asked))


def main(policies, url, cache, workers, multiplier, concurrent):
    objects.register_all()
    runtime.CONF([], project='nova', default_config_files=[])
    raw_cache.register(runtime.CONF)
    for option, value, group in (
            ('policies_file', [policies], 'kronos'), ('url', url, 'prometheus'),
            ('concurrent_boots', int(concurrent), 'kronos'), ('refresh_interval', 600, 'kronos'),
            ('kronos_weight_multiplier', float(multiplier), 'filter_scheduler'),
            ('directory', cache, 'kronos_channel')):
        runtime.CONF.set_override(option, value, group)
    runtime.NOTICE_INTERVAL = 0.1
    key = feed_channel.usage_key(policy.Policy(name='cpu', weight=1.0, imbalance_query='cpu'))
    now = time.time()
    feed_channel.FeedChannel(runtime.CONF).write_usage(key, flavor_usages.FlavorUsages({
        flavor_usages.FlavorShape(*shape): burst_hosts.USES[name]
        for name, shape in burst_hosts.SHAPES.items()}), now, now + 600)
    classes = weights.HostWeightHandler().get_matching_classes(
        ['nova.scheduler.weights.all_weighers', 'kronos_nova.weighers.all_weighers'])
    weighers = [cls() for cls in classes]
    context = multiprocessing.get_context('fork')
    pipes, processes = [], []
    for _ in range(int(workers)):
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(weighers, theirs), daemon=True)
        process.start()
        theirs.close()  # so that we notice when the worker dies
        pipes.append(ours)
        processes.append(process)
    if [pipe.recv() for pipe in pipes] != ['ready'] * len(pipes):
        return 'a worker saw no scores'
    allocated, loads = burst_hosts.allocated(), burst_hosts.loads()
    chosen = collections.Counter()
    names = burst_hosts.mixed(BOOTS)
    for first in range(0, BOOTS, len(pipes)):
        some = names[first:first + len(pipes)]
        for index, (pipe, name) in enumerate(zip(pipes, some, strict=False)):
            pipe.send((allocated, name, str(uuid.uuid5(uuid.NAMESPACE_OID, f'{first + index}'))))
        hosts = [pipe.recv() for pipe, _ in zip(pipes, some, strict=False)]
        for host, name in zip(hosts, some, strict=True):
            vcpus, ram_mb = burst_hosts.SHAPES[name]
            used, ram_used, instances = allocated[host]
            allocated[host] = (used + vcpus, ram_used + ram_mb, instances + 1)
            loads[host] += burst_hosts.USES[name] / burst_hosts.SIZES[host]
            chosen[host] += 1
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    print(json.dumps({'spread': max(loads.values()) - min(loads.values()), 'chosen': chosen}))
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
