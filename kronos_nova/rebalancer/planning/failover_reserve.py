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

"""The room that boots must leave free, so that the places of a failover certificate last. Pure.

The reserve of a host is, for each resource class, the largest sum of claims that the certificate
places on it in any one case: when one set of hosts fails. Boots that leave so much free on each
host take no place away:

* A case brings the claims of its instances to the survivors, and frees nothing anywhere: a failed
  host keeps its allocations. So each survivor needs room for the sum of this case alone, and this
  sum is at most its reserve. Cases happen one at a time, so that they share the reserve.
* Migrations that Placement does not charge at their destination yet take room there later, at an
  alternate of a task also while Nova migrates to its destination, and so do the moves of the
  plan. Their claims stay free beside the reserve.
* The places after the plan may be others than today's: the reserve has room for both.
* A boot changes no claim and no place of any other instance. It takes room on its own host alone,
  where the reserve stays free.

So an instance keeps its place as far as these classes go, and all places hold if nothing else
about the certificate changes: a boot may still break a rule about server groups or hints, raise
the load above a ceiling of a policy, or take what only another class counts. The booted instance
itself has a place once the next certificate finds one. Boots of one cycle, taken together, may be
more than the rest of the cloud has places for. Then the next certificate calls their host unsafe.

The places on an unsafe host count as well: without them the reserve of a cloud would fall to
nothing as soon as a boot is one too many, and the boots after it would take all that is left.
A set of hosts that the certificate did not search, or whose places the checker refused, has no
places, and reserves nothing.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Mapping
import math

from kronos_nova import model
from kronos_nova.constraints import occupancy
from kronos_nova.constraints import placement_overlay
from kronos_nova.rebalancer.planning import failover

VCPU, MEMORY = 'VCPU', 'MEMORY_MB'
#: Classes of which nova-compute tells the scheduler its use, in the order of a boot limit.
CLASSES = (VCPU, MEMORY, occupancy.DISK)
#: The class of dedicated CPUs.
DEDICATED = 'PCPU'


def compute_reserve(certificate: failover.FailoverCertificate) -> dict[str, dict[str, int]]:
    """Return the amounts that hosts must keep free today and after the plan, by host and class.

    Classes of which a host needs nothing are missing, and so is DISK_GB where it is not enforced.
    """
    request = certificate.request
    judged = [name for name in CLASSES if name != occupancy.DISK
              or request.options.enforce_placement_disk is not False]
    reserve: dict[str, dict[str, int]] = {}
    later = certificate.after_plan
    for verdict in (*certificate.verdicts.values(), *(later.verdicts.values() if later else ())):
        needed: Counter[tuple[str, str]] = Counter()
        for uuid, host in verdict.places.items():
            claims = request.cluster.instances[uuid].claims
            for name in judged:
                needed[host, name] += claims.get(name, 0)
        for (host, name), amount in needed.items():
            if amount > 0:
                amounts = reserve.setdefault(host, {})
                amounts[name] = max(amount, amounts.get(name, 0))
    return reserve


def compute_boot_limits(certificate: failover.FailoverCertificate,
                        moves: Iterable[model.Move] = ()) -> dict[str, model.BootLimit]:
    """Return the limits that keep the reserve, by host; hosts without any are missing.

    :param moves: of the plan.
    """
    cluster = certificate.request.cluster
    awaited = _sum_awaited(cluster, moves)
    limits = {host: model.BootLimit(*(
        _compute_limit(cluster.hosts[host], name, amounts, awaited[host, name])
        for name in CLASSES)) for host, amounts in compute_reserve(certificate).items()}
    return {host: limit for host, limit in limits.items() if limit != model.BootLimit()}


def _sum_awaited(cluster: model.Cluster, moves: Iterable[model.Move]) -> Counter[tuple[str, str]]:
    """Return the claims of instances that may come to a host, by host and resource class."""
    coming = {(move.instance_uuid, host) for move in moves
              for host in (move.to_host, *move.alternates)}
    for departure in placement_overlay.list_departures(cluster):
        coming |= {(departure.uuid, host) for host in departure.alternates}
        if departure.to_host is not None and not departure.charged:
            coming.add((departure.uuid, departure.to_host))
    awaited: Counter[tuple[str, str]] = Counter()
    for uuid, host in coming:
        for name, amount in cluster.instances[uuid].claims.items():
            awaited[host, name] += amount
    return awaited


def _compute_limit(host: model.Host, name: str, reserve: Mapping[str, int],
                   awaited: int) -> float:
    """Return the limit of one class; infinite where the root alone does not serve it.

    nova-compute counts the reserved amount of an inventory as used, and shared and dedicated CPUs
    together: where a provider has dedicated ones, no limit of vCPUs can be compared with its sum.
    """
    inventory = None if host.provider is None else host.provider.inventories.get(name)
    if (name not in reserve or inventory is None
            or any(name in provider.inventories for provider in host.nested)
            or name == VCPU and any(DEDICATED in provider.inventories for provider in host.tree)):
        return math.inf
    # Overcommitted hosts have less room than their reserve.
    return max(0, inventory.reserved + inventory.capacity - reserve[name] - awaited)
