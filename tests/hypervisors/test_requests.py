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

"""Requests over MQTT, by a client that knows the protocol of migfra and nothing else."""

import queue
import threading
import uuid

from paho.mqtt import client as mqtt
from paho.mqtt import enums
import pytest
import yaml

from tests.integration import servers

BUSY, IDLE = 'compute-01', 'compute-02'


class Scheduler:
    """A scheduler of a cluster that publishes tasks and reads results."""

    def __init__(self, port):
        self._results = queue.Queue()
        self._client = mqtt.Client(enums.CallbackAPIVersion.VERSION2)
        self._client.on_message = lambda client, data, message: self._results.put(
            yaml.safe_load(message.payload))
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *answer: subscribed.set()
        self._client.connect('127.0.0.1', port)
        self._client.loop_start()
        self._client.subscribe('fast/migfra/+/result', 1)
        assert subscribed.wait(30)

    def request(self, host, task, **fields):
        """Publish a task for a host and return the entry of its result."""
        number = str(uuid.uuid4())
        body = yaml.safe_dump({'host': host, 'task': task, 'id': number, **fields})
        self._client.publish(f'fast/migfra/{host}/task', body, 1).wait_for_publish(30)
        while True:
            result = self._results.get(timeout=180)
            if result['id'] == number:
                return result

    def close(self):
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def scheduler(empty_lab, tmp_path):
    broker = servers.Mosquitto(tmp_path)
    broker.start()
    socket = empty_lab.hypervisor.find_directory(empty_lab.run, '{host}') / 'run/libvirt-sock'
    empty_lab.configure({
        'mqtt': {'host': '127.0.0.1', 'port': broker.port},
        'migfra': {'allow': '*:*:*', 'poll_interval': 0.5},
        'repin': {'uri': f'qemu+unix:///system?socket={socket}'},
    })
    empty_lab.start('kronos-executor')
    empty_lab.start('kronos-migfra')
    scheduler = Scheduler(broker.port)
    yield scheduler
    empty_lab.stop('kronos-migfra')
    scheduler.close()
    broker.close()


def assert_success(result, word):
    assert result['result'] == word, result
    # The result of one machine has no list.
    entries = result.get('list', [result])
    assert [entry['status'] for entry in entries] == ['success'], result


def test_migration_pins_processors_and_guest_runs_on(empty_lab, scheduler):
    guest = empty_lab.boot('guest', BUSY)
    before = guest.read_heartbeat()
    result = scheduler.request(
        BUSY, 'migrate vm', **{'vm-name': 'guest', 'destination': IDLE, 'time-measurement': True,
                               'parameter': {'vcpu-map': [[0]]}})
    assert_success(result, 'vm migrated')
    empty_lab.assert_runs_once(guest, IDLE)
    guest.assert_same_boot(before)
    assert empty_lab.read_pins(guest) == ['0']
    assert_success(scheduler.request(IDLE, 'repin vm', **{
        'vm-name': guest.uuid, 'vcpu-map': [[0, 1]]}), 'vm repinned')
    assert empty_lab.read_pins(guest) == ['0-1']


def test_guest_stops_and_starts_and_its_host_is_evacuated(empty_lab, scheduler):
    guest = empty_lab.boot('guest', BUSY)
    assert_success(scheduler.request(BUSY, 'suspend vm', list=[{'vm-name': 'guest'}]),
                   'vm suspended')
    assert guest.list_domain_states() == {BUSY: 'paused'}
    assert_success(scheduler.request(BUSY, 'resume vm', list=[{'vm-name': 'guest'}]),
                   'vm resumed')
    before = guest.read_heartbeat()
    assert_success(scheduler.request(BUSY, 'evacuate node', destinations=[IDLE],
                                     parameter={'mode': 'scatter'}), 'node evacuated')
    guest.assert_same_boot(before)
    empty_lab.assert_runs_once(guest, IDLE)
    assert_success(scheduler.request(IDLE, 'stop vm', list=[{'vm-name': 'guest'}],
                                     force=True), 'vm stopped')
    assert guest.list_domain_states() == {IDLE: 'shut off'}
    assert_success(scheduler.request(
        IDLE, 'start vm', **{'vm-configurations': [{'vm-name': 'guest'}]}), 'vm started')
    assert guest.read_heartbeat().boot != before.boot
