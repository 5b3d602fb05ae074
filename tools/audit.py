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

"""Ask a vulnerability database about every version that users install with kronos-nova.

pip-audit (``tox -e audit``) looks up the lower bounds and the requirements of the images. It
exits 0 when it knows of no vulnerability and 1 when it knows of one. A line that begins with
``audit: not done`` and exit status 3 mean that the database did not answer, which says nothing
about the versions.
"""

from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
import subprocess
import sys

TOP = Path(__file__).resolve().parent.parent
FILES = ('lower-constraints.txt', 'deploy/kolla/docker/kronos/kronos-base/requirements.txt')
VULNERABLE, NOT_DONE = 1, 3
NOT_DONE_LINE = 'audit: not done'
#: The service of PyPI's JSON pages skips what a mirror does not know; OSV answers or fails.
COMMAND = ('pip-audit', '--vulnerability-service', 'osv', '--strict', '--disable-pip', '--no-deps',
           '--progress-spinner', 'off', '-r')


def run(command: Sequence[str]) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run(command, cwd=TOP, check=False, capture_output=True, text=True)


def audit(options: Sequence[str] = (),
          execute: Callable[[Sequence[str]], 'subprocess.CompletedProcess[str]'] = run) -> int:
    """Audit each file; return the exit status.

    :param options: further options of pip-audit, such as ``--osv-url``.
    """
    statuses = set()
    for name in FILES:
        done = execute([*COMMAND, name, *options])
        statuses.add(judge(name, done.returncode, done.stdout, done.stderr))
    return VULNERABLE if VULNERABLE in statuses else max(statuses)


def judge(name: str, status: int, output: str, errors: str) -> int:
    """Print the result for one file; return its exit status."""
    found = [line for line in errors.splitlines() if line.startswith('Found ')]
    if status == 0 and 'No known vulnerabilities found' in errors:
        print(f'audit: {name}: no known vulnerability')
        return 0
    if found:
        print(f'audit: {name}: {found[0]}. Raise the bound or the pin.\n{output}')
        return VULNERABLE
    reason = (errors.strip() or output.strip() or 'pip-audit said nothing').splitlines()[-1]
    print(f'{NOT_DONE_LINE}: {name}: {reason}')
    return NOT_DONE


if __name__ == '__main__':
    sys.exit(audit(sys.argv[1:]))
