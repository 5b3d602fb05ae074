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

"""How large a report of a large cloud is, how long it takes to make and to show.

A generated cloud is recorded and ``kronos report`` is run on the snapshot as a command,
several times. Chromium, where it is installed, then shows the page and prints it, beside
an empty page that says what its start alone takes::

    python -m benchmarks.report --hosts 2000 --instances 48000
"""

import argparse
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks import clusters
from benchmarks import replay_large
from tests.fixtures import chromium

REPORT = [sys.executable, '-c', 'import sys; from kronos_nova.cli import app; '
                                'sys.exit(app.main(sys.argv[1:]))', 'report']


def seconds(call: object, *arguments: object) -> float:
    """The fastest of three."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        call(*arguments)  # type: ignore[operator]
        found.append(time.perf_counter() - began)
    return min(found)


def made(snapshot: str, conf: str, path: pathlib.Path) -> None:
    subprocess.run([*REPORT, '--snapshot', snapshot, '--config-file', conf, '-o', str(path)],
                   check=True)


def shown(path: pathlib.Path, directory: pathlib.Path) -> None:
    """Print how long a browser is at it."""
    browser = chromium.Chromium(directory)
    empty = directory / 'empty.html'
    empty.write_text('<!DOCTYPE html><html lang="en"><title>empty</title></html>')
    start, page = seconds(browser.picture, empty), seconds(browser.picture, path)
    print(f'Chromium: start {start:.2f} s, start and page {page:.2f} s, '
          f'page alone {page - start:.2f} s')
    paper = browser.paper(path)
    pages = len(re.findall(rb'/Type\s*/Page\b', paper))
    print(f'on paper: {pages} pages, {len(paper) / 2**20:.1f} MiB, '
          f'in {seconds(browser.paper, path) - start:.2f} s')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--hosts', type=int, default=2_000)
    parser.add_argument('--instances', type=int, default=48_000)
    parser.add_argument('--no-browser', action='store_true')
    options = parser.parse_args()
    case = clusters.build(clusters.Spec(
        'reported', options.hosts, options.instances, hot=0.1, grouped=0.1, threshold=0.05), 1)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        snapshot, conf = replay_large.record(case, name)
        path = directory / 'report.html'
        took = seconds(made, snapshot, conf, path)
        planned = min(replay_large.replay(snapshot, conf)[0] for _ in range(3))
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f'{options.hosts} hosts, {options.instances} instances: '
              f'{path.stat().st_size / 2**20:.2f} MiB, written in {took:.1f} s '
              f'(kronos-replay of the same: {planned:.1f} s), peak memory '
              f'{used.ru_maxrss / 1024:.0f} MiB')
        if not options.no_browser:
            shown(path, directory)


if __name__ == '__main__':
    main()
