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

"""``tools/soak``: the command line."""

import argparse
import pathlib
import signal
import sys

from tools.cloud import errors
from tools.cloud.layout import CHECKOUT
from tools.cloud.progress import Progress


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog='tools/soak',
        description='Let hours pass on a sandbox with load, drains, users, operators and faults, '
        'and judge that no move is lost or doubled, that no daemon grows, and that another one '
        'takes over soon.',
        epilog='Exit codes: 0 all is well, 1 it is not, 2 not possible here, 130 interrupted.')
    length = top.add_mutually_exclusive_group(required=True)
    length.add_argument('--hours', type=float, help='in real time')
    length.add_argument('--day-in-minutes', type=float, metavar='MINUTES',
                        help='a compressed day')
    top.add_argument('--upgrade', metavar='COMMIT',
                     help='in place of faults: a rolling upgrade from a commit to this one and '
                     'back; "next": from this one to one with a further revision of the schema')
    top.add_argument('--seed', type=int, default=1, help='decides what happens when (default 1)')
    top.add_argument('--dir', type=pathlib.Path, default=CHECKOUT / '.sandbox' / 'soak',
                     help='where the sandbox lies')
    top.add_argument('--out', type=pathlib.Path, default=CHECKOUT / '.sandbox' / 'soak-result',
                     help='directory of samples.jsonl, soak.svg and verdict.json')
    return top


def raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run; every foreseeable failure is one message on stderr and an exit code."""
    arguments = parser().parse_args()
    # The sandbox is taken down at either signal, also where the shell ignores the first one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raise_interrupt)
    try:
        # Help works without the packages that this needs.
        from tools.cloud.soak import day

        return 0 if day.soak(arguments, Progress()) else 1
    except errors.SandboxError as e:
        print(f'tools/soak: {e}', file=sys.stderr)
        return e.code
    except KeyboardInterrupt:
        print('tools/soak: interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
