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

"""The binding of hosts to policy files, and the check of file modes against multipliers."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from kronos_nova import model
from kronos_nova import policy as policies


class PolicyBindings:
    """Policy files and the aggregates they are for, in the order of the option.

    The first file that names one of its aggregates scores a host; ``_unassigned_`` stands for no
    aggregate. The first file without aggregates scores the hosts that no file names; without such
    a file these hosts have no scores.

    :param files: path -> its policies; None while the file has never been valid.
    """

    def __init__(self, files: Mapping[str, policies.PolicySet | None]) -> None:
        self.paths = tuple(files)
        named: dict[str, list[int]] = {}
        whole = []
        for index, policy_set in enumerate(files.values()):
            if policy_set is None:
                continue
            if not policy_set.aggregates:
                whole.append(index)
            for name in policy_set.aggregates:
                named.setdefault(name, []).append(index)
        self._first = {name: indices[0] for name, indices in named.items()}
        self._default = whole[0] if whole else None
        #: (index of the file that scores, index of the other one) -> why both could score.
        self.overlaps: dict[tuple[int, int], str] = {}
        for name, indices in named.items():
            for other in indices[1:]:
                self.overlaps[indices[0], other] = f'both name aggregate {name}'
        for other in whole[1:]:
            self.overlaps[whole[0], other] = 'both name no aggregates'

    def group_hosts_by_index(self, hosts: list[Any]) -> list[tuple[int | None, list[Any]]]:
        """Group the hosts of a request by the index of their file, or None.

        :param hosts: HostState objects.
        """
        if not self._first:
            return [(self._default, hosts)]
        # Valid for this call alone: aggregates may change before the next one.
        files: dict[int, int | None] = {}
        groups: dict[int | None, list[Any]] = {}
        for host in hosts:
            chosen = None
            for aggregate in host.aggregates:
                key = id(aggregate)
                if key not in files:
                    files[key] = self._first.get(aggregate.name)
                index = files[key]
                if index is None or index == chosen:
                    continue
                if chosen is not None:
                    pair = (min(chosen, index), max(chosen, index))
                    self.overlaps.setdefault(
                        pair, f'host {host.host} is in aggregates of both')
                if chosen is None or index < chosen:
                    chosen = index
            if chosen is None:
                chosen = self._default if host.aggregates else self._first.get(
                    model.UNASSIGNED, self._default)
            try:
                groups[chosen].append(host)
            except KeyError:
                groups[chosen] = [host]
        return list(groups.items())

    def find_file_index(self, aggregates: tuple[str, ...]) -> int | None:
        """Return the index of the file of a host in these aggregates, or None."""
        named = [self._first[name] for name in aggregates if name in self._first]
        if named:
            return min(named)
        return self._default if aggregates else self._first.get(model.UNASSIGNED, self._default)

    def is_default(self, index: int) -> bool:
        """Return whether the file scores hosts that no file names."""
        return index == self._default


def find_contradiction(policy_set: policies.PolicySet, multiplier: float) -> str | None:
    """Return how a multiplier contradicts the mode of a file, or None.

    :returns: ``packed`` or ``spread``: the effect on new instances.
    """
    if not multiplier or (multiplier < 0) == (policy_set.mode == 'pack'):
        return None
    return 'packed' if multiplier < 0 else 'spread'


def check_bindings(loaded: Sequence[tuple[str, policies.PolicySet]],
                   multiplier: float) -> list[str]:
    """Return a sentence on each fault of files that shows without the cloud's aggregates.

    :param multiplier: the option; aggregates may override it.
    """
    bindings = PolicyBindings(dict(loaded))
    faults = [format_overlap(bindings, pair, why) for pair, why in bindings.overlaps.items()]
    for index, (path, policy_set) in enumerate(loaded):
        if bindings.is_default(index) and (done := find_contradiction(policy_set, multiplier)):
            faults.append(format_mismatch(path, policy_set.mode, 'kronos_weight_multiplier',
                                          multiplier,
                                          done))
    return faults


def format_overlap(bindings: PolicyBindings, pair: tuple[int, int], why: str) -> str:
    """Format a sentence on two files that claim the same hosts."""
    first, other = (bindings.paths[index] for index in pair)
    return (f'policies_file {first} and {other}: {why}; {first} scores the hosts, because it '
            'stands first. Name each aggregate in one file only.')


def format_mismatch(path: str, mode: str, where: str, multiplier: float, done: str) -> str:
    """Format a sentence on a multiplier that contradicts the mode of a file."""
    return (f'{path} says mode: {mode}, but {where} is {multiplier:g}: new instances are {done}. '
            'Negate one, or override the multiplier in the metadata of the aggregates '
            'that are meant.')
