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


"""Whose fault it is, by what Nova says: held to Nova's own exceptions."""

import pathlib
from typing import Any

from nova import exception as nova
import pytest

from kronos_nova.rebalancer.executors import nova_error_classes

API, DESTINATION, INSTANCE = (
    nova_error_classes.FaultyPart.API, nova_error_classes.FaultyPart.DESTINATION,
    nova_error_classes.FaultyPart.INSTANCE)

#: Mimicked "no space": no host was asked.
REPLACED = 'Unable to replace instance claim on source'

#: All that the checks before a live migration raise, and more: who has to be
#: another one.
TABLE: list[tuple[nova.NovaException, nova_error_classes.FaultyPart]] = [
    # nova.conductor.manager, _live_migrate: what leaves the instance as it is.
    (nova.NoValidHost(reason='There are not enough hosts available.'), DESTINATION),
    (nova.MaxRetriesExceeded(reason='Exceeded max scheduling retries 1'), DESTINATION),
    (nova.ComputeHostNotFound(host='host2'), DESTINATION),
    (nova.ComputeServiceUnavailable(host='host2'), DESTINATION),
    (nova.ComputeServiceUnavailable(host='host1'), API),
    (nova.InvalidHypervisorType(), DESTINATION),
    (nova.InvalidCPUInfo(reason='CPU doesn\'t have compatibility.'), DESTINATION),
    (nova.UnableToMigrateToSelf(instance_id='vm', host='host2'), INSTANCE),
    (nova.ImageUnacceptable(image_id='i', reason='Image is not raw format'), INSTANCE),
    (nova.DestinationHypervisorTooOld(), DESTINATION),
    (nova.InvalidLocalStorage(path='host1', reason='Block migration can not be used with shared '
                                                   'storage.'), DESTINATION),
    (nova.InvalidSharedStorage(path='host1', reason='it is not'), DESTINATION),
    (nova.HypervisorUnavailable(), DESTINATION),
    (nova.InstanceInvalidState(instance_uuid='vm', attr='power_state', state='shutdown',
                               method='live migrate'), INSTANCE),
    (nova.MigrationSchedulerRPCError(reason='Remote error'), API),
    # MigrationPreCheckError, by its reasons.
    *((nova.MigrationPreCheckError(reason=reason), fault) for reason, fault in (
        ('This request does not explicitly request live-migratable devices.', INSTANCE),
        ('Cannot live migrate with virtual persistent memory, the operation is not supported.',
         INSTANCE),
        ('Instance has an associated NUMA topology, cell contains compute nodes older than '
         'train, and the enable_numa_live_migration workaround is disabled. Refusing to perform '
         'the live migration, as the instance NUMA topology, including related attributes such '
         'as CPU pinning, huge page and emulator thread pinning information, cannot be '
         'recalculated. See bug #1289064 for more information.', INSTANCE),
        ('Unable to determine in which cell instance vm lives.', INSTANCE),
        ('Unable to migrate vm: Either libvirt or QEMU version for compute service source are '
         'too old than the supported ones : (QEMU: 8.1.0, libvirt: 8.6.0)', INSTANCE),
        ('Unable to migrate vm: Either libvirt or QEMU version for compute service target are '
         'too old than the supported ones : (QEMU: 8.1.0, libvirt: 8.6.0)', DESTINATION),
        ('Cannot live migrate VIF with related PCI, Neutron does not support required port '
         'binding extension.', INSTANCE),
        ('Cannot live migrate VIF with related PCI, source and destination nodes do not support '
         'the operation.', DESTINATION),
        ('Unable to determine in which cell destination host host2 lives.', DESTINATION),
        ('Timeout while checking if we can live migrate to host: host2', DESTINATION),
        ('Failed to validate instance group policy due to: Build of instance vm was '
         're-scheduled: Anti-affinity instance group policy was violated', DESTINATION),
        ('Unable to migrate vm: Disk of instance is too large(available on destination host:0 < '
         'need:1)', DESTINATION),
        ('Unable to migrate vm: Source mdev types a are not supported by this compute : b',
         DESTINATION),
        ('Migration is not supported for LVM backed instances', INSTANCE),
        (str(nova.PortBindingFailed(port_id='p')), DESTINATION))),
    # nova.compute.api, refused at once.
    (nova.ForbiddenWithAccelerators(), INSTANCE),
    (nova.ForbiddenPortsWithAccelerator(), INSTANCE),
    (nova.ForbiddenWithShare(), INSTANCE),
    (nova.ForbiddenSharesNotSupported(), INSTANCE),
    (nova.ForbiddenWithRemoteManagedPorts(), INSTANCE),
    (nova.OperationNotSupportedForMemEncryption(operation='x', instance_uuid='vm'), INSTANCE),
    (nova.OperationNotSupportedForVTPM(operation='x', instance_uuid='vm'), INSTANCE),
    (nova.OperationNotSupportedForVDPAInterface(operation='x', instance_uuid='vm'), INSTANCE),
    (nova.ExtendedResourceRequestOldCompute(), INSTANCE),
    (nova.VTPMOldCompute(), INSTANCE),
    (nova.InstanceIsLocked(instance_uuid='vm'), INSTANCE),
    # nova.compute.manager and the libvirt driver, on the way.
    (nova.InstanceNotFound(instance_id='vm'), INSTANCE),
    (nova.VTPMSecretNotFound(instance_uuid='vm'), INSTANCE),
    (nova.LiveMigrationURINotAvailable(virt_type='parallels'), INSTANCE),
    (nova.DestinationDiskExists(path='/x'), DESTINATION),
    (nova.ComputeResourcesUnavailable(reason='no'), DESTINATION),
    (nova.PciDeviceRequestFailed(requests='x'), DESTINATION),
    (nova.InternalError(err='migration out job: unexpectedly failed'), DESTINATION),
    (nova.VolumeAttachFailed(volume_id='v', reason='no'), DESTINATION),
    # nova.conductor.tasks.migrate: somebody else wrote the allocations of the instance.
    (nova.NoValidHost(reason=REPLACED), API),
    # Nova's libvirt driver raises what QEMU says.
    (RuntimeError("internal error: unable to execute QEMU command 'migrate': 0000:b1:00.2: VFIO "
                  'migration is not supported with postcopy migration'), INSTANCE),
    # Services.
    (nova.PlacementAPIConnectFailure(), API),
    (nova.PlacementAPIConflict(url='x', error='y'), API),
    (nova.AllocationUpdateFailed(consumer_uuid='vm', error='x'), API),
    (nova.AllocationMoveFailed(source_consumer='vm', target_consumer='m', error='x'), API),
    (nova.ConsumerAllocationRetrievalFailed(consumer_uuid='vm', error='x'), API),
    (nova.KeystoneConnectionFailed(reason='x'), API),
    (nova.CinderConnectionFailed(reason='x'), API),
    (nova.GlanceConnectionFailed(server='g', reason='x'), API),
]


