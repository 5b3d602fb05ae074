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


"""What kronos-test-config says of [migfra], [hooks] and [repin], of clouds written down here."""

import json
import os
import sys
import types

import pytest

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.checks import base
from kronos_nova.checks import hooks
from kronos_nova.checks import migfra
from kronos_nova.checks import repin
from kronos_nova.conf import permits
from kronos_nova.rebalancer.messaging import mqtt
from kronos_nova.rebalancer.migfra import vcpu_pinning
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import requests
from tests.unit.rebalancer.hooks import servers

PROJECT, OTHER = '0d3c1a7be6f24c6f9d1d6d0e7c8f7a51', '5b2f9c0d1e7a4836b1c2d3e4f5a60718'
POLICY = {'name': 'cpu', 'weight': 1, 'imbalance_query': 'cpu', 'vm_profile_query': 'vm'}


def cloud(aggregates, instances=(), hosts=('h1', 'h2'), down=()):
    """:param instances: (UUID, name, project)."""
    return model.Cluster(
        hosts={h: model.Host(h, h) for h in hosts},
        services={h: model.Service(h, state='down' if h in down else 'up') for h in hosts},
        aggregates=aggregates, instances={
            uuid: model.Instance(uuid, 'h1', name=name, project_id=project)
            for uuid, name, project in instances})


CLOUD = cloud({'rack-1': ('h1',), 'rack-2': ('h2',)}, [('u1', 'web', PROJECT)])


def found(check, cluster=CLOUD, allow=(), connection=None, policy_set=True, **options):
    """Items by name; ``options``: GROUP_OPTION."""
    conf = servers.conf()
    conf.set_override('dry_run', False, 'engine')
    conf.set_override('aggregates', ['rack-1', 'rack-2'], 'engine')
    conf.set_override('include_unassigned_hosts', False, 'engine')
    conf.set_override('allow', [permits.PermitType()(text) for text in allow], 'migfra')
    for name, value in options.items():
        group, _, option = name.rpartition('__')
        conf.set_override(option, value, group)
    items = list(check(base.CheckContext(
        conf, policies.parse_policies({'policies': [POLICY]}) if policy_set else None, None,
        connection, cluster)))
    assert all(item.text for item in items)
    assert all(item.remedy for item in items if item.status in ('failed', 'warning'))
    assert len({item.name for item in items}) == len(items)
    return {item.name: item for item in items}


def states(items):
    return {name: str(item.status) for name, item in items.items()}


class Keystone:
    """An openstacksdk connection to one that knows these projects, ID -> name.

    :param refuses: the status that every answer has.
    """

    def __init__(self, projects, refuses=None):
        self._projects, self._refuses = projects, refuses
        self.identity = self

    def get(self, path):
        listed, _, name = path.partition('?name=')
        if self._refuses:
            return self._answer(self._refuses, {})
        if name:
            return self._answer(200, {'projects': [
                {'id': i} for i, n in self._projects.items() if n == name]})
        project = path.removeprefix('/projects/')
        return self._answer(200 if project in self._projects else 404, {})

    def _answer(self, status, body):
        return types.SimpleNamespace(status_code=status, json=lambda: body)


def test_no_check_reports_without_a_broker_and_a_permit():
    assert found(migfra.check) == {} == found(hooks.check) == found(repin.check)


def test_a_missing_permit_warns_that_every_request_is_refused():
    item = found(migfra.check, mqtt__host='broker')['migfra']
    assert item.status is base.CheckStatus.WARNING and 'refuses every request' in item.text
    assert 'OPERATIONS:PROJECTS:SCOPES' in item.remedy


