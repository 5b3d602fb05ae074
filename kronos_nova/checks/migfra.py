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



"""The check of [migfra]: the projects, scopes, hosts and names that requests use exist."""

import collections
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import os
from typing import Any
import urllib.parse

from keystoneauth1 import exceptions as ks_exceptions
from openstack import exceptions as sdk_exceptions
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.checks import base
from kronos_nova.conf import permits
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.store import api as api_store
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import requests

#: How many names an item shows.
SHOWN = 5
#: Number of the newest requests to read.
REQUESTS = 1000
MOVES = frozenset({'migrate-vm', 'evacuate-node'})


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    conf = context.conf
    hooked = (*conf.hooks.enabled, *conf.hooks.on_request)
    if not conf.migfra.allow:
        if conf.mqtt.host and 'pscom' not in hooked:
            yield base.report_warning('migfra',
                                      '[migfra] allow names nothing: kronos-migfra refuses '
                                         'every request',
                                      'Write allow = OPERATIONS:PROJECTS:SCOPES, or run no '
                                      'kronos-migfra and leave [mqtt] host empty.')
        return
    operations = frozenset().union(*(permit.operations for permit in conf.migfra.allow))
    yield from _check_operations(conf, operations, hooked)
    yield from _find_missing_hooks(conf, hooked)
    yield from _check_pci_aliases(conf.migfra.pci_aliases)
    try:
        names.read_host_aliases(conf.migfra.host_aliases)
    except exception.ConfigError as e:
        yield base.report_failure('migfra: host_aliases',
                                  f'{e.kwargs["field"]}: {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
    if conf.migfra.ssh_probe and not conf.migfra.ssh_probe_networks:
        yield base.report_failure('migfra: ssh_probe',
                                  'it is true, and ssh_probe_networks names no '
                                               'network: kronos-migfra does not start',
                                  'Name the networks of the instances, or set ssh_probe = false.')
    scopes = _list_served_scopes(context)
    for number, permit in enumerate(conf.migfra.allow, 1):
        yield _check_permit(context, f'migfra: allow {number}', permit, scopes)
    if context.cluster is not None and scopes is not None:
        yield from _check_hosts(context.cluster, scopes)
        yield from _check_instance_names(context.cluster, {
            permits.list_permitted_projects(conf.migfra.allow, operation, scope)
            for operation in permits.OPERATIONS for scope in scopes})


def _check_operations(conf: Any, operations: frozenset[str],
                      hooked: Sequence[str]) -> Iterator[base.CheckItem]:
    """Warn of allowed operations that other options prevent."""
    if conf.engine.dry_run or conf.engine.executor == 'dry_run':
        option = 'dry_run = true' if conf.engine.dry_run else 'executor = dry_run'
        yield base.report_warning('migfra: dry run',
                                  f'with [engine] {option} every request is refused',
                                  'Change it when requests are to be carried out.')
    if 'repin-vm' in operations and not conf.repin.uri:
        yield base.report_warning('migfra: repin-vm',
                                  'it is allowed, but [repin] uri is empty: the '
                                               'answer is always that it is unsupported',
                                  'Set [repin] uri, or take repin-vm out of [migfra] allow.')
    if operations & MOVES and 'pause' not in hooked:
        yield base.report_warning('migfra: warm',
                                  '[hooks] on_request has no pause: migrations with '
                                           'migration-type warm are not carried out',
                                  'Add pause to [hooks] on_request of kronos-executor.')


def _find_missing_hooks(conf: Any, hooked: Sequence[str]) -> Iterator[base.CheckItem]:
    """Warn of hooks that recent requests have asked for and executors do not allow."""
    path = database.sqlite_file(conf.database.connection)
    if path is not None and not os.path.exists(path):
        return
    try:
        store = api_store.Store(conf)
        try:
            known = store.run_transaction(lambda c: requests.list_newest_requests(c, REQUESTS))
        finally:
            store.close()
    except exception.StoreError:
        return  # the check of the database says why
    wanted = [hook for request in known for hook in request_handler.find_hooks(request)]
    for hook, number in sorted(collections.Counter(wanted).items()):
        if hook not in hooked:
            yield base.report_warning(
                f'migfra: hook {hook}', f'{number} of the last {len(known)} requests have asked '
                f'for it, and [hooks] on_request has no {hook}: such migrations fail',
                f'Add {hook} to [hooks] on_request of kronos-executor.')


def _check_pci_aliases(options: Sequence[str]) -> Iterator[base.CheckItem]:
    try:
        names.parse_pci_aliases(options)
    except exception.ConfigError as e:
        yield base.report_failure('migfra: pci_aliases',
                                  f'{e.kwargs["field"]}: {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
        return
    count = collections.Counter(option.partition('=')[0].strip() for option in options)
    if twice := sorted(name for name, number in count.items() if number > 1):
        yield base.report_failure('migfra: pci_aliases', 'more than one device is given for '
                                                 f'{_format_names(twice)}, and the last one counts',
                                  'Give each name once in [migfra] pci_aliases.')


def _list_served_scopes(context: base.CheckContext) -> list[str] | None:
    """Return the served scopes; None when they are not known and another check reports why."""
    if context.policy_set is None:
        return None
    try:
        return planning_settings.list_planned_scopes(context.conf, context.policy_set)
    except exception.ConfigError:
        return None


def _check_permit(context: base.CheckContext, title: str, permit: permits.OperationPermit,
                  scopes: Sequence[str] | None) -> base.CheckItem:
    text = f'{permit}: '
    unknown = sorted((permit.scopes or frozenset()).difference(scopes or permit.scopes or ()))
    if unknown:
        return base.report_failure(title, f'{text}no scope {_format_names(unknown)} is served',
                                   'Name scopes of [engine] aggregates that the policy file is for'
                                   + (f', or {model.UNASSIGNED}' if scopes
                                      and model.UNASSIGNED in scopes
                                      else '') + '; by their names, as Nova has them.')
    known_projects = _KnownProjects(context)
    wrong, remedy, unsure = known_projects.find_unknown_projects(sorted(permit.projects or ()))
    if wrong:
        return base.report_failure(title, f'{text}Keystone has no project of the ID '
                                          f'{_format_names(wrong)}',
                                   remedy)
    if odd := [project for project in unsure if not uuidutils.is_uuid_like(project)]:
        return base.report_warning(title, f'{text}{_format_names(odd)} does not look like the ID '
                                          'of a project, '
                                   'and Keystone does not tell the user of [nova] whether it is',
                                   'Name projects by ID, not by name: openstack project show NAME.')
    if scopes is None or context.cluster is None:
        return base.report_ok(title, f'{text}which hosts these are is not known')
    try:
        served = {host for scope in permit.scopes or scopes
                  for host in context.cluster.list_hosts_of(scope)}
    except KeyError:
        # The check of Nova reports the aggregate that is missing.
        return base.report_ok(title, f'{text}Nova does not have all of its scopes')
    if not served:
        return base.report_warning(title,
                                   f'{text}no host is in its scopes, so nothing can be asked for',
                                   'Add hosts to them, or name others.')
    doubt = f'; whether {len(unsure)} of its projects exist Keystone does not tell us'
    return base.report_ok(title, f'{text}{plurals.count_noun(len(served), "host")}'
                                 + (doubt if unsure else ''))


class _KnownProjects:
    """The projects that exist, as far as Nova's instances and Keystone show it."""

    def __init__(self, context: base.CheckContext) -> None:
        self._connection = context.connection
        self._instance_projects = set() if context.cluster is None else {
            instance.project_id for instance in context.cluster.instances.values()}

    def find_unknown_projects(self, projects: Sequence[str]) -> tuple[list[str], str, list[str]]:
        """Return the projects that do not exist, a remedy for the first, and the unknown ones."""
        wrong, unsure = [], []
        for project in projects:
            there = project in self._instance_projects or self._has_keystone_project(project)
            if there is None:
                unsure.append(project)
            elif not there:
                wrong.append(project)
        return wrong, self._format_remedy(wrong[0]) if wrong else '', unsure

    def _has_keystone_project(self, project: str) -> bool | None:
        """Return whether Keystone has the project; None when it does not tell."""
        answer = self._get(f'/projects/{urllib.parse.quote(project, safe="")}')
        return {200: True, 404: False}.get(getattr(answer, 'status_code', 0))

    def _format_remedy(self, project: str) -> str:
        answer = self._get('/projects?' + urllib.parse.urlencode({'name': project}))
        try:
            project_ids = [str(p['id']) for p in answer.json()['projects']]
        except (AttributeError, LookupError, TypeError, ValueError):
            project_ids = []
        if project_ids:
            return (f'{_format_names([project])} is the name of one: write its ID, '
                    f'{_format_names(project_ids)}, in [migfra] allow.')
        return 'Write IDs of projects in [migfra] allow: openstack project list.'

    def _get(self, path: str) -> Any:
        if self._connection is None:
            return None
        try:
            return self._connection.identity.get(path)
        except (ks_exceptions.ClientException, sdk_exceptions.SDKException):
            return None


def _check_hosts(cluster: model.Cluster, scopes: Sequence[str]) -> Iterator[base.CheckItem]:
    scopes_by_host: dict[str, list[str]] = collections.defaultdict(list)
    for scope in scopes:
        if scope == model.UNASSIGNED or scope in cluster.aggregates:
            for host in cluster.list_hosts_of(scope):
                scopes_by_host[host].append(scope)
    if foreign := sorted(host for host in scopes_by_host if not _is_topic_name(host)):
        yield base.report_warning('migfra: hosts',
                                  f'{plurals.count_with_verb(len(foreign), "host")} not served, '
                                  f'since no topic can bear such names: {_format_names(foreign)}',
                                  'Name them otherwise ([DEFAULT] host of their nova-compute), or '
                                  'do without requests for them.')
    if shared := sorted(host for host, where in scopes_by_host.items() if len(where) > 1):
        first = scopes_by_host[shared[0]]
        yield base.report_warning(
            'migfra: hosts of several scopes',
            f'{plurals.count_with_verb(len(shared), "host")} in several scopes, such as '
            f'{_format_names(shared[:1])} in {" and ".join(map(api.format_printable, first))}: '
            'only operations allowed for the first of [engine] aggregates, '
            f'{api.format_printable(first[0])}, can be asked for there',
            'Leave each host in one of the aggregates.')


def _is_topic_name(host: str) -> bool:
    try:
        return bool(protocol.host_name(host))
    except ValueError:
        return False


def _check_instance_names(cluster: model.Cluster,
                          meant: Collection[frozenset[str] | None]) -> Iterator[base.CheckItem]:
    """Warn of instance names that several instances of the same projects have.

    :param meant: the sets of projects in which requests look up a name; None: all projects.
    """
    doubled: set[str] = set()
    for projects in meant:
        count = collections.Counter(
            instance.name for instance in cluster.instances.values()
            if projects is None or instance.project_id in projects)
        doubled |= {name for name, number in count.items() if name and number > 1}
    if doubled:
        example = min(uuid for uuid, instance in cluster.instances.items()
                      if instance.name in doubled)
        yield base.report_warning(
            'migfra: names', f'{len(doubled)} names are borne by several servers each, one of '
            f'which is {example}: requests by these names are refused',
            'Ask for such servers by UUID.')


def _format_names(all_names: Sequence[str]) -> str:
    return ', '.join(map(api.format_printable, all_names[:SHOWN])) + (
        ', ...' if len(all_names) > SHOWN else '')
