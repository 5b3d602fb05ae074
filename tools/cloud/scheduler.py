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

"""This project's side of nova-scheduler: plug-ins that must be loadable, and their options."""

from importlib import metadata

from tools.cloud import config
from tools.cloud import errors
from tools.cloud import policies
from tools.cloud.run import Run

#: Nova's own weighers vote with up to 1 each for any differences,
#: ours with the true difference in load; here load shall decide first
WEIGHT_MULTIPLIER = 20.0
FEWEST_MOVES = 3


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


def write_policies(run: Run, budget: int | None = None) -> None:
    """Write the policy file that nova-scheduler and the rebalancer read.

    :param budget: moves of a plan; None: by the number of hosts.
    """
    from kronos_nova import presets

    budget = budget or max(FEWEST_MOVES, len(run.state.hosts) // 2)
    run.layout.policies.write_text(
        policies.shortened(presets.read_preset(policies.PRESETS[run.state.hypervisor]), budget,
                           policies.choose_range(run.state)))


def sections(run: Run, refresh_seconds: int = 1) -> config.Sections:
    """The sections of nova.conf that our plug-ins read."""
    return {
        'kronos': {'policies_file': run.layout.policies, 'refresh_interval': refresh_seconds,
                   'settle_seconds': policies.choose_range(run.state)},
        'prometheus': {'url': run.url('prometheus'),
                       'staleness_threshold': max(30, 3 * refresh_seconds)},
        'filter_scheduler': {'kronos_weight_multiplier': WEIGHT_MULTIPLIER},
        'cache': config.cache(run.ports),
    }