def test_requested_hooks_that_are_not_allowed_are_reported(tmp_path):
    url = f'sqlite:///{tmp_path}/kronos.sqlite'
    allow = ['migrate-vm,evacuate-node:*:rack-1']

    def hooks_missing(*on_request):
        items = found(migfra.check, allow=allow, database__connection=url,
                      hooks__on_request=list(on_request))
        return {name: item.text for name, item in items.items()
                if name.startswith('migfra: hook ')}

    assert hooks_missing('pause') == {}, 'there is no database yet'
    store = store_api.Store.from_url(url)
    store.upgrade()
    for number, parameter in enumerate(['{}', '{"pscom-hook-procs": 2}', '{"swap-with": '
                                        '{"vm-name": "b", "pscom-hook-procs": 1}}']):
        document = ('{"id": "x", "task": "migrate vm", "vm-name": "a", "destination": "h2", '
                    f'"parameter": {parameter}}}')
        store.run_transaction(lambda c, n=number, text=document: requests.record_request(
            c, requests.MigfraRequest(f'h1/{n}', 'h1', 'migrate vm', text, '', 1.0)))
    store.close()
    assert hooks_missing('pause', 'pscom') == {}
    assert hooks_missing('pause') == {
        'migfra: hook pscom': '2 of the last 3 requests have asked for it, and [hooks] on_request '
                              'has no pscom: such migrations fail'}


@pytest.mark.parametrize('alias', ['n1', 'a/b=h1', '=h1'])
def test_an_invalid_host_alias_is_reported(alias):
    item = found(migfra.check, allow=['*:*:*'], migfra__host_aliases=[alias])[
        'migfra: host_aliases']
    assert item.status is base.CheckStatus.FAILED and repr(alias) in item.text


def test_a_broker_for_the_hook_pscom_alone_needs_no_permit():
    assert found(migfra.check, mqtt__host='broker', hooks__on_request=['pscom']) == {}


def test_an_entry_whose_scopes_and_projects_are_there_is_ok_with_its_hosts():
    items = found(migfra.check, allow=[f'start-vm:{PROJECT}:rack-1', 'migrate-vm:*:*'])
    assert states(items) == {'migfra: allow 1': 'ok', 'migfra: allow 2': 'ok'}
    assert items['migfra: allow 1'].text == f'start-vm:{PROJECT}:rack-1: 1 host'
    assert items['migfra: allow 2'].text == 'migrate-vm:*:*: 2 hosts'


def test_a_scope_that_is_not_served_is_named():
    item = found(migfra.check, allow=['start-vm:*:rack-1,rack-9'])['migfra: allow 1']
    assert item.status is base.CheckStatus.FAILED and item.text.endswith('no scope rack-9 is '
                                                                         'served')
    assert model.UNASSIGNED not in item.remedy
    item = found(migfra.check, allow=[f'start-vm:*:{model.UNASSIGNED}'])['migfra: allow 1']
    assert item.status is base.CheckStatus.FAILED
    item = found(migfra.check, allow=[f'start-vm:*:{model.UNASSIGNED},x'],
                 engine__include_unassigned_hosts=True)['migfra: allow 1']
    assert 'no scope x is served' in item.text and model.UNASSIGNED in item.remedy


def test_scopes_without_a_host_are_reported():
    items = found(migfra.check, cloud({'rack-1': ('h1',), 'rack-2': ()}),
                  allow=['start-vm:*:rack-2', 'start-vm:*:*'])
    assert states(items) == {'migfra: allow 1': 'warning', 'migfra: allow 2': 'ok'}


def test_a_scope_missing_in_nova_is_left_to_the_aggregates_check():
    items = found(migfra.check, cloud({'rack-1': ('h1',)}), allow=['start-vm:*:*'])
    assert states(items) == {'migfra: allow 1': 'ok'}


def test_a_project_that_keystone_does_not_have_is_named():
    item = found(migfra.check, allow=[f'start-vm:{PROJECT},{OTHER}:*'],
                 connection=Keystone({PROJECT: 'hpc'}))['migfra: allow 1']
    assert item.status is base.CheckStatus.FAILED
    assert item.text.endswith(f'no project of the ID {OTHER}')


