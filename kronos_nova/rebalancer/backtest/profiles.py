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

"""A query's series by instance: the usage and the host of each."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kronos_nova import plurals
from kronos_nova.rebalancer.backtest import recorded_trace

Places = npt.NDArray[np.int32]

#: Number of the host of an instance that is nowhere.
ABSENT = -1


class InstanceProfile:
    """One query's series by instance.

    ``usage``: T x N; ``where``: T x N, the host that the second label names, ABSENT without one.
    ``strangers``: number of series that belong to no instance of the cloud.
    """

    def __init__(self, answer: recorded_trace.RecordedSeries, columns: Mapping[str, list[int]],
                 ours: Mapping[str, int], find: Callable[[str], str | None],
                 host_index: Mapping[str, int], count: int, warn: Callable[[str], None]) -> None:
        times = answer.values.shape[0]
        places = np.array([host_index.get(find(m) or '', ABSENT) for m in answer.marks],
                          dtype=np.int32)
        self.usage = np.full((times, count), np.nan, dtype=np.float32)
        self.where = np.full((times, count), ABSENT, dtype=np.int32)
        self.others = np.zeros((times, len(host_index)), dtype=np.int32)
        twice = []
        self.strangers = 0
        for key, series_columns in columns.items():
            n = ours.get(key)
            if n is None:
                self.strangers += 1
                for column in series_columns:
                    if places[column] != ABSENT:
                        self.others[:, places[column]] += ~np.isnan(answer.values[:, column])
            elif not self._merge_series(n, answer.values, series_columns, places):
                twice.append(key)
        if twice:
            warn(f'{plurals.count_noun(len(twice), "instance")} with several series at one time '
                 'and place; these '
                 f'times are left out (first: {twice[0][:64]!r})')

    def _merge_series(self, n: int, values: recorded_trace.Singles, series_columns: list[int],
                      places: Places) -> bool:
        """Lay an instance's series into the arrays; return False if two are of one time and place.

        Where series of two hosts overlap, as they do for a rate window after a migration, the one
        that began later counts.
        """
        began = {c: int((~np.isnan(values[:, c])).argmax()) for c in series_columns}
        twice = np.zeros(len(values), dtype=np.bool_)
        for column in sorted(series_columns, key=lambda c: (began[c], c)):
            known = ~np.isnan(values[:, column])
            twice |= known & ~np.isnan(self.usage[:, n]) & (self.where[:, n] == places[column])
            self.usage[known, n] = values[known, column]
            self.where[known, n] = places[column]
        self.usage[twice, n] = np.nan
        return not twice.any()


def list_columns(keys: Iterable[str]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for column, key in enumerate(keys):
        out.setdefault(key, []).append(column)
    return out
