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

"""Authorizations: the move that its planner and enough people allowed passes, every other fails."""

import dataclasses
import json

import hypothesis
from hypothesis import strategies
import jwt
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import signatures
from kronos_nova.rebalancer.authorization import task_authorization
from tests.unit.rebalancer.store import cases

NOW = cases.NOW
WITHIN = 6 * 3600.0
HOOKS = (model.TaskHook('webhook', {'url': 'https://one', 'seconds': 3}),)


def make_keys(directory):
    key_repository.create_keys(str(directory))
    return key_repository.KeyRepository(str(directory))


@pytest.fixture(scope='module')
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp('keys') / 'ours')


@pytest.fixture(scope='module')
def signer(keys):
    return task_authorization.TaskSigner(keys)


@pytest.fixture(scope='module')
def verifier(keys):
    return task_authorization.TaskVerifier(keys)


def grant(signer, needed=0, approved_by=None, swaps=(), tasks=None, **fields):
    tasks = tasks or [cases.make_task(cases.new_id(), hooks=HOOKS, **fields)]
    granted = signer.grant_tasks(tasks, swaps, 'kronos-engine', NOW, needed=needed,
                                 begin_within=WITHIN, approved_by=approved_by)
    return granted if len(granted) > 1 else granted[0]


def approve(signer, task, person, begin_by=NOW + 1200, now=NOW):
    authorization = signer.approve_task(task, person, now, begin_by)
    assert authorization is not None, f'{person} has approved it already'
    return dataclasses.replace(task, authorization=authorization.format_text())


def test_a_granted_task_passes_also_at_its_alternate_and_after_a_retry(signer, verifier):
    task = grant(signer)
    verifier.check_task(task, NOW)
    verifier.check_task(dataclasses.replace(task, to_host='h3', alternates=()), NOW)
    verifier.check_task(dataclasses.replace(
        task, retry_count=2, state=model.TaskState.CLAIMED, not_before=NOW + 60, deadline=1.0,
        memory_mb=1, trees=(), requires=(), priority=0), NOW)


CHANGES = {
    'instance_uuid': strategies.uuids().map(str), 'aggregate': strategies.text(min_size=1),
    'from_host': strategies.sampled_from(['h2', 'h3', 'h9', '']),
    'to_host': strategies.sampled_from(['h1', 'h9', '']),
    'alternates': strategies.sampled_from([('h3', 'h4'), ('h1',)]),
    'method': strategies.sampled_from([model.MoveMethod.COLD, model.MoveMethod.OFFLINE]),
    'phase': strategies.sampled_from([p for p in model.Phase if p is not model.Phase.SPREAD]),
    'hooks': strategies.sampled_from([(), (model.TaskHook('webhook', {'url': 'https://two'}),),
                                      HOOKS * 2]),
    'arrive_by': strategies.none() | strategies.floats(allow_nan=False).filter(
        lambda at: at != NOW + 60),
    'task_id': strategies.uuids().map(str)}


@hypothesis.given(data=strategies.data(), name=strategies.sampled_from(sorted(CHANGES)))
def test_a_row_that_differs_from_its_grant_fails(keys, data, name):
    task = grant(task_authorization.TaskSigner(keys), arrive_by=NOW + 60)
    changed = dataclasses.replace(task, **{name: data.draw(CHANGES[name])})
    with pytest.raises(exception.TaskNotAuthorized, match=task.task_id if name == 'task_id'
                       else 'differs from its grant'):
        task_authorization.TaskVerifier(keys).check_task(changed, NOW)


@hypothesis.given(text=strategies.one_of(
    strategies.text(), strategies.recursive(
        strategies.none() | strategies.integers() | strategies.text(max_size=5),
        lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(
            strategies.sampled_from(['needed', 'grant', 'approvals', 'x']), inner)).map(
                json.dumps)))
def test_no_text_that_was_not_signed_passes(keys, text):
    task = dataclasses.replace(cases.make_task(cases.new_id()), authorization=text)
    with pytest.raises(exception.TaskNotAuthorized):
        task_authorization.TaskVerifier(keys).check_task(task, NOW)


