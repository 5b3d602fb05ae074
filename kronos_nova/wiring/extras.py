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

"""Say which extra to install when a command's packages are missing."""

from collections.abc import Iterator
import contextlib
import sys

from kronos_nova import version


@contextlib.contextmanager
def needs_extra(command: str, extra: str = 'rebalancer') -> Iterator[None]:
    """Guard a command whose packages come with an extra.

    The guard stands around the imports at the top of the module, and around ``main`` for packages
    that are imported later::

        with needs_extra('kronos-engine'):
            from kronos_nova.wiring import tools

        @needs_extra('kronos-engine')
        def main() -> int:

    :param command: the console script's name, as the operator typed it
    :param extra: a name of the ``[extras]`` section of setup.cfg
    :raises SystemExit: with status 1, after one line on stderr, when a
        third-party module is not installed. Any other failure to import is a
        defect of ours and is raised again.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or '').partition('.')[0]
        if not missing or missing == 'kronos_nova' or missing in sys.stdlib_module_names:
            raise
        sys.stderr.write(
            f'{command} needs the packages of the extra "{extra}" (missing: {missing}). '
            f'Install with: pip install "{version.DISTRIBUTION}[{extra}]"\n'
        )
        raise SystemExit(1) from None
