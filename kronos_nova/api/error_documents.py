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

"""Errors as JSON documents, in the form of the OpenStack API guidelines."""

import http

from oslo_log import log as logging
import pydantic

from kronos_nova import exception
from kronos_nova.api import values

LOG = logging.getLogger(__name__)
#: Codes of errors that have no exception of ours, by status.
_CODES = {
    400: 'kronos.api.bad_request', 401: 'kronos.api.unauthenticated',
    403: 'kronos.api.forbidden', 404: 'kronos.not_found',
    405: 'kronos.api.method_not_allowed', 406: 'kronos.api.microversion_unsupported',
    413: 'kronos.api.body_too_large', 415: 'kronos.api.media_type',
    503: 'kronos.api.unavailable'}
#: Names of fields of requests, by the arguments of commands that errors name.
_FIELDS = {'HOST': 'host', 'window': 'windows'}
UNEXPECTED = 'kronos.api.unexpected'
UNANSWERED = 'The service cannot answer now; its log has the reason.'


class Error(values.Resource):
    """An error: ``code`` never changes, and ``detail`` is for people."""

    status: int
    code: str
    title: str
    detail: str
    request_id: str


class ErrorDocument(values.Resource):
    """The answer to a request that failed."""

    errors: list[Error]


def build_document(status: int, detail: str, request_id: str,
                   code: str | None = None) -> ErrorDocument:
    """Return the document.

    :param code: None: the code of the status.
    """
    return ErrorDocument(errors=[Error(
        status=status, code=code or _CODES.get(status, UNEXPECTED),
        title=http.HTTPStatus(status).phrase, detail=detail, request_id=request_id)])


def choose_status(error: exception.KronosException) -> int:
    """Return the HTTP status of an error of ours."""
    match error:
        case exception.NovaForbiddenError():
            return 403
        case exception.NotFoundError():
            return 404
        case (exception.ConflictError() | exception.DecisionRefused()
              | exception.PlanConflict()):
            return 409
        case (exception.StoreError() | exception.PolicyRulesError() | exception.SnapshotError()
               | exception.ReadingMissingError() | exception.BusyError()
               | exception.SigningKeyError() | exception.NovaUnavailableError()):
            return 503
        case exception.ConfigError():
            return 400
    return 500


def is_for_client(error: exception.KronosException, status: int) -> bool:
    """Return whether a client may read the error; other errors of the service are for its log."""
    return status < 500 or isinstance(
        error, exception.ReadingMissingError | exception.BusyError
        | exception.NovaUnavailableError)


def describe_error(error: exception.KronosException) -> str:
    """Return the text of an error of ours for a client of the API.

    A remedy that names a command of ``kronos`` is left out: the client may not have it.
    """
    if isinstance(error, exception.ConfigError) and error.kwargs:
        field, problem = str(error.kwargs['field']).lstrip('-'), error.kwargs['problem']
        field = _FIELDS.get(field, field)
        text = exception.format_sentence(f'{field}: {problem}')
        remedy = str(error.kwargs['remedy'])
        return text if not remedy or 'kronos ' in remedy \
            else f'{text} {exception.format_sentence(remedy)}'
    return str(error)


def describe_for_client(error: exception.KronosException) -> str:
    """Return the text of an error of ours; write one that is not for clients to the log."""
    if is_for_client(error, choose_status(error)):
        return describe_error(error)
    LOG.error('%s', error)
    return UNANSWERED


def describe_validation(error: pydantic.ValidationError, part: str) -> str:
    """Return a sentence that names each wrong field of a request.

    :param part: the part of the request, as in ``body``.
    """
    problems = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        field = '.'.join(str(step) for step in problem['loc']
                         if not str(step).startswith('function-'))
        problems.append(f'{part}{f" {field}" if field else ""}: {problem["msg"]}')
    return exception.format_sentence('; '.join(dict.fromkeys(problems)))
