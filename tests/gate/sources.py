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

"""Checkouts of others that the tests of a gate run.

``KRONOS_GATE_SOURCES`` names a directory that has them as a node of Zuul has them under
``src/opendev.org``: ``zuul/zuul-jobs``, ``openstack/openstack-zuul-jobs``, ``openstack/devstack``.
No package index has them, and they are not copied into this project.
"""

import os
from pathlib import Path

from tests import ci


def find_checkout(name: str) -> Path:
    """Return the checkout of a project; skip the test without it, or fail it in CI."""
    directory = os.environ.get('KRONOS_GATE_SOURCES')
    if directory is None:
        ci.missing('KRONOS_GATE_SOURCES')
    checkout = Path(directory) / name
    if not checkout.is_dir():
        ci.missing(str(checkout))
    return checkout
