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

"""The hook that keeps a backup program off an instance while it migrates.

The backup program skips an instance whose UUID names a file in the directory.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova.rebalancer.hooks import base


class BackupLockHook(base.Hook):
    """Hook that creates the file before the migration and removes it afterwards.

    :param directory: exists, and is shared by all executors.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        conf.register_opts([cfg.StrOpt('directory', help='The directory of the files.')],
                           group='hook_backup_lock')
        found = conf.hook_backup_lock.directory
        if not found or not Path(found).is_dir():
            raise exception.ConfigError(
                path='kronos.conf', field='[hook_backup_lock] directory',
                problem='it names no directory', remedy='Create it, or correct the name.')
        return cls(Path(found))

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def before(self, call: base.HookCall) -> base.HookStep:
        try:
            self._path(call).touch()
        except OSError as e:
            raise base.StepFailed(problem=f'cannot create its file ({e.strerror})') from None
        return base.FinishedStep()

    def after(self, call: base.HookCall) -> base.HookStep:
        try:
            self._path(call).unlink(missing_ok=True)
        except OSError as e:
            raise base.StepFailed(problem=f'cannot remove its file ({e.strerror})') from None
        return base.FinishedStep()

    def remedy(self, call: base.HookCall) -> str:
        return f'Remove {self._path(call)}, or this instance has no backup.'

    def _path(self, call: base.HookCall) -> Path:
        return self._directory / call.task.instance_uuid