def test_the_name_of_a_project_gets_its_id_for_an_answer():
    item = found(migfra.check, allow=['start-vm:hpc:*'],
                 connection=Keystone({OTHER: 'hpc'}))['migfra: allow 1']
    assert item.status is base.CheckStatus.FAILED
    assert f'write its ID, {OTHER}' in item.remedy


def test_a_project_with_a_server_exists_also_without_keystone():
    items = found(migfra.check, allow=[f'start-vm:{PROJECT}:*'], connection=Keystone({}))
    assert states(items) == {'migfra: allow 1': 'ok'}


@pytest.mark.parametrize('connection', [None, Keystone({}, 403), Keystone({}, 500)])
def test_projects_unknown_to_keystone_are_not_reported_as_missing(connection):
    items = found(migfra.check, allow=[f'start-vm:{OTHER}:*', 'start-vm:hpc:*'],
                  connection=connection)
    assert states(items) == {'migfra: allow 1': 'ok', 'migfra: allow 2': 'warning'}
    assert '1 of its projects' in items['migfra: allow 1'].text
    assert 'by ID, not by name' in items['migfra: allow 2'].remedy


def test_hosts_whose_names_fit_no_topic_are_reported():
    items = found(migfra.check, cloud({'rack-1': ('h1', 'h+2'), 'rack-2': ()},
                                      hosts=('h1', 'h+2')), allow=['start-vm:*:*'])
    assert items['migfra: hosts'].text == (
        '1 host is not served, since no topic can bear such names: h+2')


def test_a_host_of_two_scopes_belongs_to_the_first():
    item = found(migfra.check, cloud({'rack-1': ('h1', 'h2'), 'rack-2': ('h2',)}),
                 allow=['start-vm:*:*'])['migfra: hosts of several scopes']
    assert 'such as h2 in rack-1 and rack-2: ' in item.text


def test_ambiguous_server_names_are_reported_by_uuid():
    both = [('u2', 'we\x1bb', PROJECT), ('u1', 'we\x1bb', OTHER)]
    item = found(migfra.check, cloud({'rack-1': ('h1',), 'rack-2': ()}, both),
                 allow=['start-vm:*:*'])['migfra: names']
    assert item.text.startswith('1 names') and 'u1' in item.text and 'we' not in item.text[8:20]
    assert '\x1b' not in item.text


def test_names_collide_only_where_both_projects_may_be_asked_for():
    cluster = cloud({'rack-1': ('h1',), 'rack-2': ('h2',)},
                    [('u1', 'web', PROJECT), ('u2', 'web', OTHER), ('u3', '', PROJECT),
                     ('u4', '', PROJECT)])
    apart = [f'start-vm:{PROJECT}:rack-1', f'start-vm:{OTHER}:rack-2', f'stop-vm:{OTHER}:rack-1']
    assert 'migfra: names' not in found(migfra.check, cluster, allow=apart)
    # Entries of one operation and scope are judged together.
    together = [f'start-vm:{PROJECT}:rack-1', f'start-vm:{OTHER}:rack-1']
    assert 'migfra: names' in found(migfra.check, cluster, allow=together)


def test_permits_that_other_options_defeat_are_reported():
    everything = {'migfra: dry run': 'warning', 'migfra: repin-vm': 'warning',
                  'migfra: warm': 'warning', 'migfra: allow 1': 'ok'}
    items = found(migfra.check, allow=['*:*:*'], engine__dry_run=True, hooks__on_request=[])
    assert states(items) == everything
    items = found(migfra.check, allow=['*:*:*'], engine__executor='dry_run',
                  hooks__on_request=['pause'], repin__uri='qemu+tls://{host}/system')
    assert states(items) == {'migfra: dry run': 'warning', 'migfra: allow 1': 'ok'}
    items = found(migfra.check, allow=['start-vm:*:*'], hooks__on_request=[])
    assert states(items) == {'migfra: allow 1': 'ok'}


