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

"""Signed claims: JSON Web Signatures (RFC 7515) with EdDSA, of several kinds.

Claims end at a time of theirs, and a release that changes their meaning gives them another version.
"""

from collections.abc import Mapping
from typing import Any

import jwt
from oslo_config import cfg

from kronos_nova.rebalancer.authorization import key_repository

ALGORITHM = 'EdDSA'
#: Version of the claims of all kinds.
VERSION = 1
#: Difference between the clocks of two controllers, in seconds, that is no sign of a forgery.
CLOCK_SECONDS = 300.0


class SignatureError(Exception):
    """A token proves nothing; the text says why."""


def open_keys(conf: cfg.ConfigOpts) -> key_repository.KeyRepository | None:
    """Return the keys of [signing] key_repository; None: nothing is signed."""
    directory = conf.signing.key_repository
    return key_repository.KeyRepository(directory) if directory else None


def sign_claims(keys: key_repository.KeyRepository, kind: str, claims: Mapping[str, Any]) -> str:
    """Return a token of the claims.

    :param claims: with an end, ``exp`` (epoch seconds).
    :raises SigningKeyError: no key can sign.
    """
    key_id, key = keys.get_signing_key()
    return jwt.encode({**claims, 'version': VERSION}, key, ALGORITHM,
                      headers={'kid': key_id, 'typ': kind})


def verify_token(keys: key_repository.KeyRepository, kind: str, token: str) -> dict[str, Any]:
    """Return the claims of a token, which may have ended.

    :raises SignatureError: the signature is not valid, or that of another kind.
    :raises SigningKeyError: the keys cannot be read, or lack the one that has signed.
    """
    if not token:
        raise SignatureError('it has no signature')
    try:
        header = jwt.get_unverified_header(token)
        key = keys.get_public_key(str(header.get('kid')))
        if header.get('typ') != kind:
            raise SignatureError(f'its signature is not that of a {kind}')
        claims: dict[str, Any] = jwt.decode(token, key, [ALGORITHM], options={
            'verify_exp': False, 'verify_iat': False, 'verify_nbf': False, 'verify_jti': False,
            'verify_sub': False, 'verify_aud': False, 'verify_iss': False})
    except (jwt.PyJWTError, ValueError) as e:
        raise SignatureError(f'its signature is not valid ({type(e).__name__})') from None
    if claims.get('version') != VERSION:
        raise SignatureError('another release signed it, with claims that this one does not know')
    return claims