def test_a_grant_of_a_release_without_deadlines_allows_none(signer, verifier, keys):
    task = grant(signer)
    claims = jwt.decode(json.loads(task.authorization)['grant'],
                        options={'verify_signature': False})
    assert claims.pop('arrive_by') is None
    old = forge(task, grant=signatures.sign_claims(keys, task_authorization.GRANT, claims))
    verifier.check_task(old, NOW)
    with pytest.raises(exception.TaskNotAuthorized, match='differs from its grant .arrive_by'):
        verifier.check_task(dataclasses.replace(old, arrive_by=NOW + 60), NOW)


def forge(task, **changes):
    known = json.loads(task.authorization)
    return dataclasses.replace(task, authorization=json.dumps({**known, **changes}))


def test_forged_tokens_fail(signer, verifier, keys, tmp_path):
    task = grant(signer)
    token = json.loads(task.authorization)['grant']
    claims = jwt.decode(token, options={'verify_signature': False})
    others = make_keys(tmp_path / 'others')
    key_id, key = others.get_signing_key()
    own_id = jwt.get_unverified_header(token)['kid']
    public = keys.get_public_key(own_id).public_bytes_raw()
    for forged, match in (
            (jwt.encode(claims, key, 'EdDSA', headers={'kid': key_id, 'typ': 'kronos-grant'}),
             f'no public key with the ID {key_id}'),
            (jwt.encode(claims, key, 'EdDSA', headers={'kid': own_id, 'typ': 'kronos-grant'}),
             'not valid'),
            (jwt.encode(claims, public, 'HS256', headers={'kid': own_id, 'typ': 'kronos-grant'}),
             'not valid'),
            (jwt.encode(claims, None, 'none', headers={'kid': own_id, 'typ': 'kronos-grant'}),
             'not valid'),
            (jwt.encode(claims, key, 'EdDSA', headers={'kid': '\x1b[2J<b>', 'typ': 'x'}),
             'with the ID 2Jb'),
            (token[:-8] + 'AAAAAAAA', 'not valid'), ('a.b.c', 'not valid'), ('', 'no signature')):
        with pytest.raises((exception.TaskNotAuthorized, exception.SigningKeyError), match=match):
            verifier.check_task(forge(task, grant=forged), NOW)


def test_a_grant_ends_an_hour_after_the_task_must_begin(signer, verifier):
    for task, end in ((grant(signer), NOW + WITHIN + 3600),
                      (grant(signer, deadline=NOW + 100), NOW + 3700)):
        verifier.check_task(task, end + 300)
        with pytest.raises(exception.TaskNotAuthorized, match='has ended 301 s ago'):
            verifier.check_task(task, end + 301)
        begun = dataclasses.replace(task, from_host='h7')  # Nova's own source
        verifier.check_begun_task(begun, end + 7 * 86400 + 300)
        with pytest.raises(exception.TaskNotAuthorized, match='has ended 301 s ago'):
            verifier.check_begun_task(begun, end + 7 * 86400 + 301)
        with pytest.raises(exception.TaskNotAuthorized, match='from: ..h7..'):
            verifier.check_task(begun, NOW)


def test_as_many_people_as_the_grant_wants_must_approve(signer, verifier):
    task = grant(signer, needed=2, state=model.TaskState.PENDING, deadline=NOW + 3600)
    with pytest.raises(exception.TaskNotAuthorized, match='0 of 2 people'):
        verifier.check_task(task, NOW)
    one = approve(signer, task, 'keystone:ada')
    with pytest.raises(exception.TaskNotAuthorized, match='1 of 2 people'):
        verifier.check_task(one, NOW)
    assert signer.approve_task(one, 'keystone:ada', NOW, NOW + 1) is None
    both = approve(signer, one, 'local:root', now=NOW + 3600, begin_by=NOW + 3600 + 1200)
    verifier.check_task(both, NOW)
    queued = dataclasses.replace(both, state=model.TaskState.QUEUED)
    # The last approval may come when the plan lapses, and leaves the whole time to begin.
    verifier.check_task(queued, NOW + 3600 + 1200 + 3600)
    with pytest.raises(exception.TaskNotAuthorized, match='has ended'):
        verifier.check_task(queued, NOW + 3600 + 3600 + 1200 + 301)


