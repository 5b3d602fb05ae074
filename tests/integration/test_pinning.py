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
"""Pinning vCPUs, beside libvirt's own test driver: no hypervisor, but its real library."""

import contextlib
from pathlib import Path
import sys
import threading
import time
import uuid

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.checks import base
from kronos_nova.checks import repin
from kronos_nova.conf import opts
from kronos_nova.rebalancer.migfra import vcpu_pinning
from tests import ci

#: Debian's packages of Python modules, of which a virtual environment knows nothing.
DEBIAN = Path('/usr/lib/python3/dist-packages')
#: The test driver's host has eight CPUs, of which 0, 2 and 4 are online.
URI = 'test:///default?host={host}'


@pytest.fixture(scope='module')
def libvirt(tmp_path_factory):
    """libvirt-python of this environment, else that of Debian's package python3-libvirt."""
    with pytest.MonkeyPatch.context() as patch:
        with contextlib.suppress(ImportError):
            return vcpu_pinning._load_libvirt()
        links = tmp_path_factory.mktemp('libvirt')
        for pattern in ('libvirt.py', f'libvirtmod.{sys.implementation.cache_tag}-*.so'):
            for path in DEBIAN.glob(pattern):
                (links / path.name).symlink_to(path)
        patch.syspath_prepend(str(links))
        try:
            return vcpu_pinning._load_libvirt()
        except ImportError as e:
            ci.missing(f'libvirt-python for Python {sys.version.split()[0]} ({e})',
                       'python3-libvirt')


@pytest.fixture
def cloud(libvirt):
    """Hold one connection open: the driver forgets its instances with the last connection."""
    connection = libvirt.open('test:///default')
    yield connection
    connection.close()


@pytest.fixture
def instance(cloud):
    """A running instance of two vCPUs, which may use CPUs 0 to 2 and 4."""
    return running(cloud)


def running(cloud, vcpus=2, cpuset='cpuset="0-2,4"'):
    name = str(uuid.uuid4())
    # Persistent, as Nova makes it: what it was defined with is told apart from what it has.
    found = cloud.defineXML(
        f'<domain type="test"><name>instance-{name}</name><uuid>{name}</uuid><memory>8192</memory>'
        f'<vcpu {cpuset}>{vcpus}</vcpu><os><type>hvm</type></os></domain>')
    found.create()
    return found


def pinning_of(uri=URI, timeout=30.0):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('uri', uri, 'repin')
    conf.set_override('timeout', timeout, 'repin')
    return vcpu_pinning.VcpuPinning(conf)


def pins(libvirt, instance):
    return [{cpu for cpu, pinned in enumerate(cpus) if pinned}
            for cpus in instance.vcpuPinInfo(libvirt.VIR_DOMAIN_AFFECT_LIVE)]


def spoil(monkeypatch, libvirt, fails):
    """Of the calls to pin, by number from 0, those that ``fails`` names fail."""
    calls, pin = [], libvirt.virDomain.pinVcpu

    def pin_vcpu(domain, vcpu, cpus):
        calls.append(vcpu)
        if fails(len(calls) - 1):
            raise libvirt.libvirtError('the host is on fire')
        return pin(domain, vcpu, cpus)

    monkeypatch.setattr(libvirt.virDomain, 'pinVcpu', pin_vcpu)
    return calls


def test_each_vcpu_is_pinned_to_its_cpus(libvirt, instance):
    pinning_of().pin_vcpus('host1', instance.UUIDString(), [[0, 4], (2,)])
    assert pins(libvirt, instance) == [{0, 4}, {2}]


def test_new_map_replaces_earlier_map(libvirt, instance):
    for vcpu_map in ([[0], [2]], [[2], [0, 4]]):
        pinning_of().pin_vcpus('host1', instance.UUIDString(), vcpu_map)
    assert pins(libvirt, instance) == [{2}, {0, 4}]


def test_instance_without_cpuset_may_use_all_online_cpus(libvirt, cloud):
    free = running(cloud, cpuset='')
    pinning_of().pin_vcpus('host1', free.UUIDString(), [[4], [4]])
    assert pins(libvirt, free) == [{4}, {4}]


def test_instance_pinned_by_nova_is_not_repinned(libvirt, cloud):
    """With dedicated CPUs or NUMA nodes: then its definition has pins, and no set of CPUs."""
    name = str(uuid.uuid4())
    defined = cloud.defineXML(
        f'<domain type="test"><name>{name}</name><uuid>{name}</uuid><memory>8192</memory>'
        '<vcpu>2</vcpu><cputune><vcpupin vcpu="0" cpuset="2"/><vcpupin vcpu="1" cpuset="4"/>'
        '</cputune><os><type>hvm</type></os></domain>')
    defined.create()
    try:
        with pytest.raises(exception.RepinUnsupported, match='is pinned by Nova itself'):
            pinning_of().pin_vcpus('host1', name, [[0], [0]])
    finally:
        defined.destroy()
        defined.undefine()


