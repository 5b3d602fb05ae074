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

"""How long kronos-replay takes on the example, beside another command.

Runs both in turn, so that both see the same noise, and prints each one's
minimum and median in seconds and the ratio of the minima. The other command
is a bare start of Python, or what ``--other`` says, such as the ancestor's
replay on the same snapshot::

    python benchmarks/replay.py --runs 10 --other 'kronos-replay --config-file F SNAPSHOT'
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'doc' / 'examples' / 'replay'


def seconds(command: list[str]) -> float:
    """One run; its exit code must be 0."""
    started = time.perf_counter()
    subprocess.run(command, check=True, cwd=EXAMPLE, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--runs', type=int, default=7)
    parser.add_argument('--other', default=f'{sys.executable} -c pass')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    ours = [sys.executable, '-c', 'import sys; from kronos_nova.cmd import replay; '
                                  'sys.exit(replay.main())',
            '--config-file', 'kronos.conf', 'snapshot', '--format', 'json']
    other = shlex.split(options.other)
    times: dict[str, list[float]] = {'replay': [], 'other': []}
    for _ in range(options.runs):
        times['replay'].append(seconds(ours))
        times['other'].append(seconds(other))
    result = {name: {'min': min(t), 'median': statistics.median(t)} for name, t in times.items()}
    ratio = result['replay']['min'] / result['other']['min']
    if options.json:
        print(json.dumps({**result, 'ratio': ratio}))
        return
    for name, row in result.items():
        print(f'{name:8} min {row["min"]:.3f} s  median {row["median"]:.3f} s')
    print(f'ratio    {ratio:.2f}')


if __name__ == '__main__':
    main()
