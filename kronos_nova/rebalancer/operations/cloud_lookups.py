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

"""The scopes, hosts and instances that a request names, in a cloud."""

from collections.abc import Collection
import difflib

from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import cloud_state


def list_clusters(cloud: cloud_state.CloudState, scope: str | None) -> list[model.Cluster]:
    """Return the cluster of the given scope, or of every scope for None.

    :raises ConfigError: the scope is not planned.
    """
    clusters = cloud.map_clusters()
    if scope is None:
        return list(clusters.values())
    if scope not in clusters:
        raise exception.ConfigError(
            path='command line', field='--scope', problem=f'{scope} is not planned',
            remedy=f'Planned are: {", ".join(sorted(clusters))}.')
    return [clusters[scope]]


def find_instance(cloud: cloud_state.CloudState, uuid: str, problem: str,
                  field: str = 'INSTANCE') -> model.Instance:
    """Return the instance.

    :param problem: the error's text when the cloud has no such instance.
    :param field: the argument that named the instance.
    :raises ConfigError: the cloud has no such instance.
    """
    instance = cloud.cluster.instances.get(uuid)
    if instance is None:
        raise make_not_found_error(field, uuid, cloud.cluster.instances, problem)
    return instance


def check_host_exists(cloud: cloud_state.CloudState, host: str) -> None:
    """Check that the cloud has the host.

    :raises ConfigError: it has not; the text names a similar one.
    """
    if host not in cloud.cluster.hosts:
        raise make_not_found_error('HOST', host, cloud.cluster.hosts,
                                   'no such compute host')


def find_instance_cluster(cloud: cloud_state.CloudState, instance: model.Instance) -> model.Cluster:
    """Return the cluster of the scope that plans the instance's host.

    :raises ConfigError: no scope plans it.
    """
    for cluster in cloud.map_clusters().values():
        if instance.host in cluster.scope_hosts:
            return cluster
    raise exception.ConfigError(
        path='kronos.conf', field='[engine] aggregates',
        problem=f'host {instance.host}, where instance {instance.uuid} is, belongs to no scope '
                'that is planned',
        remedy='Nothing is moved from there; name one of its aggregates, or set '
               'include_unassigned_hosts.')


def make_not_found_error(field: str, name: str, known: Collection[str],
                         problem: str) -> exception.ConfigError:
    """Return the error for a name that the cloud does not have, with a similar name if any."""
    near = difflib.get_close_matches(name, list(known), 1, 0.8)
    if near:
        remedy = f'Is {near[0]} meant?'
    elif field == 'HOST':
        remedy = 'kronos host list has the names of all hosts.'
    elif uuidutils.is_uuid_like(name):
        remedy = 'Give the UUID of an instance.'
    else:
        remedy = ('Give the UUID of an instance, since several may have one name: openstack '
                  'server show NAME -c id prints it.')
    return exception.ConfigError(
        path='command line', field=field, problem=f'{name}: {problem}', remedy=remedy)
