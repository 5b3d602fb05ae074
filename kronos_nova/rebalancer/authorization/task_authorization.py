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

"""Authorizations of tasks: signed by the planner of a move, and by the people who approve it.

The planner signs a grant: the instance, the hosts between which it may move, how, until when, and
how many people must approve it first. Each approval is signed as well, and names the grant by its
digest. Executors verify all that before they ask Nova for anything. So a row that is written by
hand moves nothing. A task that is queued again by hand repeats an allowed move: the same instance
between the same hosts, until the grant ends.

Grants and approvals are JSON Web Signatures (RFC 7515) with EdDSA.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import json
from typing import Any

import jwt
from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.authorization import key_repository

ALGORITHM = 'EdDSA'
#: Version of the claims below; a release that changes their meaning gives them another.
VERSION = 1
GRANT, APPROVAL = 'kronos-grant', 'kronos-approval'
#: A task that has begun in time may wait so long (seconds) for its hooks and retries.
BEGUN_SECONDS = 3600.0
#: The second half of a swap, and the way back, may be asked for so long (seconds) after the plan.
SWAP_SECONDS = 86400.0
#: Difference between the clocks of two controllers, in seconds, that is no sign of a forgery.
CLOCK_SECONDS = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Approval:
    """A person's approval of a task; ``token`` is empty without keys."""

    person: str
    token: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class TaskAuthorization:
    """The authorization of a task, as its column has it.

    ``needed``: how many people must approve the task before it may begin. ``grant`` is empty
    without keys. An executor trusts only the signed parts.
    """

    needed: int = 0
    grant: str = ''
    approvals: tuple[Approval, ...] = ()

    @property
    def missing(self) -> int:
        """Number of people who must still approve."""
        return max(0, self.needed - len(self.approvals))

    def format_text(self) -> str:
        """Return the text of the column."""
        return json.dumps({'needed': self.needed, 'grant': self.grant, 'approvals': [
            [approval.person, approval.token] for approval in self.approvals]})


def parse_authorization(task: model.Task) -> TaskAuthorization:
    """Parse the authorization of a task.

    A task of an earlier release has none: one approval is needed where it waits for one. So it is
    with a text that no release has written.
    """
    needed = int(task.state is model.TaskState.PENDING)
    try:
        data = json.loads(task.authorization or '{}')
        return TaskAuthorization(
            int(data.get('needed', needed)), str(data.get('grant', '')),
            tuple(Approval(str(person), str(token)) for person, token in data.get('approvals', ())))
    except (ValueError, TypeError, AttributeError):
        return TaskAuthorization(needed)


