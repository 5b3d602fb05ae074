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

"""Our defaults for options of libraries, which the sample of kronos.conf shows as well."""

import contextlib

from kronos_nova.rebalancer.messaging import transport


def set_defaults() -> None:
    """Set all defaults, for oslo-config-generator."""
    transport.set_defaults()
    with contextlib.suppress(ModuleNotFoundError):  # the extra "api" may be missing
        set_cors_defaults()


def set_cors_defaults() -> None:
    """Let pages of allowed origins send and read the headers of kronos-api."""
    from oslo_middleware import cors  # noqa: PLC0415 (the extra "api" may be missing)

    cors.set_defaults(
        allow_headers=['X-Auth-Token', 'X-OpenStack-Request-ID', 'OpenStack-API-Version'],
        expose_headers=['X-OpenStack-Request-ID', 'OpenStack-API-Version'],
        allow_methods=['GET', 'POST', 'DELETE'])
