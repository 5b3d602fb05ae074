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

import requests


def open_session() -> requests.Session:
    """Open a session that ignores proxy variables, ~/.netrc and REQUESTS_CA_BUNDLE."""
    session = requests.Session()
    session.trust_env = False
    return session
