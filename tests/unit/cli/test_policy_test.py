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

"""``kronos policy test`` where Nova is away; with a real one: tests/functional/test_tools.py."""

import json
import time

import pytest
import requests

from tests import commands
from tests.fixtures import prometheus_server

CANARY = 'c4n4ry-s3cret'
POLICIES = '''
policies:
  - name: cpu
    weight: 1
    imbalance_query: max by (host) (load)
    age_query: time() - max by (host) (timestamp(load))
  - name: spare
    enabled: false
    weight: 0.5
    imbalance_query: max by (nothing) (load)
'''


@pytest.fixture(scope='module')
def prometheus(tmp_path_factory):
    """A real one, with two hosts of which one has a hostile name and no number."""
    exporter = prometheus_server.Exporter()
    exporter.text = 'load{host="h1"} 0.5\nload{host="h2"} 0.25\nload{host="h\\u001b[2J"} NaN\n'
    with prometheus_server.running(tmp_path_factory.mktemp('prometheus'),
                                   [exporter.address]) as url:
        for _ in range(200):
            answer = requests.post(f'{url}/api/v1/query', {'query': 'count(load) == 3'}, timeout=5)
            if answer.json()['data']['result']:
                break
            time.sleep(0.1)
        yield url
    exporter.stop()


@pytest.fixture
def ask(tmp_path):
    def run(*arguments, url, text=POLICIES, form='json'):
        (tmp_path / 'policies.yaml').write_text(text)
        (tmp_path / 'kronos.conf').write_text(f'''
[engine]
policies_file = {tmp_path}/policies.yaml
[prometheus]
url = {url}
max_retries = 0
[nova]
auth_type = password
auth_url = http://127.0.0.1:1/v3
username = nova
password = {CANARY}
project_name = service
user_domain_name = Default
project_domain_name = Default
''')
        done = commands.main('kronos_nova.cli.app', 'policy', 'test', '--config-file',
                             tmp_path / 'kronos.conf', '-f', form, *arguments)
        assert 'Traceback' not in done.stderr and CANARY not in done.stdout + done.stderr
        return done

    return run


def rows(done):
    return {(r['Policy'], r['Query'], r['Check']): (r['Status'], r['What'])
            for r in json.loads(done.stdout)}


def test_without_nova_the_queries_are_run_and_the_status_is_not_green(ask, prometheus):
    done = ask(url=prometheus)
    found = rows(done)
    assert done.returncode == 1 and done.stderr == ''
    assert found['', '', 'keystone'][0] == 'failed'
    status, text = found['cpu', 'imbalance_query', 'series']
    assert status == 'warning' and text.startswith('2 by host; 1 values are not finite')
    assert found['cpu', 'imbalance_query', 'labels'][0] == 'skipped'
    assert found['cpu', 'age_query', 'sample age'][0] == 'ok'
    assert not [key for key in found if key[0] == 'spare']


def test_a_disabled_policy_is_tested_when_it_is_named(ask, prometheus):
    found = rows(ask('--policy', 'spare', url=prometheus))
    assert not [key for key in found if key[0] == 'cpu']
    status, text = found['spare', 'imbalance_query', 'series']
    assert status == 'failed' and 'no series has the label host' in text


def test_another_file_than_the_configured_one_is_tested(ask, prometheus, tmp_path):
    other = tmp_path / 'other.yaml'
    other.write_text(POLICIES.replace('name: cpu', 'name: other'))
    found = rows(ask(other, url=prometheus))
    assert {key[0] for key in found} == {'', 'other'}


@pytest.mark.parametrize(('arguments', 'text', 'said'), [
    (['--policy', 'none'], POLICIES, "no policy 'none'. There are: cpu, spare."),
    (['/none.yaml'], POLICIES, '/none.yaml: file: it cannot be read'),
    ([], 'policies: 3', 'policies.yaml: policies: '),
    (['--config-file', '/none.conf'], POLICIES, '/none.conf')])
def test_bad_input_is_one_line(arguments, text, said, ask):
    done = ask(*arguments, url='http://127.0.0.1:1', text=text)
    assert (done.returncode, done.stdout) == (1, '')
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr


def test_an_unreachable_prometheus_is_reported_once(ask):
    done = ask(url=f'http://user:{CANARY}@127.0.0.1:1')
    found = rows(done)
    assert found['', '', 'source: prometheus'][0] == 'failed' and done.returncode == 1
    assert not [key for key in found if key[0]]


@pytest.mark.parametrize('form', ['table', 'csv', 'value', 'yaml'])
def test_every_form_is_printed_without_control_characters(form, ask, prometheus):
    done = ask(url=prometheus, form=form)
    assert '2 by host' in done.stdout and '\x1b' not in done.stdout


@pytest.mark.mutant
def test_help_has_an_example():
    done = commands.main('kronos_nova.cli.app', 'policy', 'test', '--help')
    assert 'new.yaml --policy cpu' in ' '.join(done.stdout.split())
