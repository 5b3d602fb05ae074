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

"""Authorizations of requests to kronos-migfra: the process that hears a message signs its request.

Workers verify the signature before each step. So a request that is written into the database by
hand moves nothing.
"""

import hashlib

from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import signatures

REQUEST = 'kronos-request'
#: Seconds for which a worker may go on with a request.
LASTING = 7 * 86400.0


class RequestAuthorization:
    """Signer and verifier of requests.

    :param keys: None: nothing is signed, and every request passes.
    """

    def __init__(self, keys: key_repository.KeyRepository | None) -> None:
        self._keys = keys

    def check_keys(self) -> None:
        """Check that a key can sign, if requests are signed.

        :raises SigningKeyError: none can.
        """
        if self._keys is not None:
            self._keys.get_signing_key()

    def sign_request(self, request_id: str, host: str, kind: str, document: str,
                     received_at: float) -> str | None:
        """Return the authorization of a request; None without keys.

        :raises SigningKeyError: no key can sign.
        """
        if self._keys is None:
            return None
        return signatures.sign_claims(self._keys, REQUEST, {
            'iat': received_at, 'exp': received_at + LASTING,
            'request': _digest_request(request_id, host, kind, document)})

    def find_problem(self, authorization: str | None, request_id: str, host: str, kind: str,
                     document: str, now: float) -> str | None:
        """Return why the request must not be carried out; None: it is authorized.

        :param now: epoch seconds.
        :raises SigningKeyError: the keys cannot be read, or lack the one that has signed.
        """
        if self._keys is None:
            return None
        try:
            claims = signatures.verify_token(self._keys, REQUEST, authorization or '')
        except signatures.SignatureError as e:
            return str(e)
        if claims['request'] != _digest_request(request_id, host, kind, document):
            return 'its row differs from the message that was signed'
        if now > claims['exp'] + signatures.CLOCK_SECONDS:
            return 'its signature has ended'
        return None


def _digest_request(*parts: str) -> str:
    return hashlib.sha256('\0'.join(parts).encode('utf-8', 'surrogatepass')).hexdigest()
