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


"""Which server is meant by a name, and what its flavor says."""

import ipaddress
import socket
import threading

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import power
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import repin

A, B, C = (f'{n}1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d' for n in 'abc')


class Nova:
    """Servers by UUID: name, project, host."""

    def __init__(self, **servers):
        self.found = {uuid: model.Instance(uuid, host, name=name, project_id=project)
                      for uuid, (name, project, host) in servers.items()}

    def read_server(self, uuid):
        if uuid not in self.found:
            raise api.ApiError('Nova', f'server {uuid}', 'HTTP 404', 404)
        return nova_api.Server(self.found[uuid], ())

    def servers_named(self, name):
        return [i for i in self.found.values() if i.name == name]


def meant(nova, name, projects=None, host='h1'):
    return names.resolve_server(nova, name, projects, host).instance.uuid


def test_a_uuid_comes_before_a_name_that_looks_like_one():
    nova = Nova(**{A: ('vm', 'p1', 'h1'), B: (A, 'p1', 'h1')})
    assert meant(nova, A) == A and meant(nova, A.upper()) == A
    assert meant(nova, 'vm') == A
    del nova.found[A]
    assert meant(nova, A) == B, 'nobody has the UUID'


def test_a_name_counts_inside_the_projects_that_may_be_asked_for_alone():
    nova = Nova(**{A: ('vm', 'p1', 'h1'), B: ('vm', 'p2', 'h1'), C: ('other', 'p2', 'h1')})
    assert meant(nova, 'vm', frozenset({'p1'})) == A
    with pytest.raises(names.NotMeant, match='2 servers bear the name; give the UUID of one'):
        meant(nova, 'vm')
    for name in ('other', C, 'none', 'd1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d'):
        with pytest.raises(names.NotMeant, match='no such server in a project that may be asked'):
            meant(nova, name, frozenset({'p1'}))
    with pytest.raises(names.NotMeant):
        meant(nova, 'vm', frozenset())


def test_a_uuid_of_another_project_is_not_taken_for_a_name():
    """Else its owner could be told by who answers."""
    nova = Nova(**{A: ('vm', 'p2', 'h1'), B: (A, 'p1', 'h1')})
    with pytest.raises(names.NotMeant, match='no such server'):
        meant(nova, A, frozenset({'p1'}))


def test_a_server_on_another_host_than_named_is_refused():
    nova = Nova(**{A: ('vm', 'p1', 'h2'), B: ('off', 'p1', '')})
    with pytest.raises(names.NotMeant, match='it is on h2, not on h1'):
        meant(nova, 'vm')
    with pytest.raises(names.NotMeant, match='it is on no host, not on h1'):
        meant(nova, 'off')


def test_a_server_that_cannot_be_read_is_not_taken_for_absent():
    nova = Nova()
    nova.read_server = lambda uuid: (_
                                     for _ in ()).throw(api.ApiError('Nova', 'server', 'away', 503))
    with pytest.raises(api.ApiError):
        meant(nova, A)


def test_devices_are_those_that_the_aliases_of_the_flavor_stand_for():
    known = names.parse_pci_aliases(['ib=15b3/1004', 'gpu = 0x10de/0x20b0'])
    assert known == {'ib': (0x15b3, 0x1004), 'gpu': (0x10de, 0x20b0)}

    def of(value):
        return names.list_pci_devices(model.Instance(A, 'h1', extra_specs=value), known)

    assert of(None) == of({}) == set()
    assert of({'pci_passthrough:alias': 'ib:2, gpu:1'}) == set(known.values())
    assert of({'pci_passthrough:alias': 'ib:1,fpga:1'}) is None


@pytest.mark.parametrize('option', ['ib', 'ib=', 'ib=15b3', 'ib=15b3/', 'ib=x/y'])
def test_an_alias_that_names_no_device_is_refused(option):
    with pytest.raises(exception.ConfigError, match=r'\[migfra\] pci_aliases.*NAME=VENDOR/DEVICE'):
        names.parse_pci_aliases([option])


