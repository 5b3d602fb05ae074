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

"""Signals of a daemon, received by waiting: no handler, no lock, no race.

They are blocked before any thread starts, so that every thread inherits the mask and only the main
thread receives them.
"""

import signal

LEAVE = frozenset({signal.SIGTERM, signal.SIGINT})
SNAPSHOT = signal.SIGUSR1
#: The signal for a Guru Meditation Report, as in every OpenStack service.
REPORT = signal.SIGUSR2
_TAKEN = frozenset({*LEAVE, SNAPSHOT, REPORT})


def block_signals() -> None:
    """Block the signals, so that they are kept until :func:`wait_for_signal` is called."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)


def wait_for_signal() -> signal.Signals:
    """Return the next signal, which may have arrived long ago."""
    return signal.Signals(signal.sigwait(_TAKEN))
