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

"""Runs the simulation of the whole rebalancer for many seeds, and counts.

    python tools/simulate_faults.py --seeds 100000 --first 2000

prints what went wrong how often, how often each invariant was looked at, and
the seeds that broke one, if any (exit status 1). With ``--keep FILE`` the counts
are kept there after every fifty seeds: the same command goes on where
it was ended, until the code is another one. ``--page`` writes the counts into
doc/source/contributor/invariants.rst. ``--bugs`` looks for a seed that catches each
seeded bug instead. ``--campaigns`` has a campaign in each run, or looks for the bugs of
campaigns.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import multiprocessing
import pathlib
import sys
import time
import traceback

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

CHUNK = 50
#: Where the counts are described, and the headings around them.
PAGE = TOP / 'doc/source/contributor/invariants.rst'
COUNTED, AFTER = 'What was counted\n================\n', 'Seeded bugs\n===========\n'
IDLE = ' did not judge'
#: How each line that is kept begins.
BEGINNING = b'{"code": '
#: What decides how a seed runs.
CODE = ('kronos_nova', 'tests/simulation')


def simulate(first, count, contracts=False, campaign=False):
    """(counts, checks, CPU seconds, broken invariants) of some seeds."""
    from tests.simulation.world import run as runs

    counts, checks, broken = collections.Counter(), collections.Counter(), []
    began = time.process_time()
    for seed in range(first, first + count):
        run = runs.Run(seed, contracts=contracts, campaign=campaign)
        try:
            run.go()
        except runs.Broken as e:
            broken.append(str(e))
        except Exception:
            broken.append(f'seed {seed}: {traceback.format_exc(limit=-3)}')
        counts.update(run.counts)
        checks.update(run.checks)
    return counts, checks, time.process_time() - began, broken


def code():
    """A name for the code that is run: it changes when a file does."""
    digest = hashlib.sha256()
    for path in sorted(p for top in CODE for p in (TOP / top).rglob('*.py')):
        digest.update(f'{path.relative_to(TOP)}\0'.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def kept(path, running):
    """(first, count) -> counts, of the runs of this code in a file.

    A last line that was cut off when the program ended is taken out.

    :raises ValueError: the file is of other code, or of something else.
    """
    found = {}
    if not path.exists():
        return found
    *lines, rest = path.read_bytes().split(b'\n')
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            by, chunk = row['code'], (row['first'], row['count'])
            found[chunk] = row['counts'], row['checks'], row['cpu'], row['broken']
        except (ValueError, KeyError, TypeError):
            raise _foreign(path, number) from None
        if by != running:
            raise ValueError(f'{path}, line {number}: that was counted with other code; '
                             'name another file, or remove this one to begin anew')
    if rest and not rest.startswith(BEGINNING[:len(rest)]):
        raise _foreign(path, len(lines) + 1)
    if rest:
        path.write_bytes(b''.join(line + b'\n' for line in lines))
    return found


def _foreign(path, number):
    return ValueError(f'{path}, line {number}: not what this program keeps; name another file')


def keep(path, running, chunk, found):
    counts, checks, cpu, broken = found
    with path.open('a', encoding='utf-8') as file:
        file.write(json.dumps({'code': running, 'first': chunk[0], 'count': chunk[1],
                               'counts': counts, 'checks': checks, 'cpu': cpu,
                               'broken': broken}) + '\n')


def many(args):
    """Exit status 1 when an invariant was broken, 2 when nothing could be run."""
    from tests.simulation.world import campaign_faults
    from tests.simulation.world import faults
    from tests.simulation.world import outages

    counts, checks, cpu, broken = collections.Counter(), collections.Counter(), 0.0, []
    running = code()
    try:
        before = kept(args.keep, running) if args.keep else {}
    except ValueError as e:
        print(e, file=sys.stderr)
        return 2
    chunks = [(first, min(CHUNK, args.first + args.seeds - first))
              for first in range(args.first, args.first + args.seeds, CHUNK)]

    def add(found):
        nonlocal cpu
        counts.update(found[0])
        checks.update(found[1])
        cpu += found[2]
        broken.extend(found[3])
        for text in found[3]:
            print(text, flush=True)

    for chunk in chunks:
        if chunk in before:
            add(before[chunk])
    left = [chunk for chunk in chunks if chunk not in before]
    with concurrent.futures.ProcessPoolExecutor(
            args.processes, multiprocessing.get_context('spawn')) as pool:
        waiting = {pool.submit(simulate, *chunk, args.contracts, args.campaigns): chunk
                   for chunk in left}
        for future in concurrent.futures.as_completed(waiting):
            add(future.result())
            if args.keep:
                keep(args.keep, running, waiting[future], future.result())
    done = args.seeds
    print(f'{done} seeds from {args.first}: {len(broken)} broken, '
          f'{1000 * cpu / done:.0f} ms of CPU each')
    known = [*faults.FAULTS, *outages.NAMES]
    if args.campaigns:
        known += campaign_faults.FAULTS
    for title, names in (('Faults', known), ('Invariants', sorted(checks)),
                         ('What happened', sorted(set(counts).difference(known)))):
        print(f'\n{title}')
        for name in names:
            print(f'{(checks if title == "Invariants" else counts)[name]:12d}  {name}')
    if args.page:
        write_page(describe(args, counts, checks, cpu / done, broken, known))
    return int(bool(broken))


def describe(args, counts, checks, seconds, broken, known):
    """Return the section of the page that shows the counts."""
    total = sum(counts[name] for name in known)
    rarest = min(known, key=lambda name: counts[name])
    last = args.first + args.seeds - 1
    lines = [
        COUNTED,
        f'``python tools/simulate_faults.py --seeds {args.seeds} --first {args.first}`` (seeds '
        f'{args.first} to {last})',
        f'broke {len(broken) or "nothing"}. A seed took {seconds:.2f} s of one processor.',
        f'The engines began {counts["cycles"]:,} cycles, and planned',
        f'{counts["evacuate tasks"]:,} tasks of drains and {counts["spread tasks"]:,} of spread. '
        f'Executors sent {counts["requests"]:,} requests,',
        f'{counts["requests for cold migrations"]:,} for a cold migration. '
        f'{counts["completed tasks"]:,} tasks completed,',
        f'{counts["failed tasks"]:,} failed, {counts["cancelled tasks"]:,} were cancelled, and '
        f'{counts["unknown tasks"]:,} times a task was unknown for a while.',
        f'{total:,} faults of {sum(counts[name] > 0 for name in known)} kinds struck, each '
        f'at least {counts[rarest]:,} times.',
        f'Invariants were checked {sum(checks.values()):,} times.',
        '']
    for title, names, found, form in (
            ('Invariant, and how often it was checked', sorted(checks), checks, '``{}``'),
            ('Invariant, and how often it could not judge after a change by others',
             sorted(name for name in counts if name.endswith(IDLE)), counts, '``{}``'),
            ('Fault', known, counts, '{}'),
            ('What happened', sorted(name for name in set(counts).difference(known)
                                     if not name.endswith(IDLE)), counts, '{}')):
        lines += ['.. list-table::', '   :header-rows: 1', '   :widths: 70 30', '',
                  f'   * - {title}', '     - Times']
        for name in names:
            lines += [f'   * - {form.format(name.removesuffix(IDLE))}',
                      f'     - {found[name]:,}']
        lines.append('')
    return '\n'.join(lines) + '\n'


def write_page(section):
    """Put the section into the page, in place of the one before."""
    text = PAGE.read_text(encoding='utf-8')
    before, rest = text.split(COUNTED)
    PAGE.write_text(before + section + AFTER + rest.split(AFTER, 1)[1], encoding='utf-8')


def look_for_bugs(args):
    """A seed for each bug, and what noticed it."""
    import pytest

    from tests.simulation.world import bugs
    from tests.simulation.world import campaign_bugs
    from tests.simulation.world import run as runs

    missed = 0
    table = campaign_bugs.BUGS if args.campaigns else bugs.BUGS
    for bug in table.values():
        found = None
        with pytest.MonkeyPatch.context() as patch:
            bug.apply(patch)
            for seed in range(args.first, args.first + args.seeds):
                try:
                    runs.Run(seed, only=bug.only, campaign=args.campaigns).go()
                except runs.Broken as e:
                    found = e
                    break
        missed += found is None
        print(f'{bug.name}: {found or "not caught"}', flush=True)
    return int(bool(missed))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=2000, help='how many')
    parser.add_argument('--first', type=int, default=0, help='the first of them')
    parser.add_argument('--processes', type=int, default=2)
    parser.add_argument('--keep', metavar='FILE', type=pathlib.Path,
                        help='keep what was counted there, and go on from it')
    parser.add_argument('--page', action='store_true',
                        help='write what was counted into the page of the invariants')
    parser.add_argument('--contracts', action='store_true',
                        help='give instances contracts, and check that no request breaks one')
    parser.add_argument('--campaigns', action='store_true',
                        help='have a campaign in each run, whose hosts are emptied and rebooted')
    parser.add_argument('--bugs', action='store_true',
                        help='find a seed for each seeded bug')
    args = parser.parse_args()
    return look_for_bugs(args) if args.bugs else many(args)


if __name__ == '__main__':
    sys.exit(main())
