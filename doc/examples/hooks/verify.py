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


"""Whether a request comes from kronos-executor, and is no old one sent again."""

import hashlib
import hmac
import time


def is_ours(secret: bytes, headers: dict[str, str], body: bytes) -> bool:
    """:param secret: what is in the file, without white space at its ends.
    :param body: as it has come, before anything parses it.
    """
    stamp = headers.get('Kronos-Timestamp', '')
    if not stamp.isdecimal() or abs(time.time() - int(stamp)) > 300:
        return False
    wanted = 'v1=' + hmac.new(secret, stamp.encode() + b'.' + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted, headers.get('Kronos-Signature', ''))
