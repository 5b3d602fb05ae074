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

"""``python -m tools.cloud.manage MODULE -- ARGS... -- ARGS...``: run a *-manage command repeatedly.

MODULE is imported once and a child is forked per ARGS: of the 2-3 s of CPU
that a keystone-manage or nova-manage takes to start, nearly all are imports.
"""

import importlib
import itertools
import os
import sys

PROGRAMS = {'nova.cmd.manage': 'nova-manage', 'keystone.cmd.manage': 'keystone-manage'}


def split(arguments: list[str]) -> list[list[str]]:
    """The argument lists between ``--``."""
    groups = itertools.groupby(arguments, lambda a: a == '--')
    return [list(group) for is_separator, group in groups if not is_separator]


def run(module: object, program: str, arguments: list[str]) -> int:
    """Run one command in a forked child; returns its exit code."""
    pid = os.fork()
    if pid == 0:
        sys.argv = [program, *arguments]
        code = 1
        try:
            code = module.main() or 0  # type: ignore[attr-defined]
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> int:
    name, *arguments = sys.argv[1:]
    program = PROGRAMS[name]
    sys.argv = [program]
    module = importlib.import_module(name)
    for command in split(arguments):
        code = run(module, program, command)
        if code:
            print(program, *command, f'ended with code {code}', file=sys.stderr)
            return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
