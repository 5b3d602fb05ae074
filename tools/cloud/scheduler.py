# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""This project's side of nova-scheduler: plug-ins that must be loadable, and their options."""

from importlib import metadata

from tools.cloud import config
from tools.cloud import errors
from tools.cloud.run import Run


def check() -> None:
    """Ask whether nova-scheduler will find our filters and weigher.

    :raises errors.NotPossibleHere: the project is not installed, or not in this version
    """
    found = {
        point.attr
        for group in ('kronos_nova.filters', 'kronos_nova.weighers')
        for point in metadata.entry_points(group=group)
    }
    missing = sorted({*config.KRONOS_FILTERS, 'KronosWeigher'} - found)
    if missing:
        raise errors.NotPossibleHere(
            f'the entry points of {", ".join(missing)} are not installed: start through '
            'tools/sandbox, which installs this checkout into .venv'
        )


def sections(run: Run) -> config.Sections:
    """The sections of nova.conf that our plug-ins read."""
    return {
        'kronos': {'policies_file': run.layout.etc / 'policies.yaml', 'refresh_interval': 2},
        'prometheus': {'url': run.url('prometheus')},
        'filter_scheduler': {'kronos_weight_multiplier': 1.0},
    }
