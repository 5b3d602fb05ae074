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

"""The HTTP APIs of Nova and Placement, as an openstacksdk connection.

One connection for each process: what a request does depends on who asks.
"""

from collections.abc import Callable
import datetime
import re
import types
from typing import Any, TYPE_CHECKING
from urllib import parse

from keystoneauth1 import exceptions as ks_exceptions
from urllib3 import exceptions as urllib3_exceptions

from tests.simulation.world import cloud
from tests.simulation.world import standstills

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

PAGE = 5
#: Of nova.conductor.tasks.live_migrate.
NOT_MIGRATABLE = ('Migration pre-check error: This request does not explicitly request '
                  'live-migratable devices.')
PROJECT = 'p'


class Response:
    def __init__(self, body: Any, status: int = 200) -> None:
        self.body = body
        self.status_code = status
        self.headers = {'x-openstack-request-id': 'req-1'}

    def json(self) -> Any:
        if self.body is None:
            raise ValueError('not JSON')
        return self.body


def error(status: int, message: str = 'no') -> Response:
    return Response({'fault': {'message': message}}, status)


class Connection:
    """Stands for openstacksdk's connection of one process."""

    def __init__(self, run: 'runs.Run', process: 'processes.Process') -> None:
        self.compute = Compute(run, process)
        self.placement = Placement(run, process)
        self.session = types.SimpleNamespace(
            get_auth_headers=lambda: run.outage.log_in(process),
            invalidate=lambda: None, get_user_id=lambda: 'kronos')
        for proxy in (self.compute, self.placement):
            proxy.session = self.session

    def close(self) -> None:
        """Nothing is open."""


class _Proxy:
    maximum = '2.100'
    session: Any

    def __init__(self, run: 'runs.Run', process: 'processes.Process') -> None:
        self.run, self.process, self.cloud = run, process, run.cloud

    def get_endpoint_data(self) -> Any:
        return types.SimpleNamespace(max_microversion=self.maximum)

    def get_endpoint(self) -> str:
        return 'http://nova'


