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

"""The policy file of the sandbox: a preset of this project with a shorter memory."""

from typing import Any

import yaml

from tools.cloud.state import State

#: Hypervisor of the sandbox -> the preset for its exporters.
PRESETS = {'fake': 'spread-inovex', 'libvirt': 'spread-kumina'}
#: The presets' range fits scrapes every minute; here they come every second, and the
#: simulated counters are exact.
PRESET_RANGE = '[5m]'
RANGES = {'fake': 6, 'libvirt': 15}
#: Scrapes in a rate where they are rarer: at 15 seconds it is the preset's own range.
SCRAPES = 20


def choose_range(current: State) -> int:
    """Return the seconds of every rate: quick where Prometheus scrapes each second."""
    if current.scrape_seconds == 1:
        return RANGES[current.hypervisor]
    return SCRAPES * current.scrape_seconds


def shortened(preset: str, budget: int, seconds: int) -> str:
    """The preset's text with our range and budget of moves, and nothing else changed.

    :param seconds: the range of every rate.
    :raises ValueError: the preset has no range to shorten
    """
    if PRESET_RANGE not in preset:
        raise ValueError(f'the preset has no range {PRESET_RANGE}')
    document: dict[str, Any] = yaml.safe_load(preset)
    for policy in document['policies']:
        for field, value in policy.items():
            if isinstance(value, str):
                policy[field] = value.replace(PRESET_RANGE, f'[{seconds}s]')
        policy['max_migrations_per_cycle'] = budget
    return yaml.safe_dump(document, sort_keys=False, width=1000)


def query(text: str, name: str) -> tuple[str, str]:
    """The imbalance query of a policy, and the label that names hosts."""
    [policy] = [p for p in yaml.safe_load(text)['policies'] if p['name'] == name]
    return str(policy['imbalance_query']), str(policy['host_label'])
