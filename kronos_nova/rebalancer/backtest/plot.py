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

"""The candidates' days as curves. Needs the extra ``plot``."""

from collections.abc import Sequence
import datetime
from typing import Any

import matplotlib as mpl
from matplotlib import dates
from matplotlib import figure

from kronos_nova.sources import ranges

#: Names come from files and policies: they are never markup. The same report
#: gives the same SVG.
SETTINGS = {'text.parse_math': False, 'svg.hashsalt': 'kronos', 'axes.grid': True,
            'grid.alpha': 0.3, 'font.size': 8.0}
FORMATS = ('svg', 'png', 'pdf')


def write_plot(path: str, window: ranges.QueryWindow, rows: Sequence[dict[str, Any]]) -> None:
    """Draw one panel for each imbalance, then overload, empty hosts and moves.

    :param rows: one candidate's review each.
    :raises OSError: the file cannot be written.
    """
    times = [datetime.datetime.fromtimestamp(window.compute_time(k), datetime.UTC)
             for k in range(window.count)]
    panels = [(f'imbalance {measure}' + (f' ({scope})' if len(measures) and several else ''),
               [row['over_time']['imbalance'][scope][measure] for row in rows])
              for several in [len(rows[0]['imbalance']) > 1]
              for scope, measures in rows[0]['imbalance'].items() for measure in measures]
    panels += [(title, [row['over_time'][key] for row in rows]) for title, key in (
        ('overloaded hosts', 'overloaded_hosts'), ('empty hosts', 'empty_hosts'),
        ('moves so far', 'moves'))]
    with mpl.rc_context(SETTINGS):
        drawn = figure.Figure(figsize=(10, 2 * len(panels)), layout='constrained')
        panel_axes: Any = drawn.subplots(len(panels), 1, sharex=True, squeeze=False)
        for axes, (title, series) in zip(panel_axes[:, 0], panels, strict=True):
            for row, values in zip(rows, series, strict=True):
                axes.plot(times, [float('nan') if v is None else v for v in values],
                          label=row['name'], linewidth=1, drawstyle='steps-post')
            axes.set_title(title, loc='left', fontsize=8)
            axes.set_ylim(bottom=0)
        panel_axes[0, 0].legend(loc='upper right')
        locator = dates.AutoDateLocator(tz=datetime.UTC)
        panel_axes[-1, 0].xaxis.set_major_locator(locator)
        panel_axes[-1, 0].xaxis.set_major_formatter(
            dates.ConciseDateFormatter(locator, tz=datetime.UTC))
        form = path.rpartition('.')[2].lower()
        drawn.savefig(path, format=form, metadata={'Date': None} if form == 'svg' else None)
