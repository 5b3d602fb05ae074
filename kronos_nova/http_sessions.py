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

"""HTTP sessions that follow the configuration alone and ignore the environment."""

from typing import Any

import requests


class DirectSession(requests.Session):
    """An HTTP session without proxy variables, ~/.netrc and REQUESTS_CA_BUNDLE.

    Every failure of a connection is a :class:`requests.RequestException`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request; see the base class.

        :raises requests.ConnectionError: also when the server closes the connection while urllib3
            writes to it. urllib3 2 swallows that error, then uses the socket that it has closed:
            AttributeError: 'NoneType' object has no attribute 'settimeout'.
        """
        try:
            return super().send(request, **kwargs)
        except AttributeError as e:
            if e.name != 'settimeout' or e.obj is not None:
                raise
            raise requests.ConnectionError(
                'the server closed the connection', request=request) from e