class Compute(_Proxy):
    def get(self, path: str, params: dict[str, Any], **_rest: Any) -> Response:
        self.process.may_freeze()
        status = self.run.outage.meet('Nova', self.process)
        if status is not None:
            return error(status)
        hit = self.run.faults.hit
        if hit('Nova does not answer'):
            raise ks_exceptions.ConnectTimeout('no answer')
        if hit('Nova answers 503'):
            return error(503)
        if hit('Nova answers 403'):
            if 'os-instance-actions' in path:
                self.run.untold.add(path.split('/')[2])
            return error(403)
        if hit('Nova answers no JSON'):
            return Response(None)
        for pattern, method in self._routes:
            match = pattern.fullmatch(path)
            if match:
                return method(self, params, *match.groups())
        raise AssertionError(f'no such path: {path}')

    def _services(self, params: dict[str, Any]) -> Response:
        cut = self.run.faults.hit('Nova cannot reach a cell')
        return Response({'services': [
            {'id': h.uuid, 'host': h.name, 'binary': 'nova-compute',
             'status': 'UNKNOWN' if cut else 'enabled' if h.enabled else 'disabled',
             'state': 'up' if h.up else 'down', 'forced_down': False,
             'disabled_reason': h.reason, 'zone': 'az'}
            for h in self.cloud.hosts.values() if params.get('host') in (None, h.name)]})

    def _hypervisors(self, params: dict[str, Any]) -> Response:
        wanted = params.get('hypervisor_hostname_pattern', '')
        return Response({'hypervisors': [
            {'id': h.uuid, 'hypervisor_hostname': f'{h.name}.example.org',
             'hypervisor_type': 'QEMU', 'hypervisor_version': 8002000,
             'service': {'host': h.name}}
            for h in self.cloud.hosts.values() if wanted in h.name]})

    def _aggregates(self, params: dict[str, Any]) -> Response:
        self.process.saw_scopes()
        return Response({'aggregates': [{'id': n, 'name': name, 'hosts': list(hosts),
                                         'metadata': {}}
                                        for n, (name, hosts) in enumerate(
                                            self.cloud.aggregates.items())]})

    def _server(self, instance: cloud.Instance) -> dict[str, Any]:
        return {
            'id': instance.uuid, 'name': 'a', 'tenant_id': PROJECT,
            'status': 'DELETED' if instance.uuid in self.cloud.deleted else instance.status,
            'locked': instance.locked, 'image': '', 'config_drive': '',
            'flavor': {'vcpus': instance.vcpus, 'ram': instance.memory_mb, 'disk': 1,
                       'ephemeral': 0, 'swap': 0, 'extra_specs': {}},
            'OS-EXT-SRV-ATTR:host': instance.host,
            'OS-EXT-SRV-ATTR:instance_name': 'instance-1',
            'OS-EXT-STS:task_state': instance.task_state,
            'OS-SRV-USG:launched_at': '2001-09-08T00:00:00.000000',
            'server_groups': [instance.group] if instance.group else [],
            'OS-EXT-STS:power_state': 4 if instance.status == 'SHUTOFF' else 1,
            'metadata': instance.metadata, 'tags': [],
            'pinned_availability_zone': None, 'scheduler_hints': {}}

    def _servers(self, params: dict[str, Any]) -> Response:
        instances = [i for i in self.cloud.instances.values()
                     if params.get('uuid') in (None, i.uuid)
                     and params.get('host') in (None, i.host)]
        if 'changes-since' in params:
            instances = self._list_changed(params['changes-since'])
        begin = 0
        if 'marker' in params:
            if self.run.faults.hit('Nova loses the marker of a page'):
                return error(400, 'marker not found')
            names = [i.uuid for i in instances]
            if params['marker'] not in names:
                return error(400, 'marker not found')
            begin = names.index(params['marker']) + 1
        page = instances[begin:begin + PAGE]
        body: dict[str, Any] = {'servers': [self._server(i) for i in page]}
        if begin + PAGE < len(instances):
            query = parse.urlencode({**params, 'marker': page[-1].uuid})
            body['servers_links'] = [{'rel': 'next', 'href': f'http://x/servers/detail?{query}'}]
        return Response(body)

    def _list_changed(self, text: str) -> list[cloud.Instance]:
        """Return the instances that Nova wrote since a time, deleted ones among them."""
        since = datetime.datetime.fromisoformat(text).timestamp()
        changed = [i for i in (*self.cloud.instances.values(), *self.cloud.deleted.values())
                   if i.changed_at >= since]
        if changed and self.run.faults.hit('Nova lists no changes of a cell'):
            return []
        return changed

    def _one_server(self, params: dict[str, Any], uuid: str) -> Response:
        instance = self.cloud.instances.get(uuid)
        return error(404) if instance is None else Response({'server': self._server(instance)})

    def _group(self, uuid: str) -> dict[str, Any]:
        policy, members = self.cloud.groups[uuid]
        return {'id': uuid, 'name': 'g', 'policy': policy, 'members': sorted(
            members & self.cloud.instances.keys()), 'rules': {}}

    def _groups(self, params: dict[str, Any]) -> Response:
        if self.run.faults.hit('Nova cannot read server groups'):
            return error(500)
        return Response({'server_groups': [
            self._group(g) for g in list(self.cloud.groups)[int(params['offset']):]]})

    def _one_group(self, params: dict[str, Any], uuid: str) -> Response:
        if self.run.faults.hit('Nova cannot read server groups'):
            return error(500)
        return Response({'server_group': self._group(uuid)})

    def _migrations(self, params: dict[str, Any]) -> Response:
        since = datetime.datetime.fromisoformat(
            params.get('changes-since', '1970-01-01T00:00:00Z')).timestamp()

        def wanted(m: cloud.Migration) -> bool:
            return (m.changed_at >= since
                    and params.get('instance_uuid') in (None, m.instance_uuid)
                    and params.get('status') in (None, m.status)
                    and params.get('host') in (None, m.from_host, m.to_host))
        if 'instance_uuid' in params and self.process.kind == 'executor':
            self.run.standstills.note_read(params['instance_uuid'])
        return Response({'migrations': [
            {'id': m.id, 'uuid': m.uuid, 'instance_uuid': m.instance_uuid,
             'migration_type': m.type, 'status': m.status,
             'source_compute': m.from_host, 'created_at': None,
             'updated_at': datetime.datetime.fromtimestamp(
                 m.changed_at, datetime.UTC).isoformat(),
             'dest_compute': None if m.status in ('accepted', 'error') else m.to_host}
            for m in reversed(self.cloud.migrations) if wanted(m)]})

    def _actions(self, params: dict[str, Any], uuid: str) -> Response:
        """Answer one action for each migration that the instance has had, newest first."""
        return Response({'instanceActions': [
            {'action': {cloud.COLD: 'migrate', cloud.RESIZE: 'resize'}.get(m.type, m.type),
             'request_id': f'req-{m.id}', 'message': 'Error',
             'user_id': 'kronos' if m.task_id or m.late else 'operator'}
            for m in sorted(self.cloud.migrations, key=lambda m: -m.id)
            if m.instance_uuid == uuid]})

    def _action(self, params: dict[str, Any], uuid: str, request: str) -> Response:
        told = [m.told for m in self.cloud.migrations
                if m.instance_uuid == uuid and request == f'req-{m.id}']
        return Response({'instanceAction': {'events': [{
            'event': 'conductor_live_migrate_instance', 'result': 'Error',
            'details': told[-1] if told else ''}]}})

    _routes: list[tuple['re.Pattern[str]', Callable[..., Response]]] = [
        (re.compile('/os-services'), _services),
        (re.compile('/os-hypervisors/detail'), _hypervisors),
        (re.compile('/os-aggregates'), _aggregates),
        (re.compile('/servers/detail'), _servers),
        (re.compile('/servers/([^/]+)'), _one_server),
        (re.compile('/os-server-groups'), _groups),
        (re.compile('/os-server-groups/([^/]+)'), _one_group),
        (re.compile('/os-migrations'), _migrations),
        (re.compile('/servers/([^/]+)/os-instance-actions'), _actions),
        (re.compile('/servers/([^/]+)/os-instance-actions/([^/]+)'), _action),
    ]

    def request(self, path: str, method: str, json: dict[str, Any] | None = None,
                **_rest: Any) -> Response:
        """os-migrateLive, migrate, confirmResize, os-resetState and the abort of a live
        migration, and what a network makes of them."""
        uuid = path.split('/')[2]
        if method == 'PUT':
            assert self.run.campaigns is not None and json is not None, path
            return self.run.campaigns.services.put(self.process, uuid, json)
        if method == 'DELETE':
            return self._abort(uuid, int(path.split('/')[4]))
        assert method == 'POST' and json is not None, (method, path)
        [action] = json
        if action == 'confirmResize':
            return self._confirm(uuid)
        if action == 'os-resetState':
            self.cloud.instances[uuid].status = json[action]['state'].upper()
            self.run.counts['states reset after an abort'] += 1
            return Response(None, 202)
        return self._migrate(uuid, json[action]['host'],
                             cloud.COLD if action == 'migrate' else cloud.LIVE)

    def _abort(self, uuid: str, number: int) -> Response:
        status = self.run.outage.meet('Nova', self.process)
        if status is None:
            status, said = self.run.standstills.abort(uuid, number)
            if status < 300:
                return Response(None, status)
            return error(status, said)
        return error(status)

    def _confirm(self, uuid: str) -> Response:
        hit = self.run.faults.hit
        if hit('confirmation gets 409'):
            return error(409)
        if hit('executor crashes before a confirmation'):
            self.process.crash()
        response = self.run.nova.confirm(uuid)
        if hit('executor crashes after a confirmation'):
            self.process.crash()
        if hit('confirmation is lost on its way back'):
            raise ks_exceptions.ConnectFailure('reset')
        return response

    def _migrate(self, uuid: str, host: str, kind: str) -> Response:
        run, process = self.run, self.process
        hit = run.faults.hit
        if hit('executor crashes before a POST'):
            process.crash()
        run.asked(uuid, host, process, kind)
        status = run.outage.meet('Nova', process)
        if status is not None:
            return error(status)
        if hit('POST is refused a connection'):
            raise ks_exceptions.ConnectFailure('refused') from (
                urllib3_exceptions.NewConnectionError(None, 'refused'))  # type: ignore[arg-type]
        for status in (400, 403, 409):
            if hit(f'POST gets {status}'):
                return error(status)
        if hit('POST gets 500 and had no effect'):
            return error(500)
        if hit('POST is lost on its way'):
            raise ks_exceptions.ConnectFailure('reset')
        if hit('POST arrives late'):
            run.nova.later(uuid, host, kind)
            raise ks_exceptions.ConnectTimeout('no answer')
        task = run.task_of(uuid)
        run.standstills.freeze(process, standstills.BEFORE)
        response = run.nova.migrate(uuid, host, kind, task, process)
        run.standstills.freeze(process, standstills.AFTER)
        if hit('executor crashes after a POST'):
            process.crash()
        if hit('POST is lost on its way back'):
            raise ks_exceptions.ConnectFailure('reset')
        if hit('POST gets 500 and had an effect'):
            return error(500)
        return response


