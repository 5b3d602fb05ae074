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

"""``down``: stop the started processes and delete their data."""

from tools.cloud import errors
from tools.cloud import state
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.run import interrupts_ignored
from tools.cloud.run import Run
from tools.cloud.up import locked


def down(layout: Layout, keep_logs: bool, progress: Progress) -> None:
    """Stop every process of the directory, by pid and only if it is still ours.

    :raises errors.ServiceDied: something would not die
    """
    with locked(layout):
        try:
            current = state.load(layout.state)
        except errors.AlreadyThere as e:
            progress.say(f'{e}\nprocesses are found by their environment instead')
            current = None
        run = Run(layout, current or state.State({}, [], 0.0))
        was_up = current is not None
        with interrupts_ignored():
            left = run.stop()
            if left:
                raise errors.ServiceDied(
                    f'these processes could not be stopped: '
                    f'{", ".join(f"{p.name} (pid {p.pid})" for p in left)}; data is kept'
                )
            layout.clean(keep_logs)
    if not was_up:
        progress.say(f'nothing was up in {layout.root}')
    else:
        progress.step('down' + (f'; logs: {layout.log}' if keep_logs else ''))
