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


"""kronos-test-config against a real RabbitMQ."""

import json
import os
from pathlib import Path
import subprocess
import sys

import kombu
import pytest

from tools.cloud import config
from tools.cloud import rabbitmq
from tools.cloud import run as runs

TOP = Path(__file__).resolve().parents[2]
CANARY = 'c4n4ry-s3cret'


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    """The URL of a private broker."""
    with runs.private(tmp_path_factory.mktemp('rabbitmq')) as run:
        rabbitmq.start(run)
        rabbitmq.wait(run)
        yield config.transport_url(run.ports)


def item(directory, url, more=''):
    (directory / 'kronos.conf').write_text(f"""[DEFAULT]
transport_url = {url}
[engine]
dry_run = false
policies_file = {TOP}/etc/kronos/policies.yaml
[prometheus]
url = http://127.0.0.1:1
max_retries = 0
[database]
connection = sqlite:///{directory}/kronos.sqlite
{more}
""")
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cmd import test_config; '
                               'sys.exit(test_config.main())',
         '--config-file', str(directory / 'kronos.conf'), '--format', 'json'],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, 'PYTHONPATH': str(TOP)})
    assert CANARY not in done.stdout + done.stderr
    assert done.stderr == ''
    return {i['name']: i for i in json.loads(done.stdout)['items']}['broker']


def test_check_passes_when_broker_takes_message(broker, tmp_path):
    found = item(tmp_path, broker)
    assert found['status'] == 'ok' and found['text'].endswith(', quorum queues')


def test_check_reports_exchange_declared_with_other_options(broker, tmp_path):
    more = '[oslo_messaging_rabbit]\nrabbit_quorum_queue = false'
    with kombu.Connection(broker.replace('rabbit://', 'amqp://', 1)) as connection:
        kombu.Exchange('openstack', 'topic', durable=True)(connection).declare()
    found = item(tmp_path, broker, more)
    assert found['status'] == 'failed' and 'PRECONDITION_FAILED' in found['text']
    assert 'virtual host of its own' in found['remedy']


def test_check_reports_refused_login_without_password(broker, tmp_path):
    address = broker.partition('@')[2]
    found = item(tmp_path, f'rabbit://stranger:{CANARY}@{address}')
    assert found['status'] == 'failed' and 'ACCESS_REFUSED' in found['text']


def test_check_reports_missing_virtual_host(broker, tmp_path):
    assert broker.endswith('/')
    found = item(tmp_path, broker + 'nowhere')
    assert found['status'] == 'failed' and 'nowhere' in found['text']
