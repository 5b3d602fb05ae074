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


"""The hook pause, for what a real Nova does not do on demand; the rest is in
tests/functional/test_migfra.py."""

import dataclasses
import threading
import time

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import power
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import pause
from tests.unit.rebalancer.hooks import servers


class Nova:
    """Servers that change as requested, after one reading."""

    def __init__(self, *states):
        self.states = list(states)
        self.asked = []

    def read_server(self, uuid):
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        status, _, busy = state.partition('/')
        return nova_api.Server(model.Instance(uuid, 'h1', status=status,
                                              task_state=busy or None), ())

    @property
    def api(self):
        return self

    def post(self, path, what, version, body):
        self.asked.append(next(iter(body)))
        return type('Response', (), {'status_code': self.status})

    status = 202

    def describe_refusal(self, response, policy):
        return f'HTTP {self.status}; {policy}'


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(pause, 'LOOK', 0.01)


def hook(*states, seconds=5.0):
    nova = Nova(*states)
    found = pause.PauseHook(lambda: nova, seconds)
    found.nova = nova
    return found


@pytest.mark.parametrize('status, marker', [('ACTIVE', 'ours'), ('PAUSED', 'theirs'),
                                            ('SHUTOFF', 'theirs')])
def test_only_running_servers_are_paused_and_unpaused(status, marker):
    found = hook(status)
    assert found.marker(servers.call()) == marker
    if marker == 'theirs':
        for step in (found.before, found.after):
            servers.ended(step(servers.call(marker=marker)))
        assert found.nova.asked == []


def test_a_cold_move_is_not_paused_and_sends_no_request():
    task = dataclasses.replace(servers.TASK, method=model.MoveMethod.OFFLINE)
    assert hook(AssertionError()).marker(servers.call(task=task)) == 'theirs'


def test_the_hook_sends_one_request_and_waits_for_its_effect():
    found = hook('ACTIVE', 'ACTIVE/pausing', 'ACTIVE/pausing', 'PAUSED')
    servers.ended(found.before(servers.call(marker='ours')))
    assert found.nova.asked == ['pause']
    found = hook('PAUSED', 'PAUSED/unpausing', 'ACTIVE')
    servers.ended(found.after(servers.call(marker='ours')))
    assert found.nova.asked == ['unpause']


def test_an_end_that_nova_is_still_busy_with_is_waited_for():
    found = hook('PAUSED/migrating', 'PAUSED/migrating', 'PAUSED', 'ACTIVE')
    servers.ended(found.after(servers.call(marker='ours')))
    assert found.nova.asked == ['unpause']


def test_a_crash_in_between_does_no_harm():
    for states in (['PAUSED'], ['PAUSED/migrating', 'PAUSED']):
        found = hook(*states)
        servers.ended(found.before(servers.call(marker='ours')))
        assert found.nova.asked == []
    for states in (['ACTIVE'], ['SHUTOFF'], ['ERROR'],
                   [api.ApiError('Nova', 'server', 'gone', 404)]):
        found = hook(*states)
        servers.ended(found.after(servers.call(marker='ours')))
        assert found.nova.asked == []


@pytest.mark.parametrize('states, problem', [
    (['SHUTOFF'], 'cannot pause an instance that is SHUTOFF'),
    (['ACTIVE/rebooting'], r'could not pause the instance: it is ACTIVE \(rebooting\)'),
    ([api.ApiError('Nova', 'server', 'no answer in time')], 'could not pause .*no answer in time'),
    ([api.ApiError('Nova', 'server', 'gone', 404)], 'could not pause')])
def test_a_server_that_cannot_be_paused_raises_with_the_problem(states, problem):
    with pytest.raises(base.StepFailed, match=problem):
        servers.ended(hook(*states, seconds=0.05).before(servers.call(marker='ours')))


def test_a_refusal_of_nova_names_the_right():
    found = hook('ACTIVE')
    found.nova.status = 403
    with pytest.raises(base.StepFailed, match=power.PAUSE.policy):
        servers.ended(found.before(servers.call(marker='ours')))


def test_a_conflict_repeats_the_request():
    found = hook('ACTIVE', 'ACTIVE', 'ACTIVE', 'PAUSED')
    found.nova.status = 409
    servers.ended(found.before(servers.call(marker='ours')))
    assert set(found.nova.asked) == {'pause'} and len(found.nova.asked) > 1


def test_the_remedy_names_the_instance():
    assert servers.TASK.instance_uuid in hook('ACTIVE').remedy(servers.call())


def test_nothing_is_ended_while_the_pause_may_still_take_effect():
    """The request hangs in Nova beyond the limit of the step: ACTIVE may still change."""
    found = hook('ACTIVE')
    hangs, go_on = threading.Event(), threading.Event()

    def post(*args):
        hangs.set()
        assert go_on.wait(30)
        found.nova.states = ['PAUSED', 'PAUSED/unpausing', 'ACTIVE']
        return type('Response', (), {'status_code': 202})

    found.nova.post, posted = post, found.nova.post
    step = found.before(servers.call(marker='ours'))
    assert hangs.wait(30)
    step.close()
    with pytest.raises(base.StepFailed, match='still busy with its last call'):
        found.after(servers.call(marker='ours'))
    go_on.set()
    found.nova.post = posted
    until = time.monotonic() + 10
    while True:
        try:
            step = found.after(servers.call(marker='ours'))
            break
        except base.StepFailed:
            assert time.monotonic() < until
            time.sleep(0.01)
    servers.ended(step)
    assert found.nova.asked == ['unpause']


def test_a_closed_step_sends_no_request_to_nova():
    found = hook('ACTIVE/spawning', 'ACTIVE/spawning', seconds=30.0)
    step = found.before(servers.call(marker='ours'))
    step.close()
    found.nova.states = ['ACTIVE']
    servers.ended(found.before(servers.call('k2', marker='theirs')))
    for _ in range(100):
        time.sleep(0.01)
    assert found.nova.asked == []


def test_it_is_never_given_up_and_needs_nova_when_it_is_called_alone():
    assert not pause.PauseHook.gives_up
    pause.PauseHook.create(servers.conf(), lambda: pytest.fail('nobody has asked'))