@pytest.mark.parametrize(('vcpu_map', 'said'), [
    ([[0]], 'has 2 vCPUs, the vCPU map 1'),
    ([[0], [0], [0]], 'has 2 vCPUs, the vCPU map 3'),
    ([[0], [1]], 'cannot use CPU 1, not online on host host1. Online are: 0, 2, 4.'),
    ([[0], [65535]], 'cannot use CPU 65535'),
    ([], 'is empty'), ('01', 'no list'), ([[0], []], 'no list of CPUs for vCPU 1'),
    ([[0], '2'], 'no list of CPUs for vCPU 1'), ([0, 2], 'no list of CPUs for vCPU 0'),
    ([[0], [True]], 'has True for vCPU 1'), ([[0], [-1]], 'has -1'), ([[0], [65536]], 'has 65536'),
    ([[0], ['x' * 999]], "has 'xxx")])
def test_unfit_map_is_refused_and_changes_no_pin(libvirt, instance, vcpu_map, said):
    before = pins(libvirt, instance)
    with pytest.raises(exception.RepinRefused) as caught:
        pinning_of().pin_vcpus('host1', instance.UUIDString(), vcpu_map)
    assert said in str(caught.value) and len(str(caught.value)) < 300
    assert pins(libvirt, instance) == before


def test_cpus_outside_instance_cpuset_are_refused(libvirt, cloud):
    narrow = running(cloud, cpuset='cpuset="0-4,^4"')
    with pytest.raises(exception.RepinRefused, match='may not use CPU 4 of host host1'):
        pinning_of().pin_vcpus('host1', narrow.UUIDString(), [[0], [4]])
    assert 4 not in set().union(*pins(libvirt, narrow))


@pytest.mark.parametrize('policy', ['dedicated', 'mixed'])
def test_cpu_policy_with_nova_pins_is_not_repinned(libvirt, instance, policy):
    before = pins(libvirt, instance)
    with pytest.raises(exception.RepinUnsupported, match=f'has {policy} CPUs'):
        pinning_of().pin_vcpus('host1', instance.UUIDString(), [[0], [2]], policy)
    assert pins(libvirt, instance) == before
    pinning_of().pin_vcpus('host1', instance.UUIDString(), [[0], [2]], 'shared')


@pytest.mark.parametrize('fails', [(0,), (1,)])
def test_failed_repin_restores_earlier_pins(libvirt, instance, monkeypatch, fails):
    pinning_of().pin_vcpus('host1', instance.UUIDString(), [[0], [2]])
    calls = spoil(monkeypatch, libvirt, fails.__contains__)
    with pytest.raises(exception.RepinFailed, match='the host is on fire'):
        pinning_of().pin_vcpus('host1', instance.UUIDString(), [[4], [4]])
    assert pins(libvirt, instance) == [{0}, {2}]
    assert calls == [*range(fails[0] + 1), 0, 1]


def test_failed_restore_raises_repin_unknown(libvirt, instance, monkeypatch):
    spoil(monkeypatch, libvirt, lambda call: call > 0)
    with pytest.raises(exception.RepinUnknown, match='could not be pinned back'):
        pinning_of().pin_vcpus('host1', instance.UUIDString(), [[4], [4]])


@pytest.mark.parametrize('vcpus', [1, 2])
def test_timed_out_repin_raises_and_restores_earlier_pins(libvirt, cloud, monkeypatch, vcpus):
    instance = running(cloud, vcpus)
    before, pin, goes_on = pins(libvirt, instance), libvirt.virDomain.pinVcpu, threading.Event()

    def slow(domain, vcpu, cpus):
        goes_on.wait(60)
        return pin(domain, vcpu, cpus)

    monkeypatch.setattr(libvirt.virDomain, 'pinVcpu', slow)
    with pytest.raises(exception.RepinUnknown, match='no answer within 0.5 s'):
        pinning_of(timeout=0.5).pin_vcpus('host1', instance.UUIDString(), [[0]] * vcpus)
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name == f'repin-{instance.UUIDString()}':
            thread.join(60)
    assert pins(libvirt, instance) == before


def test_repin_fails_in_time_on_silent_host(libvirt, monkeypatch):
    monkeypatch.setattr(libvirt, 'open', lambda _uri: time.sleep(2))
    with pytest.raises(exception.RepinFailed, match='no answer within 0.1 s'):
        pinning_of(timeout=0.1).pin_vcpus('host1', str(uuid.uuid4()), [[0]])


