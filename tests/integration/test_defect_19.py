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


"""Defect 19: one broker host, no TLS.

Here ``transport_url`` takes several brokers, and [oslo_messaging_rabbit] TLS.
Everything runs in processes of its own, on a configuration file, as daemons
do: oslo.messaging keeps connections and options for a whole process.
"""

import json
import os
from pathlib import Path
import subprocess
import sys
import textwrap

import pytest

from tests.fixtures import free_ports
from tests.integration import servers

TOP = Path(__file__).resolve().parents[2]

#: A cast that wakes an executor and a result that is heard, there and back.
THERE_AND_BACK = textwrap.dedent('''
    import dataclasses, queue, sys, threading, time
    from kronos_nova.wiring import tools
    tools.native_threads()
    from oslo_config import cfg
    from kronos_nova.conf import opts
    from kronos_nova.rebalancer.messaging import listeners
    from kronos_nova.rebalancer.messaging import senders
    from kronos_nova.rebalancer.messaging import transport
    from tests.unit.rebalancer.messaging import test_messages
    opts.register(cfg.CONF)
    cfg.CONF(['--config-file', sys.argv[1]], project='kronos')
    bus = transport.get_transport(cfg.CONF)
    woken, heard = threading.Event(), queue.Queue()
    wakes = listeners.WakeUps(bus, ['prod'], 'x', woken.set)
    results = listeners.ResultServers(bus, ['prod'], lambda e, r: heard.put(e), 'pool')
    for server in (wakes, results):
        server.start()
        assert server.ready.wait(float(sys.argv[2])), 'it does not listen'
    task = dataclasses.replace(test_messages.TASK, aggregate='prod', deadline=time.time() + 600)
    retry = transport.count_retries(cfg.CONF)
    assert senders.TaskCaster(bus, retry=retry)(task), 'the cast was not delivered'
    assert woken.wait(60), 'nobody was woken'
    assert senders.ResultNotifier(bus, retry=retry)('migration.completed', dataclasses.replace(
        test_messages.RESULT, aggregate='prod')), 'the result was not published'
    print(heard.get(timeout=60))
    for server in (wakes, results):
        server.stop()
''')


@pytest.fixture(scope='module')
def authority(tmp_path_factory):
    return servers.Authority(tmp_path_factory.mktemp('authority'))


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    with servers.rabbitmq(tmp_path_factory.mktemp('rabbitmq')) as broker:
        yield broker


@pytest.fixture(scope='module')
def tls_broker(tmp_path_factory, authority):
    with servers.rabbitmq(tmp_path_factory.mktemp('rabbitmq-tls'), authority) as broker:
        yield broker


class Case:
    def __init__(self, directory):
        self._directory = directory
        self._path = directory / 'kronos.conf'

    def configure(self, url, **rabbit):
        options = ''.join(f'{name} = {value}\n' for name, value in rabbit.items())
        self._path.write_text(f"""[DEFAULT]
transport_url = {url}
[oslo_messaging_rabbit]
{options}
[engine]
dry_run = false
policies_file = {TOP}/etc/kronos/policies.yaml
[prometheus]
url = http://127.0.0.1:1
max_retries = 0
[database]
connection = sqlite:///{self._directory}/kronos.sqlite
""")
        return self

    def _python(self, code, *arguments):
        return subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', code, *arguments], capture_output=True,
            text=True, check=False, timeout=300, env={**os.environ, 'PYTHONPATH': str(TOP)})

    def there_and_back(self, patience=60):
        return self._python(THERE_AND_BACK, str(self._path), str(patience))

    def item(self):
        """What kronos-test-config says of the broker."""
        done = self._python('import sys; from kronos_nova.cmd import test_config; '
                            'sys.exit(test_config.main())',
                            '--config-file', str(self._path), '--format', 'json')
        assert 'Traceback' not in done.stdout + done.stderr
        return {i['name']: i for i in json.loads(done.stdout)['items']}['broker']


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path)


def assert_works(case):
    done = case.there_and_back()
    assert (done.returncode, done.stdout) == (0, 'migration.completed\n'), done.stderr[-3000:]
    assert case.item()['status'] == 'ok', case.item()


@pytest.mark.turns(3)
def test_defect_19_second_broker_serves_when_first_is_down(case, broker):
    """oslo.messaging begins with either host: try both orders twice."""
    dead, alive = (f'guest:guest@127.0.0.1:{port}'
                   for port in (free_ports.reserve_port(), broker.port))
    for order in (f'{dead},{alive}', f'{alive},{dead}'):
        assert_works(case.configure(f'rabbit://{order}/'))


@pytest.mark.turns(3)
def test_defect_19_only_running_broker_of_four_serves(case, broker):
    hosts = [f'guest:guest@127.0.0.1:{free_ports.reserve_port()}' for _ in range(3)]
    assert_works(case.configure(
        f'rabbit://{",".join(hosts)},guest:guest@127.0.0.1:{broker.port}/'))


@pytest.mark.turns(3)
def test_defect_19_tls_accepts_operators_own_ca(case, tls_broker, authority):
    assert_works(case.configure(tls_broker.url, ssl='true', ssl_ca_file=authority.ca))


def test_defect_19_tls_refuses_other_ca_with_reason(case, tls_broker, tmp_path):
    other = servers.Authority(tmp_path)
    found = case.configure(tls_broker.url, ssl='true', ssl_ca_file=other.ca).item()
    assert found['status'] == 'failed'
    assert 'certificate verify failed' in found['text'].lower(), found
    assert 'ssl_ca_file' in found['remedy']
    assert 'it does not listen' in case.there_and_back(patience=8).stderr


def test_defect_19_plain_text_to_tls_broker_is_refused(case, tls_broker):
    found = case.configure(tls_broker.url).item()
    assert found['status'] == 'failed' and 'ssl' in found['remedy']
