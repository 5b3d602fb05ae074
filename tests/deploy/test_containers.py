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

"""The files for containers without kolla agree with the page and with kolla's images."""

import configparser
from pathlib import Path
import re
import subprocess

TOP = Path(__file__).resolve().parents[2]
CONTAINERS = TOP / 'deploy/containers'
PAGE = (TOP / 'doc/source/install/containers.rst').read_text()


def test_containerfile_is_short_and_makes_user_of_kolla():
    text = (CONTAINERS / 'Containerfile').read_text()
    kolla = configparser.ConfigParser()
    kolla.read(TOP / 'deploy/kolla/kolla-build.conf')
    assert len(text.splitlines()) <= 40
    uid = kolla['kronos-user']['uid']
    assert re.findall(r'^ARG KRONOS_UID=(\d+)$', text, re.MULTILINE) == [uid]
    # The data, and the keys that sign tasks.
    assert re.findall(r'install -d -o (\d+) -g \1 ', PAGE) == [uid] * 2
    assert text.rstrip().splitlines()[-3] == 'USER kronos'


def run_script(tmp_path: Path, *arguments: str) -> list[str]:
    """Return the arguments that podman would get."""
    podman = tmp_path / 'podman'
    podman.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    podman.chmod(0o755)
    done = subprocess.run(['sh', CONTAINERS / 'run.sh', *arguments], text=True, check=True,
                          capture_output=True, env={'PATH': f'{tmp_path}:/usr/bin:/bin'})
    return done.stdout.splitlines()


def test_script_runs_api_in_uwsgi_of_debian_with_our_file(tmp_path):
    uwsgi = configparser.RawConfigParser()
    uwsgi.read(TOP / 'etc/kronos/kronos-api.ini')
    address = uwsgi['uwsgi']['http-socket']
    given = run_script(tmp_path, 'kronos-api', '--processes', '4')
    image = given.index('localhost/kronos-nova')
    assert given[image + 1:] == [
        'uwsgi', '--plugin', 'python3', '--virtualenv', '/opt/kronos', '--ini',
        '/etc/kronos/kronos-api.ini', '--processes', '4']
    assert given[given.index('--name') + 1] == 'kronos-api'
    assert f"'http://{address}/healthcheck'" in given[given.index('--health-cmd') + 1]
    text = (CONTAINERS / 'Containerfile').read_text()
    assert 'uwsgi-core uwsgi-plugin-python3' in text and 'ENV PATH=/opt/kronos/bin:' in text


def test_script_runs_a_command_that_ends_without_a_health_check(tmp_path):
    given = run_script(tmp_path, 'kronos', 'status')
    assert given[:2] == ['run', '--rm'] and given[-2:] == ['kronos', 'status']
    assert '--health-cmd' not in given and '--detach' not in given


def test_script_runs_each_daemon_on_documented_port():
    ports = dict(re.findall(r'(kronos-\w+)\) port=(\d+)', (CONTAINERS / 'run.sh').read_text()))
    assert {f'{name.partition("-")[2]}_port': port for name, port in ports.items()} == dict(
        re.findall(r'^   (\w+_port) = (\d+)$', PAGE, re.MULTILINE))
    setup = (TOP / 'setup.cfg').read_text()
    assert all(f'    {name} = kronos_nova.cmd.' in setup for name in ports)
