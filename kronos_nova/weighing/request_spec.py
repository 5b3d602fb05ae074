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

"""The RequestSpec that nova-api and the conductor would make of an order."""

from collections.abc import Iterable
from typing import Any

from keystoneauth1 import exceptions as ks_exc
from keystoneauth1 import loading
from nova import context as nova_context
from nova import exception as nova_exception
from nova import objects
import nova.conf
from nova.image import glance
from nova.pci import request as pci_request
from nova.scheduler import utils
from nova.virt import hardware
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova.weighing import findings

CONF = nova.conf.CONF

#: Policies of server groups, and what Nova must have enabled for each.
NEEDS = {
    'affinity': (utils.validate_filter, 'ServerGroupAffinityFilter'),
    'anti-affinity': (utils.validate_filter, 'ServerGroupAntiAffinityFilter'),
    'soft-affinity': (utils.validate_weigher,
                      'nova.scheduler.weights.affinity.ServerGroupSoftAffinityWeigher'),
    'soft-anti-affinity': (utils.validate_weigher,
                           'nova.scheduler.weights.affinity.ServerGroupSoftAntiAffinityWeigher'),
}


def make_admin_context() -> Any:
    """Return an administrator's context, for reading data of all projects."""
    return nova_context.get_admin_context()


def build_request_spec(ctxt: Any, order: findings.BootOrder) -> tuple[Any, list[str]]:
    """Return the RequestSpec, and the UUIDs of the instances, which do not exist.

    :raises WeighError: an object that the order names does not exist.
    """
    uuids = [uuidutils.generate_uuid() for _ in range(order.count)]
    flavor = _read_flavor(ctxt, order.flavor)
    image = _read_image(order.image) if order.image else objects.ImageMeta.from_dict({})
    group = _read_server_group(ctxt, order.group, uuids) if order.group else None
    hints: dict[str, list[str]] = {}
    for key, value in (*order.hints, *((('group', group.uuid),) if group else ())):
        hints.setdefault(key, []).append(value)
    try:
        pci = pci_request.get_pci_requests_from_flavor(
            flavor, affinity_policy=hardware.get_pci_numa_policy_constraint(flavor, image))
        spec = objects.RequestSpec.from_components(
            ctxt, uuids[0], image, flavor, hardware.numa_get_constraints(flavor, image), pci,
            {'scheduler_hints': hints}, group, _check_zone_name(ctxt, order.availability_zone),
            project_id=order.project)
        spec.is_bfv = order.boot_from_volume
        spec.requested_networks = objects.NetworkRequestList(objects=[])
        spec.num_instances = order.count
        utils.setup_instance_group(ctxt, spec)
    except nova_exception.NovaException as e:
        raise exception.WeighError(
            what=f'flavor {order.flavor}', problem=f'nova-api refuses it: {e}',
            remedy='Correct the flavor or the image') from e
    return spec, uuids


def _read_flavor(ctxt: Any, name: str) -> Any:
    for find in (objects.Flavor.get_by_flavor_id, objects.Flavor.get_by_name):
        try:
            return find(ctxt, name)
        except (nova_exception.FlavorNotFound, nova_exception.FlavorNotFoundByName):
            continue
    raise _make_unknown_error('--flavor', name, 'flavor', 'openstack flavor list --all')


def _read_server_group(ctxt: Any, uuid: str, members: Iterable[str]) -> Any:
    """Return the server group with the new instances added, as nova-api would add them."""
    try:
        group = objects.InstanceGroup.get_by_uuid(ctxt, uuid)
    except nova_exception.InstanceGroupNotFound:
        raise _make_unknown_error('--group', uuid, 'server group with this UUID',
                                  'openstack server group list --all-projects') from None
    enabled, name = NEEDS.get(group.policy, (None, ''))
    if enabled is not None and not enabled(name):
        raise exception.WeighError(
            what=f'--group {uuid}', problem=f'its policy is {group.policy}, for which {name} is '
            'not enabled: nova-conductor refuses every such request',
            remedy='Enable it in [filter_scheduler] of nova.conf')
    group.members = [*group.members, *members]
    group.obj_reset_changes(['members'])
    return group


def _check_zone_name(ctxt: Any, name: str | None) -> str | None:
    if name is None:
        zone: str | None = CONF.default_schedule_zone
        return zone
    zones = {CONF.default_availability_zone} | {
        aggregate.availability_zone
        for aggregate in objects.AggregateList.get_by_metadata_key(ctxt, 'availability_zone')}
    if name not in zones:
        raise exception.WeighError(
            what=f'--availability-zone {name}', problem='no aggregate makes this zone',
            remedy=f'Name one of {", ".join(sorted(zones))}')
    return name


def read_aggregate(ctxt: Any, name: str) -> Any:
    """Return the aggregate with this name, id or UUID.

    :raises WeighError: no aggregate matches.
    """
    for aggregate in objects.AggregateList.get_all(ctxt):
        if name in (aggregate.name, str(aggregate.id), aggregate.uuid):
            return aggregate
    raise _make_unknown_error('--aggregate', name, 'aggregate', 'openstack aggregate list')


def _read_image(name: str) -> Any:
    """Read the image from Glance, with the credentials that Nova has for Placement."""
    try:
        ctxt = nova_context.RequestContext(
            is_admin=True, overwrite=False,
            user_auth_plugin=loading.load_auth_from_conf_options(CONF, 'placement'))
        api = glance.API()
        if uuidutils.is_uuid_like(name):
            return objects.ImageMeta.from_dict(api.get(ctxt, name, show_deleted=False))
        images = [image for image in api.get_all(ctxt, filters={'name': name})
                  if image['name'] == name]
    except (nova_exception.ImageNotFound, nova_exception.ImageNotAuthorized):
        images = []
    except (nova_exception.NovaException, ks_exc.ClientException) as e:
        raise exception.WeighError(
            what=f'--image {name}', problem=f'Glance cannot be asked: {" ".join(str(e).split())}',
            remedy='Correct [glance] in nova.conf, or leave --image out') from e
    if len(images) > 1:
        raise exception.WeighError(what=f'--image {name}', problem=f'{len(images)} images have '
                                   'this name', remedy='Give the UUID')
    if not images:
        raise _make_unknown_error('--image', name, 'image', 'openstack image list')
    return objects.ImageMeta.from_dict(images[0])


def _make_unknown_error(option: str, name: str, what: str, command: str) -> exception.WeighError:
    return exception.WeighError(what=f'{option} {name}', problem=f'no such {what}',
                                remedy=f'"{command}" shows what there is')