@pytest.mark.parametrize(('aliases', 'text'), [
    (['ib=nonsense'], 'names no device'), (['ib=15b3/1004', 'ib=15b3/1005'], 'the last one')])
def test_invalid_and_duplicate_pci_aliases_are_reported(aliases, text):
    item = found(migfra.check, allow=['start-vm:*:*'],
                 migfra__pci_aliases=aliases)['migfra: pci_aliases']
    assert item.status is base.CheckStatus.FAILED and text in item.text


def test_without_nova_and_policies_nothing_is_taken_for_missing():
    items = found(migfra.check, None, allow=['start-vm:*:rack-9'], policy_set=False)
    assert states(items) == {'migfra: allow 1': 'ok'}


# Hooks.


def hook(name, option='enabled', **options):
    items = found(hooks.check, **{f'hooks__{option}': [name]}, **options)
    return items[f'hook: {name}']


def test_a_missing_hook_is_reported_with_the_installed_ones():
    item = hook('webhok')
    assert item.status is base.CheckStatus.FAILED and 'webhook' in item.text
    item = hook('pausee', 'on_request')
    assert item.status is base.CheckStatus.FAILED and '[hooks] on_request' in item.text


def test_a_hook_with_invalid_options_is_reported_with_their_names():
    assert '[hook_webhook] url' in hook('webhook').text
    assert '[hook_alertmanager] url' in hook('alertmanager').text
    assert '[mqtt] host' in hook('pscom').text
    assert '[hook_pscom] processes' in hook('pscom', hook_pscom__processes=['x'],
                                            mqtt__host='broker').text


def test_a_hook_that_needs_nothing_is_ok():
    assert hook('pause').status is base.CheckStatus.OK


def webhook(tmp_path, url):
    (tmp_path / 'secret').write_text('c4n4ry-s3cret-0123')
    return hook('webhook', hook_webhook__url=url,
                hook_webhook__secret_file=str(tmp_path / 'secret'), hook_webhook__timeout=2.0)


@pytest.mark.parametrize(('status', 'state'), [
    (204, 'ok'), (405, 'ok'), (501, 'ok'), (401, 'ok'), (302, 'failed'), (503, 'failed')])
def test_the_program_of_webhook_is_seen_and_gets_no_post(tmp_path, status, state):
    with servers.Server() as server:
        server.answer = lambda method, path, body: (status, {'Location': '/x'}, b'')
        item = webhook(tmp_path, server.url + '/path')
        assert [(method, path, body) for method, path, _headers, body in server.requests] == [
            ('OPTIONS', '/path', b'')]
        assert 'Kronos-Signature' not in server.requests[0][2]
    assert str(item.status) == state, item


def test_an_unreachable_webhook_is_reported_without_the_login(tmp_path):
    with servers.Server() as server:
        url = server.url
    item = webhook(tmp_path, url.replace('://', '://user:c4n4ry-s3cret@'))
    assert item.status is base.CheckStatus.FAILED and 'did not reach' in item.text
    assert 'c4n4ry' not in item.text + item.remedy and '[hook_webhook]' in item.remedy


def test_alertmanager_is_seen_and_no_silence_is_made():
    with servers.Alertmanager() as server:
        item = hook('alertmanager', hook_alertmanager__url=server.url + '/prefix')
        assert item.status is base.CheckStatus.OK, item
        assert [method for method, *_rest in server.requests] == ['GET']
        assert hook('alertmanager', hook_alertmanager__url=server.url).status \
            is base.CheckStatus.FAILED, 'nothing is there'
        server.answer = lambda method, path, body: (200, {}, json.dumps({'a': 1}).encode())
        item = hook('alertmanager', hook_alertmanager__url=server.url)
        assert 'is that Alertmanager?' in item.text


