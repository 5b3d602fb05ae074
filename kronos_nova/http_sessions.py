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

"""The HTTP session of every client: Prometheus, hooks, Keystone, Nova and Placement."""

from typing import Any

import requests


class HttpSession(requests.Session):
    """An HTTP session whose lost connections are all a :class:`requests.RequestException`.

    :param trust_env: whether proxy variables, ~/.netrc and REQUESTS_CA_BUNDLE count; else the
        configuration alone does.
    """

    def __init__(self, *, trust_env: bool = False) -> None:
        super().__init__()
        self.trust_env = trust_env

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request; see the base class.

        :raises requests.ConnectionError: also when the server closes the connection while urllib3
            writes to it. urllib3 2 swallows that error, then uses the socket that it has closed:
            AttributeError: 'NoneType' object has no attribute 'settimeout'. The server may have
            received the request.
        """
        try:
            return super().send(request, **kwargs)
        except AttributeError as e:
            if e.name != 'settimeout' or e.obj is not None:
                raise
            raise requests.ConnectionError(
                'the server closed the connection', request=request) from e
