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

"""Resources of a task's attempts, and of the steps against migrations that do not converge."""

import datetime
from typing import Self

import pydantic

from kronos_nova import model
from kronos_nova.api import values


class Attempt(values.Resource):
    """An attempt of a task that has ended; it succeeded when it has no error."""

    to_host: str
    started_at: datetime.datetime
    ended_at: datetime.datetime
    migration_id: str | None = pydantic.Field(description="UUID of Nova's migration.")
    error_type: str | None
    error: str | None
    phase_seconds: dict[str, float]

    @classmethod
    def from_model(cls, attempt: model.Attempt) -> Self:
        return cls(
            to_host=attempt.to_host, started_at=values.make_time(attempt.started_at),
            ended_at=values.make_time(attempt.ended_at), migration_id=attempt.migration_uuid,
            error_type=attempt.error_type, error=attempt.error,
            phase_seconds=dict(attempt.phases))


class EscalationStep(values.Resource):
    """A step against a live migration of a drain that does not converge."""

    kind: model.EscalationKind
    at: datetime.datetime
    reason: str = pydantic.Field(description='The measured rates.')
    answer: str | None = pydantic.Field(
        description='accepted; accepted, by post-copy; or why Nova was not asked or refused. '
                    'null: not known.')
    seconds: float | None = pydantic.Field(
        description='From the request until the instance ran on its destination, about as long as '
                    'the pause of its guest at most. null: not known.')
    expected_seconds: float | None = pydantic.Field(
        description='The same time as it was expected before the request, for a pause of the '
                    'guest. null: not known.')

    @classmethod
    def from_model(cls, step: model.EscalationStep) -> Self:
        return cls(kind=step.kind, at=values.make_time(step.at), reason=step.reason,
                   answer=step.answer, seconds=step.seconds, expected_seconds=step.expected_seconds)
