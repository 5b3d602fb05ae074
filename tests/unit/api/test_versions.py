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

"""Microversions, the version document, and the OpenAPI document."""

import openapi_spec_validator
import pytest

from kronos_nova.api import endpoints
from kronos_nova.api import versions


def test_version_document_needs_no_identity_and_leads_to_the_openapi_document(client):
    for address in ('/', '/v1', '/v1/'):
        status, document = client.send('GET', address, headers={'X-Identity-Status': ''})
        (version,) = document['versions']
        assert status == 200 and version['max_version'] == versions.MICROVERSIONS[-1]
    href = next(link['href'] for link in version['links'] if link['rel'] == 'describedby')
    status, document = client.send('GET', href, headers={'X-Identity-Status': ''})
    assert status == 200 and document['openapi'] == '3.1.0'


def test_openapi_document_is_valid_and_has_every_endpoint(client):
    document = client.send('GET', '/v1/openapi.json')[1]
    openapi_spec_validator.validate(document)
    described = {(method.upper(), path) for path, methods in document['paths'].items()
                 for method in methods}
    assert described == {('GET', '/')} | {
        (endpoint.method, endpoint.path) for endpoint in endpoints.ENDPOINTS}
    identifiers = [one['operationId'] for methods in document['paths'].values()
                   for one in methods.values()]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize(('header', 'status'), [
    (None, 200), ('rebalance 1.0', 200), ('rebalance latest', 200), ('compute 2.1', 200),
    ('compute 2.1, rebalance 1.0', 200), ('rebalance 1.99', 406), ('rebalance 0.9', 406),
    ('rebalance one', 400)])
def test_microversion_is_read_and_returned(client, header, status):
    answer = client._client.get('/v1/pauses', headers={
        'X-Identity-Status': 'Confirmed', 'X-Roles': 'admin', 'X-User-Id': 'u',
        'X-Project-Id': 'p', **({} if header is None else {versions.HEADER: header})})
    assert answer.status_code == status
    if status == 200:
        assert answer.headers[versions.HEADER] == 'rebalance 1.0'
        assert versions.HEADER in answer.headers['Vary']
    else:
        assert versions.HEADER in answer.get_json()['errors'][0]['detail']
