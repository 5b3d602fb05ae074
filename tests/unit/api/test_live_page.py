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

"""The files of the live page, its sign-in, its views, and the rights of a token."""

import pathlib
import re
import threading

from keystoneauth1 import exceptions as keystone_errors
import pytest
import requests

from kronos_nova.api import application
from kronos_nova.api import live_page
from kronos_nova.api import tokens
from kronos_nova.rebalancer.operations import live_views
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plan_decisions
from tests.unit.api import conftest
from tests.unit.api import published
from tests.unit.api import test_requests
from tests.unit.rebalancer.report import made

STATIC = pathlib.Path(live_page.__file__).parent / 'static'
LOGIN = {'user_name': 'alice', 'user_domain_name': 'Default', 'password': 's3cret',
         'project_name': 'operators', 'project_domain_name': 'Default'}


def make_receipt():
    """Return the error of Keystone for a user who needs a second factor."""
    answer = requests.Response()
    answer._content = (
        b'{"receipt": {"methods": ["password"], "expires_at": "2026-01-01T00:00:00.000000Z"}, '
        b'"required_auth_methods": [["password", "totp"]]}')
    return keystone_errors.MissingAuthMethods(answer)


@pytest.fixture
def files(conf):
    return application.make_routes(conf).test_client()


def test_page_and_files_need_no_token_and_have_a_strict_policy(files):
    for name in ('', *(file.name for file in STATIC.iterdir()), 'page.css'):
        answer = files.get(f'/page/{name}')
        assert answer.status_code == 200 and answer.data, name
        policy = answer.headers['Content-Security-Policy']
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert 'unsafe' not in policy and '*' not in policy and 'data:' not in policy
        assert answer.headers['X-Content-Type-Options'] == 'nosniff'
        assert answer.content_type.endswith('charset=utf-8')
    assert files.get('/page/page.js').content_type.startswith('text/javascript')
    assert files.get('/page').location.endswith('/page/')
    assert files.get('/page/../conf').status_code == files.get('/page/no.js').status_code == 404


def test_file_that_has_not_changed_is_not_sent_again(files):
    answer = files.get('/page/page.js')
    assert answer.headers['Cache-Control'] == 'no-cache'
    again = files.get('/page/page.js', headers={'If-None-Match': answer.headers['ETag']})
    assert again.status_code == 304 and not again.data


def test_page_has_no_inline_script_or_style_and_asks_no_other_server():
    text = (STATIC / 'page.html').read_text()
    assert re.findall('<script[^>]*>', text) == ['<script type="module" src="page.js">']
    assert not re.search(r'<style|style=|\son\w+=', text)
    for file in STATIC.iterdir():
        addresses = set(re.findall(r'https?://[^\s"\'<)]*', file.read_text()))
        assert addresses <= {'http://www.apache.org/licenses/LICENSE-2.0',
                             'http://www.w3.org/2000/svg'}, file.name
    scripts = ''.join(file.read_text() for file in STATIC.glob('*.js'))
    assert not re.search(r'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(', scripts)


def test_page_can_be_left_out(conf):
    conf.set_override('page', False, 'kronos_api')
    files = application.make_routes(conf).test_client()
    assert {files.get(path).status_code for path in ('/page', '/page/', '/page/page.js')} == {404}


@pytest.mark.parametrize('path', ['/page', '/page/', '/page/page.js', '/page/tokens'])
def test_only_the_page_is_open_besides_versions(path):
    assert path in tokens.OPEN_PATHS or path.startswith(tokens.PAGE_PATH)
    for other in ('/pages', '/v1/views/overview', '/v1/page/', '/x/page/'):
        assert other not in tokens.OPEN_PATHS and not other.startswith(tokens.PAGE_PATH)


@pytest.mark.parametrize(('more', 'status', 'text'), [
    ({'json': {**LOGIN, 'password': ''}}, 400, 'password'),
    ({'json': {**LOGIN, 'user_name': 'a' * 256}}, 400, 'user_name'),
    ({'json': {**LOGIN, 'role': 'admin'}}, 400, 'role'),
    ({'data': 'user_name=alice', 'content_type': 'application/x-www-form-urlencoded'}, 415,
     'application/json'),
    ({'data': b'{', 'content_type': 'application/json'}, 400, 'body'),
    ({'data': b'x' * 200_000, 'content_type': 'application/json'}, 413, '')])
