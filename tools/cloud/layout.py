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

"""Where the files of one sandbox lie."""

import dataclasses
import os
import pathlib
import shutil

from tools.cloud import errors

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
#: sun_path holds 108 bytes with the closing zero
LONGEST_SOCKET = 107


@dataclasses.dataclass(frozen=True)
class Layout:
    """Paths below one directory; only ``cache`` and ``demo`` outlive ``down``."""

    root: pathlib.Path

    @property
    def state(self) -> pathlib.Path:
        return self.root / 'state.json'

    @property
    def lock(self) -> pathlib.Path:
        return self.root / 'lock'

    @property
    def etc(self) -> pathlib.Path:
        return self.root / 'etc'

    @property
    def log(self) -> pathlib.Path:
        return self.root / 'log'

    @property
    def data(self) -> pathlib.Path:
        return self.root / 'data'

    @property
    def cache(self) -> pathlib.Path:
        return self.root / 'cache'

    @property
    def kronos(self) -> pathlib.Path:
        """What the rebalancer writes: its database, plans and snapshots."""
        return self.data / 'kronos'

    @property
    def policies(self) -> pathlib.Path:
        return self.etc / 'policies.yaml'

    @property
    def kronos_conf(self) -> pathlib.Path:
        return self.etc / 'kronos.conf'

    @property
    def load(self) -> pathlib.Path:
        """The control file from which the exporter takes each instance's load."""
        return self.root / 'load.json'

    @property
    def openrc(self) -> pathlib.Path:
        return self.root / 'openrc'

    @property
    def database_socket(self) -> pathlib.Path:
        return self.data / 'mariadb.sock'

    def create(self) -> None:
        """Make every directory; logs of an earlier run give way.

        :raises errors.NotPossibleHere: the path is too long for a UNIX socket
        """
        if len(os.fsencode(self.database_socket)) > LONGEST_SOCKET:
            raise errors.NotPossibleHere(
                f'{self.root} is too long a path for a UNIX socket: choose a shorter --dir'
            )
        self.clean(keep_logs=False)
        for directory in (self.root, self.etc, self.log, self.data, self.cache, self.kronos):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def clean(self, keep_logs: bool) -> None:
        """Delete what a run leaves, and nothing else that may lie in the directory."""
        for directory in [self.etc, self.data] + ([] if keep_logs else [self.log]):
            shutil.rmtree(directory, ignore_errors=True)
        for file in (self.load, self.openrc, self.state):
            file.unlink(missing_ok=True)
