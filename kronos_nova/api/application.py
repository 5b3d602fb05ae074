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

"""The WSGI application: routes, checks of requests, and the middleware of OpenStack services."""

from collections.abc import Callable
from collections.abc import Mapping
import re
from typing import Any

import flask
from oslo_config import cfg
from oslo_context import context
from oslo_log import log as logging
from oslo_middleware import cors
from oslo_middleware import healthcheck
from oslo_middleware import http_proxy_to_wsgi
from oslo_middleware import request_id
import pydantic
from werkzeug import exceptions as http_errors
from werkzeug.middleware import dispatcher

from kronos_nova import exception
from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import error_documents
from kronos_nova.api import handlers
from kronos_nova.api import live_page
from kronos_nova.api import openapi
from kronos_nova.api import policies
from kronos_nova.api import tokens
from kronos_nova.api import values
from kronos_nova.api import versions
from kronos_nova.rebalancer.operations import calculation_turns
from kronos_nova.rebalancer.operations import live_views
from kronos_nova.rebalancer.operations import published_cloud
from kronos_nova.rebalancer.operations import reading_cache
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.wiring import library_defaults

LOG = logging.getLogger(__name__)
#: Bytes of a body; a decision on a thousand instances has less than half as many.
MAX_BODY = 128 * 1024
_JSON = 'application/json'


def make_application(conf: cfg.ConfigOpts) -> Callable[..., Any]:
    """Return the service behind keystonemiddleware.

    :param conf: with the options of kronos.conf; middleware reads its own from it.
    :raises ConfigError: the policy file cannot be used, tokens cannot be checked, or no key can
        sign approvals.
    """
    library_defaults.set_cors_defaults()
    application: Any = _begin_context(tokens.check_tokens(make_routes(conf), conf))
    # It answers every request that reaches it.
    application = dispatcher.DispatcherMiddleware(
        application, {'/healthcheck': healthcheck.Healthcheck(http_errors.NotFound(), conf)})
    application = cors.CORS(application, conf)
    application = http_proxy_to_wsgi.HTTPProxyToWSGI(application, conf)
    return request_id.RequestId(application)


def _begin_context(application: Any) -> Callable[..., Any]:
    """Return the application with a new context for the log, before an identity is known.

    A thread that serves several requests would log the identity of the one before.
    """
    def call_application(environ: dict[str, Any], start_response: Any) -> Any:
        context.RequestContext(request_id=environ.get('openstack.request_id'))
        return application(environ, start_response)

    return call_application


def make_routes(conf: cfg.ConfigOpts) -> flask.Flask:
    """Return the application without middleware: it trusts the headers of an identity."""
    handlers.load_handlers()
    application = flask.Flask(__name__, static_folder=None)
    application.config.update(MAX_CONTENT_LENGTH=MAX_BODY)
    make_call = CallMaker(conf)
    document = openapi.render_document()

    def list_versions() -> flask.Response:
        return _render_resource(versions.describe_versions(_find_root()))

    application.add_url_rule('/', 'versions', list_versions)
    application.add_url_rule('/v1', 'version', list_versions, strict_slashes=False)
    application.add_url_rule('/v1/openapi.json', 'openapi',
                             lambda: flask.Response(document, mimetype=_JSON))
    for endpoint in endpoints.ENDPOINTS:
        application.add_url_rule(
            endpoint.path.replace('{', '<').replace('}', '>'), endpoint.operation_id,
            _make_view(endpoint, make_call), methods=[endpoint.method])
    live_page.add_routes(application, conf)
    application.register_error_handler(http_errors.HTTPException, _answer_http_error)
    application.register_error_handler(exception.KronosException, _answer_our_error)
    application.register_error_handler(Exception, _answer_unexpected_error)
    application.after_request(_add_microversion)
    return application