def test_bad_sign_in_names_the_field_and_shows_no_password(files, more, status, text):
    answer = files.post('/page/tokens', **more)
    assert answer.status_code == status
    detail = answer.get_json()['errors'][0]['detail']
    assert text in detail and 's3cret' not in detail


@pytest.mark.parametrize(('error', 'status', 'text', 'level'), [
    (keystone_errors.Unauthorized(), 401, 'check the names', 'WARNING'),
    (make_receipt(), 401, 'second factor', None),
    (keystone_errors.Forbidden(), 403, 'paste a token', None),
    (keystone_errors.HttpError(http_status=429), 503, 'paste a token', None),
    (keystone_errors.BadGateway(), 503, 'cannot be asked', 'ERROR'),
    (keystone_errors.ConnectFailure('refused'), 503, 'cannot be asked', 'ERROR')])
def test_refusal_of_keystone_says_the_next_step(files, monkeypatch, caplog, error, status, text,
                                                level):
    def refuse(conf, login):
        raise error

    monkeypatch.setattr(live_page, '_open_session', refuse)
    answer = files.post('/page/tokens', json={**LOGIN, 'user_name': 'al\x1bice'})
    assert answer.status_code == status
    assert text in answer.get_json()['errors'][0]['detail']
    assert [record.levelname for record in caplog.records] == ([] if level is None else [level])
    assert 's3cret' not in caplog.text and '\x1b' not in caplog.text
    if level == 'WARNING':
        assert 'al?ice' in caplog.text and '127.0.0.1' in caplog.text


def test_sign_ins_at_a_time_are_few(files, monkeypatch):
    """Each takes a thread, and needs no token."""
    asked, go_on = threading.Semaphore(0), threading.Event()

    class Session:
        def get_token(self):
            asked.release()
            assert go_on.wait(20)
            return 'token'

    monkeypatch.setattr(live_page, '_open_session', lambda conf, login: Session())
    got = []

    def sign_in():
        got.append(files.application.test_client().post('/page/tokens', json=LOGIN).status_code)

    threads = [threading.Thread(target=sign_in) for _number in range(live_page.SIGN_INS)]
    for thread in threads:
        thread.start()
        assert asked.acquire(timeout=20)
    sign_in()
    assert got == [503]
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert got == [503] + [200] * live_page.SIGN_INS


@pytest.mark.parametrize(('rule', 'path'), [
    ('plan:list', 'overview'), ('task:list', 'overview'), ('pause:list', 'overview'),
    ('scope:list', 'overview'), ('host:list', 'scope?scope=blue'),
    ('plan:list', 'scope?scope=blue'),
    ('task:list', 'scope?scope=blue'), ('plan:show', f'plan?plan_id={made.UUID.format(7)}'),
    ('task:list', f'plan?plan_id={made.UUID.format(7)}')])
def test_view_needs_the_rights_for_its_data_as_well(conf, tmp_path, rule, path):
    policy = tmp_path / 'policy.yaml'
    policy.write_text(f'"kronos:{rule}": "role:auditor"\n')
    client = conftest.Client(application.make_routes(conf))
    status, detail = client.fail('GET', f'/v1/views/{path}', roles='manager')
    assert status == 403 and f'kronos:{rule} ' in detail
    assert client.send('GET', f'/v1/views/{path}', roles='manager,auditor')[0] in (200, 404)


def test_sign_in_with_a_password_can_be_refused(conf):
    conf.set_override('page_password_login', False, 'kronos_api')
    answer = application.make_routes(conf).test_client().post('/page/tokens', json=LOGIN)
    assert answer.status_code == 403 and 'token' in answer.get_json()['errors'][0]['detail']


def test_rights_are_those_of_the_roles(client):
    def list_rules(**more):
        status, document = client.send('GET', '/v1/rights', **more)
        assert status == 200
        return set(document['rules'])

    assert 'kronos:plan:approve' not in list_rules(roles='reader')
    assert 'kronos:plan:approve' in list_rules(roles='manager,reader')
    assert list_rules(roles='reader') < list_rules(roles='manager,reader') < list_rules()
    assert client.fail('GET', '/v1/rights', roles='reader', project=conftest.TENANT)[0] == 403


