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

"""A reader of the policy file: YAML from an operator, checked before it is parsed.

It refuses, with one clear error: a file over 1 MiB, one that grows over 20,000 values by its
aliases, tags that are not YAML's own, a key with two values, a second document. It ignores, with
a warning, fields that Kronos 0.2.0 ignored and that cannot change a decision.
"""

import os
from typing import Any

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import policy
from kronos_nova.conf import plain_yaml

LOG = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
#: Keys, values and lists; hundreds of policies have less.
MAX_NODES = 20_000


def load_policies(path: str) -> policy.PolicySet:
    """Read and validate a policy file. Log a warning for each field without effect.

    :raises PolicyFileError: names file, line or field, and remedy.
    """
    content = read_document(path)
    policy_set = policy.parse_policies(content, path)
    for note in policy.find_ignored(content):
        LOG.warning('%s: %s', path, note)
    return policy_set


def read_document(path: str) -> Any:
    """Read the content of a policy file without validating its fields.

    :raises PolicyFileError: the file cannot be read, or its YAML is refused.
    """
    return _parse_document(path, _read(path))


def _read(path: str) -> str:
    try:
        with open(path, 'rb') as f:
            data = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise exception.PolicyFileError(
            path=path, field='file', problem=f'it cannot be read ({os.strerror(e.errno or 0)})',
            remedy='Correct policies_file or the file\'s permissions.') from None
    if len(data) > MAX_BYTES:
        raise exception.PolicyFileError(
            path=path, field='file', problem='it is larger than 1 MiB',
            remedy='Name the policy file, not another one.')
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError as e:
        line = data[:e.start].count(b'\n') + 1
        raise exception.PolicyFileError(
            path=path, field=f'line {line}', problem='it is not UTF-8 text',
            remedy='Save the file as UTF-8.') from None


def _parse_document(path: str, text: str) -> Any:
    try:
        return plain_yaml.load_shared(text, depth=MAX_DEPTH, nodes=MAX_NODES)
    except plain_yaml.PlainYamlError as e:
        raise exception.PolicyFileError(
            path=path, field=f'line {e.line}' if e.line else 'document', problem=e.problem,
            remedy=e.remedy) from None
