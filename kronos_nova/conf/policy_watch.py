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

"""The policy set of a file, which is read again when the file changes."""

import os

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import policy
from kronos_nova.conf import policies

LOG = logging.getLogger(__name__)


class PolicyWatch:
    """The last good policy set of a file.

    :param path: the policy file.
    :raises PolicyFileError: the first reading fails, so that no good set exists.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file_stamp = self._read_file_stamp()
        self.current: policy.PolicySet = policies.load_policies(path)

    def refresh(self) -> policy.PolicySet:
        """Read the file again if it changed. Refuse a bad one, and log that once."""
        stamp = self._read_file_stamp()
        if stamp != self._file_stamp:
            self._file_stamp = stamp
            try:
                self.current = policies.load_policies(self._path)
                LOG.info('Policies were read again from %s', self._path)
            except exception.PolicyFileError as e:
                LOG.error('%s The last good policies stay in force.', e)
        return self.current

    def _read_file_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = os.stat(self._path)
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
