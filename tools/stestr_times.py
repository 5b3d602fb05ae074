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

"""Tells stestr how long each functional test takes, when it has no run of its own to know by.

stestr deals tests out to its processes before the first one runs; without that, one process goes
on for minutes after the others. With --write: keeps their durations in the runs of this directory.
"""

import argparse
import datetime
import io
from pathlib import Path
import subprocess
import sys

TOP = Path(__file__).resolve().parent.parent
STESTR = str(Path(sys.executable).parent / 'stestr')
TIMES = TOP / 'tests/functional/times.txt'
#: Ends of the names of tests that a run may leave out (tests/marks.py): times.txt has none.
MARKS = ('', '[turn]', '[long]')
START = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def read(text: str) -> dict[str, float]:
    """Test, without its mark -> seconds; a line has both, seconds first."""
    return {test: float(seconds) for seconds, test in map(str.split, text.splitlines())}


def write(known: dict[str, float], earlier: dict[str, float]) -> str:
    """Return the times of a run, and the earlier ones of the tests that it left out, as lines."""
    times = {**earlier, **{test.partition('[')[0]: seconds for test, seconds in known.items()}}
    return ''.join(f'{seconds:.1f} {test}\n' for test, seconds in sorted(times.items()))


def stream(times: dict[str, float]) -> bytes:
    """subunit of a run in which they took so long."""
    import subunit

    output = io.BytesIO()
    result = subunit.StreamResultToBytes(output)
    for test, seconds in ((f'{test}{mark}', seconds) for test, seconds in times.items()
                          for mark in MARKS):
        result.status(test_id=test, test_status='inprogress', timestamp=START)
        result.status(test_id=test, test_status='success',
                      timestamp=START + datetime.timedelta(seconds=seconds))
    return output.getvalue()


def teach(top: Path, times: dict[str, float]) -> None:
    """As a run of stestr in ``top`` would; the directory had none."""
    # Its output would look like the result of a run.
    subprocess.run([STESTR, 'load', '--force-init'], cwd=top, check=True, input=stream(times),
                   stdout=subprocess.DEVNULL)


def measured(top: Path) -> dict[str, float]:
    """Test -> seconds, as stestr knows them of its runs in ``top``; tests that are there."""
    from stestr.repository import util

    listed = subprocess.run([STESTR, 'list'], cwd=top, check=True, stdout=subprocess.PIPE,
                            text=True).stdout.split()
    known: dict[str, float] = util.get_repo_open(repo_url=str(top)).get_test_times(
        listed)['known']
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--write', action='store_true', help='keep what this directory\'s took')
    if parser.parse_args().write:
        known = measured(TOP)
        TIMES.write_text(write(known, read(TIMES.read_text())))
    else:
        teach(TOP, read(TIMES.read_text()))


if __name__ == '__main__':
    main()
