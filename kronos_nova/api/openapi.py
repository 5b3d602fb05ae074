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

"""The OpenAPI 3.1 document of all endpoints."""

import functools
import http
import json
from typing import Any

import pydantic
import pydantic.json_schema

from kronos_nova import version
from kronos_nova.api import endpoints
from kronos_nova.api import error_documents
from kronos_nova.api import values
from kronos_nova.api import versions

_REFERENCE = '#/components/schemas/{model}'
#: Statuses of errors that each endpoint may answer with.
_COMMON = (400, 401, 403, 406, 500, 503)


@functools.cache
def render_document() -> str:
    """Return the document as JSON; all endpoints must be registered (:mod:`handlers`)."""
    return json.dumps(_build_document())


def _build_document() -> dict[str, Any]:
    models = {model for endpoint in endpoints.ENDPOINTS
              for model in (endpoint.body, endpoint.query, endpoint.response) if model is not None}
    answers = {endpoint.response for endpoint in endpoints.ENDPOINTS}
    answers |= {error_documents.ErrorDocument, versions.VersionList}
    inputs: list[tuple[type[pydantic.BaseModel], pydantic.json_schema.JsonSchemaMode]] = [
        (model, 'validation') for model in models - answers]
    outputs: list[tuple[type[pydantic.BaseModel], pydantic.json_schema.JsonSchemaMode]] = [
        (model, 'serialization') for model in answers if model is not None]
    references, definitions = pydantic.json_schema.models_json_schema(
        sorted(inputs + outputs, key=lambda pair: pair[0].__name__), ref_template=_REFERENCE)
    schemas = {model: reference for (model, _mode), reference in references.items()}
    paths: dict[str, dict[str, Any]] = {
        '/': {'get': _describe_open_path('list_versions', 'List the versions of the API.',
                                         schemas[versions.VersionList])}}
    for endpoint in endpoints.ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _describe_endpoint(
            endpoint, schemas)
    queries = {model.__name__ for model in (e.query for e in endpoints.ENDPOINTS)
               if model is not None}
    components = {name: schema for name, schema in definitions.get('$defs', {}).items()
                  if name not in queries}
    return {
        'openapi': '3.1.0',
        'info': {'title': 'kronos-nova rebalancer', 'version': versions.MICROVERSIONS[-1],
                 'license': {'name': 'Apache-2.0', 'identifier': 'Apache-2.0'},
                 'description': f'Release {version.read_release()}.'},
        'paths': paths,
        'components': {
            'schemas': components,
            'securitySchemes': {'token': {'type': 'apiKey', 'in': 'header',
                                          'name': 'X-Auth-Token'}}}}


def _describe_open_path(operation: str, summary: str, schema: Any) -> dict[str, Any]:
    return {'operationId': operation, 'summary': summary, 'security': [],
            'responses': {'200': _describe_response('OK', schema)}}


def _describe_endpoint(endpoint: endpoints.Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    summary, _newline, more = endpoint.handler_docstring.partition('\n')
    success = {'204': {'description': 'Done.'}} if endpoint.response is None else {
        '200': _describe_response('OK', schemas[endpoint.response])}
    # A path, a marker, or a body may name a record that does not exist.
    names_record = endpoint.path_names or endpoint.query or endpoint.method != 'GET'
    statuses = {*_COMMON, *((404,) if names_record else ()),
                *((409,) if endpoint.method != 'GET' else ()),
                *((413, 415) if endpoint.body is not None else ())}
    error = schemas[error_documents.ErrorDocument]
    document: dict[str, Any] = {
        'operationId': endpoint.operation_id, 'summary': summary,
        'description': f'{more.strip()}\n\nPolicy rule: {endpoint.rule}.'.strip(),
        'security': [{'token': []}],
        'parameters': [*_describe_path_names(endpoint), *_describe_query(endpoint),
                       _describe_microversion()],
        'responses': {**success, **{
            str(status): _describe_response(http.HTTPStatus(status).phrase, error)
            for status in sorted(statuses)}}}
    if endpoint.body is not None:
        document['requestBody'] = {
            'required': True, 'content': {'application/json': {'schema': schemas[endpoint.body]}}}
    return document


def _describe_response(description: str, schema: Any) -> dict[str, Any]:
    return {'description': description, 'content': {'application/json': {'schema': schema}},
            'headers': {'X-Openstack-Request-Id': {'schema': {'type': 'string'}}}}


def _describe_path_names(endpoint: endpoints.Endpoint) -> list[dict[str, Any]]:
    return [{'name': name, 'in': 'path', 'required': True,
             'schema': {'type': 'string', 'pattern': values.UUID_PATTERN}}
            for name in endpoint.path_names]


def _describe_query(endpoint: endpoints.Endpoint) -> list[dict[str, Any]]:
    """Return a parameter for each field of the query's model."""
    if endpoint.query is None:
        return []
    schema = endpoint.query.model_json_schema(ref_template=_REFERENCE)
    parameters = []
    for name, field in schema['properties'].items():
        # A query cannot say null: it leaves the parameter out.
        kinds = [kind for kind in field.get('anyOf', ()) if kind.get('type') != 'null']
        described = dict(kinds[0]) if len(kinds) == 1 else field
        text = field.get('description') or described.pop('description', None)
        described = {key: value for key, value in described.items()
                     if key not in ('default', 'description', 'title')}
        parameters.append({
            'name': name, 'in': 'query', 'required': name in schema.get('required', ()),
            'schema': described, **({'description': text} if text else {})})
    return parameters


def _describe_microversion() -> dict[str, Any]:
    """Return the header; it may name versions of other services, too, which are ignored."""
    return {'name': versions.HEADER, 'in': 'header', 'required': False,
            'description': 'The wanted microversion. Without it the oldest one answers.',
            'schema': {'type': 'string', 'examples': [
                f'{versions.SERVICE_TYPE} {wanted}'
                for wanted in (*versions.MICROVERSIONS, 'latest')]}}
