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

"""The service type, the microversions, and the documents that describe them."""

import microversion_parse
from werkzeug import datastructures

from kronos_nova.api import values

#: Type of the service in Keystone's catalog, and in the header of microversions.
SERVICE_TYPE = 'rebalance'
#: All microversions, oldest first. A request without the header has the oldest one.
MICROVERSIONS = ('1.0',)
HEADER = 'OpenStack-API-Version'


class Link(values.Resource):
    """An address."""

    rel: str
    href: str


class Version(values.Resource):
    """A version of the API."""

    id: str
    status: str
    min_version: str
    max_version: str
    links: list[Link]


class VersionList(values.Resource):
    """All versions of the API."""

    versions: list[Version]


def describe_versions(root: str) -> VersionList:
    """Return the document of the service's root.

    :param root: URL of the service, without a slash at its end.
    """
    return VersionList(versions=[Version(
        id='v1', status='CURRENT', min_version=MICROVERSIONS[0], max_version=MICROVERSIONS[-1],
        links=[Link(rel='self', href=f'{root}/v1'),
               Link(rel='describedby', href=f'{root}/v1/openapi.json')])])


def read_microversion(headers: datastructures.Headers) -> str:
    """Return the microversion of a request.

    :raises ValueError: the service does not have it.
    :raises TypeError: the header is not a version.
    """
    # Some versions of the library take several headers apart, and some do not.
    joined = {HEADER.lower(): ','.join(headers.getlist(HEADER))} if HEADER in headers else {}
    return str(microversion_parse.extract_version(joined, SERVICE_TYPE, MICROVERSIONS))
