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

"""Other releases of this project, each installed into a directory of its own."""

import pathlib
import shutil
import subprocess
import sys

from tools.cloud import errors
from tools.cloud.layout import CHECKOUT
from tools.cloud.run import Run

VERSIONS = 'kronos_nova/rebalancer/store/migrations/versions'
#: A revision as a later release may add it: daemons of the present release write no value.
REVISION = '''\
"""A column that only the next release knows."""

from alembic import op
import sqlalchemy as sa

revision = {revision!r}
down_revision = {head!r}
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('task', sa.Column('added', sa.Integer, nullable=False, server_default='7'))
'''


def name_next_revision(admits: bool = True) -> str:
    """Return the revision after the head.

    :param admits: it admits the present release.
    """
    from kronos_nova.rebalancer.store import schema

    number = int(schema.get_head_revision()[:4])
    return f'{number + 1:04d}' + (f'c{number:04d}' if admits else '')


def write_next_revision(versions: pathlib.Path, admits: bool = True) -> None:
    """Write the revision after the head, which adds the column ``task.added`` (7)."""
    from kronos_nova.rebalancer.store import schema

    revision = name_next_revision(admits)
    (versions / f'{revision}_added.py').write_text(
        REVISION.format(revision=revision, head=schema.get_head_revision()), encoding='utf-8')


class Releases:
    """Installs releases below a directory of the sandbox."""

    def __init__(self, run: Run) -> None:
        self._place = run.layout.data / 'releases'
        self._place.mkdir()

    def install_commit(self, commit: str) -> pathlib.Path:
        """Install the tree of a commit and return the directory for PYTHONPATH.

        :raises errors.NotPossibleHere: this clone does not have the commit
        """
        return self._install(commit, self._unpack(commit, 'earlier'))

    def install_next(self) -> pathlib.Path:
        """Install the present commit with one more revision of the schema, which admits it."""
        tree = self._unpack('HEAD', 'next')
        write_next_revision(tree / VERSIONS)
        return self._install('the next release', tree)

    def _unpack(self, commit: str, name: str) -> pathlib.Path:
        tree = self._place / f'{name}-tree'
        tree.mkdir()
        archive = subprocess.run(
            ['git', '-C', str(CHECKOUT), 'archive', '--format=tar', commit],
            capture_output=True, check=False)
        if archive.returncode:
            raise errors.NotPossibleHere(
                f'git archive {commit}: {archive.stderr.decode().strip()}; a complete clone has it')
        subprocess.run(['tar', '-x', '-C', str(tree)], input=archive.stdout, check=True)
        return tree

    def _install(self, name: str, tree: pathlib.Path) -> pathlib.Path:
        target = tree.with_name(tree.name.replace('-tree', '-release'))
        done = subprocess.run(
            [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-index',
             '--no-build-isolation', '--target', str(target), str(tree)],
            env={'PATH': '/usr/bin:/bin', 'PBR_VERSION': '0.0.1'},
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise errors.NotPossibleHere(f'{name} cannot be installed: {done.stderr[-1000:]}')
        shutil.rmtree(tree)
        return target
