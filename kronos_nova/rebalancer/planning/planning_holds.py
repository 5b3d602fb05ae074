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

"""Reasons why no moves, or only some moves, may be made: a sentence for each."""

from collections.abc import Collection
from collections.abc import Sequence

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import metric_lag

#: Why no further host is disabled.
TOO_MANY_DISABLED = 'max_drain_fraction: too many hosts of the scope are disabled'


def find_outage_reason(cluster: model.Cluster, options: model.PlanningOptions) -> str | None:
    """Return why an outage holds the scope: too many hosts are down or disabled; None: no outage.

    Down: more than ``max_down_fraction`` of the scope's hosts. Disabled: more than
    ``max_drain_fraction``, but one host is always allowed. A host of a campaign that reboots is
    both.
    """
    hosts = sorted(cluster.scope_hosts)
    services = [cluster.services.get(h) for h in hosts]
    down = [h for h, s in zip(hosts, services, strict=True) if s is None or not s.up]
    disabled = [h for h, s in zip(hosts, services, strict=True) if s is not None and s.drained]
    if len(down) > options.max_down_fraction * len(hosts):
        return (
            f'{len(down)} of {len(hosts)} hosts {plurals.choose_form(len(down), "is", "are")} down '
            f'({_format_first_hosts(down)}), more '
            f'than max_down_fraction ({options.max_down_fraction:g}): nothing moves during an '
            'outage')
    if len(disabled) > max(1.0, options.max_drain_fraction * len(hosts)):
        return (f'{len(disabled)} of {len(hosts)} hosts '
                f'{plurals.choose_form(len(disabled), "is", "are")} disabled '
                f'({_format_first_hosts(disabled)}), more '
                f'than max_drain_fraction ({options.max_drain_fraction:g}): enable some hosts or '
                'raise the option')
    return None


def count_drainable_hosts(cluster: model.Cluster, options: model.PlanningOptions,
                          apart: Collection[str] = ()) -> int:
    """Return how many more hosts of the scope may be disabled before ``max_drain_fraction`` holds.

    :param apart: hosts that do not count as disabled.
    """
    disabled = sum(service is not None and service.drained
                   for host in cluster.scope_hosts if host not in apart
                   for service in (cluster.services.get(host),))
    return int(max(1.0, options.max_drain_fraction * len(cluster.scope_hosts))) - disabled


def silent_cell(hosts: Collection[str]) -> str:
    """Say why a scope waits while a cell with some of its hosts does not answer.

    :param hosts: the hosts of the scope in such a cell.
    """
    return (f'the cell of {len(hosts)} of its hosts ({_format_first_hosts(sorted(hosts))}) does '
            'not answer Nova, '
            'or is not named while another one does not: nothing of the scope moves')


def imbalance_hold(cluster: model.Cluster, scores: model.ClusterScores, history: model.MoveHistory,
                   options: model.PlanningOptions) -> str | None:
    """Return why imbalance moves must wait while drains and repairs go on, None: they need not."""
    if scores.untrusted:
        return 'metrics are not trusted: ' + '; '.join(scores.untrusted)
    if history.waiting is not None:
        return history.waiting
    last = metric_lag.find_awaited_move(history, cluster.scope_hosts)
    if last is not None:
        seconds = metric_lag.seconds_left(scores, last[1], options.settle_seconds)
        if seconds > 0:
            return f'the scores do not show the last move yet; they settle in {seconds:.0f} s'
    return None


def describe_cut_off(steps: int | None, stopped: bool = False) -> str:
    """Describe the limit that ended planning.

    :param steps: the count that ended it, or None for ``planning_deadline`` or a stop.
    :param stopped: a stop of the engine ended it.
    """
    how = ('because the engine was stopped' if stopped
           else 'by planning_deadline' if steps is None else f'after {steps} steps')
    return f'planning was cut off {how}'


def describe_remainder(*, steps: int | None, unfinished: str, unbegun: Sequence[str],
                       unused_moves: int, hosts: list[str], policies: Sequence[str],
                       stopped: bool = False) -> str:
    """Describe the unfinished part of a plan whose work was bounded.

    :param steps: the count that ended it, or None for ``planning_deadline`` or a stop.
    :param stopped: a stop of the engine ended it.
    :param unused_moves: how many moves of the budget were not used.
    :param hosts: still to be drained.
    :param policies: still above their thresholds.
    """
    parts = [describe_cut_off(steps, stopped)]
    if unfinished:
        parts.append(f'{unfinished} was not finished')
    if unbegun:
        parts.append(f'{", ".join(unbegun)} was not begun')
    if hosts:
        parts.append(f'still to be drained: {_format_first_hosts(hosts)}')
    if policies:
        parts.append(f'still above the threshold: {", ".join(policies)}')
    parts.append(f'{plurals.count_noun(unused_moves, "move")} of the budget '
                 f'{plurals.choose_form(unused_moves, "is", "are")} left; the next cycle goes on')
    return '; '.join(parts)


def _format_first_hosts(hosts: list[str]) -> str:
    return ', '.join(hosts[:3]) + (', ...' if len(hosts) > 3 else '')
