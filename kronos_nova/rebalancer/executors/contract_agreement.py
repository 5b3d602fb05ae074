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

"""Comparison of an executor's ``[contracts]`` with those of the engines that plan its scopes.

Both judge: an engine before it plans a move, an executor before it begins one.
"""

from collections.abc import Collection
from collections.abc import Mapping

from oslo_log import log as logging

from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)


def list_other_scopes(ours: str, settings: Mapping[str, rows.EngineSettings]) -> list[str]:
    """List the scopes whose engine has other contracts than the digest ``ours``, sorted.

    Engines that do not state theirs are left out.
    """
    return sorted(scope for scope, theirs in settings.items()
                  if theirs.contracts and theirs.contracts != ours)


class ContractAgreement:
    """Memory of the scopes whose engines have other contracts, to log each change once.

    :param ours: the digest of this executor's contracts.
    """

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._others: frozenset[str] = frozenset()

    def compare_settings(self, settings: Mapping[str, rows.EngineSettings]) -> Collection[str]:
        """Log scopes that came to differ or to agree; return those that differ."""
        others = frozenset(list_other_scopes(self._ours, settings))
        if more := sorted(others - self._others):
            LOG.warning(
                'Engines of %s have other options of [contracts], or another file of contracts, '
                'than this executor. Each judges by its own: the executor refuses moves that the '
                'engine plans, or does not keep what the engine\'s file states. Give both the '
                'same, and restart them.', ', '.join(more))
        # An engine that has stopped tells nothing about its scope.
        if fewer := sorted((self._others - others) & settings.keys()):
            LOG.info('Engines of %s have the contracts of this executor again', ', '.join(fewer))
        self._others = others | (self._others - settings.keys())
        return self._others
