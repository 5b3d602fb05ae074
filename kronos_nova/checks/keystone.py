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


"""The check of Keystone: it gives the user of [nova] a token."""

from collections.abc import Iterator

from keystoneauth1 import exceptions as ks_exceptions

from kronos_nova import exception
from kronos_nova.checks import base
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import connection


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    try:
        sdk_connection = connection.make_connection(context.conf)
    except exception.ConfigError as e:
        yield base.report_failure('keystone', f'[nova] {e.kwargs["field"]}: {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
        return
    # Loading the plugin has registered the option.
    where = context.conf.nova.auth_url if 'auth_url' in context.conf.nova else None
    try:
        sdk_connection.session.get_token()
    except ks_exceptions.ClientException as e:
        yield base.report_failure('keystone',
                                  f'{where or "no auth_url"}: {api.connection_problem(e)}',
                                  'Correct auth_url and the credentials in [nova]; see that '
                                  'Keystone answers.')
        return
    context.connection = sdk_connection
    yield base.report_ok('keystone', f'{where or "no token is needed"}: '
                              f'user {sdk_connection.session.get_user_id() or "unknown"}')