class Placement(_Proxy):
    maximum = '1.39'

    def get(self, path: str, params: dict[str, Any], **_rest: Any) -> Response:
        self.process.may_freeze()
        status = self.run.outage.meet('Placement', self.process)
        if status is not None:
            return Response({'errors': [{'detail': 'no'}]}, status)
        if self.run.faults.hit('Placement answers 500'):
            return Response({'errors': [{'detail': 'no'}]}, 500)
        if path == '/resource_providers':
            nobody = 'required' in params or 'member_of' in params  # storage is not shared
            return Response({'resource_providers': [
                {'uuid': h.uuid, 'name': f'{h.name}.example.org', 'root_provider_uuid': h.uuid,
                 'parent_provider_uuid': None, 'generation': self.cloud.count_generation(h)}
                for h in self.cloud.hosts.values()
                if not nobody and params.get('in_tree') in (None, h.uuid)]})
        if path == '/allocation_candidates':
            return self._search_candidates()
        kind, uuid, *rest = path.strip('/').split('/')
        if kind == 'allocations':
            return Response({'allocations': {
                h.uuid: {'resources': claims} for h in self.cloud.hosts.values()
                for consumer, claims in self.cloud.consumers(h.name).items()
                if consumer == uuid}})
        host = next(h for h in self.cloud.hosts.values() if h.uuid == uuid)
        if self.run.faults.hit('Placement changes between two reads'):
            host.generation += 1
        return self._of_provider(host, rest[0])

    def _search_candidates(self) -> Response:
        """Answer the providers with memory left; a cap on candidates may leave out one more."""
        shown = [h for h in self.cloud.hosts.values()
                 if self.cloud.used(h.name)['MEMORY_MB'] < cloud.MEMORY_MB]
        if self.run.faults.hit('Placement caps its candidates'):
            del shown[:1]
        return Response({'provider_summaries': {h.uuid: {
            'resources': {name: {'used': amount, 'capacity': 1}
                          for name, amount in self.cloud.used(h.name).items()},
            'traits': []} for h in shown}})

    def _of_provider(self, host: cloud.Host, what: str) -> Response:
        generation = {'resource_provider_generation': self.cloud.count_generation(host)}
        match what:
            case 'inventories':
                plain = {'reserved': 0, 'allocation_ratio': 1.0, 'min_unit': 1, 'step_size': 1}
                return Response({'inventories': {
                    name: {**plain, 'total': total, 'max_unit': total} for name, total in (
                        ('VCPU', cloud.CORES), ('MEMORY_MB', cloud.MEMORY_MB),
                        ('DISK_GB', 1000))}, **generation})
            case 'usages':
                return Response({'usages': self.cloud.used(host.name), **generation})
            case 'allocations':
                return Response({'allocations': {
                    consumer: {'resources': claims}
                    for consumer, claims in self.cloud.consumers(host.name).items()},
                    **generation})
        return Response({'traits': [], **generation})


