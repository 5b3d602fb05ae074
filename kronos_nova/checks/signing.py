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

"""The check of the keys that sign tasks: they can be read, and one can sign."""

from collections.abc import Iterator

from kronos_nova import exception
from kronos_nova import plurals
from kronos_nova.checks import base
from kronos_nova.rebalancer.authorization import key_repository

NAME = 'signing keys'


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    directory = context.conf.signing.key_repository
    if not directory:
        return
    keys = key_repository.KeyRepository(directory)
    try:
        number = keys.count_public_keys()
    except exception.SigningKeyError as e:
        yield base.report_failure(NAME, f'{e.kwargs["path"]}: {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
        return
    if number == 0:
        yield base.report_failure(
            NAME, f'{directory} has no public key: executors refuse every task',
            'Make keys with kronos-manage signing-key create, or copy them from the controller '
            'that has them.')
        return
    text = f'{directory} has {plurals.count_noun(number, "public key")}'
    try:
        key_id, _key = keys.get_signing_key()
    except exception.SigningKeyError as e:
        yield base.report_warning(
            NAME, f'{text}, and {e.kwargs["problem"]}: only executors can run here',
            e.kwargs['remedy'])
        return
    yield base.report_ok(NAME, f'{text}; {key_id} signs')