class CallMaker:
    """Makes the call of each request, with what all requests of the process share."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self._enforcer = policies.make_enforcer(conf)
        self._database = sessions.SharedDatabase(conf)
        self._database.check_keys()
        self._cloud = reading_cache.ReadingCache(
            conf, after_load=published_cloud.keep_from_collector)
        self._calculations = calculation_turns.CalculationTurns()
        self._waits = calls.WaitingPlaces(conf.kronos_api.max_waiting)
        self._views = live_views.RenderedViews()

    def __call__(self, identity: context.RequestContext, url: str, access: Any) -> calls.Call:
        session = self._database.make_session(calls.format_operator(identity),
                                              calls.name_person(identity))
        return calls.Call(self.conf, session, url, self._cloud, self._calculations, self._waits,
                          self._views, identity, lambda rule: self.may_call(rule, identity), access)

    def may_call(self, rule: str, identity: context.RequestContext) -> bool:
        """Return whether a policy rule admits the identity."""
        return policies.may_call(self._enforcer, self.conf, rule, identity)


def _make_view(endpoint: endpoints.Endpoint,
               make_call: CallMaker) -> Callable[..., flask.Response]:
    """Return the function that checks a request, calls the handler and renders its answer."""
    def answer_request(**names: str) -> flask.Response:
        flask.g.microversion = _read_microversion()
        identity = calls.read_identity(flask.request.environ)
        if identity is None:
            raise http_errors.Unauthorized('No identity is confirmed.')
        if not make_call.may_call(endpoint.rule, identity):
            raise calls.make_refusal(endpoint.rule, identity)
        _check_names(names)
        call = make_call(identity, f'{_find_root()}{flask.request.path}',
                         calls.find_access(flask.request.environ))
        return _render_resource(endpoint.handler(call, **names, **_read_parts(endpoint)))

    return answer_request


def _check_names(names: Mapping[str, str]) -> None:
    """Refuse a name of the path that no record can have; a database may not take it.

    :raises NotFoundError: the name is not a UUID.
    """
    for name, value in names.items():
        if re.fullmatch(values.UUID_PATTERN, value) is None:
            raise exception.NotFoundError(path='path', field=name, problem='it is not a UUID',
                                          remedy='')


def _find_root() -> str:
    return flask.request.root_url.rstrip('/')


def _read_microversion() -> str:
    """Return the wanted microversion.

    :raises HTTPException: 406: the service does not have it; 400: it is not a version.
    """
    try:
        return versions.read_microversion(flask.request.headers)
    except ValueError:
        raise http_errors.NotAcceptable(
            f'{versions.HEADER}: the service has microversions {versions.MICROVERSIONS[0]} to '
            f'{versions.MICROVERSIONS[-1]}.') from None
    except TypeError:
        raise http_errors.BadRequest(
            f'{versions.HEADER}: send "{versions.SERVICE_TYPE} {versions.MICROVERSIONS[-1]}".'
        ) from None


def _read_parts(endpoint: endpoints.Endpoint) -> dict[str, Any]:
    """Return the checked query and body of the request, as the handler takes them.

    :raises HTTPException: 400: a part is wrong; 415: the body is not JSON.
    """
    parts: dict[str, Any] = {}
    query = _collect_query(endpoint.query)
    if endpoint.query is not None:
        parts['query'] = _validate_part('query', lambda model: model.model_validate(query),
                                        endpoint.query)
    elif query:
        raise http_errors.BadRequest(f'query {min(query)}: this address takes no parameters.')
    if endpoint.body is not None:
        if flask.request.mimetype != _JSON:
            raise http_errors.UnsupportedMediaType(f'Send the body as {_JSON}.')
        data = flask.request.get_data()
        parts['body'] = _validate_part('body', lambda model: model.model_validate_json(data),
                                       endpoint.body)
    return parts


def _collect_query(model: type[pydantic.BaseModel] | None) -> dict[str, Any]:
    """Return the parameters by name; the values of a list's field as a list.

    :raises HTTPException: 400: a parameter that is no list came twice.
    """
    fields = {} if model is None else model.model_fields
    query: dict[str, Any] = {}
    for name, texts in flask.request.args.lists():
        if name in fields and fields[name].default_factory is list:
            query[name] = texts
        elif len(texts) == 1:
            query[name] = texts[0]
        else:
            raise http_errors.BadRequest(f'query {name}: it is there more than once.')
    return query


def _validate_part(part: str, validate: Callable[[type[pydantic.BaseModel]], Any],
                   model: type[pydantic.BaseModel]) -> Any:
    try:
        return validate(model)
    except pydantic.ValidationError as e:
        raise http_errors.BadRequest(error_documents.describe_validation(e, part)) from None


def _render_resource(resource: values.Resource | None, status: int = 200) -> flask.Response:
    if resource is None:
        return flask.Response(status=204)
    return flask.Response(resource.model_dump_json(), status, mimetype=_JSON)


def _add_microversion(response: flask.Response) -> flask.Response:
    wanted = flask.g.get('microversion')
    if wanted is not None:
        response.headers[versions.HEADER] = f'{versions.SERVICE_TYPE} {wanted}'
        response.vary.add(versions.HEADER)
    response.headers.setdefault('Cache-Control', 'no-store')
    return response


def _answer_error(status: int, detail: str, code: str | None = None) -> flask.Response:
    return _render_resource(error_documents.build_document(
        status, detail, str(flask.request.environ.get('openstack.request_id', '')), code), status)


def _answer_http_error(error: http_errors.HTTPException) -> flask.Response:
    status = error.code or 500
    if status < 400:  # a redirect to the address with or without a slash
        return flask.make_response(error.get_response())
    text = ('The service has no such address.' if isinstance(error, http_errors.NotFound)
            else exception.format_sentence(error.description or error.name))
    response = _answer_error(status, text)
    if isinstance(error, http_errors.MethodNotAllowed) and error.valid_methods:
        response.headers['Allow'] = ', '.join(sorted(error.valid_methods))
    return response


def _answer_our_error(error: exception.KronosException) -> flask.Response:
    status = error_documents.choose_status(error)
    if not error_documents.is_for_client(error, status):
        LOG.error('%s %s: %s', flask.request.method, flask.request.path, error)
        return _answer_error(status, error_documents.UNANSWERED, error.code)
    return _answer_error(status, error_documents.describe_error(error), error.code)


def _answer_unexpected_error(error: Exception) -> flask.Response:
    LOG.exception('%s %s failed unexpectedly', flask.request.method, flask.request.path)
    return _answer_error(500, 'An unexpected error; the log of the service has it under the '
                              'ID of this request.', error_documents.UNEXPECTED)
