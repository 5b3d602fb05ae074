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

import dataclasses
from importlib import resources

SUFFIX = '.yaml'
EXPORTERS = 'Exporters: '


@dataclasses.dataclass(frozen=True, slots=True)
class PresetDescription:
    """Purpose of a preset, in one paragraph, and the exporters to scrape for it.

    Read from the comment at the head of its file.
    """

    purpose: str
    exporters: tuple[str, ...]


def list_presets() -> list[str]:
    """Return the names of the presets, sorted."""
    return sorted(entry.name.removesuffix(SUFFIX) for entry in resources.files(__name__).iterdir()
                  if entry.name.endswith(SUFFIX))


def read_preset(name: str) -> str:
    """Return the text of a preset.

    :raises KeyError: no preset has this name.
    """
    if name not in list_presets():
        raise KeyError(name)
    return resources.files(__name__).joinpath(name + SUFFIX).read_text(encoding='utf-8')


def describe_preset(name: str) -> PresetDescription:
    """Return the purpose and the exporters of a preset.

    :raises KeyError: no preset has this name.
    """
    # The licence comes first, and ends with an empty line.
    head = read_preset(name).split('\n\n', 2)[1]
    lines = [line.removeprefix('#').strip() for line in head.splitlines()]
    exporters = next(line.removeprefix(EXPORTERS) for line in lines if line.startswith(EXPORTERS))
    return PresetDescription(' '.join(lines[:lines.index('')]), tuple(exporters.split(', ')))