class TaskSigner:
    """The signer of grants and approvals in one process.

    :param keys: None: nothing is signed, and approvals are counted all the same.
    """

    def __init__(self, keys: key_repository.KeyRepository | None) -> None:
        self._keys = keys

    def check_keys(self) -> None:
        """Check that a key can sign, if tasks are signed.

        :raises SigningKeyError: none can.
        """
        if self._keys is not None:
            self._keys.get_signing_key()

    def grant_tasks(self, tasks: Sequence[model.Task], swaps: Collection[model.Swap], author: str,
                    now: float, *, needed: int = 0, begin_within: float,
                    approved_by: str | None = None) -> list[model.Task]:
        """Return the tasks of a plan with their authorizations.

        :param author: the planner, such as ``kronos-engine``.
        :param needed: how many people must approve the tasks.
        :param begin_within: seconds for tasks without a deadline.
        :param approved_by: a person whose request is an approval at the same time.
        :raises SigningKeyError: no key can sign.
        """
        by_swap = _list_swap_hosts(tasks, swaps)
        granted = []
        for task in tasks:
            hosts = by_swap.get(task.instance_uuid)
            begin_by = now + begin_within if task.deadline is None else task.deadline
            authorization = TaskAuthorization(needed)
            if self._keys is not None:
                claims = {
                    'version': VERSION, 'sub': author, 'iat': now,
                    'exp': _compute_end(begin_by, now, hosts is not None), 'jti': task.task_id,
                    'approvals': needed, **_describe_move(task)}
                if hosts is not None:
                    # The swap goes on, or back, with tasks of other IDs.
                    claims |= {'jti': None, 'from': hosts, 'to': hosts, 'phase': None}
                authorization = TaskAuthorization(needed, self._sign(GRANT, claims))
            if approved_by is not None and needed:
                authorization = self._add_approval(authorization, approved_by, now, begin_by,
                                                   hosts is not None)
            granted.append(dataclasses.replace(task, authorization=authorization.format_text()))
        return granted

    def approve_task(self, task: model.Task, person: str, now: float,
                     begin_by: float) -> TaskAuthorization:
        """Return the authorization of a task with one more approval.

        :param begin_by: the time by which the approved task must begin.
        :raises DecisionRefused: the person has approved the task already, or the row differs from
            the grant that its planner signed.
        :raises SigningKeyError: no key can sign.
        """
        authorization, swapped = parse_authorization(task), False
        if self._keys is not None:
            try:
                grant = TaskVerifier(self._keys).read_grant(task, authorization)
            except exception.TaskNotAuthorized as e:
                raise exception.DecisionRefused(
                    problem=f'has a task {task.task_id} that is not authorized: '
                            f'{e.kwargs["problem"]}',
                    remedy='Nothing was approved. Reject the plan, and see who can write to the '
                           'database.') from None
            authorization = dataclasses.replace(authorization, needed=grant['approvals'])
            swapped = grant['jti'] is None
        if person in {approval.person for approval in authorization.approvals}:
            raise exception.DecisionRefused(
                problem=f'has your approval of the move of instance {task.instance_uuid} already '
                        f'({person}); it needs {authorization.missing} more',
                remedy='Nothing was written. Another person must approve it.')
        return self._add_approval(authorization, person, now, begin_by, swapped)

    def _add_approval(self, authorization: TaskAuthorization, person: str, now: float,
                      begin_by: float, swapped: bool) -> TaskAuthorization:
        token = '' if self._keys is None else self._sign(APPROVAL, {
            'version': VERSION, 'sub': person, 'iat': now,
            'grant': _digest_grant(authorization.grant),
            'exp': _compute_end(begin_by, now, swapped)})
        return dataclasses.replace(authorization, approvals=(
            *authorization.approvals, Approval(person, token)))

    def _sign(self, kind: str, claims: Mapping[str, Any]) -> str:
        if self._keys is None:
            raise TypeError('no keys')
        key_id, key = self._keys.get_signing_key()
        return jwt.encode(dict(claims), key, ALGORITHM, headers={'kid': key_id, 'typ': kind})


def make_signer(conf: cfg.ConfigOpts) -> TaskSigner:
    """Return the signer of [signing] key_repository; without keys it signs nothing."""
    directory = conf.signing.key_repository
    return TaskSigner(key_repository.KeyRepository(directory) if directory else None)


