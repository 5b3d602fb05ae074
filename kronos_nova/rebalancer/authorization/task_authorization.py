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
"""

from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import hashlib
import json
from typing import Any

from oslo_config import cfg
import pydantic

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import signatures

GRANT, APPROVAL = 'kronos-grant', 'kronos-approval'
#: A task that has begun in time may wait so long (seconds) for its hooks and retries.
BEGUN_SECONDS = 3600.0
#: The second half of a swap, and the way back, may be asked for so long (seconds) after the plan.
SWAP_SECONDS = 86400.0
#: A migration that has begun may be confirmed or aborted so long (seconds) after its grant.
WATCHED_SECONDS = 7 * 86400.0
#: Local users of controllers count as one person: root can become any other user.
LOCAL = 'local:'
#: The claim of the time by which the instance is to have left; null: no deadline.
_ARRIVE_BY = 'arrive_by'
_PLAN_AGAIN = 'Cancel it, and plan or request the move again.'
_FORGED = 'Find out who can write to the database.'


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

    def has_approved(self, person: str) -> bool:
        return _identify_person(person) in {
            _identify_person(approval.person) for approval in self.approvals}

    def format_text(self) -> str:
        """Return the text of the column."""
        return json.dumps({'needed': self.needed, 'grant': self.grant, 'approvals': [
            [approval.person, approval.token] for approval in self.approvals]})


class _Column(pydantic.BaseModel):
    """The JSON of the column."""

    needed: int = pydantic.Field(ge=0, le=100)
    grant: str
    approvals: list[tuple[str, str]]


def parse_authorization(task: model.Task) -> TaskAuthorization:
    """Parse the authorization of a task.

    A task of an earlier release has none: one approval is needed where it waits for one. So it is
    with a text that no release has written.
    """
    try:
        column = _Column.model_validate_json(task.authorization)
    except pydantic.ValidationError:
        return TaskAuthorization(int(task.state is model.TaskState.PENDING))
    return TaskAuthorization(column.needed, column.grant, tuple(
        Approval(person, token) for person, token in column.approvals))


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
                    'sub': author, 'iat': now, 'jti': task.task_id, 'approvals': needed,
                    'exp': _compute_end(begin_by, now, hosts is not None), **_describe_move(task)}
                if hosts is not None:
                    # The swap goes on, or back, with tasks of other IDs.
                    claims |= {'jti': None, 'from': hosts, 'to': hosts, 'phase': None}
                authorization = TaskAuthorization(
                    needed, signatures.sign_claims(self._keys, GRANT, claims))
            granted.append(dataclasses.replace(task, authorization=authorization.format_text()))
        if approved_by is None or not needed:
            return granted
        approved = [(task, self.approve_task(task, approved_by, now, now + begin_within))
                    for task in granted]
        return [dataclasses.replace(task, authorization=authorization.format_text())
                for task, authorization in approved if authorization is not None]

    def approve_task(self, task: model.Task, person: str, now: float,
                     begin_by: float) -> TaskAuthorization | None:
        """Return the authorization of a task with one more approval.

        None: the person has approved the task already.

        :param begin_by: the time by which the task must begin if this approval is the last one.
        :raises DecisionRefused: the row differs from the grant that its planner signed, or an
            earlier approval is forged.
        :raises SigningKeyError: no key can sign.
        """
        authorization = parse_authorization(task)
        if self._keys is None:
            if authorization.has_approved(person):
                return None
            return _add_approval(authorization, Approval(person))
        try:
            grant, people = TaskVerifier(self._keys).read_approvals(task, authorization)
            _refuse_ended(task, grant['exp'], now)
        except exception.TaskNotAuthorized as e:
            raise exception.DecisionRefused(
                problem=f'has a task {task.task_id} that is not authorized: {e.kwargs["problem"]}',
                remedy='Nothing was approved. Reject the plan, and find out who can write to the '
                       'database.') from None
        authorization = dataclasses.replace(authorization, needed=grant['approvals'])
        if _identify_person(person) in people:
            return None
        # The last approval may come as late as the grant ends.
        end = max(_compute_end(begin_by, now, grant['jti'] is None),
                  grant['exp'] + begin_by - now)
        return _add_approval(authorization, Approval(person, signatures.sign_claims(
            self._keys, APPROVAL, {'sub': person, 'iat': now, 'exp': end,
                                   'grant': _digest_grant(authorization.grant)})))


def _add_approval(authorization: TaskAuthorization, approval: Approval) -> TaskAuthorization:
    return dataclasses.replace(authorization, approvals=(*authorization.approvals, approval))


def make_signer(conf: cfg.ConfigOpts) -> TaskSigner:
    """Return the signer of [signing] key_repository; without keys it signs nothing."""
    return TaskSigner(signatures.open_keys(conf))


class TaskVerifier:
    """The verifier of grants and approvals."""

    def __init__(self, keys: key_repository.KeyRepository) -> None:
        self._keys = keys

    def check_task(self, task: model.Task, now: float) -> None:
        """Check that a task may begin: its planner and enough people have allowed it.

        :param now: epoch seconds.
        :raises TaskNotAuthorized: it may not.
        :raises SigningKeyError: the keys cannot be read, or lack the one that has signed.
        """
        _refuse_ended(task, self._read_end(task, parse_authorization(task)), now)

    def check_begun_task(self, task: model.Task, now: float) -> None:
        """Check that the migration of a task may be aborted or confirmed.

        The source does not matter: Nova may have begun the migration from another one.

        :raises TaskNotAuthorized: it may not.
        :raises SigningKeyError: the keys cannot be read, or lack the one that has signed.
        """
        end = self._read_end(task, parse_authorization(task), begun=True)
        _refuse_ended(task, end + WATCHED_SECONDS, now)

    def _read_end(self, task: model.Task, authorization: TaskAuthorization,
                  begun: bool = False) -> float:
        """Return when the authorization ends."""
        grant, people = self.read_approvals(task, authorization, begun)
        needed = int(grant['approvals'])
        if len(people) < needed:
            raise _make_error(task, f'{len(people)} of {needed} people have approved it', _FORGED)
        return min(people.values()) if needed else float(grant['exp'])

    def read_approvals(self, task: model.Task, authorization: TaskAuthorization,
                       begun: bool = False) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the claims of the grant, which the task matches, and by person when each ends.

        :raises TaskNotAuthorized: a token is missing or forged, or the task is another.
        :raises SigningKeyError: the keys cannot be read, or lack the one that has signed.
        """
        grant = self._verify(task, GRANT, authorization.grant)
        for name, wanted in _describe_move(task).items():
            # A release without deadlines of drains has signed no claim of one.
            allowed: Any = grant.get(name) if name == _ARRIVE_BY else grant[name]
            fits = (set(wanted) <= set(allowed) or begun and name == 'from'
                    if name in ('from', 'to') else wanted == allowed
                    or allowed is None and name != _ARRIVE_BY)
            if not fits:
                raise _make_error(task, f'its row differs from its grant ({name}: {wanted}, in the '
                                        f'grant: {allowed})', _FORGED)
        if grant['jti'] not in (None, task.task_id):
            raise _make_error(task, f'its signature is that of task {grant["jti"]}', _FORGED)
        people = {}
        for approval in authorization.approvals:
            claims = self._verify(task, APPROVAL, approval.token)
            if claims['grant'] != _digest_grant(authorization.grant):
                raise _make_error(task, 'an approval is that of another task', _FORGED)
            people[_identify_person(claims['sub'])] = float(claims['exp'])
        return grant, people

    def _verify(self, task: model.Task, kind: str, token: str) -> dict[str, Any]:
        try:
            return signatures.verify_token(self._keys, kind, token)
        except signatures.SignatureError as e:
            raise _make_error(task, str(e), f'{_PLAN_AGAIN} {_FORGED}') from None


def _refuse_ended(task: model.Task, end: float, now: float) -> None:
    if now > end + signatures.CLOCK_SECONDS:
        raise _make_error(task, f'its authorization has ended {now - end:.0f} s ago', _PLAN_AGAIN)


def _identify_person(person: str) -> str:
    """Return the person who counts: one for all local users."""
    return LOCAL if person.startswith(LOCAL) else person


def _compute_end(begin_by: float, now: float, swapped: bool) -> float:
    """Return when an authorization ends."""
    return max(begin_by + BEGUN_SECONDS, now + SWAP_SECONDS if swapped else 0.0)


def _describe_move(task: model.Task) -> dict[str, Any]:
    """Return the parts of a task that its grant fixes, as JSON has them."""
    return {'instance': task.instance_uuid, 'scope': task.aggregate, 'from': [task.from_host],
            'to': [task.to_host, *task.alternates], 'method': task.method.value,
            'phase': task.phase.value, _ARRIVE_BY: task.arrive_by,
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


def _make_error(task: model.Task, problem: str, remedy: str) -> exception.TaskNotAuthorized:
    return exception.TaskNotAuthorized(instance_uuid=task.instance_uuid, problem=problem,
                                       remedy=remedy)
