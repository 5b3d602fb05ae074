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

"""The scores that our filter and weigher decide by, once they are available."""

import time
from typing import Any

from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import runtime
from kronos_nova.weighing import findings

#: Seconds between two checks while waiting.
POLL = 0.05


def await_scores(hosts: list[Any], patience: float) -> list[str]:
    """Wait until the source has answered, at most ``patience`` seconds.

    :returns: one sentence for each group of hosts without scores, with the reason.
    """
    door = runtime.get_runtime()
    try:
        door.notices.refresh_publication()
    except Exception as e:
        # Continue without published notices, as nova-scheduler does.
        door.faults.count_swallowed_error('kronos-noticeboard', e)
    door.list_scored_groups(hosts)
    end = time.monotonic() + patience
    while not door.scores.has_queried_source and time.monotonic() < end:
        time.sleep(POLL)
    if not door.scores.has_queried_source:
        return [f'There are no scores: the source has not answered within {patience:g} s. Give '
                'it longer with --wait.']
    return [f'There are no scores of {len(group.hosts)} hosts, to which KronosWeigher adds '
            f'nothing: {group.reason or "no policies_file is for them"}.'
            for group in door.list_scored_groups(hosts) if group.snapshot is None]


def map_host_scores(hosts: list[Any]) -> dict[tuple[str, str], findings.HostScores]:
    """Return the scores by host and node, for the hosts that have any."""
    host_scores = {}
    for group in runtime.get_runtime().list_scored_groups(hosts):
        if group.snapshot is None:
            continue
        loads = depletion.project_loads(group.hosts, group.snapshot.loads)
        for host, load in zip(group.hosts, loads, strict=True):
            policies = {name: scores[host.host] for name, scores in group.snapshot.scores.items()
                        if host.host in scores}
            if policies:
                host_scores[host.host, host.nodename] = findings.HostScores(
                    policies, None if load is None else 1.0 - load)
    return host_scores