def test_pscom_is_made_without_a_connection(monkeypatch):
    monkeypatch.setattr(mqtt.MqttConnection, 'start', lambda self: pytest.fail('it connects'))
    assert hook('pscom', 'on_request', mqtt__host='broker').status is base.CheckStatus.OK


# Pinning.


def test_a_repin_uri_without_a_host_field_is_reported():
    item = found(repin.check, repin__uri='qemu+tls://h1/system')['repin']
    assert item.status is base.CheckStatus.FAILED and '{host}' in item.text


def test_a_missing_libvirt_python_is_reported_with_the_package(monkeypatch):
    vcpu_pinning._load_libvirt.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, 'libvirt', None)
        item = found(repin.check, repin__uri='qemu+tls://{host}/system')['repin']
    assert item.status is base.CheckStatus.FAILED and 'libvirt-python' in item.text
    assert 'python3-libvirt' in item.remedy


@pytest.fixture
def library(monkeypatch):
    """Of libvirt what makes no connection: nothing is to be asked here."""
    monkeypatch.setattr(vcpu_pinning, 'require_libvirt', lambda: None)


@pytest.mark.parametrize(('uri', 'names'), [
    ('qemu+tls://{host}/system?pkipath=%s', ['cacert.pem']),
    ('qemu://{host}/system?pkipath=%s', ['cacert.pem'])])
def test_files_of_tls_that_cannot_be_read_are_named(library, tmp_path, uri, names):
    item = found(repin.check, repin__uri=uri.replace('%s', str(tmp_path)))['repin: TLS']
    assert item.status is base.CheckStatus.FAILED
    assert item.text.endswith(': ' + ', '.join(str(tmp_path / name) for name in names))


@pytest.mark.parametrize('missing', ['clientkey.pem', 'clientcert.pem'])
def test_a_key_that_is_there_has_to_be_readable(library, tmp_path, missing):
    for name in ('cacert.pem', 'clientcert.pem', 'clientkey.pem'):
        (tmp_path / name).write_text('')
    (tmp_path / missing).unlink()
    uri = f'qemu+tls://{{host}}/system?pkipath={tmp_path}'
    assert states(found(repin.check, None, repin__uri=uri)) == {'repin': 'skipped'}
    (tmp_path / missing).symlink_to(tmp_path / 'nowhere')
    assert str(tmp_path / missing) in found(repin.check, None, repin__uri=uri)['repin: TLS'].text


def test_other_transports_take_no_files(library):
    for uri in ('qemu+ssh://{host}/system', 'test:///default?host={host}'):
        assert states(found(repin.check, None, repin__uri=uri)) == {'repin': 'skipped'}


def test_a_users_own_files_come_before_those_of_the_system(library, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setattr(os, 'geteuid', lambda: 1000)
    own = tmp_path / '.pki/libvirt'
    own.mkdir(parents=True)
    address = 'qemu+tls://h1/system'
    assert repin._list_tls_files(address) == list(repin._SYSTEM)
    for name in ('cacert.pem', 'clientcert.pem'):
        (own / name).touch()
    assert repin._list_tls_files(address) == [str(own / 'cacert.pem'), *repin._SYSTEM[1:]], 'pairs'
    (own / 'clientkey.pem').touch()
    assert repin._list_tls_files(address) == [str(own / name) for name in repin._NAMES]
    monkeypatch.setattr(os, 'geteuid', lambda: 0)
    assert repin._list_tls_files(address) == list(repin._SYSTEM)


def test_an_ssh_probe_without_networks_fails_the_check():
    probe = {'allow': ['*:*:*'], 'migfra__ssh_probe': True}
    item = found(migfra.check, **probe)['migfra: ssh_probe']
    assert item.status is base.CheckStatus.FAILED and 'ssh_probe = false' in item.remedy
    assert 'migfra: ssh_probe' not in found(
        migfra.check, migfra__ssh_probe_networks=['192.0.2.0/24'], **probe)
