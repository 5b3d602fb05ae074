# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Simulated counters under node_exporter's and (inovex) libvirt-exporter's metric names. Pure."""

from collections.abc import Iterable
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from tools.cloud.load import GuestCounters
from tools.cloud.load import HostCounters
from tools.cloud.load import MIB

#: the modes of node_exporter; a simulated host is busy in user mode alone
MODES = ('idle', 'iowait', 'irq', 'nice', 'softirq', 'steal', 'system', 'user')


class _Once:
    """A collector of metrics that are there already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(metrics))
    return generate_latest(registry)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)


def node(name: str, host: HostCounters, now: float) -> bytes:
    """What node_exporter says on a host; the load is spread evenly over its cores."""
    uname = GaugeMetricFamily(
        'node_uname_info', 'Labeled system information.',
        labels=['domainname', 'machine', 'nodename', 'release', 'sysname', 'version'],
    )
    uname.add_metric(['(none)', 'x86_64', name, '6.1.0', 'Linux', 'sandbox'], 1)
    cpu = CounterMetricFamily(
        'node_cpu_seconds', 'Seconds the CPUs spent in each mode.', labels=['cpu', 'mode']
    )
    seconds = {'idle': host.idle / host.cores, 'user': host.busy / host.cores}
    for core in range(host.cores):
        for mode in MODES:
            cpu.add_metric([str(core), mode], seconds.get(mode, 0.0))
    disk = CounterMetricFamily(
        'node_disk_io_time_seconds', 'Total seconds spent doing I/Os.', labels=['device']
    )
    disk.add_metric(['sda'], host.disk_busy)
    available = host.memory_total - host.memory_used
    return _text([
        uname,
        cpu,
        disk,
        _gauge('node_time_seconds', 'System time in seconds since epoch.', now),
        _gauge('node_boot_time_seconds', 'Node boot time, in unixtime.', host.boot_time),
        _gauge('node_memory_MemTotal_bytes', 'Memory information field.', host.memory_total),
        _gauge('node_memory_MemAvailable_bytes', 'Memory information field.', available),
        _gauge('node_memory_MemFree_bytes', 'Memory information field.', available),
        _counter('node_pressure_cpu_waiting_seconds',
                 'Total time in seconds that processes have waited for CPU time',
                 host.cpu_waiting),
        _counter('node_pressure_io_waiting_seconds',
                 'Total time in seconds that processes have waited due to IO congestion',
                 host.io_waiting),
        _counter('node_pressure_io_stalled_seconds',
                 'Total time in seconds no process could make progress due to IO congestion',
                 host.io_waiting),
        _counter('node_pressure_memory_waiting_seconds',
                 'Total time in seconds that processes have waited for memory',
                 host.memory_stalled),
        _counter('node_pressure_memory_stalled_seconds',
                 'Total time in seconds no process could make progress due to memory congestion',
                 host.memory_stalled),
    ])


def libvirt(guests: Iterable[GuestCounters]) -> bytes:
    """What libvirt-exporter says on a host with these guests."""
    up = GaugeMetricFamily('libvirt_up', 'Whether scraping libvirt was successful.', value=1)
    info = GaugeMetricFamily(
        'libvirt_domain_openstack_info', 'OpenStack metadata of the domain.',
        labels=['domain', 'instance_name', 'instance_id', 'flavor_name', 'user_name', 'user_id',
                'project_name', 'project_id'],
    )
    cpu_time = CounterMetricFamily(
        'libvirt_domain_info_cpu_time_seconds', 'CPU time used by the domain, in seconds.',
        labels=['domain'],
    )
    virtual_cpus = GaugeMetricFamily(
        'libvirt_domain_info_virtual_cpus', 'Number of virtual CPUs of the domain.',
        labels=['domain'],
    )
    maximum_memory = GaugeMetricFamily(
        'libvirt_domain_info_maximum_memory_bytes', 'Maximum memory of the domain, in bytes.',
        labels=['domain'],
    )
    rss = GaugeMetricFamily(
        'libvirt_domain_memory_stats_rss_bytes', 'Resident set size of the domain, in bytes.',
        labels=['domain'],
    )
    for counters in guests:
        guest = counters.guest
        info.add_metric(
            [guest.domain, guest.name, guest.uuid, guest.flavor, '', guest.user_id, '',
             guest.project_id], 1,
        )
        cpu_time.add_metric([guest.domain], counters.cpu_time)
        virtual_cpus.add_metric([guest.domain], guest.vcpus)
        maximum_memory.add_metric([guest.domain], guest.memory_mb * MIB)
        rss.add_metric([guest.domain], counters.memory)
    return _text([up, info, cpu_time, virtual_cpus, maximum_memory, rss])
