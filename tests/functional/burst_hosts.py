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


"""A small uneven cloud and its two flavors, of which one is idle."""

#: vCPUs by host; MiB are 8192 for each.
SIZES = {'host1': 16, 'host2': 16, 'host3': 32, 'host4': 32, 'host5': 48, 'host6': 64}
#: Load without any instance.
IDLE = {'host1': 0.15, 'host2': 0.02, 'host3': 0.10, 'host4': 0.04, 'host5': 0.19, 'host6': 0.08}
#: vCPUs and MiB; as Nova's own functional tests have these flavors.
SHAPES = {'m1.tiny': (1, 512), 'm1.medium': (2, 4096)}
#: Cores that an instance really uses.
USES = {'m1.tiny': 0.1, 'm1.medium': 1.6}
#: Instances that are there before, and in the first sample.
SETTLED = (('m1.medium', 'host6'), ('m1.medium', 'host6'), ('m1.tiny', 'host1'),
           ('m1.medium', 'host3'), ('m1.tiny', 'host5'))


def mixed(count: int) -> list[str]:
    """Both flavors, not in turns."""
    return ['m1.medium' if i * 7 % 13 < 7 else 'm1.tiny' for i in range(count)]


def loads() -> dict[str, float]:
    """Return the load of each host, with that of its earlier instances."""
    load_by_host = dict(IDLE)
    for name, host in SETTLED:
        load_by_host[host] += USES[name] / SIZES[host]
    return load_by_host


def allocated() -> dict[str, tuple[int, int, int]]:
    """Return vCPUs, MiB and the number of the earlier instances by host."""
    use_by_host = dict.fromkeys(SIZES, (0, 0, 0))
    for name, host in SETTLED:
        vcpus, ram_mb, count = use_by_host[host]
        use_by_host[host] = (vcpus + SHAPES[name][0], ram_mb + SHAPES[name][1], count + 1)
    return use_by_host
