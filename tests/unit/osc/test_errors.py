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

"""A failure is one line that names the argument and the remedy, and what kronos-api said."""

import logging
import socket
import threading

import pytest

from kronos_nova.osc import client
from tests.unit.api import test_requests


@pytest.mark.parametrize(('arguments', 'words'), [
    (('plan', 'show', '00000000-0000-4000-8000-000000000000'),
     ('00000000-0000-4000-8000-000000000000', 'kronos.not_found, HTTP 404, request req-')),
    (('pause', 'create', '--scope', 'bleu', '--reason', 'x'),
     ('scope: ', 'blue', 'kronos.not_found')),
    (('pause', 'create', '--all', '--reason', 'x' * 1001),
     ('reason', '1000', 'kronos.api.bad_request, HTTP 400')),
    (('task', 'list', '--instance', 'x' * 300), ('instance', 'kronos.api.bad_request'))])
def test_error_of_the_api_has_its_code_detail_and_request(openstack, store, arguments, words):
    test_requests.save_waiting_plan(store)
    line = openstack.fail(*arguments)
    assert all(word in line for word in words), line


def test_conflict_says_the_state(openstack, store):
    plan_id, _tasks = test_requests.save_waiting_plan(store)
    openstack.read('plan', 'approve', plan_id)
    line = openstack.fail('plan', 'approve', plan_id)
    assert line.startswith(f'{plan_id}: ') and '2 queued (kronos.conflict, HTTP 409' in line


def test_role_without_access_is_named(openstack, server):
    server.roles = 'reader'
    assert openstack.read('plan', 'list') == '\n'
    line = openstack.fail('pause', 'create', '--all', '--reason', 'x')
    assert 'kronos:pause:create' in line and 'kronos.api.forbidden, HTTP 403' in line


@pytest.mark.parametrize(('arguments', 'words'), [
    (('task', 'list', '--limit', '0'), "--limit: '0' is no number of rows; write 50"),
    (('task', 'list', '--changes-since', 'noon'), "--changes-since: 'noon' is no time; write"),
    (('pause', 'create', '--all', '--duration', 'long', '--reason', 'x'),
     "--duration: 'long' is no duration; write"),
    (('pause', 'create', '--all', '--duration', '0', '--reason', 'x'), '--duration: '),
    (('pause', 'create', '--all', '--reason', ' \n'), '--reason: it is empty'),
    (('pause', 'create', '--all'), 'required: --reason'),
    (('task', 'list', '--state', 'lost'), '--state: invalid choice: '),
    (('quarantine', 'lift', 'service', 'nova'), '<kind>: invalid choice: ')])
def test_wrong_argument_is_named(openstack, server, arguments, words):
    status, output, error = openstack.run(*arguments)
    assert (status, output) == (2, '') and words in error.splitlines()[-1]
    assert server.requests == []


def test_service_that_does_not_answer_is_named(openstack, server):
    with socket.socket() as reserved:  # bound, and does not listen
        reserved.bind(('127.0.0.1', 0))
        openstack.url = f'http://127.0.0.1:{reserved.getsockname()[1]}'
        line = openstack.fail('plan', 'list')
    assert line.startswith('kronos-api does not answer: ') and openstack.url in line
    assert 'openstack catalog show rebalance' in line and 'HTTPConnectionPool' not in line


def test_service_that_hangs_is_named(openstack, server, monkeypatch):
    end = threading.Event()

    def hang(environ, start_response):
        end.wait(60)
        start_response('503 Service Unavailable', [])
        return [b'']

    server.answer = hang
    monkeypatch.setattr(client, '_TIMEOUT', 0.2)
    line = openstack.fail('plan', 'list')
    end.set()
    assert line.startswith('kronos-api does not answer: ') and 'timed out' in line


@pytest.mark.parametrize(('status', 'body', 'words'), [
    ('502 Bad Gateway', b'<html>', ('answered 502', 'Look at the proxy', 'request req-1')),
    ('200 OK', b'<html>', ('is not kronos-api', 'Correct the endpoint')),
    ('404 Not Found', b'{"error": {"message": "no"}}', ('answered 404', 'endpoint of the service')),
    ('500 Internal Server Error', b'[]', ('answered 500', 'no answer of kronos-api')),
    ('409 Conflict',
     b'{"errors": [{"detail": "a\\u001b[31mb\\nc", "code": "x", "request_id": ""}]}',
     ('a?[31mb c (x, HTTP 409, request req-1)',))])
def test_answer_of_something_else_is_named(openstack, server, status, body, words):
    def send_answer(environ, start_response):
        start_response(status, [('Content-Type', 'application/json'),
                                ('X-Openstack-Request-Id', 'req-1')])
        return [body]

    server.answer = send_answer
    line = openstack.fail('plan', 'list')
    assert all(word in line for word in words), line


def test_traceback_of_a_defect_is_in_the_debug_log_alone(openstack, server, caplog):
    def send_answer(environ, start_response):
        start_response('200 OK', [('Content-Type', 'application/json')])
        return [b'{"plans": [{}], "next": null}']

    server.answer = send_answer
    assert 'openstack --debug' in openstack.fail('plan', 'list')
    assert any(record.exc_info and record.levelno == logging.DEBUG for record in caplog.records)
