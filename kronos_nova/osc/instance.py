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

"""``openstack rebalance instance``: list and show."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import references
from kronos_nova.osc.columns import Column


def _format_share(share: Mapping[str, Any]) -> str:
    if share['usage'] is None:
        return f'{share["policy"]}: not known'
    ratio = share['host_ratio']
    return (f'{share["policy"]}: {share["usage"]:.4g}'
            + ('' if ratio is None else f', {ratio:.4f} of the host'))


def _format_contract(stated: Mapping[str, Any]) -> str:
    values = [f'{key} {stated[key]}' for key in (
        'disruption', 'hours', 'max_moves', 'notify', 'released_until') if stated.get(key)]
    values += [f'{key} unreadable' for key in stated['unreadable']]
    return f'{", ".join(values)} ({stated["source"]})'


def format_rejection(rejection: Mapping[str, Any]) -> str:
    """Return the refusal by a rule."""
    return f'{rejection["rule"]}: {rejection["detail"]}'


def _format_group(group: Mapping[str, Any]) -> str:
    places = ', '.join(f'{number} on {host}' for host, number in group['member_counts'].items())
    return f'{group["id"]} ({group["policy"]}): {places}'


def _format_task(task: Mapping[str, Any]) -> str:
    at = columns.format_time(task['completed_at'] or task['created_at'])
    return (f'{at} {task["from_host"]} to {task["to_host"]}: {task["phase"]}, {task["state"]}, '
            f'task {task["id"]}')


class ListInstances(command.ListResources):
    """List instances by UUID, as an engine has read them last."""

    columns = (
        Column('ID', columns.read_text('id')),
        Column('Name', columns.read_name('name', 12)),
        Column('Host', columns.read_name('host', 13)),
        Column('Status', columns.read_name('status', 10)),
        Column('Scope', columns.read_name('scope', 12)),
        Column('Task State', columns.read_text('task_state'), long=True),
        Column('Project ID', columns.read_text('project_id'), long=True),
        Column('Locked', columns.read_text('locked'), long=True),
        Column('VCPUs', columns.read_text('vcpus'), long=True),
        Column('Memory MiB', columns.read_text('memory_mib'), long=True),
        Column('Disk GiB', columns.read_text('disk_gib'), long=True),
        Column('Local Disk GiB', columns.read_text('local_disk_gib'), long=True),
        Column('Launched At', columns.read_time('launched_at'), long=True),
        Column('Pinned', columns.read_text('pinned'), long=True),
        Column('Opted Out', columns.read_text('opted_out'), long=True),
        Column('Contracts', columns.read_lines('contracts', _format_contract), long=True),
        Column('Read At', columns.read_time('read_at'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_scope(parser)
        parser.add_argument('--host', metavar='<host>', type=command.parse_text,
                            help='Only on this host.')
        parser.add_argument('--project', metavar='<project-id>', type=command.parse_text,
                            help='Only of the project with this ID.')
        parser.add_argument('--name', metavar='<name>',
                            help='Only with this whole name, which several instances may have.')
        command.add_limit(parser, 100, 'by UUID')
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return self.list_page(args, '/v1/instances', 'instances', {
            'scope': args.scope, 'host': args.host, 'project_id': args.project,
            'name': args.name})


class ShowInstance(command.ShowResource):
    """Show an instance: its share in the load, what keeps it on its host, and its newest tasks."""

    fields = (
        Column('id', columns.read_text('id')), Column('name', columns.read_text('name')),
        Column('host', columns.read_text('host')), Column('scope', columns.read_text('scope')),
        Column('project_id', columns.read_text('project_id')),
        Column('status', columns.read_text('status')),
        Column('task_state', columns.read_text('task_state')),
        Column('locked', columns.read_text('locked')),
        Column('vcpus', columns.read_text('vcpus')),
        Column('memory_mib', columns.read_text('memory_mib')),
        Column('disk_gib', columns.read_text('disk_gib')),
        Column('local_disk_gib', columns.read_text('local_disk_gib')),
        Column('launched_at', columns.read_time('launched_at')),
        Column('pinned', columns.read_text('pinned')),
        Column('opted_out', columns.read_text('opted_out')),
        Column('contracts', columns.read_lines('contracts', _format_contract)),
        Column('shares', columns.read_lines('shares', _format_share)),
        Column('rejections', columns.read_lines('rejections', format_rejection)),
        Column('holds', columns.read_lines('holds')),
        Column('held_for_seconds', columns.read_text('held_for_seconds')),
        Column('server_groups', columns.read_lines('server_groups', _format_group)),
        Column('tasks', columns.read_lines('tasks', _format_task)),
        Column('read_at', columns.read_time('read_at')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        references.add_instance(parser)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        instance_id = references.find_instance(self.client, args.instance)
        return dict(self.client.send('GET', f'/v1/instances/{instance_id}'))
