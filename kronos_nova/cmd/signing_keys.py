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


"""``python -m kronos_nova.cmd.signing_keys``: the keys that sign tasks, on a deployment host.

The role of kolla-ansible runs it, in an environment that has neither a configuration file of Kronos
nor the packages of its daemons. ``kronos-manage signing-key`` is the command of controllers.
"""

import argparse
from collections.abc import Sequence
import sys

from kronos_nova import exception
from kronos_nova.wiring import extras

PROG = 'python -m kronos_nova.cmd.signing_keys'
#: The default of [signing] max_active_keys.
KEPT_KEYS = 3

with extras.needs_extra(PROG):
    from kronos_nova.rebalancer.authorization import key_repository


def main(argv: Sequence[str] | None = None) -> int:
    """Make or rotate the keys of a directory.

    :returns: 0; 1 with one line on stderr when the directory does not allow it.
    """
    args = _make_parser().parse_args(argv)
    try:
        if args.action == 'create':
            key_repository.create_keys(args.directory)
            print(f'{args.directory} has a key that signs, and the next one.')
        else:
            number = key_repository.rotate_keys(args.directory, KEPT_KEYS)
            print(f'Key {number} signs from now on.')
    except exception.KronosException as e:
        sys.stderr.write(f'{PROG}: {e}\n')
        return 1
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROG, description='Make or rotate the keys that sign tasks.')
    parser.add_argument('action', choices=('create', 'rotate'))
    parser.add_argument('directory', metavar='DIRECTORY', help='The directory of the keys.')
    return parser


if __name__ == '__main__':
    raise SystemExit(main())
