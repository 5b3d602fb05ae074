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

"""Payloads, the RPC transport and MQTT; all on native threads."""

import warnings

from oslo_service import backend


def _choose_native_threads() -> backend.BackendType:
    # Neither the log of the choice nor warnings of libraries that look for eventlet concern an
    # operator.
    backend.LOG.setLevel('WARNING')
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    return backend.BackendType.THREADING


# oslo.messaging loads oslo.service, which chooses then, and eventlet without this. A process that
# has chosen already, such as a test runner with Nova, stays as it is.
backend.register_backend_default_hook(_choose_native_threads)
