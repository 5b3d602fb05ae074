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
"""Pinning vCPUs without libvirt; tests/integration uses a real one."""

import sys

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer.migfra import vcpu_pinning

INSTANCE = '5c1e2a54-5d4f-4a5e-9a55-3f0d2f5f2b11'
URI = 'qemu+tls://{host}/system'


@pytest.fixture(autouse=True)
def no_libvirt(monkeypatch):
    """Hide the libvirt module that this environment may have."""
    monkeypatch.setitem(sys.modules, 'libvirt', None)
    vcpu_pinning._load_libvirt.cache_clear()
    yield
    vcpu_pinning._load_libvirt.cache_clear()


def repin(host='host1', instance=INSTANCE, vcpu_map=((0,),), uri=URI, policy=None):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    if uri is not None:
        conf.set_override('uri', uri, 'repin')
    vcpu_pinning.VcpuPinning(conf).pin_vcpus(host, instance, vcpu_map, policy)


def test_it_is_off_by_default():
    with pytest.raises(exception.RepinUnsupported, match=r'not enabled. Set \[repin\] uri'):
        repin(uri=None)


def test_without_libvirt_python_it_says_what_to_install():
    with pytest.raises(exception.RepinUnsupported, match='Install the package python3-libvirt'):
        repin()


def test_a_uri_that_is_the_same_for_every_host_is_refused():
    with pytest.raises(exception.ConfigError, match=r'\[repin\] uri: \{host\} is not in it'):
        repin(uri='qemu:///system')


@pytest.mark.parametrize('host', [
    '', 'a/b', 'a?b', 'a#b', 'user@a', 'a:16514', 'a b', 'a\n', '-a', '.a', 'a.', '{host}', 'ä',
    '%2f', 'a' * 256, '[::1]'])
def test_a_name_that_would_change_the_uri_is_refused(host):
    with pytest.raises(exception.RepinRefused, match='cannot stand in a URI') as caught:
        repin(host=host)
    assert '\n' not in str(caught.value) and len(str(caught.value)) < 250


@pytest.mark.parametrize('host', ['a', 'compute-01', 'c1.example.org', 'rack_1', '10.0.0.1'])
def test_names_that_hosts_have_are_taken(host):
    with pytest.raises(exception.RepinUnsupported, match='libvirt-python'):
        repin(host=host)


@pytest.mark.parametrize('instance', ['x', '', "'; drop", f'{INSTANCE}0'])
def test_an_instance_is_named_by_its_uuid(instance):
    with pytest.raises(exception.RepinRefused, match='is no UUID'):
        repin(instance=instance)


@pytest.mark.parametrize('policy', ['dedicated', 'mixed'])
def test_cpus_that_nova_pins_are_unsupported_with_or_without_libvirt(policy):
    with pytest.raises(exception.RepinUnsupported, match=f'has {policy} CPUs'):
        repin(policy=policy)


def test_the_kinds_of_errors_have_codes_of_their_own():
    assert {kind.code for kind in exception.RepinError.__subclasses__()} == {
        'kronos.repin.unsupported', 'kronos.repin.refused', 'kronos.repin.failed',
        'kronos.repin.unknown'}


def test_cpus_of_a_cpuset_are_read_as_libvirt_writes_them():
    def cpus(text):
        return vcpu_pinning._shared_set(
            f'<domain><name>vcpu</name><vcpu cpuset="{text}">2</vcpu></domain>')

    assert cpus('0') == {0}
    assert cpus('0-3,^2,8') == {0, 1, 3, 8}
    assert vcpu_pinning._shared_set('<domain><vcpu>2</vcpu></domain>') is None
    assert vcpu_pinning._shared_set('<domain/>') is None