def test_repin_closes_every_connection(libvirt, instance, monkeypatch):
    open_ones, really = [], libvirt.open

    def connect(uri):
        open_ones.append((uri, really(uri)))
        return open_ones[-1][1]

    monkeypatch.setattr(libvirt, 'open', connect)
    pinning_of().pin_vcpus('host1', instance.UUIDString(), [[0], [2]])
    with pytest.raises(exception.RepinRefused):
        pinning_of().pin_vcpus('host2.example', instance.UUIDString(), [[0]])
    assert [uri for uri, _ in open_ones] == [
        'test:///default?host=host1', 'test:///default?host=host2.example']
    for _, connection in open_ones:
        with pytest.raises(libvirt.libvirtError):
            connection.getHostname()


def test_instance_unknown_to_libvirt_is_refused(cloud):
    with pytest.raises(exception.RepinRefused, match='is not known to libvirt on host host1'):
        pinning_of().pin_vcpus('host1', str(uuid.uuid4()), [[0]])


def test_failed_lookup_does_not_mean_missing_instance(libvirt, instance, monkeypatch):
    def fails(_connection, _name):
        raise libvirt.libvirtError('internal error')

    monkeypatch.setattr(libvirt.virConnect, 'lookupByUUIDString', fails)
    with pytest.raises(exception.RepinFailed, match='internal error'):
        pinning_of().pin_vcpus('host1', instance.UUIDString(), [[0], [2]])


def test_stopped_instance_is_refused(cloud):
    name = str(uuid.uuid4())
    stopped = cloud.defineXML(
        f'<domain type="test"><name>{name}</name><uuid>{name}</uuid><memory>8192</memory>'
        '<os><type>hvm</type></os></domain>')
    try:
        with pytest.raises(exception.RepinRefused, match='does not run'):
            pinning_of().pin_vcpus('host1', name, [[0]])
    finally:
        stopped.undefine()


def test_refused_libvirt_connection_names_remedy(libvirt, capfd):
    with pytest.raises(exception.RepinFailed, match=r'Connection refused.*\[repin\] uri'):
        pinning_of('qemu+tcp://127.0.0.1:1/system?host={host}').pin_vcpus(
            'host1', str(uuid.uuid4()), [[0]])
    assert capfd.readouterr().err == ''


# What kronos-test-config looks at.


def looked_at(uri, hosts=('host1', 'host2'), down=('host1',)):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('uri', uri, 'repin')
    conf.set_override('timeout', 5.0, 'repin')
    item, = repin.check(base.CheckContext(conf, cluster=model.Cluster(
        instances={}, hosts={name: model.Host(name, name) for name in hosts},
        services={name: model.Service(name, state='down' if name in down else 'up')
                  for name in hosts})))
    return item


def test_check_reads_libvirt_of_one_up_host_read_only(libvirt, cloud, monkeypatch):
    opened = []
    read_only = libvirt.openReadOnly
    monkeypatch.setattr(libvirt, 'open', lambda uri: pytest.fail('it could change something'))
    monkeypatch.setattr(libvirt, 'openReadOnly', lambda uri: opened.append(uri) or read_only(uri))
    item = looked_at(URI)
    assert item.status is base.CheckStatus.OK
    assert item.text.startswith('libvirt at test:///default?host=host2: TEST, 3 CPUs online')
    assert opened == ['test:///default?host=host2']


def test_check_reports_unreachable_libvirt(libvirt):
    item = looked_at('test:///nowhere/{host}')
    assert item.status is base.CheckStatus.FAILED and 'test:///nowhere/host2' in item.text
    assert '[repin] uri' in item.remedy


def test_check_reports_silent_libvirt_in_time(libvirt, monkeypatch):
    over, read_only = threading.Event(), libvirt.openReadOnly
    monkeypatch.setattr(libvirt, 'openReadOnly', lambda uri: over.wait(60) and read_only(uri))
    began = time.monotonic()
    item = looked_at(URI)
    over.set()
    assert item.status is base.CheckStatus.FAILED and 'no answer within 5 s' in item.text
    assert time.monotonic() - began < 30


def test_check_is_skipped_without_up_host(libvirt):
    assert looked_at(URI, down=('host1', 'host2')).status is base.CheckStatus.SKIPPED


def test_check_reports_host_name_invalid_in_uri(libvirt):
    item = looked_at(URI, hosts=('a/b',), down=())
    assert item.status is base.CheckStatus.FAILED and 'cannot stand in a URI' in item.text
