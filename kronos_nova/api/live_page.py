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
"""The live page: its files, which need no token, and the sign-in with a password.

The page asks the API for all data, with the token of the person who reads it.
"""

import pathlib
from typing import Annotated, Any

import flask
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1 import session as keystone_sessions
from keystoneauth1.identity import v3
from oslo_config import cfg
from oslo_log import log as logging
import pydantic
from werkzeug import exceptions as http_errors

from kronos_nova.api import calls
from kronos_nova.api import error_documents
from kronos_nova.api import values
from kronos_nova.rebalancer.report import live_page
from kronos_nova.rebalancer.report import words

LOG = logging.getLogger(__name__)
PATH = '/page'
#: Only files of this service, no inline script or style, in no frame of another page.
CONTENT_POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                  "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                  "frame-ancestors 'none'")
_HEADERS = {
    'Content-Security-Policy': CONTENT_POLICY, 'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer', 'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Resource-Policy': 'same-origin',
    # A browser asks whether the file has changed: files of two releases must not mix.
    'Cache-Control': 'no-cache'}
_FILES = pathlib.Path(__file__).parent / 'static'
_TYPES = {'.html': 'text/html', '.js': 'text/javascript', '.svg': 'image/svg+xml'}
#: Seconds that Keystone has to answer.
_PATIENCE = 10
#: Sign-ins at a time in a process: each takes a thread, and needs no token.
SIGN_INS = 2
_Text = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=255)]


class PasswordLogin(values.RequestModel):
    """What Keystone needs to issue a token for a project."""

    user_name: _Text
    user_domain_name: _Text
    password: Annotated[pydantic.SecretStr, pydantic.Field(min_length=1, max_length=4096)]
    project_name: _Text
    project_domain_name: _Text


class IssuedToken(values.Resource):
    """A token of Keystone."""

    token: str


def add_routes(application: flask.Flask, conf: cfg.ConfigOpts) -> None:
    """Add the page's files, and the sign-in, unless [kronos_api] page is unset."""
    if not conf.kronos_api.page:
        return
    for file in sorted(_FILES.iterdir()):
        _add_file(application, file.name, file.read_bytes(), _TYPES[file.suffix])
    _add_file(application, 'page.css', live_page.render_style().encode(), 'text/css')
    page = (_FILES / 'page.html').read_bytes()
    _add_file(application, '', page, _TYPES['.html'])
    application.add_url_rule(PATH, 'page', lambda: flask.redirect(
        f'{flask.request.root_path}{PATH}/', 308), methods=['GET'])
    places = calls.WaitingPlaces(SIGN_INS)
    application.add_url_rule(f'{PATH}/tokens', 'page-tokens',
                             lambda: _issue_token(conf, places), methods=['POST'])


def _add_file(application: flask.Flask, name: str, content: bytes, media_type: str) -> None:
    def send_file() -> flask.Response:
        response = flask.Response(content, content_type=f'{media_type}; charset=utf-8')
        response.headers.update(_HEADERS)
        response.add_etag()
        response.make_conditional(flask.request)
        return response

    application.add_url_rule(f'{PATH}/{name}', f'page-file-{name}', send_file, methods=['GET'])


def _issue_token(conf: cfg.ConfigOpts, places: calls.WaitingPlaces) -> flask.Response:
    """Ask Keystone for the token of a user with a password.

    :raises HTTPException: 400: a field is wrong; 401: Keystone does not admit the user; 403: the
        page takes no passwords; 503: Keystone does not answer, or too many people sign in.
    """
    if not conf.kronos_api.page_password_login:
        raise http_errors.Forbidden('This service takes no passwords: paste a token.')
    # A page of another site can only send forms without asking.
    if flask.request.mimetype != 'application/json':
        raise http_errors.UnsupportedMediaType('Send the body as application/json.')
    try:
        login = PasswordLogin.model_validate_json(flask.request.get_data())
    except pydantic.ValidationError as e:
        raise http_errors.BadRequest(error_documents.describe_validation(e, 'body')) from None
    with places.take_place(True) as taken:
        if not taken:
            raise http_errors.ServiceUnavailable(
                'Other people sign in now. Try again in some seconds.')
        return flask.Response(IssuedToken(token=_ask_keystone(conf, login)).model_dump_json(),
                              mimetype='application/json')


def _ask_keystone(conf: cfg.ConfigOpts, login: PasswordLogin) -> str:
    """Return the token that Keystone issues.

    :raises HTTPException: 401 or 403: Keystone refuses; 503: it does not answer now.
    """
    try:
        return str(_open_session(conf, login).get_token())
    except keystone_errors.MissingAuthMethods:
        raise http_errors.Unauthorized(
            'Keystone wants a second factor of this user: paste a token.') from None
    except (keystone_errors.Unauthorized, keystone_errors.NotFound) as e:
        # Keystone sees the address of this service alone.
        LOG.warning('Keystone refuses a sign-in on the live page from %s, user %s in domain %s: %s',
                    flask.request.remote_addr, words.format_value(login.user_name),
                    words.format_value(login.user_domain_name), type(e).__name__)
        raise http_errors.Unauthorized(
            'Keystone does not admit this user to this project: check the names, the domains and '
            'the password.') from None
    except keystone_errors.HttpError as e:
        if e.http_status in (403, 429):
            raise (http_errors.Forbidden if e.http_status == 403
                   else http_errors.ServiceUnavailable)(
                'Keystone refuses the sign-in now. Try again later, or paste a token.') from None
        raise _report_silence(e) from None
    except Exception as e:
        raise _report_silence(e) from None


def _report_silence(error: Exception) -> http_errors.ServiceUnavailable:
    """Log that Keystone cannot be asked, and return the answer to the reader."""
    LOG.error('Keystone has issued no token for the page: %s: %s. See [keystone_authtoken] in '
              'kronos.conf.', type(error).__name__, error)
    return http_errors.ServiceUnavailable(
        'Keystone cannot be asked for a token now. Try again later.')


def _open_session(conf: cfg.ConfigOpts, login: PasswordLogin) -> Any:
    """Return a session of the user, with the address and the certificates of [keystone_authtoken].
    """
    group = conf.keystone_authtoken
    service: Any = loading.load_auth_from_conf_options(conf, 'keystone_authtoken')
    auth = v3.Password(
        auth_url=service.auth_url, username=login.user_name,
        user_domain_name=login.user_domain_name,
        password=login.password.get_secret_value(), project_name=login.project_name,
        project_domain_name=login.project_domain_name)
    return keystone_sessions.Session(
        auth=auth, verify=False if group.insecure else group.cafile or True, timeout=_PATIENCE)
