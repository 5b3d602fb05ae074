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
"""Pages of hosts and instances of the published cloud, and one instance."""

import bisect
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import heapq
import itertools
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import cloud_views
from kronos_nova.rebalancer.operations import drain_lists
from kronos_nova.rebalancer.operations import published_cloud
from kronos_nova.rebalancer.operations import reading_cache
from kronos_nova.rebalancer.operations import views

#: Of a scope with a smaller part of the hosts, the instances of each host are put in order; of
#: another one, all instances are looked through.
_SMALL_PART = 0.1

@dataclasses.dataclass(frozen=True, slots=True)
class ListedHost:
    """A host of a scope, as of the time ``read_at`` (epoch seconds)."""

    host: model.Host
    service: model.Service | None
    scope: str
    portrait: views.HostPortrait
    draining: bool
    quarantined: bool
    read_at: float


@dataclasses.dataclass(frozen=True, slots=True)
class HostPage:
    """A page of hosts; ``marker``: the name of its last host, None: it is the last page."""

    hosts: Sequence[ListedHost]
    marker: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class ListedInstance:
    """An instance as of the time ``read_at``; ``scope``: None where no engine plans its host."""

    instance: model.Instance
    scope: str | None
    read_at: float


@dataclasses.dataclass(frozen=True, slots=True)
class InstancePage:
    """A page of instances; ``marker``: the UUID of its last one, None: it is the last page."""

    instances: Sequence[ListedInstance]
    marker: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Wanted instances. ``name`` is the whole name, which several instances may have."""

    scope: str | None = None
    host: str | None = None
    project_id: str | None = None
    name: str | None = None

    def list_admitted(self, uuids: Sequence[str],
                      instances: Mapping[str, model.Instance]) -> Sequence[str]:
        """Return the UUIDs of the instances that the filter admits by host and project."""
        if self.host is not None:
            uuids = [uuid for uuid in uuids if instances[uuid].host == self.host]
        if self.project_id is not None:
            uuids = [uuid for uuid in uuids if instances[uuid].project_id == self.project_id]
        return uuids


@dataclasses.dataclass(frozen=True, slots=True)
class ShownInstance:
    """An instance; ``state``: None where no engine plans its host."""

    listed: ListedInstance
    state: cloud_views.InstanceState | None


def list_host_page(readings: Sequence[published_cloud.PublishedReading], limit: int, *,
                   scope: str | None = None, name: str | None = None,
                   marker: str | None = None) -> HostPage:
    """List a page of hosts of all scopes or of one, by name.

    :param name: only the host of this name.
    :param marker: the name of the last host of the page before; the host may be gone.
    :raises NotFoundError: no engine plans the scope.
    """
    requests = {planned: (request, reading) for reading in readings
                for planned, request in reading.requests.items()}
    if scope is not None and scope not in requests:
        raise make_scope_error(scope, requests)
    places = sorted((host, planned) for planned, (request, _reading) in requests.items()
                    if scope in (None, planned)
                    for host in request.cluster.scope_hosts
                    if name in (None, host) and (marker is None or host > marker))
    hosts = []
    for host, planned in places[:limit]:
        request, reading = requests[planned]
        hosts.append(ListedHost(
            request.cluster.hosts[host], request.cluster.services.get(host), planned,
            reading.find_portrait(planned, host),
            host in request.history.draining, host in request.history.quarantined_hosts,
            reading.taken_at))
    return HostPage(hosts, places[limit - 1][0] if len(places) > limit else None)


def list_instance_page(readings: Sequence[published_cloud.PublishedReading], limit: int,
                       wanted: InstanceFilter, *, marker: str | None = None) -> InstancePage:
    """List a page of instances of the latest reading, by UUID.

    :param marker: the UUID of the last instance of the page before; the instance may be gone.
    :raises NotFoundError: no engine plans the scope.
    """
    scopes = [scope for reading in readings for scope in reading.requests]
    if wanted.scope is not None and wanted.scope not in scopes:
        raise make_scope_error(wanted.scope, scopes)
    latest = readings[0]
    places = [reading.scope_by_host for reading in readings]
    instances = latest.content.cluster.instances
    found = []
    uuids = _list_uuids(latest, readings, wanted)
    begin = 0 if marker is None else bisect.bisect_right(uuids, marker)
    for uuid in itertools.islice(uuids, begin, None):
        scope = find_scope(places, instances[uuid].host)
        if wanted.scope in (None, scope):
            found.append(ListedInstance(instances[uuid], scope, latest.taken_at))
            if len(found) > limit:
                break
    return InstancePage(found[:limit], found[limit - 1].instance.uuid if len(found) > limit
                        else None)


def _list_uuids(latest: published_cloud.PublishedReading,
                readings: Sequence[published_cloud.PublishedReading],
                wanted: InstanceFilter) -> Sequence[str]:
    """Return the UUIDs of instances that may be wanted, sorted."""
    instances = latest.content.cluster.instances
    if wanted.name is not None:
        return wanted.list_admitted(latest.list_instances_named(wanted.name), instances)
    hosts = None
    if wanted.host is not None:
        hosts = [wanted.host]
    elif wanted.scope is not None:
        hosts = [host for reading in readings if wanted.scope in reading.requests
                 for host in reading.requests[wanted.scope].cluster.scope_hosts]
        if len(hosts) > _SMALL_PART * len(latest.content.cluster.hosts):
            hosts = None
    uuids = (latest.instance_uuids if hosts is None
             else list(heapq.merge(*(latest.instances_by_host.get(host, ()) for host in hosts))))
    return wanted.list_admitted(uuids, instances)


def find_scope(places: Sequence[Mapping[str, str]], host: str) -> str | None:
    """Return the scope of the host, None: no engine plans it."""
    return next((scopes[host] for scopes in places if host in scopes), None)


def read_published_instance(session: Any, cache: reading_cache.ReadingCache,
                            uuid: str) -> ShownInstance:
    """Read an instance with its holds of about now, and its newest tasks.

    :param session: a DatabaseSession.
    :raises NotFoundError: the latest reading has no such instance.
    """
    readings = cache.list_readings(session.store)
    latest = readings[0]
    instance = latest.content.cluster.instances.get(uuid)
    if instance is None:
        raise make_instance_error(uuid)
    scope = find_scope([reading.scope_by_host for reading in readings], instance.host)
    listed = ListedInstance(instance, scope, latest.taken_at)
    if scope is None:
        return ShownInstance(listed, None)
    reading = next(reading for reading in readings if scope in reading.requests)
    if uuid not in reading.content.cluster.instances:  # booted since that reading
        return ShownInstance(listed, None)
    request = cache.read_recent_request(session, reading, scope)
    return ShownInstance(listed, cloud_views.InstanceState(
        views.build_instance_portrait(request, uuid), scope, request.now,
        session.store.tasks.list_instance_tasks(uuid, cloud_views.TASKS)))


def list_drains(session: Any, cache: reading_cache.ReadingCache) -> list[drain_lists.ListedDrain]:
    """List the hosts that are disabled or that pack empties, by scope and name.

    :raises KronosException: no reading can be read, or not the database.
    """
    return drain_lists.sort_drains(
        drain for reading in cache.list_readings(session.store)
        for drain in drain_lists.find_drains(
            cache.make_session(session, reading),
            functools.partial(_count_instances, reading), reading.taken_at))


def _count_instances(reading: published_cloud.PublishedReading, host: str) -> int:
    return len(reading.instances_by_host.get(host, ()))


def find_instance_session(session: Any, cache: reading_cache.ReadingCache,
                          uuid: str) -> published_cloud.PublishedSession:
    """Return the session for the reading of the scope that an instance is in.

    :raises NotFoundError: no reading has the instance on a host of its scopes.
    """
    for reading in cache.list_readings(session.store):
        instance = reading.content.cluster.instances.get(uuid)
        if instance is not None and instance.host in reading.scope_by_host:
            return cache.make_session(session, reading)
    raise make_instance_error(uuid)


def find_host_session(session: Any, cache: reading_cache.ReadingCache,
                      host: str) -> published_cloud.PublishedSession:
    """Return the session for the reading of the scope that a host is in.

    :raises NotFoundError: no reading has the host in its scopes.
    """
    for reading in cache.list_readings(session.store):
        if host in reading.scope_by_host:
            return cache.make_session(session, reading)
    raise exception.NotFoundError(
        path='database', field='host', problem=f'no scope that engines plan has a host {host!r}',
        remedy='See the list of hosts')


def find_campaign_session(session: Any, cache: reading_cache.ReadingCache,
                          hosts: Sequence[str],
                          aggregate: str | None) -> published_cloud.PublishedSession:
    """Return the session for the reading of a scope that has hosts of a campaign.

    Without such a reading the latest one serves: its errors name the wrong input.

    :param aggregate: its hosts belong to the campaign, too.
    :raises KronosException: no engine has published a reading.
    """
    readings = cache.list_readings(session.store)
    for reading in readings:
        aggregates = reading.content.cluster.aggregates
        wanted = {*hosts, *(() if aggregate is None else aggregates.get(aggregate, ()))}
        if not wanted.isdisjoint(reading.scope_by_host):
            return cache.make_session(session, reading)
    return cache.make_session(session, readings[0])


def make_instance_error(uuid: str) -> exception.NotFoundError:
    """Return the error for an instance that is not in the reading."""
    return exception.NotFoundError(
        path='database', field='instance', problem=f'no host that engines plan has instance {uuid}',
        remedy='It may have been booted or moved since the cloud was read')


def make_scope_error(scope: str, known: Any) -> exception.NotFoundError:
    """Return the error for a scope that no reading has."""
    return exception.NotFoundError(
        path='database', field='scope', problem=f'no engine plans {scope!r}',
        remedy=f'Planned are: {", ".join(sorted(known))}')
