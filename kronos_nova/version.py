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

"""The version of the installed package."""

import functools
from importlib import metadata

DISTRIBUTION = 'kronos-nova'


@functools.cache
def read_release() -> str:
    """Return the version that pbr gave the installed distribution, e.g. ``0.1.0.dev7``.

    It is read once: each page of metrics has it, and a reading parses all metadata.
    ``unknown`` in a source tree that was never installed.
    """
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return 'unknown'