def test_overview_has_the_plan_that_waits_and_scopes_without_a_reading(client, store):
    plan_id, _tasks = test_requests.save_waiting_plan(store)
    status, view = client.send('GET', '/v1/views/overview')
    assert status == 200 and 'blue' in view['scopes']
    assert f'data-approve-plan="{plan_id}"' in view['html'] and 'No task has failed' in \
        view['failures_html']
    assert 'Approved by' not in view['html']
    status, scope = client.send('GET', '/v1/views/scope?scope=blue')
    assert status == 200 and scope['hosts'] == []
    assert 'No engine has published a reading' in scope['html']
    assert [move['state'] for move in scope['moves']] == ['pending'] * 2
    assert scope['moves'][0]['instance_name'] == 'we?b' and '\x1b' not in scope['html']


def test_overview_names_who_has_approved_a_plan_that_waits_for_another_person(client, store):
    plan_id, tasks = test_requests.save_waiting_plan(store)
    store.approvals.approve_plan(
        plan_id, store.now(), plan_decisions.OperatorDecision('al<i>ce'), begin_within={},
        cooldown=0.0, instance_cooldown=0.0,
        approve_task=lambda task, until: plan_approvals.TaskApproval('signed', 1))
    html = client.send('GET', '/v1/views/overview')[1]['html']
    assert 'Approved by <bdi>al&lt;i&gt;ce</bdi>' in html
    assert f'({len(tasks)} moves)' in html and html.count('Another person must approve') == 1


def test_scope_has_its_hosts_hottest_first_as_the_squares_have_them(client, store, tmp_path):
    publisher = published.Publisher(store, tmp_path)
    publisher.run_cycle()
    status, view = client.send('GET', '/v1/views/scope?scope=blue')
    assert status == 200
    assert [host['name'] for host in view['hosts']] == ['a', 'b', 'c', 'd']
    assert view['policies'] == ['cpu'] and view['hosts'][0]['scores_now'] == [0.8]
    assert [host['instance_count'] for host in view['hosts']] == [2, 1, 1, 0]
    assert 'disabled' in view['hosts'][3]['notes']
    assert client.fail('GET', '/v1/views/scope?scope=red')[0] == 404
    assert client.fail('GET', '/v1/views/scope')[0] == 400


def test_plan_view_is_that_of_the_report(client, store):
    plan_id, tasks = test_requests.save_waiting_plan(store)
    status, view = client.send('GET', f'/v1/views/plan?plan_id={plan_id}')
    assert status == 200 and tasks[0].instance_uuid in view['html']
    assert client.fail('GET', f'/v1/views/plan?plan_id={made.UUID.format(7)}')[0] == 404


class TestRenderedViews:

    def make(self, **more):
        self.now = 0.0
        return live_views.RenderedViews(clock=lambda: self.now, **more)

    def test_view_is_rendered_once_a_second_for_all(self):
        views, made_values = self.make(), iter(range(10))
        render = lambda: views.render('key', lambda: next(made_values))  # noqa: E731
        assert [render(), render()] == [0, 0]
        self.now = 0.99
        assert render() == 0
        self.now = 1.0
        assert render() == 1

    def test_keys_and_errors_are_apart(self):
        views = self.make()

        def fail():
            raise ValueError

        with pytest.raises(ValueError):
            views.render('a', fail)
        assert not views._rendering, 'a reader who asks for what does not exist leaves nothing'
        assert views.render('a', lambda: 1) == 1 and views.render('b', lambda: 2) == 2

    def test_oldest_are_forgotten(self):
        views = self.make(most=2)
        for number in range(5):
            self.now = number / 10
            views.render(number, lambda number=number: number)
        assert set(views._kept) == {3, 4} and not views._rendering

    def test_others_wait_for_the_thread_that_renders(self):
        """A view of before would hide the event for which they ask."""
        views = self.make()
        assert views.render('key', lambda: 'old') == 'old'
        self.now = 5.0
        begun, go_on = threading.Event(), threading.Event()

        def render_slowly():
            begun.set()
            assert go_on.wait(20)
            return 'new'

        got = []
        threads = [threading.Thread(
            target=lambda: got.append(views.render('key', render_slowly))) for _number in range(3)]
        for thread in threads:
            thread.start()
        assert begun.wait(20)
        assert views.render('another key', lambda: 'other') == 'other'
        assert got == []
        go_on.set()
        for thread in threads:
            thread.join(20)
        assert got == ['new'] * 3 and not views._rendering