class TaskVerifier:
    """The verifier of grants and approvals."""

    def __init__(self, keys: key_repository.KeyRepository) -> None:
        self._keys = keys

    def check_task(self, task: model.Task, now: float | None = None) -> None:
        """Check that the task is what its planner and enough people have allowed.

        :param now: epoch seconds; None: whether the authorization has ended does not matter, as the
            task has begun.
        :raises TaskNotAuthorized: it is not.
        :raises SigningKeyError: the keys cannot be read.
        """
        authorization = parse_authorization(task)
        grant = self.read_grant(task, authorization)
        people, ends = {}, [grant['exp']]
        for approval in authorization.approvals:
            claims = self._verify(task, approval.token, APPROVAL)
            if claims['grant'] != _digest_grant(authorization.grant):
                raise _make_error(task, 'an approval is that of another task')
            people[claims['sub']] = claims
        if len(people) < grant['approvals']:
            raise _make_error(task, f'{len(people)} of {grant["approvals"]} people have approved '
                                    'it')
        if grant['approvals']:
            ends = [claims['exp'] for claims in people.values()]
        if now is not None and now > min(ends) + CLOCK_SECONDS:
            raise _make_error(task, f'its authorization has ended {now - min(ends):.0f} s ago')

    def read_grant(self, task: model.Task, authorization: TaskAuthorization) -> dict[str, Any]:
        """Return the claims of the grant, which the task matches.

        :raises TaskNotAuthorized: the grant is missing or forged, or the task is another.
        """
        if not authorization.grant:
            raise _make_error(task, 'it has no signature')
        grant = self._verify(task, authorization.grant, GRANT)
        move = _describe_move(task)
        for name, wanted in move.items():
            allowed = grant[name]
            fits = (set(wanted) <= set(allowed) if name in ('from', 'to')
                    else allowed is None or wanted == allowed)
            if not fits:
                raise _make_error(task, f'its row differs from its grant ({name}: {wanted}, in '
                                        f'the grant: {allowed})')
        if grant['jti'] not in (None, task.task_id):
            raise _make_error(task, f'its signature is that of task {grant["jti"]}')
        return grant

    def _verify(self, task: model.Task, token: str, kind: str) -> dict[str, Any]:
        """Return the claims of a token whose signature is valid."""
        try:
            header = jwt.get_unverified_header(token)
            key_id = str(header.get('kid'))
            key = self._keys.find_public_key(key_id)
            if key is None:
                raise _make_error(
                    task, 'this host has no public key with the ID '
                          f'{"".join(c for c in key_id if c.isalnum())[:16]}, which signed it')
            if header.get('typ') != kind:
                raise _make_error(task, f'its signature is not that of a {kind}')
            claims: dict[str, Any] = jwt.decode(token, key, [ALGORITHM], options={
                'verify_exp': False, 'verify_iat': False, 'verify_nbf': False, 'verify_jti': False,
                'verify_sub': False, 'verify_aud': False, 'verify_iss': False})
        except jwt.PyJWTError as e:
            raise _make_error(task, f'its signature is not valid ({e})') from None
        if claims.get('version') != VERSION:
            raise _make_error(task, 'another release signed it, with claims that this one does not '
                                    'know')
        return claims


def _compute_end(begin_by: float, now: float, swapped: bool) -> float:
    """Return when an authorization ends."""
    return max(begin_by + BEGUN_SECONDS, now + SWAP_SECONDS if swapped else 0.0)


def _describe_move(task: model.Task) -> dict[str, Any]:
    """Return the parts of a task that its grant fixes, as JSON has them."""
    return {'instance': task.instance_uuid, 'scope': task.aggregate, 'from': [task.from_host],
            'to': [task.to_host, *task.alternates], 'method': task.method.value,
            'phase': task.phase.value,
            'hooks': json.loads(json.dumps([[hook.name, dict(hook.parameters)]
                                            for hook in task.hooks]))}


def _list_swap_hosts(tasks: Sequence[model.Task],
                     swaps: Collection[model.Swap]) -> dict[str, list[str]]:
    """Return by instance the hosts between which a swap may move it, forth and back."""
    by_instance = {task.instance_uuid: task for task in tasks}
    hosts: dict[str, list[str]] = {}
    for swap in swaps:
        first, second = by_instance[swap.first], by_instance[swap.second]
        target = first.to_host if swap.parking is None else second.from_host
        hosts[swap.first] = sorted({first.from_host, first.to_host, target})
        hosts[swap.second] = sorted({second.from_host, second.to_host})
    return hosts


def _digest_grant(grant: str) -> str:
    return hashlib.sha256(grant.encode()).hexdigest()


def _make_error(task: model.Task, problem: str) -> exception.TaskNotAuthorized:
    return exception.TaskNotAuthorized(instance_uuid=task.instance_uuid, problem=problem)