class Nova:
    """Carries out migrations as time passes."""

    def __init__(self, run: 'runs.Run') -> None:
        self.run, self.cloud = run, run.cloud
        self._late: list[tuple[float, str, str, tuple[str, str, int], str]] = []

    def later(self, uuid: str, host: str, kind: str) -> None:
        # Less than absent_seconds: a request that is under way for longer is
        # one that nobody can wait for.
        at = self.run.now + self.run.rng.uniform(1, 40)
        self._late.append((at, uuid, host, self.run.task_of(uuid), kind))

    @property
    def waits(self) -> bool:
        return bool(self._late)

    def migrate(self, uuid: str, host: str, kind: str, task: tuple[str, str, int],
                process: 'processes.Process') -> Response:
        """:param task: whose request it was when it was sent, see Run.task_of."""
        late, known = self.run.standstills.is_late(task, host), len(self.cloud.migrations)
        response = self._accept(uuid, host, ('', '', 0) if late else task, kind)
        if late and response.status_code == 202:
            self.run.standstills.note_late(task[0], process, self.cloud.migrations[-1])
        elif len(self.cloud.migrations) > known:
            self.run.standstills.note_repeated(task[0], process, self.cloud.migrations[-1])
        return response

    def _accept(self, uuid: str, host: str, task: tuple[str, str, int], kind: str) -> Response:
        """202 says no more than that the request is understood."""
        instance = self.cloud.instances.get(uuid)
        if instance is None:
            return error(404)
        wanted = {cloud.LIVE: ('ACTIVE',)}.get(kind, ('ACTIVE', 'SHUTOFF'))
        if instance.status not in wanted or instance.task_state is not None:
            return error(409, f'Cannot {kind} while it is migrating or {instance.status}')
        assert instance.host is not None
        task_id, scope, known = task
        instance.task_state = 'migrating' if kind == cloud.LIVE else 'resize_prep'
        if self.run.standstills.loses(instance, task):
            return Response(None, 202)
        self.cloud.migrations.append(cloud.Migration(
            len(self.cloud.migrations) + 1, self.cloud.uuid(), uuid, instance.host, host,
            task_id, scope, known, ends_at=self.run.now + self.run.rng.uniform(0, 3),
            changed_at=self.run.now, type=kind))
        if task_id:
            self.run.accepted()
        return Response(None, 202)

    def by_operator(self, uuid: str, host: str, kind: str = cloud.LIVE) -> None:
        self._accept(uuid, host, ('', '', 0), kind)

    def confirm(self, uuid: str) -> Response:
        """End a cold migration or resize; its source gives back what it holds."""
        migration = self._finished(uuid)
        if migration is None:
            return error(409, 'Cannot confirmResize: it is not in VERIFY_RESIZE')
        migration.status, migration.changed_at = 'confirmed', self.run.now
        self._settle(migration)
        return Response(None, 204)

    def revert(self, uuid: str) -> None:
        """Take the instance back to where it was."""
        migration = self._finished(uuid)
        if migration is None:
            return
        migration.status, migration.changed_at = 'reverted', self.run.now
        self.cloud.instances[uuid].host = migration.from_host
        self.run.unmoved(migration)
        self._settle(migration)

    def _finished(self, uuid: str) -> cloud.Migration | None:
        instance = self.cloud.instances.get(uuid)
        if instance is None or instance.status != 'VERIFY_RESIZE' or instance.task_state:
            return None
        return next((m for m in self.cloud.active()
                     if m.instance_uuid == uuid and m.status == 'finished'), None)

    def _settle(self, migration: cloud.Migration) -> None:
        self.cloud.instances[migration.instance_uuid].status = migration.before
        if not migration.task_id:
            self.cloud.changed()

    def advance(self) -> None:
        now = self.cloud.now = self.run.now
        for entry in [e for e in self._late if e[0] <= now]:
            self._late.remove(entry)
            self._accept(*entry[1:])
        for migration in self.cloud.active():
            if migration.ends_at > now:
                continue
            migration.changed_at = now
            if migration.status == 'accepted':
                self._schedule(migration)
            elif migration.status != 'finished':
                self._end(migration)
            elif not migration.task_id:
                # Its user, who alone has a reason to wait.
                if self.run.rng.random() < 0.5:
                    self.confirm(migration.instance_uuid)
                else:
                    self.revert(migration.instance_uuid)

    def _schedule(self, migration: cloud.Migration) -> None:
        instance = self.cloud.instances.get(migration.instance_uuid)
        if instance is None:
            migration.status = 'error'
            return
        wrong = ('it is there already' if migration.to_host == migration.from_host else
                 self.cloud.wrong(instance, migration.to_host)
                 or self.cloud.unlearnt(instance, migration.to_host))
        if migration.task_id:
            self.run.scheduled(migration, wrong)
        refused = self.run.faults.hit
        if wrong or refused('migration is refused by the scheduler'):
            migration.status, migration.told = 'error', 'No valid host was found. No.'
        elif refused('migration is refused for what the instance is'):
            migration.status, migration.told = 'error', NOT_MIGRATABLE
        if migration.has_ended:
            instance.task_state = None
            self._leave(migration)
            return
        migration.status, migration.before = 'running', instance.status
        if migration.type != cloud.LIVE:
            migration.status, instance.task_state = 'migrating', 'resize_migrating'
        if self.run.standstills.strike(migration, instance):
            return
        hit = self.run.faults.hit
        for name, end in (('migration fails', 'failed'), ('migration is cancelled', 'cancelled'),
                          ('migration ends with the instance in ERROR', 'ERROR'),
                          ('migration ends in error after the instance had moved', 'moved')):
            if hit(name):
                migration.end = end
                break
        slow = hit('migration is slow')
        migration.ends_at = self.run.now + self.run.rng.uniform(
            *((100, 200) if slow else (2, 40)))
        if not migration.task_id:
            self.cloud.changed()

    def _end(self, migration: cloud.Migration) -> None:
        instance = self.cloud.instances.get(migration.instance_uuid)
        if migration.type != cloud.LIVE and migration.end != 'ERROR' and instance is not None:
            self._finish(migration, instance)
            return
        migration.status = {'ERROR': 'error', 'moved': 'error'}.get(
            migration.end, migration.end)
        if instance is None:
            return
        instance.task_state = None
        if migration.end in ('completed', 'moved'):
            instance.host = migration.to_host
            self.run.moved(migration)
        elif migration.end == 'failed':
            self._leave(migration)
        elif migration.end == 'ERROR':
            instance.status = 'ERROR'
        if not migration.task_id:
            self.cloud.changed()

    def _finish(self, migration: cloud.Migration, instance: cloud.Instance) -> None:
        """A cold migration or resize ends, and waits for its confirmation if it went well."""
        instance.task_state = None
        if migration.end == 'completed':
            migration.status, instance.status = 'finished', 'VERIFY_RESIZE'
            instance.host = migration.to_host
            migration.ends_at = self.run.now + self.run.rng.uniform(5, 120)
            self.run.moved(migration)
        else:
            migration.status = 'error'
            self._leave(migration)
        if not migration.task_id:
            self.cloud.changed()

    def _leave(self, migration: cloud.Migration) -> None:
        """Placement does not hear of the end at once, or never."""
        hit = self.run.faults.hit
        if migration.task_id and hit('migration leaves its allocations'):
            migration.held_until = float('inf')
        elif migration.task_id and hit('migration leaves its allocations for a while'):
            migration.held_until = self.run.now + self.run.rng.uniform(5, 60)
