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


"""Policy files that are shipped: copy one and change it.

They are data, tested with promtool against series as the exporters name them.
"""

from importlib import resources

SUFFIX = '.yaml'


def names() -> list[str]:
    """The presets there are."""
    return sorted(entry.name.removesuffix(SUFFIX) for entry in resources.files(__name__).iterdir()
                  if entry.name.endswith(SUFFIX))


def read(name: str) -> str:
    """The text of one.

    :raises KeyError: there is none of that name.
    """
    if name not in names():
        raise KeyError(name)
    return resources.files(__name__).joinpath(name + SUFFIX).read_text(encoding='utf-8')
