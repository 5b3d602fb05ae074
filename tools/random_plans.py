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


"""Random plans on a real Nova, one cloud after the other, and their outcomes.

Runs tests/functional/test_random_plans.py with one seed after the other until
so many plans have been made, each cloud in a process of its own, and prints the
sums. What Nova refused, and any server group that was broken at any moment, is
shown with the seed that repeats it; then the exit status is 1::

    python tools/random_plans.py --plans 500 --first-seed 1
"""

import argparse
from collections import Counter
from concurrent import futures
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
TEST = 'tests.functional.test_random_plans'


def one_cloud(seed: int, plans: int, minutes: float) -> tuple[dict[str, int], list[str]]:
    """Figures and problems of one cloud."""
    with tempfile.TemporaryDirectory() as directory:
        figures = pathlib.Path(directory, 'figures.json')
        environment = dict(
            os.environ, OS_NOVA_DISABLE_EVENTLET_PATCHING='1', KRONOS_TEST_SEED=str(seed),
            KRONOS_TEST_PLANS=str(plans), KRONOS_TEST_HOSTS=str(8 + seed % 2),
            KRONOS_TEST_FIGURES=str(figures),
            PYTHONPATH=os.pathsep.join([str(TOP), os.environ.get('PYTHONPATH', '')]))
        try:
            done = subprocess.run([sys.executable, '-m', 'testtools.run', TEST], cwd=TOP,
                                  env=environment, capture_output=True, text=True, check=False,
                                  timeout=minutes * 60)
            failed = done.returncode and done.stdout[-2000:]
        except subprocess.TimeoutExpired:
            failed = f'not done within {minutes:g} minutes'
        found = json.loads(figures.read_text()) if figures.exists() else {}
    problems = [f'seed {seed}: {p}' for p in found.get('problems', ())]
    if failed and not problems:
        problems.append(f'seed {seed}: {failed}')
    return found.get('figures', {}), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--plans', type=int, default=500)
    parser.add_argument('--plans-per-cloud', type=int, default=25)
    parser.add_argument('--first-seed', type=int, default=1)
    parser.add_argument('--clouds-at-a-time', type=int, default=1)
    parser.add_argument('--minutes', type=float, default=180,
                        help='no cloud is begun after so many')
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    sums: Counter[str] = Counter()
    problems: list[str] = []
    seeds = itertools.count(options.first_seed)

    def one_after_the_other() -> None:
        while sums['plans'] < options.plans and time.monotonic() < end:
            seed = next(seeds)
            figures, wrong = one_cloud(seed, options.plans_per_cloud, minutes=20)
            sums.update(figures)
            sums['clouds'] += 1
            problems.extend(wrong)
            print(f'seed {seed}: {figures.get("plans", 0)} plans, {figures.get("moves", 0)} '
                  f'moves, {len(wrong)} problems, {sums["plans"]} plans in all', flush=True)
            for problem in wrong:
                print(f'  {problem}', flush=True)

    with futures.ThreadPoolExecutor() as pool:
        for begun in [pool.submit(one_after_the_other) for _ in range(options.clouds_at_a_time)]:
            begun.result()
    for name, count in sorted(sums.items()):
        print(f'{name:32} {count:>8}')
    return 1 if problems or sums['plans'] < options.plans else 0


if __name__ == '__main__':
    sys.exit(main())
