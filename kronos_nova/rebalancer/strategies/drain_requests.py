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


"""The hosts to drain, and the reasons why other disabled hosts are not drained."""

from collections.abc import Collection
import re

from kronos_nova import model

#: Prefix of the reason when libvirt or Nova disables a host: no order to drain.
AUTOMATIC = 'AUTO:'


def drained_hosts(cluster: model.Cluster, options: model.PlanningOptions) -> list[str]:
    """Return the hosts of the scope to drain.

    They are disabled, up, and disabled for a reason that ``drain_reason_regex`` matches.
    """
    return [host for host in sorted(cluster.scope_hosts)
            if (service := cluster.services.get(host)) is not None and not service.enabled
            and find_drain_refusal(service, options) is None]


def list_interrupted_hosts(cluster: model.Cluster, options: model.PlanningOptions) -> list[str]:
    """List the hosts of the scope that are to be drained, and whose nova-compute is down."""
    return [host for host in sorted(cluster.scope_hosts)
            if (service := cluster.services.get(host)) is not None
            and not service.enabled and not service.up
            and _find_reason_refusal(service, options) is None]


def list_waiting_hosts(cluster: model.Cluster, options: model.PlanningOptions) -> list[str]:
    """Return the hosts that an operator ordered to drain and that still hold instances.

    The reason why they still hold instances does not matter. Returns none when drains are
    switched off.
    """
    if not options.evacuate_disabled_hosts:
        return []
    occupied = {i.host for i in cluster.instances.values()}
    return [host for host in drained_hosts(cluster, options) if host in occupied]


def explain_undrained_hosts(cluster: model.Cluster, options: model.PlanningOptions,
                            hold: str | None,
                            going_on: Collection[str] = ()) -> tuple[model.Rejection, ...]:
    """Return the disabled hosts of the scope that keep their instances, each with the reason.

    Hosts whose drain goes on but is blocked are left out: warnings name them.

    :param hold: why no drain begins now.
    :param going_on: hosts whose drain goes on all the same.
    """
    return tuple(model.Rejection('not-drained', f'host {host} is disabled, not drained, because '
                                                f'{why}')
                 for host, why in map_undrained_hosts(cluster, options, hold, going_on).items())


def map_undrained_hosts(cluster: model.Cluster, options: model.PlanningOptions, hold: str | None,
                        going_on: Collection[str] = ()) -> dict[str, str]:
    """Return the reason of each host as in :func:`explain_undrained_hosts`, by host."""
    occupied = {i.host for i in cluster.instances.values()}
    reasons = {}
    for host in sorted(cluster.scope_hosts & occupied):
        service = cluster.services.get(host)
        if service is None or service.enabled:
            continue
        why = ('evacuate_disabled_hosts is not set' if not options.evacuate_disabled_hosts
               else find_drain_refusal(service, options) or (None if host in going_on else hold))
        if why is not None:
            reasons[host] = why
    return reasons


def find_remedy(service: model.Service, options: model.PlanningOptions) -> str | None:
    """Return the operator's way to get a disabled host drained.

    None: neither the options nor its service hold it, so a hold of the whole scope does.
    """
    if not options.evacuate_disabled_hosts:
        return 'Set [engine] evacuate_disabled_hosts'
    if not service.up:
        return 'Start its nova-compute; if the host is lost, evacuate its instances by Nova'
    if find_drain_refusal(service, options) is not None:
        return 'Disable it in Nova again, for a reason that [engine] drain_reason_regex matches'
    return None


def find_drain_refusal(service: model.Service, options: model.PlanningOptions) -> str | None:
    """Return the reason why a disabled host must not be drained, or None."""
    return ('its nova-compute is down: migration needs it' if not service.up
            else _find_reason_refusal(service, options))


def _find_reason_refusal(service: model.Service, options: model.PlanningOptions) -> str | None:
    reason = service.disabled_reason or ''
    if reason.startswith(AUTOMATIC):
        return f'no operator ordered it: its disabled_reason is {reason!r}'
    if not re.search(options.drain_reason_regex, reason):
        return (f'its disabled_reason {reason!r} does not match drain_reason_regex '
                f'{options.drain_reason_regex!r}')
    return None
