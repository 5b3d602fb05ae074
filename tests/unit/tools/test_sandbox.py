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

"""The command line: clear refusals and their exit codes, and the small pure parts."""

import io
import json
import time

import pytest

from tools.cloud import checks
from tools.cloud import errors
from tools.cloud import exporter
from tools.cloud import layout
from tools.cloud import main
from tools.cloud import manage
from tools.cloud import neutron
from tools.cloud import processes
from tools.cloud import progress
from tools.cloud import state
from tools.cloud import tables
from tools.cloud import up
from tools.cloud.hypervisors.libvirt import LibvirtHypervisor
from tools.cloud.hypervisors.simulated import SimulatedHypervisor


def command(tmp_path, *arguments):
    return main.main(['--dir', str(tmp_path / 's'), *arguments])


def test_status_without_a_sandbox_says_so(tmp_path, capsys):
    assert command(tmp_path, 'status') == errors.NotUp.code
    assert 'no sandbox is up' in capsys.readouterr().err


def test_down_without_a_sandbox_is_no_failure(tmp_path, capsys):
    assert command(tmp_path, 'down') == 0
    assert 'nothing was up' in capsys.readouterr().out


@pytest.mark.parametrize('hosts', ['0', '100', 'x'])
def test_a_bad_number_of_hosts_is_refused(tmp_path, hosts):
    with pytest.raises(SystemExit) as caught:
        command(tmp_path, 'up', '--hosts', hosts)
    assert caught.value.code == 2


@pytest.mark.parametrize('arguments', [
    ['--hosts', '1'], ['--stock-scheduler'], ['--hypervisor', 'libvirt']])
def test_a_scene_that_cannot_be_set_is_refused_before_anything_starts(tmp_path, capsys, arguments):
    assert command(tmp_path, 'up', '--scene', 'imbalance',
                   *arguments) == errors.NotPossibleHere.code
    assert 'a scene needs 2 simulated hosts' in capsys.readouterr().err
    assert not (tmp_path / 's').exists()


def test_a_leftover_of_a_crashed_run_is_refused(tmp_path):
    place = layout.Layout(tmp_path)
    place.create()
    gone = processes.Process('nova-api', 2 ** 22 + 1, 1)
    state.State({}, [], time.time(), processes=[gone]).save(place.state)
    with pytest.raises(errors.AlreadyThere, match='without cleaning up'):
        up.refuse_second(place)


def test_two_commands_on_one_directory_are_refused(tmp_path):
    place = layout.Layout(tmp_path)
    with (up.locked(place), pytest.raises(errors.AlreadyThere, match='at work'),
          up.locked(place)):
        pass


@pytest.mark.needs_nova
def test_too_little_memory_is_refused_with_both_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, 'PROGRAMS', {})
    monkeypatch.setattr(checks, 'available_memory_mib', lambda: 1000)
    with pytest.raises(errors.NotPossibleHere, match='6 hosts need 1720 MiB .* 1000 MiB'):
        checks.machine(tmp_path, 6, SimulatedHypervisor())


def test_missing_programs_are_refused_with_their_packages(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, 'PROGRAMS', {'no-such-program': 'its-package'})
    monkeypatch.setattr(LibvirtHypervisor, 'programs', {'no-such-emulator': 'its-emulator'})
    with pytest.raises(errors.NotPossibleHere, match='apt-get install its-emulator its-package'):
        checks.machine(tmp_path, 6, LibvirtHypervisor())
    with pytest.raises(errors.NotPossibleHere, match='apt-get install its-package$'):
        checks.machine(tmp_path, 6, SimulatedHypervisor())


def test_missing_python_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, 'PROGRAMS', {})
    monkeypatch.setattr(checks, 'PYTHON_PACKAGES', ('no-such-distribution',))
    with pytest.raises(errors.NotPossibleHere, match='no-such-distribution'):
        checks.machine(tmp_path, 6, SimulatedHypervisor())


def test_a_table_aligns_and_cleans_what_tenants_wrote():
    text = tables.table(('server', 'cpu'), [('web\x1b[2J', 1.5), ('db', 10)], indent='')
    assert text.splitlines() == [
        'server   cpu', '-------  ---', 'web?[2J  1.5', 'db        10']


@pytest.mark.parametrize(('ratio', 'bar'), [(0, '....'), (0.5, '##..'), (1, '####'), (7, '####')])
def test_a_bar_shows_a_ratio(ratio, bar):
    assert tables.bar(ratio, 4) == bar


def test_progress_has_the_seconds():
    out = io.StringIO()
    progress.Progress(out).step('done')
    assert out.getvalue() == '   0.0 s  done\n'


def test_commands_are_split_at_double_dashes():
    assert manage.split(['--', 'a', 'b', '--', 'c']) == [['a', 'b'], ['c']]


@pytest.mark.parametrize(('method', 'path', 'status', 'key'), [
    ('GET', '/', '200', 'versions'),
    ('GET', '/v2.0', '200', 'resources'),
    ('GET', '/v2.0/extensions', '200', 'extensions'),
    ('GET', '/v2.0/quotas/p', '200', 'quota'),
    ('GET', '/v2.0/ports', '200', 'ports'),
    ('GET', '/v2.0/security-groups', '200', 'security_groups'),
    ('GET', '/v2.0/networks/n', '404', 'NeutronError'),
    ('POST', '/v2.0/ports', '404', 'NeutronError'),
])
def test_the_neutron_stand_in_answers_what_nova_asks(method, path, status, key):
    answered, body = neutron.answer(method, path, '127.0.0.1:1')
    assert answered.startswith(status)
    assert key in body


def test_the_stand_in_deletes_without_a_body():
    assert neutron.answer('DELETE', '/v2.0/ports/p', 'h') == ('204 No Content', None)


def server(uuid, host, vm_state='active'):
    return {'id': uuid, 'name': 'n', 'tenant_id': 'p', 'user_id': 'u',
            'OS-EXT-SRV-ATTR:host': host, 'OS-EXT-SRV-ATTR:instance_name': 'instance-1',
            'OS-EXT-STS:vm_state': vm_state,
            'flavor': {'original_name': 'f', 'vcpus': 2, 'ram': 1024}}


def test_only_running_servers_with_a_host_are_guests():
    servers = [server('a', 'h'), server('b', None), server('c', 'h', 'stopped')]
    assert [g.uuid for g in exporter.guests(servers)] == ['a']


class NoCloud:
    def servers(self):
        return [server('a', 'compute-01')]


def test_a_bad_control_file_leaves_the_previous_loads(tmp_path, capsys):
    from tools.cloud import load

    file = tmp_path / 'load.json'
    integrator = load.Integrator(['compute-01'], 8, 1e9, time.time())
    subject = exporter.Exporter(NoCloud(), file, integrator)
    file.write_text(json.dumps({'instances': {'a': {'cpu': 1}}}))
    subject.refresh()
    file.write_text('{"instances": {"a": {"cpu": "much"}}}')
    subject.refresh()
    assert integrator._loads.instances == {'a': load.Use(cpu=1)}
    assert 'instances.a.cpu' in capsys.readouterr().out


def test_an_unknown_target_is_not_found(tmp_path):
    from tools.cloud import load

    integrator = load.Integrator(['compute-01'], 8, 1e9, time.time())
    subject = exporter.Exporter(NoCloud(), tmp_path / 'none.json', integrator)
    subject.refresh()
    assert subject.scrape('/compute-01/node')
    assert subject.scrape('/compute-01/libvirt')
    assert subject.scrape('/compute-02/node') is None
    assert subject.scrape('/compute-01/other') is None
    assert subject.scrape('/') is None
