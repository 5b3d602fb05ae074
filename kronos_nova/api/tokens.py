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

"""The check of Keystone's tokens in front of the routes."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_log import log as logging
import webob
import webob.exc

from kronos_nova import exception
from kronos_nova.api import error_documents

LOG = logging.getLogger(__name__)
#: Paths that answer without a token: versions and their description, and the live page.
OPEN_PATHS = frozenset({'', '/', '/v1', '/v1/', '/v1/openapi.json', '/page'})
#: The files of the live page, and the sign-in.
PAGE_PATH = '/page/'
_MISSING = 'A valid token of Keystone is missing: send one as X-Auth-Token.'
_SILENT = 'The token cannot be checked now. Try again later.'


class TokenCheck(auth_token.AuthProtocol):
    """keystonemiddleware with errors in the form of this API."""

    def process_request(self, request: Any) -> Any:
        """Check the token; return the answer to a request without a valid one."""
        try:
            return super().process_request(request)
        except webob.exc.HTTPUnauthorized as e:
            return _make_answer(request, 401, _MISSING, {
                'WWW-Authenticate': e.headers.get('WWW-Authenticate', 'Keystone')})
        except webob.exc.HTTPException as e:
            return _make_answer(request, e.status_int, _SILENT)
        except Exception as e:
            # A login that lacks an option is noticed at the first token.
            LOG.error('No token can be checked: %s: %s. Correct [keystone_authtoken] in '
                      'kronos.conf.', type(e).__name__, e)
            return _make_answer(request, 503, _SILENT)


def _make_answer(request: Any, status: int, detail: str,
                 headers: Mapping[str, str] | None = None) -> webob.Response:
    document = error_documents.build_document(
        status, detail, str(request.environ.get('openstack.request_id', '')))
    answer = webob.Response(document.model_dump_json().encode(), status=status,
                            content_type='application/json', charset='UTF-8')
    answer.headers.update(headers or {})
    return answer


def check_tokens(routes: Callable[..., Any], conf: cfg.ConfigOpts) -> Callable[..., Any]:
    """Return the routes behind the check; :data:`OPEN_PATHS` are not.

    :raises ConfigError: [keystone_authtoken] does not say how the service logs in.
    """
    protected = TokenCheck(routes, {'oslo_config_config': conf})
    if conf.keystone_authtoken.auth_type is None and conf.keystone_authtoken.auth_section is None:
        raise exception.ConfigError(
            path='kronos.conf', field='[keystone_authtoken] auth_type',
            problem='it is not set, so no token can be checked',
            remedy='Set it to password, with auth_url, username, password, project_name and the '
                   'domains of the account of kronos-api.')

    def choose_door(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get('PATH_INFO', '')
        door = routes if path in OPEN_PATHS or path.startswith(PAGE_PATH) else protected
        return door(environ, start_response)

    return choose_door
