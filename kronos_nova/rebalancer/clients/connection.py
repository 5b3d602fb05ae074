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

"""The session and endpoints of [nova], as an openstacksdk connection."""

from keystoneauth1 import access as ks_access
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from keystoneauth1 import session as ks_session
from keystoneauth1.identity import access as ks_identity
from openstack import connection as sdk
from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import http_sessions
from kronos_nova.conf import nova as nova_conf

#: Seconds of a request for a user who waits for its answer; proxies end requests after 30 or 60 s.
USER_TIMEOUT = 15


def make_connection(conf: cfg.ConfigOpts) -> sdk.Connection:
    """Return a connection that logs in when it is first used.

    :raises ConfigError: [nova] does not say how to log in.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, 'nova')
    except (ks_exceptions.ClientException, cfg.Error) as exc:
        raise exception.ConfigError(
            path='[nova]', field='auth_type', problem=str(exc),
            remedy='Give the options of an installed keystoneauth plugin') from None
    if auth is None:
        raise exception.ConfigError(
            path='[nova]', field='auth_type', problem='not set, so login is impossible',
            remedy='Give auth_type, auth_url and the credentials of a service user')
    return _connect(conf, loading.load_session_from_conf_options(
        conf, 'nova', auth=auth, timeout=conf.nova.timeout or nova_conf.REQUEST_TIMEOUT),
        conf.nova.region_name)


def make_user_connection(conf: cfg.ConfigOpts, access: ks_access.AccessInfo) -> sdk.Connection:
    """Return a connection with the token of a user, which Keystone has confirmed.

    Options of [nova] that say where Nova is, and how it is trusted, hold for it; the login of
    [nova] does not. Those of [keystone_authtoken] take the place of a region and a CA that are not
    set.
    """
    tokens = conf.keystone_authtoken
    trust = {} if conf.nova.cafile or conf.nova.insecure else {
        'cacert': tokens.cafile, 'insecure': tokens.insecure}
    return _connect(conf, loading.load_session_from_conf_options(
        conf, 'nova', auth=ks_identity.AccessInfoPlugin(access),
        timeout=conf.nova.timeout or USER_TIMEOUT, **trust),
        conf.nova.region_name or tokens.region_name)


def _connect(conf: cfg.ConfigOpts, session: ks_session.Session,
             region: str | None) -> sdk.Connection:
    _replace_http_session(session)
    named = {'compute_service_type': conf.nova.service_type,
             'compute_service_name': conf.nova.service_name,
             # Nova has had one major version since: one of at least this.
             'compute_api_version': conf.nova.min_version}
    return sdk.Connection(
        **{name: value for name, value in named.items() if value},
        connect_retries=conf.nova.connect_retries,
        status_code_retries=conf.nova.status_code_retries,
        session=session, region_name=region,
        interface=conf.nova.valid_interfaces or conf.nova.interface,
        compute_endpoint_override=conf.nova.endpoint_override,
        placement_endpoint_override=conf.nova.placement_endpoint_override)


def _replace_http_session(session: ks_session.Session) -> None:
    """Replace keystoneauth's HTTP session by ours, which reports every lost connection.

    The adapters stay. keystoneauth gives them its options of sockets and TLS only in a session that
    it makes itself. Proxies and certificates of the environment count, as in other services of
    OpenStack.
    """
    http = http_sessions.HttpSession(trust_env=True)
    for prefix, adapter in session.session.adapters.items():
        http.mount(prefix, adapter)
    session.session = http