def test_the_request_of_a_person_is_an_approval(signer, verifier):
    task = grant(signer, needed=2, approved_by='keystone:ada', state=model.TaskState.PENDING,
                 deadline=NOW + 3600)
    assert task_authorization.parse_authorization(task).missing == 1
    assert signer.approve_task(task, 'keystone:ada', NOW, NOW + 1) is None
    verifier.check_task(approve(signer, task, 'keystone:bob'), NOW)


def test_no_plan_that_has_lapsed_is_approved(signer):
    task = grant(signer, needed=1, state=model.TaskState.PENDING, deadline=NOW + 3600)
    approve(signer, task, 'keystone:ada', now=NOW + 3600 + 3600 + 300)
    with pytest.raises(exception.DecisionRefused, match='its authorization has ended'):
        approve(signer, task, 'keystone:ada', now=NOW + 3600 + 3600 + 301)


def test_the_earliest_end_of_the_approvals_counts(signer, verifier):
    task = grant(signer, needed=2, state=model.TaskState.PENDING, deadline=NOW + 100)
    task = approve(signer, task, 'keystone:ada', begin_by=NOW + 200)
    task = approve(signer, task, 'keystone:bob', begin_by=NOW + 90000)
    end = NOW + 100 + 3600 + 200
    verifier.check_task(task, end + 300)
    with pytest.raises(exception.TaskNotAuthorized, match='has ended 301 s ago'):
        verifier.check_task(task, end + 301)


def test_all_local_users_are_one_person(signer):
    for own in (signer, task_authorization.TaskSigner(None)):
        task = grant(own, needed=2, state=model.TaskState.PENDING, deadline=NOW + 3600)
        one = approve(own, task, 'local:root')
        assert own.approve_task(one, 'local:kronos', NOW, NOW + 1) is None
        approve(own, one, 'keystone:ada')


def test_forged_approvals_in_the_row_stop_the_next_one(signer):
    task = grant(signer, needed=2, state=model.TaskState.PENDING, deadline=NOW + 3600)
    for approvals in ([['keystone:x', 'junk']], [['keystone:ada', '']]):
        with pytest.raises(exception.DecisionRefused, match='not authorized'):
            approve(signer, forge(task, approvals=approvals), 'keystone:ada')
    # The number of the row does not count: that of the grant does.
    assert signer.approve_task(forge(task, needed=1), 'keystone:ada', NOW, NOW + 1).missing == 1


def test_a_token_of_another_version_of_the_claims_proves_nothing(signer, verifier, keys,
                                                                 monkeypatch):
    monkeypatch.setattr(signatures, 'VERSION', 2)
    task = grant(signer)
    monkeypatch.undo()
    with pytest.raises(exception.TaskNotAuthorized, match='another release'):
        verifier.check_task(task, NOW)


def test_approvals_of_one_person_of_other_tasks_or_by_hand_do_not_count(signer, verifier):
    task = grant(signer, needed=2, state=model.TaskState.PENDING, deadline=NOW + 3600)
    other = grant(signer, needed=2, state=model.TaskState.PENDING, deadline=NOW + 3600)
    one = approve(signer, task, 'keystone:ada')
    (own,) = json.loads(one.authorization)['approvals']
    (foreign,) = json.loads(approve(signer, other, 'keystone:bob').authorization)['approvals']
    for approvals, match in (
            ([own, own], '1 of 2'), ([own, ['keystone:bob', own[1]]], '1 of 2'),
            ([own, foreign], 'of another task'), ([own, ['keystone:bob', '']], 'no signature'),
            ([own, ['keystone:bob', json.loads(one.authorization)['grant']]],
             'not that of a kronos-approval')):
        with pytest.raises(exception.TaskNotAuthorized, match=match):
            verifier.check_task(forge(one, approvals=approvals), NOW)
    with pytest.raises(exception.TaskNotAuthorized, match='1 of 2'):
        verifier.check_task(forge(one, needed=1), NOW)


def test_no_person_approves_a_row_that_was_changed(signer):
    task = grant(signer, needed=1, state=model.TaskState.PENDING, deadline=NOW + 3600)
    with pytest.raises(exception.DecisionRefused, match='not authorized: its row differs'):
        approve(signer, dataclasses.replace(task, to_host='h9'), 'keystone:ada')
    with pytest.raises(exception.DecisionRefused, match='no signature'):
        approve(signer, dataclasses.replace(task, authorization=''), 'keystone:ada')