@pytest.mark.parametrize('specs, spec, expected', [
    (None, 'k', False), ({}, 'k', False), ({'k': 'true'}, 'k', True), ({'k': 'no'}, 'k', False),
    ({'k': 'true'}, 'other', False), ({'': 'true'}, '', False)])
def test_a_flavor_says_whether_its_hosts_migrate_by_rdma(specs, spec, expected):
    assert names.has_rdma_hosts(model.Instance(A, 'h1', extra_specs=specs), spec) is expected


@pytest.mark.parametrize('specs, image, expected', [
    ({}, {}, None), (None, None, None), ({'hw:cpu_policy': 'shared'}, {}, 'shared'),
    ({'hw:cpu_policy': 'dedicated'}, {}, 'dedicated'), ({}, {'hw_cpu_policy': 'mixed'}, 'mixed'),
    ({'resources:PCPU': '2'}, {}, 'dedicated'), ({'resources1:PCPU': '2'}, {}, 'dedicated'),
    ({'resources_a-b:PCPU': '2'}, {}, 'dedicated'), ({'resources:VCPU': '2'}, {}, None),
    ({'hw:cpu_dedicated_mask': '^0-1'}, {}, 'dedicated')])
def test_dedicated_processors_are_known_in_every_form(specs, image, expected):
    assert repin.cpu_policy(model.Instance(
        A, 'h1', extra_specs=specs, image_properties=image)) == expected


@pytest.mark.parametrize('address, probed', [
    ('192.0.2.7', '192.0.2.7'), ('::ffff:192.0.2.7', '192.0.2.7'), ('2001:db8::1', '2001:db8::1'),
    ('10.0.0.3', None), ('2001:db9::1', None), ('127.0.0.1', None), ('::1', None),
    ('::ffff:127.0.0.1', None), ('::ffff:10.0.0.3', None), ('169.254.169.254', None),
    ('fe80::1', None), ('fe80::1%eth0', None), ('0.0.0.0', None), ('::', None),
    ('224.0.0.1', None), ('host.example', None), ('', None)])
def test_ssh_probe_goes_to_allowed_networks_only(address, probed):
    allowed = [ipaddress.ip_network(text) for text in ('192.0.2.0/24', '2001:db8::/32')]
    assert power.find_probe_address(address, allowed) == probed
    assert power.find_probe_address(address, []) is None


@pytest.mark.parametrize('address, probed', [
    ('64:ff9b::c000:207', True), ('2002:c000:207::1', True),  # of 192.0.2.7
    ('64:ff9b::a00:3', False), ('2002:a00:3::1', False),  # of 10.0.0.3
    ('2001:0:a00:3::', False), ('2001:db8::1', True)])
def test_an_address_inside_an_address_has_to_be_allowed_as_well(address, probed):
    allowed = [ipaddress.ip_network(text) for text in ('192.0.2.0/24', '::/0')]
    assert power.find_probe_address(address, allowed) == (address if probed else None)


@pytest.mark.parametrize('address', [
    '127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1', '::ffff:7f00:1', '2002:7f00:1::',
    '2002:a9fe:a9fe::1', '64:ff9b::7f00:1', '2001:0:7f00:1::', '2001:0:102:304:0:0:80ff:fffe',
    '169.254.169.254', 'fe80::1', 'fe80::1%eth0', '0.0.0.0', '::', '::ffff:0.0.0.0', '224.0.0.1',
    'ff02::1'])
def test_ssh_probe_never_reaches_this_machine(address):
    assert power.find_probe_address(address, [
        ipaddress.ip_network('0.0.0.0/0'), ipaddress.ip_network('::/0')]) is None


@pytest.mark.parametrize('said, expected', [(b'SSH-2.0-OpenSSH', True), (b'HTTP/1.1', False),
                                            (b'', False)])
def test_ssh_answers_when_it_says_its_name(said, expected):
    with socket.create_server(('127.0.0.1', 0)) as server:
        def serve():
            connection, _ = server.accept()
            with connection:
                connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        assert power.answers_ssh('127.0.0.1', server.getsockname()[1]) is expected
        thread.join()
        port = server.getsockname()[1]
    assert not power.answers_ssh('127.0.0.1', port)