@pytest.mark.parametrize(('error', 'fault'), TABLE, ids=lambda value: type(value).__name__)
def test_every_refusal_of_nova_is_somebodys_fault(error: Any,
                                                  fault: nova_error_classes.FaultyPart) -> None:
    vague = str(nova.NoValidHost(reason='There are not enough hosts available.'))
    wrapped = ('Error while check_can_live_migrate_source from host1 to host host2: '
               f'{type(error).__name__} {error}')
    for details in ([str(error)], [vague, str(error)], [str(error), vague], [wrapped, vague],
                    [f'nova.exception.{type(error).__name__}: {error}']):
        found, text = nova_error_classes.judge_fault(details, 'host1')
        assert found is fault
        if not isinstance(error, nova.NoValidHost):
            assert str(error) in text, 'what is told says more than that no host was valid'


def test_every_known_text_is_one_of_novas() -> None:
    """A pattern that none of the above needs guards against nothing."""
    for fault, pattern in nova_error_classes.KNOWN:
        assert any(expected is fault and nova_error_classes.re.search(pattern, str(error))
                   for error, expected in TABLE), pattern


def test_text_of_an_unreplaced_claim_equals_novas_source() -> None:
    """No class of its own, so its text is looked up where Nova raises it."""
    raised = pathlib.Path(nova.__file__).parent / 'conductor' / 'tasks' / 'migrate.py'
    assert f"raise exception.NoValidHost(\n            reason=_('{REPLACED}'))" in (
        raised.read_text())
    texts = [str(nova.NoValidHost(reason='There are not enough hosts available.')),
             str(nova.NoValidHost(reason=REPLACED))]
    assert nova_error_classes.judge_fault(texts, 'host1') == (API, texts[1])


@pytest.mark.parametrize('details', [[], [''], ['No such text'], ['x' * 10**5]])
def test_the_unknown_is_the_destinations(details: list[str]) -> None:
    assert nova_error_classes.judge_fault(details, 'host1')[0] is DESTINATION


def test_no_text_of_the_api_names_the_instance_when_a_service_failed_too() -> None:
    """What no other destination can help is not tried again on one."""
    assert nova_error_classes.judge_fault(['Unable to communicate with the Placement API.',
                                           'Instance vm is locked'], 'host1')[0] is INSTANCE