@pytest.mark.parametrize('parking', [None, 'h5'])
def test_a_swap_may_go_on_and_back_and_nowhere_else(signer, verifier, parking):
    plan_id = cases.new_id()
    a = cases.make_task(plan_id, from_host='h1', to_host=parking or 'h2', alternates=())
    b = cases.make_task(plan_id, from_host='h2', to_host='h1', alternates=())
    a, b = grant(signer, tasks=[a, b], swaps=[model.Swap(a.instance_uuid, b.instance_uuid,
                                                         parking)])
    places = {'h1', 'h2'} | ({parking} if parking else set())

    def move(task, source, target):
        return dataclasses.replace(task, task_id=cases.new_id(), plan_id=cases.new_id(),
                                   from_host=source, to_host=target,
                                   phase=model.Phase.REQUESTED)

    for source in places:
        for target in places - {source}:
            verifier.check_task(move(a, source, target), NOW + 86400)
    verifier.check_task(move(b, 'h1', 'h2'), NOW)
    for task, source, target in ((a, 'h1', 'h9'), (a, 'h9', 'h1'), (b, 'h2', 'h9'),
                                 *([(b, 'h2', parking)] if parking else [])):
        with pytest.raises(exception.TaskNotAuthorized, match='differs from its grant'):
            verifier.check_task(move(task, source, target), NOW)
    with pytest.raises(exception.TaskNotAuthorized, match='has ended'):
        verifier.check_task(move(a, 'h1', 'h2'), NOW + 86400 + 301)
    waiting = dataclasses.replace(a, state=model.TaskState.PENDING)
    assert signer.approve_task(waiting, 'keystone:ada', NOW, NOW + 60).approvals


def test_approvals_of_a_swap_last_as_long_as_its_grant(signer, verifier):
    plan_id = cases.new_id()
    pair = [cases.make_task(plan_id, from_host=source, to_host=target, alternates=(),
                            state=model.TaskState.PENDING, deadline=NOW + 60)
            for source, target in (('h1', 'h2'), ('h2', 'h1'))]
    a, _b = signer.grant_tasks(pair, [model.Swap(*(t.instance_uuid for t in pair))],
                               'kronos-engine', NOW, needed=1, begin_within=1)
    approved = approve(signer, a, 'keystone:ada', begin_by=NOW + 60)
    verifier.check_task(approved, NOW + 86400)


def test_old_keys_verify_until_a_rotation_removes_them(tmp_path):
    keys = make_keys(tmp_path / 'keys')
    task = grant(task_authorization.TaskSigner(keys))
    verifier = task_authorization.TaskVerifier(keys)
    for _ in range(2):
        verifier.check_task(task, NOW)
        key_repository.rotate_keys(keys.directory, 3)
    with pytest.raises(exception.SigningKeyError, match='no public key.*Copy the directory'):
        verifier.check_task(task, NOW)


def test_without_keys_approvals_are_counted_and_nothing_is_signed():
    signer = task_authorization.TaskSigner(None)
    signer.check_keys()
    task = grant(signer, needed=2, state=model.TaskState.PENDING)
    one = approve(signer, task, 'local:root')
    assert task_authorization.parse_authorization(one) == task_authorization.TaskAuthorization(
        2, '', (task_authorization.Approval('local:root'),))
    assert signer.approve_task(one, 'local:root', NOW, NOW + 1) is None
    assert task_authorization.parse_authorization(approve(signer, one, 'keystone:ada')).missing == 0


@pytest.mark.parametrize(('state', 'missing'), [
    (model.TaskState.PENDING, 1), (model.TaskState.QUEUED, 0)])
@pytest.mark.parametrize('text', [
    '', '[]', '{"approvals": 3}', 'null', '{"needed": "x"}', '[' * 5000,
    '{"needed": Infinity, "grant": "", "approvals": []}', '{"needed": -1, "grant": "", '
    '"approvals": []}', '{"needed": 0, "grant": "\\ud800", "approvals": []}'])
def test_a_task_of_an_earlier_release_needs_one_approval_where_it_waits(state, missing, text):
    task = cases.make_task(cases.new_id(), state=state, authorization=text)
    assert task_authorization.parse_authorization(task).missing == missing
