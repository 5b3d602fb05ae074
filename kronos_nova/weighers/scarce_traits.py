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


"""Scarce traits and resource classes in Placement, by compute node.

A thread reads them with the credentials of nova.conf's [placement], and writes nothing. It
asks Placement by trait and by class, not by host: the number of requests does not grow with
the cloud.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import fnmatch
import math
import time
from typing import Any

from nova.scheduler.client import report
from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova.feed import periodic

LOG = logging.getLogger(__name__)

#: Nova puts it on the root provider of every compute node.
COMPUTE_NODE = 'COMPUTE_NODE'
#: Every instance asks for these (but a volume-backed one, whose disk does not matter).
COMMON_CLASSES = frozenset({'VCPU', 'MEMORY_MB', 'DISK_GB'})
#: Largest number of traits and classes in the requests to Placement.
MAX_NAMES = 200
#: The last answers stay valid for this many intervals without a new one.
KEPT_INTERVALS = 12
#: GET /resource_providers with ``required`` and root_provider_uuid.
VERSION = '1.20'


class PlacementSilent(Exception):
    """Placement did not answer our request."""


def compute_scarcity(having: int, nodes: int) -> float:
    """Compute the scarcity of a property that ``having`` of ``nodes`` nodes have, in [0, 1].

    log(nodes / having) / log(nodes): the information (Shannon's surprisal) in a node having
    it, relative to the largest possible. 0 if all nodes have it or the cloud has one node;
    1 if a single one of several has it.
    """
    if having <= 0 or nodes <= 1 or having >= nodes:
        return 0.0
    return math.log(nodes / having) / math.log(nodes)


@dataclasses.dataclass(frozen=True, slots=True)
class ScarceTraits:
    """Names by compute node (its UUID), and each one's scarcity in [0, 1]."""

    by_provider: Mapping[str, Set[str]] = dataclasses.field(default_factory=dict)
    scarcity: Mapping[str, float] = dataclasses.field(default_factory=dict)
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def compute_cost(self, names: Iterable[str]) -> float:
        """Return 1 - product of (1 - scarcity) ** weight, in [0, 1]."""
        common_part = 1.0
        for name in names:
            common_part *= (1.0 - self.scarcity[name]) ** self.weights.get(name, 1.0)
        return 1.0 - common_part


def build_specials(holders: Mapping[str, Set[str]], nodes: Set[str],
                   weights: Mapping[str, float]) -> ScarceTraits:
    """Build the Specials of the compute nodes.

    :param holders: root providers by trait or class.
    """
    by_provider: dict[str, set[str]] = {}
    scarce = {}
    for name, having in holders.items():
        having_nodes = having & nodes
        value = compute_scarcity(len(having_nodes), len(nodes))
        if value > 0.0 and weights.get(name, 1.0) > 0.0:
            scarce[name] = value
            for uuid in having_nodes:
                by_provider.setdefault(uuid, set()).add(name)
    # Equal sets are one object, so that costs are computed once for each.
    pool: dict[frozenset[str], frozenset[str]] = {}
    return ScarceTraits({uuid: pool.setdefault(frozenset(names), frozenset(names))
                         for uuid, names in by_provider.items()}, scarce, dict(weights))


def matches_patterns(name: str, patterns: Iterable[str]) -> bool:
    """Return whether the last pattern that fits does not begin with ``!``."""
    matches = False
    for pattern in patterns:
        if fnmatch.fnmatchcase(name, pattern.removeprefix('!')):
            matches = not pattern.startswith('!')
    return matches


class ScarcityBoard:
    """The newest Specials; refreshed in the background."""

    def __init__(self, conf: cfg.ConfigOpts, faults: periodic.FaultCounters) -> None:
        self._conf = conf
        self._newest: ScarceTraits | None = None
        self._until = -math.inf
        self._logged_problem: str | None = None
        self._refresher = periodic.BackgroundRefresher(
            'kronos-specials', self._read_interval, self.refresh_traits, faults)

    def read_scarce_traits(self) -> ScarceTraits | None:
        """Return the Specials that are valid now, or None."""
        self._refresher.ensure_running()
        return self._newest if time.monotonic() < self._until else None

    def refresh_traits(self) -> None:
        """Ask Placement; when it does not answer, the last Specials stay valid for a while."""
        try:
            traits = self._read_specials()
        except Exception as e:
            self._log_problem_change('what hosts have cannot be learned from Placement: '
                                     f'{type(e).__name__}: {e}. '
                                     'Check [placement] and the scarcity_ options in nova.conf; '
                                     'scarcity is '
                                     f'weighed as it was known last, for {KEPT_INTERVALS} '
                                     'intervals at most')
            return
        self._newest, self._until = (
            traits, time.monotonic() + KEPT_INTERVALS * self._read_interval())
        self._log_problem_change(None)

    def stop(self) -> None:
        self._refresher.stop()

    def _read_interval(self) -> float:
        return float(self._conf.kronos.scarcity_refresh_interval)

    def _read_specials(self) -> ScarceTraits:
        kronos = self._conf.kronos
        nodes = {p['uuid'] for p in self._list_providers(f'required={COMPUTE_NODE}')}
        asks = [(name, f'required={name}')
                for name in sorted(self._get('/traits?associated=true')['traits'])
                if name != COMPUTE_NODE and matches_patterns(name, kronos.scarcity_traits)]
        # Providers on which at least one is left.
        asks += [(name, f'resources={name}:1') for name in sorted(
            c['name'] for c in self._get('/resource_classes')['resource_classes'])
            if name not in COMMON_CLASSES
                 and matches_patterns(name, kronos.scarcity_resource_classes)]
        if len(asks) > MAX_NAMES:
            raise PlacementSilent(
                f'scarcity_traits and scarcity_resource_classes match {len(asks)} names, more '
                f'than the {MAX_NAMES} that would be queried; narrow them')
        holders = {name: {p['root_provider_uuid'] for p in self._list_providers(query)}
                   for name, query in asks}
        return build_specials(holders, nodes, kronos.scarcity_weights)

    def _list_providers(self, query: str) -> list[dict[str, Any]]:
        return list(self._get(f'/resource_providers?{query}')['resource_providers'])

    def _get(self, url: str) -> dict[str, Any]:
        response = report.report_client_singleton().get(url, version=VERSION)
        if response is None or response.status_code != 200:
            raise PlacementSilent(f'GET {url} was answered with '
                                  f'{getattr(response, "status_code", "nothing")}')
        return dict(response.json())

    def _log_problem_change(self, problem: str | None) -> None:
        """Log one line when Placement stops answering, and one when it answers again."""
        if problem and problem != self._logged_problem:
            LOG.warning('kronos: %s', problem)
        elif self._logged_problem and not problem:
            LOG.info('kronos: Placement says again what hosts have')
        self._logged_problem = problem

