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

"""Runs the parts of the test suite and prints one summary; started by tools/test.

Exits 0 when everything passed, 1 when anything failed, 2 on a wrong call, 130
when interrupted. Processes that a part left running are ended with the part.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import ctypes
import dataclasses
import fcntl
import io
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple
import xml.etree.ElementTree as ElementTree

TOP = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTHON = str(BIN / 'python')
RESULTS = TOP / '.test'
UNIT_TESTS = ('tests/unit', 'tests/scenarios')
SIMULATION = 'tests/simulation'
HYPERVISORS = 'tests/hypervisors'
#: Nova chooses its threads at its first import, so pytest cannot load these beside others.
FUNCTIONAL = 'tests/functional'
FAST_TESTS = (*UNIT_TESTS, SIMULATION)
CONTAINER_TESTS = 'tests/containers'
GATE_TESTS = 'tests/gate'
#: One more than the cores, as some tests mostly wait for a daemon; who has nothing left
#: to do takes from the others.
WORKERS = ('-n', '3', '--dist', 'worksteal')
#: Unit tests left a quarter of two cores idle with three workers.
UNIT_WORKERS = ('-n', '4', '--dist', 'worksteal')
#: How many seeds of the simulated world (tests/simulation/test_world.py) `unit` runs, and in
#: how many ranges of so many it takes turns, commit by commit.
WORLD_SEEDS = 50
WORLD_RANGES = 40
#: What fraction of the random examples of unit tests `unit` tries; `tools/test long` tries all.
UNIT_EXAMPLES = '0.5'
OTHER_PYTHONS = ('3.12', '3.13')
#: An interpreter that cannot import a module needs no other test.
IMPORT_TEST = ('tests/unit/test_packaging.py::'
               'test_every_module_can_be_imported_and_entry_points_lead_to_attributes')
#: What runs on one other Python, another one commit by commit: to make its virtual environment
#: takes longer than they do. All but the first are tests of code that computes without a clock, a
#: thread or a network. `tools/test long` and a gate's jobs run all.
PURE_TESTS = (
    IMPORT_TEST, 'tests/scenarios',
    *(f'tests/unit/{name}' for name in (
        'conf', 'constraints', 'fuzz', 'rebalancer/planning', 'rebalancer/strategies',
        'rebalancer/test_checker.py', 'rebalancer/test_masks.py',
        'rebalancer/test_plan_properties.py', 'test_labels.py', 'test_plurals.py',
        'test_policy.py', 'test_scoring.py', 'test_units.py', 'weighing')))
#: pytest leaves out these tests (pyproject.toml), and tests of both kinds run in the long run.
#: Tests that take turns all run there, whichever share a commit runs.
LEFT_OUT = ('-m', 'long or mutant or turns')
EVERY_TEST = ('-m', 'long or not long')
#: Functional tests that are marked long end so: their name is all that stestr selects by.
LONG_FUNCTIONAL = r'\[long\]$'
#: What the long run selects: these, and all that take turns.
LEFT_OUT_FUNCTIONAL = r'\[(long|turn)\]$'
#: How many turns there are of tests that take turns (tests/marks.py); the shares of each mark
#: divide it.
TURNS = 12
#: Series of kolla-ansible before the one of deploy-constraints.txt: 2026.1 and 2025.1.
OLDER_KOLLAS = ('22', '20')
#: Series of Nova before the one of constraints.txt -> the Pythons that it declares.
OLDER_NOVAS = {'32': ((3, 11), (3, 12)), '33': ((3, 11), (3, 12))}
#: What holds our plug-ins and rules to Nova's own classes, as far as older ones have them;
#: and first of all Nova's threads are chosen, without which some of 32 cannot be imported.
NOVA_UNIT_TESTS = (
    '-p', 'tests.functional', *(f'tests/unit/{name}' for name in (
        'filters', 'weighers', 'weighing', 'test_packaging.py', 'constraints/test_parity.py',
        'constraints/test_parity_pins.py', 'constraints/test_scheduler_parity.py')),
    '--deselect', 'tests/unit/constraints/test_parity_pins.py::'
    'test_pins_equal_the_live_migration_refusals_of_novas_api')
#: Keystone is not installed beside them; bursts and random plans measure our own Nova.
WHOLE = ('--exclude-regex', r'test_(keystone|bursts|random_plans)\.')
#: Kronos 0.2.0, its Python, and the tests that start it.
ANCESTOR = 'kronos-openstack==0.2.0'
ANCESTOR_PYTHON = '3.12'
ANCESTOR_TESTS = ('tests/integration/test_legacy_broker.py', 'tests/unit/conf/test_policies.py',
                  'tests/unit/rebalancer/test_ancestor_plans.py')
#: As tests/ci.py reads it; this program needs nothing of the tests.
CONTINUOUS_INTEGRATION = os.environ.get('CI', '').lower() in ('1', 'true', 'yes')
PR_SET_CHILD_SUBREAPER = 36
#: Seconds between two looks for adopted processes that ended.
REAP_SECONDS = 0.2
#: A log is often read from its end: so many failed tests again there, and so many lines of each.
SHOWN_FAILURES = 10
SHOWN_LINES = 30
#: Number of the slowest tests that the end names.
SHOWN_SLOWEST = 10
#: Part -> a later part that runs beside it: integration tests wait for services more than half of
#: the time, and tests of packages run one after the other.
BESIDE = {'integration': 'docs', 'package': 'deploy'}
#: Preparations for a later part, or the whole of one, while others run; their processes are not
#: strays.
PREPARING: dict[str, 'subprocess.Popen[bytes]'] = {}


@dataclasses.dataclass
class Tally:
    """How many tests of one part passed, failed and were skipped, and why.

    ``failures`` are the failed tests: name and output.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    remarks: list[str] = dataclasses.field(default_factory=list)
    failures: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    #: Seconds that each test took, and its name.
    durations: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    #: Of all processes that ended with the part.
    processor_seconds: float = 0.0

    def add(self, passed: int, failed: int, skipped: int) -> None:
        self.passed += passed
        self.failed += failed
        self.skipped += skipped

    def fail(self, remark: str) -> None:
        self.failed += 1
        self.remarks.append(remark)

    def skip(self, remark: str) -> None:
        self.skipped += 1
        self.remarks.append(remark)


def execute(command: list[str], minutes: float, **variables: str) -> tuple[int, str]:
    """Run a command, show its output and return (exit status, output).

    One that takes longer than ``minutes`` is ended and has status 124.
    """
    shown = [f'{name}={value}' for name, value in variables.items() if name != 'PATH']
    print(f'$ {" ".join(shown + command)}', flush=True)
    environment = {**os.environ, 'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1',
                   'PYTHONUNBUFFERED': '1', 'PATH': f'{BIN}{os.pathsep}{os.environ["PATH"]}',
                   **variables}
    # Each test that starts a command would compile all that it imports.
    environment.pop('PYTHONDONTWRITEBYTECODE', None)
    process = subprocess.Popen(command, cwd=TOP, env=environment, text=True, errors='replace',
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    late = threading.Event()

    def expire() -> None:
        late.set()
        end_descendants()

    timer = threading.Timer(minutes * 60, expire)
    timer.start()
    output = []
    try:
        assert process.stdout is not None
        # A daemon that the command left behind may hold the pipe open: stop
        # reading when the command itself has ended.
        closer = threading.Thread(target=_end_strays_after, args=(process,), daemon=True)
        closer.start()
        for line in process.stdout:
            output.append(line)
            sys.stdout.write(line)
            sys.stdout.flush()
        status = process.wait()
        closer.join()
    finally:
        timer.cancel()
    if late.is_set():
        print(f'ended after {minutes:g} minutes', flush=True)
        return 124, ''.join(output)
    return status, ''.join(output)


def _end_strays_after(process: 'subprocess.Popen[str]') -> None:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_SECONDS)
            break
        reap_orphans({process.pid, *(preparing.pid for preparing in PREPARING.values())})
    end_descendants()


def reap_orphans(ours: set[int]) -> None:
    """Let adopted processes that ended go: libvirt waits for a QEMU until its entry is gone.

    :param ours: processes that this one has started itself and waits for.
    """
    for children in Path('/proc/self/task').glob('*/children'):
        with contextlib.suppress(OSError):
            for pid in {int(child) for child in children.read_text().split()} - ours:
                os.waitpid(pid, os.WNOHANG)


def adopt_orphans() -> None:
    """Make daemons that our commands start our own children, so that we see them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """End every process that descends from this one, but for what :data:`PREPARING`
    has: TERM, then KILL after 10 s."""
    import psutil

    spared = {preparing.pid for preparing in PREPARING.values()}
    strays = []
    # Not all descendants less the spared ones: those change between two looks.
    for child in psutil.Process().children():
        if child.pid not in spared:
            with contextlib.suppress(psutil.NoSuchProcess):
                strays += [*child.children(recursive=True), child]
    for stray in strays:
        with contextlib.suppress(psutil.NoSuchProcess):
            stray.terminate()
    _, alive = psutil.wait_procs(strays, timeout=10)
    for stray in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            stray.kill()
    psutil.wait_procs(alive, timeout=10)


def check(tally: Tally, name: str, command: list[str], minutes: float = 10) -> None:
    """A command that passes or fails as a whole: one test."""
    status, _ = execute(command, minutes)
    if status:
        tally.fail(f'{name}: exit status {status}')
    else:
        tally.add(1, 0, 0)


def begin_check(name: str, command: list[str]) -> None:
    """Begin a command that runs beside the checks before :func:`end_check`."""
    with (RESULTS / f'{name}.log').open('w') as log:
        print(f'$ {" ".join(command)}', file=log, flush=True)
        PREPARING[name] = subprocess.Popen(command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=subprocess.STDOUT)


def end_check(tally: Tally, name: str, minutes: float = 10) -> None:
    """Wait for a command that :func:`begin_check` has begun, show its output and count it."""
    process = PREPARING[name]
    try:
        status = process.wait(minutes * 60)
    except subprocess.TimeoutExpired:
        status = 124
    del PREPARING[name]
    end_descendants()
    sys.stdout.write((RESULTS / f'{name}.log').read_text(errors='replace'))
    sys.stdout.flush()
    if status:
        tally.fail(f'{name}: exit status {status}')
    else:
        tally.add(1, 0, 0)


def pytest(tally: Tally, *arguments: str, name: str, python: str = PYTHON,
           minutes: float = 25, **variables: str) -> None:
    """A pytest run, counted by its own report; an empty or broken one is a failure."""
    report = RESULTS / f'{name}.xml'
    report.unlink(missing_ok=True)
    variables = {'KRONOS_TURN': choose_turn(read_commit()), **variables}
    status, _ = execute([python, '-m', 'pytest', '-q', '--no-header', f'--junitxml={report}',
                         *arguments], minutes, **variables)
    passed, failed, skipped = junit_counts(report)
    tally.add(passed, failed, skipped)
    tally.failures += junit_failures(report)
    tally.durations += junit_durations(report)
    if passed + failed + skipped == 0:
        tally.fail(f'{name}: ran no test')
    elif status and not failed:
        tally.fail(f'{name}: pytest ended with exit status {status}')


def junit_counts(report: Path) -> tuple[int, int, int]:
    """(passed, failed, skipped) of a JUnit file; zeros if it was never written."""
    if not report.exists():
        return 0, 0, 0
    failed = skipped = total = 0
    for suite in ElementTree.parse(report).getroot().iter('testsuite'):
        total += int(suite.get('tests', 0))
        failed += int(suite.get('failures', 0)) + int(suite.get('errors', 0))
        skipped += int(suite.get('skipped', 0))
    return total - failed - skipped, failed, skipped


def junit_failures(report: Path) -> Iterator[tuple[str, str]]:
    """Yield the tests of a JUnit file that failed, and their output."""
    if not report.exists():
        return
    for case in ElementTree.parse(report).getroot().iter('testcase'):
        for problem in case:
            if problem.tag in ('failure', 'error'):
                yield f'{case.get("classname")}::{case.get("name")}', problem.text or ''


def junit_durations(report: Path) -> Iterator[tuple[float, str]]:
    """Yield the seconds that each test of a JUnit file took, and its name."""
    if not report.exists():
        return
    for case in ElementTree.parse(report).getroot().iter('testcase'):
        yield float(case.get('time', 0)), f'{case.get("classname")}::{case.get("name")}'


class EndedTest(NamedTuple):
    """A test that has run; ``said`` is why it failed, None: it did not."""

    name: str
    seconds: float
    said: str | None


def stestr_tests(binaries: Path) -> list[EndedTest]:
    """Return the tests of stestr's last run."""
    import subunit
    import testtools

    found = []

    def ended(test: dict[str, Any]) -> None:
        began, over = test['timestamps']
        seconds = (over - began).total_seconds() if began and over else 0.0
        said = None
        if test['status'] in ('fail', 'uxsuccess'):
            said = '\n'.join(detail.as_text() for name, detail in sorted(test['details'].items())
                             if name.startswith('traceback'))
        found.append(EndedTest(test['id'], seconds, said))

    done = subprocess.run([str(binaries / 'stestr'), 'last', '--subunit'], cwd=TOP, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    result = testtools.StreamToDict(ended)
    result.startTestRun()
    subunit.ByteStreamToStreamResult(io.BytesIO(done.stdout)).run(result)
    result.stopTestRun()
    return found


def stestr_counts(output: str) -> tuple[int, int, int]:
    """(passed, failed, skipped) of the totals that stestr prints."""
    def count(label: str) -> int:
        found = re.findall(rf'^ - {label}: (\d+)$', output, re.MULTILINE)
        return int(found[-1]) if found else 0

    return (count('Passed') + count('Expected Fail'),
            count('Failed') + count('Unexpected Success'), count('Skipped'))


def lint(tally: Tally) -> None:
    """ruff, hacking, mypy, layers, words, release notes, samples, pins"""
    # It keeps one core busy, as most of the others do.
    begin_check('mypy', [str(BIN / 'mypy')])
    check(tally, 'ruff', [str(BIN / 'ruff'), 'check', '.'])
    check(tally, 'hacking', [str(BIN / 'flake8')])
    check(tally, 'layers', [str(BIN / 'lint-imports'), '--config', 'setup.cfg'])
    check(tally, 'words', [PYTHON, 'tools/check_words.py'])
    check(tally, 'image requirements', [PYTHON, 'tools/image_requirements.py'])
    check(tally, 'release notes', [str(BIN / 'reno'), '-q', 'lint'])
    check(tally, 'sample configuration', [PYTHON, 'tools/generate_samples.py', '--check'])
    check(tally, 'constraints', [PYTHON, 'tools/check_constraints.py'])
    for script in ('tools/test', 'tools/sandbox', 'tools/soak', 'tools/bootstrap.sh', '.ci/run'):
        check(tally, script, ['bash', '-n', script])
    end_check(tally, 'mypy')


def unit(tally: Tally) -> None:
    """unit tests, scenarios and simulation"""
    # Printed with the command, so that a failure can be repeated.
    first = os.environ.get('KRONOS_WORLD_FIRST') or str(choose_first_seed(read_commit()))
    examples = os.environ.get('KRONOS_TEST_EXAMPLES', UNIT_EXAMPLES)
    pytest(tally, *UNIT_WORKERS, *FAST_TESTS, name='unit', KRONOS_WORLD_FIRST=first,
           KRONOS_TEST_EXAMPLES=examples)


def read_commit() -> str:
    """Return the id of the commit that is checked out; '0': this is no checkout."""
    done = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=TOP, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.strip() if done.returncode == 0 else '0'


def choose_first_seed(commit: str) -> int:
    """Return the first seed of the range of :data:`WORLD_SEEDS` that a commit runs."""
    return WORLD_SEEDS * (int(commit, 16) % WORLD_RANGES)


def choose_turn(commit: str) -> str:
    """Return the turn of the tests that take turns; ``KRONOS_TURN`` repeats one."""
    return os.environ.get('KRONOS_TURN') or str(int(commit, 16) // 64 % TURNS)


def choose_python(commit: str, versions: list[str]) -> str | None:
    """Return the other Python that a commit runs the pure tests on.

    :param versions: those that are installed. None is returned for an empty list.
    """
    if os.environ.get('KRONOS_PYTHON') in versions:
        return os.environ['KRONOS_PYTHON']
    return versions[int(commit, 16) // 8 % len(versions)] if versions else None


def functional(tally: Tally) -> None:
    """real Nova on its own in-process fixtures (stestr); both doors on eventlet"""
    if not (TOP / '.stestr').exists():
        execute([PYTHON, 'tools/stestr_times.py'], minutes=2)
    stestr(tally, '--exclude-regex', LONG_FUNCTIONAL, name='functional')
    stestr(tally, r'test_base\.|test_filters\.CeilingTestCase\.test_host_above_ceiling|'
           r'test_weigher\.FollowScoresTestCase\.test_boots_follow', name='eventlet',
           minutes=10, eventlet=True, workers=2)


def stestr(tally: Tally, *arguments: str, name: str, minutes: float = 25, binaries: Path = BIN,
           eventlet: bool = False, workers: int = 4, **variables: str) -> None:
    """Run stestr and count by its output; an empty or broken one is a failure.

    :param binaries: of the environment to run it in.
    :param eventlet: Nova on eventlet, not on native threads.
    :param workers: each process of stestr loads Nova.
    """
    variables = {'KRONOS_TURN': choose_turn(read_commit()), **variables}
    status, output = execute(
        [str(binaries / 'stestr'), 'run', '--concurrency', str(workers), *arguments], minutes,
        OS_NOVA_DISABLE_EVENTLET_PATCHING=str(int(not eventlet)),
        PATH=f'{binaries}{os.pathsep}{os.environ["PATH"]}', **variables)
    passed, failed, skipped = stestr_counts(output)
    tally.add(passed, failed, skipped)
    for test in stestr_tests(binaries) if passed + failed else ():
        if test.said is not None:
            tally.failures.append((test.name, test.said))
        tally.durations.append((test.seconds, test.name))
    if passed + failed + skipped == 0:
        tally.fail(f'{name}: ran no test')
    elif status and not failed:
        tally.fail(f'{name}: stestr ended with exit status {status}')


def integration(tally: Tally) -> None:
    """real services on loopback"""
    # A file's daemons serve its tests; four files at a time, for daemons are waited for.
    pytest(tally, '-n', '4', '--dist', 'loadfile', '--no-loadscope-reorder', 'tests/integration',
           name='integration', minutes=25)


def docs(tally: Tally) -> None:
    """documentation and release notes without a warning; their examples"""
    sphinx = [PYTHON, '-m', 'sphinx', '-W', '--keep-going', '-q', '-b', 'html']
    check(tally, 'documentation', [*sphinx, 'doc/source', 'doc/build/html'])
    check(tally, 'release notes', [*sphinx, 'releasenotes/source', 'doc/build/releasenotes'])
    # The tests of a file share a page that Sphinx has built, and an installation.
    pytest(tally, '-n', '3', '--dist', 'loadfile', 'tests/docs', name='docs')


def package(tally: Tally) -> None:
    """wheel and sdist: contents, entry points, a clean installation"""
    pytest(tally, 'tests/package', name='package')


def deploy(tally: Tally) -> None:
    """our files in kolla, kolla-ansible and the like"""
    # Two halves; the tests of a file share its rendered files, and two files one deployment.
    pytest(tally, '-n', '2', '--dist', 'loadgroup', 'tests/deploy', name='deploy')


def libvirt(tally: Tally) -> None:
    """our migrations on two hosts of libvirt and QEMU, as root"""
    pytest(tally, HYPERVISORS, name='libvirt', minutes=25)


def gate(tally: Tally) -> None:
    """jobs of Zuul by their playbooks, and phases of the devstack plugin by DevStack's functions"""
    pytest(tally, GATE_TESTS, name='gate', minutes=60)


def deploy_older(tally: Tally) -> None:
    """Render and check the role with older series of kolla-ansible."""
    for series in OLDER_KOLLAS:
        pytest(tally, *EVERY_TEST, '-n', '2', '--dist', 'loadfile',
               *(f'tests/deploy/test_kolla_{name}.py' for name in ('ansible', 'plain', 'actions')),
               name=f'long-kolla{series}', KRONOS_KOLLA=series)


def containers(tally: Tally) -> None:
    """images of our daemons, built and run by podman against the sandbox"""
    measured = RESULTS / 'containers.txt'
    measured.unlink(missing_ok=True)
    pytest(tally, '-m', 'long', CONTAINER_TESTS, name='containers', minutes=60)
    if measured.exists():
        tally.remarks += measured.read_text().splitlines()


def pythons(tally: Tally, whole: bool = False) -> None:
    """an import of all and pure unit tests on another Python, in turns by the commit"""
    found = other_pythons()
    for version in OTHER_PYTHONS:
        if version not in found and CONTINUOUS_INTEGRATION:
            tally.fail(f'Python {version} is not installed')
        elif version not in found:
            tally.skip(f'Python {version} is not installed')
    used = found if whole else pick_python(found)
    if make_pythons(used):
        tally.fail(f'no virtual environments for Python {", ".join(used)}')
        return
    for version, (_, venv) in used.items():
        # A quarter of the random examples finds what a Python does differently.
        tests = (*EVERY_TEST, *UNIT_TESTS) if whole else PURE_TESTS
        pytest(tally, *WORKERS, *tests,
               name=f'python{version}', python=str(venv / 'bin/python'),
               KRONOS_TEST_EXAMPLES='0.25')


def other_pythons() -> dict[str, tuple[str, Path]]:
    """Version -> interpreter, and where its virtual environment is, for each one installed here."""
    found = {version: find_python(version) for version in OTHER_PYTHONS}
    return {version: (python, TOP / '.pythons' / version)
            for version, python in found.items() if python is not None}


def pick_python(found: dict[str, tuple[str, Path]]) -> dict[str, tuple[str, Path]]:
    """Return the one that this commit runs the pure tests on; none: none is installed."""
    chosen = choose_python(read_commit(), list(found))
    return {version: both for version, both in found.items() if version == chosen}


def making_pythons(found: dict[str, tuple[str, Path]], stage: str = '') -> list[str]:
    """The command that makes their virtual environments, all at once: pip waits for the
    network and the disk most of the time.

    :param stage: ``prepare`` for all but the project, which writes into the checkout.
    """
    (TOP / '.pythons').mkdir(exist_ok=True)
    return ['bash', '-c', '. tools/bootstrap.sh; stage=$1; shift; made=() good=0; '
            'while [ $# -gt 0 ]; do make_venv "$1" "$2" "$stage" & made+=($!); shift 2; done; '
            'for each in "${made[@]}"; do wait "$each" || good=1; done; exit $good', 'bash', stage,
            *(str(part) for pair in found.values() for part in pair)]


def prepare_pythons() -> None:
    """Begin to make that of this commit beside earlier parts, with a low priority; nothing of the
    checkout changes under their tests."""
    with (RESULTS / 'pythons.log').open('wb') as log:
        PREPARING['pythons'] = subprocess.Popen(
            ['nice', '-n', '19', *making_pythons(pick_python(other_pythons()), 'prepare')], cwd=TOP,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def make_pythons(found: dict[str, tuple[str, Path]]) -> int:
    """Exit status; where they are begun, of the command that has been making them."""
    preparing = PREPARING.get('pythons')
    if preparing is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            preparing.wait(timeout=15 * 60)
        del PREPARING['pythons']
        sys.stdout.write((RESULTS / 'pythons.log').read_text(errors='replace'))
        sys.stdout.flush()
        end_descendants()
    # Only the project is left to install where that was done.
    return execute(making_pythons(found), minutes=15)[0]


def begin_beside(name: str) -> None:
    """Begin a later part with what the present one leaves of the processors, in a runner of its
    own, which ends its own strays."""
    answer = RESULTS / f'{name}.json'
    answer.unlink(missing_ok=True)
    with (RESULTS / f'{name}.log').open('wb') as log:
        PREPARING[name] = subprocess.Popen(
            ['nice', '-n', '10', PYTHON, str(Path(__file__).resolve()), '--answer', str(answer),
             name], cwd=TOP, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def end_beside(name: str, tally: Tally) -> None:
    """Wait for a part that has been running, show its output and take over its counts."""
    process = PREPARING[name]
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=25 * 60)
    del PREPARING[name]
    end_descendants()
    sys.stdout.write((RESULTS / f'{name}.log').read_text(errors='replace'))
    sys.stdout.flush()
    answer = RESULTS / f'{name}.json'
    if answer.exists():
        vars(tally).update(json.loads(answer.read_text()))
    else:
        tally.fail(f'{name}: ended without a result')


def novas(tally: Tally) -> None:
    """the two doors and the executor beside older Novas"""
    if os.environ.get('KRONOS_NOVAS_WHOLE'):
        older(tally, *WHOLE, name='whole-nova', minutes=60)
    else:
        older(tally, '--include-list', 'tools/nova-tests.txt', name='nova', minutes=10)


def older(tally: Tally, *arguments: str, name: str, minutes: float) -> None:
    """Run the functional tests and the parity tests of filters beside each older Nova."""
    wanted = os.environ.get('KRONOS_NOVAS', ' '.join(OLDER_NOVAS)).split()
    here = []
    for series in wanted:
        if series not in OLDER_NOVAS:
            tally.fail(f'KRONOS_NOVAS: {series!r} is none of {", ".join(OLDER_NOVAS)}')
        elif sys.version_info[:2] not in OLDER_NOVAS[series]:
            (tally.fail if CONTINUOUS_INTEGRATION else tally.skip)(
                f'Nova {series} does not declare Python {sys.version.split()[0]}')
        else:
            here.append(series)
    if not here:
        return
    if execute([PYTHON, 'tools/novas.py', *here], minutes=20)[0]:
        tally.fail(f'no virtual environments for Nova {", ".join(here)}')
        return
    for series in here:
        binaries = TOP / f'.pythons/nova-{series}/bin'
        stestr(tally, *arguments, name=f'{name}{series}', minutes=minutes, binaries=binaries,
               eventlet=True)
        pytest(tally, *WORKERS, *NOVA_UNIT_TESTS, name=f'{name}{series}-unit',
               python=str(binaries / 'python'), KRONOS_TEST_EXAMPLES='0.1')


def long(tally: Tally) -> None:
    """all that the default leaves out, and twenty times the fuzzing"""
    for name in os.environ.get('KRONOS_LONG', ' '.join(LONG_STEPS)).split():
        if name in LONG_STEPS:
            LONG_STEPS[name](tally)
        else:
            tally.fail(f'KRONOS_LONG: {name!r} is none of {", ".join(LONG_STEPS)}')


def simulate_long(tally: Tally) -> None:
    pytest(tally, *LEFT_OUT, *WORKERS, SIMULATION, name='long-simulation', minutes=170)


def run_marked(tally: Tally) -> None:
    """Run the tests that are marked long or mutant but for those that have a step of their own."""
    pytest(tally, *LEFT_OUT, 'tests', *(f'--ignore={directory}' for directory in (
        SIMULATION, FUNCTIONAL, HYPERVISORS, CONTAINER_TESTS)), name='long', minutes=150)


def try_hypervisors(tally: Tally) -> None:
    pytest(tally, *EVERY_TEST, HYPERVISORS, name='long-libvirt', minutes=120)


def pass_compressed_day(tally: Tally) -> None:
    check(tally, 'a compressed day', [
        PYTHON, '-m', 'tools.cloud.soak.main', '--day-in-minutes', '20'], minutes=60)


def run_long_functional(tally: Tally) -> None:
    stestr(tally, LEFT_OUT_FUNCTIONAL, name='long-functional', minutes=60)


def fuzz(tally: Tally) -> None:
    examples = os.environ.get('KRONOS_TEST_EXAMPLES', '20')
    pytest(tally, 'tests/unit/fuzz', name='long-fuzz', minutes=60, KRONOS_TEST_EXAMPLES=examples)
    pytest(tally, *WORKERS, *UNIT_TESTS, name='long-examples', minutes=60,
           KRONOS_TEST_EXAMPLES='1')
    stestr(tally, 'test_bursts', name='long-bursts', minutes=60, KRONOS_TEST_EXAMPLES=examples)


def plan_at_random(tally: Tally) -> None:
    check(tally, 'random plans', [PYTHON, 'tools/random_plans.py', '--plans', '500'], minutes=240)


def try_older_novas(tally: Tally) -> None:
    older(tally, *WHOLE, name='long-nova', minutes=60)


def try_all_on_pythons(tally: Tally) -> None:
    pythons(tally, whole=True)


def try_tox_environments(tally: Tally) -> None:
    for environment in ('lower-constraints', 'sbom'):
        check(tally, f'tox -e {environment}', [
            PYTHON, '-m', 'tests.deploy.checkers', 'tox', '-e', environment], minutes=60)
    audit(tally)


def try_beside_ancestor(tally: Tally) -> None:
    """Run the tests that start Kronos 0.2.0 itself.

    ``KRONOS_ANCESTOR`` names the directory of its commands; else it is installed. A machine
    that cannot do that skips them, and a gate fails.
    """
    directory = os.environ.get('KRONOS_ANCESTOR') or install_ancestor()
    if directory is None:
        (tally.fail if CONTINUOUS_INTEGRATION else tally.skip)(
            f'{ANCESTOR} cannot be installed; it needs Python {ANCESTOR_PYTHON}')
        return
    pytest(tally, *EVERY_TEST, *ANCESTOR_TESTS, name='long-ancestor', minutes=30,
           KRONOS_ANCESTOR=directory)


def install_ancestor() -> str | None:
    """Return the directory of Kronos 0.2.0's commands; None: it cannot be installed."""
    python = find_python(ANCESTOR_PYTHON)
    if python is None:
        return None
    directory = TOP / '.pythons/ancestor'
    installed = directory / 'installed'
    if not installed.exists():
        for command in ([python, '-m', 'venv', '--clear', str(directory)],
                        [str(directory / 'bin/pip'), 'install', '-q', ANCESTOR]):
            if execute(command, minutes=10)[0]:
                return None
        installed.parent.mkdir(parents=True, exist_ok=True)
        installed.touch()
    return str(directory / 'bin')


def audit(tally: Tally) -> None:
    """Ask a vulnerability database about the versions that users install.

    A database that does not answer is a skip on a machine without a network, and a failure in a
    gate.
    """
    status, output = execute([PYTHON, '-m', 'tests.deploy.checkers', 'tox', '-e', 'audit'], 20)
    unanswered = re.findall(r'^audit: not done: (.*)$', output, re.MULTILINE)
    if status == 0:
        tally.add(1, 0, 0)
    elif unanswered and not re.search(r'^audit: .*known vulnerabilit', output, re.MULTILINE) \
            and not CONTINUOUS_INTEGRATION:
        tally.skip(f'tox -e audit: the vulnerability database did not answer: {unanswered[0]}')
    else:
        tally.fail('tox -e audit')


def find_python(version: str) -> str | None:
    """An interpreter of that minor version: PATH, the system's, or pyenv's."""
    name = f'python{version}'
    pyenv = Path(os.environ.get('PYENV_ROOT', Path.home() / '.pyenv'))
    found = sorted(pyenv.glob(f'versions/{version}.*/bin/{name}'))
    code = ('import ensurepip, sys, venv; '
            'print("%d.%d" % sys.version_info[:2])')
    for candidate in (name, f'/usr/bin/{name}', *map(str, found)):
        with contextlib.suppress(OSError):
            done = subprocess.run([candidate, '-c', code], capture_output=True, text=True,
                                  check=False)
            if done.returncode == 0 and done.stdout.strip() == version:
                return candidate
    return None


#: `tools/test long`, step by step. KRONOS_LONG names some steps, as Zuul's periodic jobs do
#: (.zuul.yaml).
LONG_STEPS: dict[str, Callable[[Tally], None]] = {
    'simulation': simulate_long, 'marked': run_marked, 'functional': run_long_functional,
    'fuzz': fuzz, 'plans': plan_at_random, 'novas': try_older_novas,
    'ancestor': try_beside_ancestor, 'kolla': deploy_older, 'containers': containers,
    'pythons': try_all_on_pythons, 'tox': try_tox_environments, 'libvirt': try_hypervisors,
    'soak': pass_compressed_day, 'gate': gate}

PARTS: dict[str, Callable[[Tally], None]] = {
    part.__name__: part
    for part in (lint, unit, functional, integration, docs, package, deploy, pythons, novas,
                 libvirt, containers, gate, long)
}
#: A gate runs the older Novas as jobs of their own (.zuul.yaml).
DEFAULT = tuple(name for name in PARTS
                if name not in ('novas', 'libvirt', 'containers', 'gate', 'long'))


def arguments() -> argparse.Namespace:
    width = max(map(len, PARTS))
    listing = '\n'.join(f'  {name:<{width}}  {part.__doc__}' for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog='tools/test', formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Run the tests: the parts named, or all but "novas", "libvirt", "containers", '
                    '"gate" and "long". A gate adds jobs for older Novas ("novas") and lower '
                    'bounds (in "long").',
        epilog=f'parts:\n{listing}')
    parser.add_argument('parts', nargs='*', metavar='PART', help='see below')
    parser.add_argument('--check', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--answer', metavar='FILE', help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    unknown = [part for part in parsed.parts if part not in PARTS]
    if unknown:
        parser.error(f'no such part: {", ".join(unknown)}; there are: {", ".join(PARTS)}')
    parsed.parts = parsed.parts or list(DEFAULT)
    return parsed


def run(names: list[str], tallies: dict[str, Tally]) -> None:
    if 'pythons' in names[1:]:
        prepare_pythons()
    for number, name in enumerate(names):
        print(f'\n=== {name}: {PARTS[name].__doc__}', flush=True)
        tallies[name] = tally = Tally()
        started, used = time.monotonic(), processor_seconds()
        if BESIDE.get(name) in names[number + 1:]:
            begin_beside(BESIDE[name])
        try:
            if name in BESIDE.values() and name in PREPARING:
                end_beside(name, tally)
            else:
                PARTS[name](tally)
            if tally.passed + tally.failed == 0 and not tally.skipped:
                tally.fail(f'{name}: ran no test')
        finally:
            end_descendants()
            tally.seconds = time.monotonic() - started
            tally.processor_seconds = processor_seconds() - used
        print(f'=== {name}: {tally.seconds / 60:.1f} minutes', flush=True)


def processor_seconds() -> float:
    """What all descendants that have ended and been waited for have used."""
    times = os.times()
    return times.children_user + times.children_system


def summary(tallies: dict[str, Tally]) -> Iterator[str]:
    """What failed, the slowest tests, the table, the remarks, and the closing line alone on
    its line."""
    failures = [(name, *failure) for name, tally in tallies.items() for failure in tally.failures]
    for name, test, said in failures[:SHOWN_FAILURES]:
        yield f'--- {name}: failed: {test}'
        yield from said.rstrip().splitlines()[-SHOWN_LINES:]
    if len(failures) > SHOWN_FAILURES:
        yield f'--- and {len(failures) - SHOWN_FAILURES} more, above'
    if failures:
        yield ''
    durations = [(seconds, name, test) for name, tally in tallies.items()
                 for seconds, test in tally.durations]
    if durations:
        yield 'slowest tests, seconds:'
        for seconds, name, test in sorted(durations, reverse=True)[:SHOWN_SLOWEST]:
            yield f'{seconds:>8.1f}  {name}: {test}'
        yield ''
    yield (f'{"part":<12} {"minutes":>8} {"of cpu":>8} {"passed":>8} {"failed":>8} '
           f'{"skipped":>8}')
    for name, tally in tallies.items():
        yield (f'{name:<12} {tally.seconds / 60:>8.1f} {tally.processor_seconds / 60:>8.1f} '
               f'{tally.passed:>8} {tally.failed:>8} {tally.skipped:>8}')
    seconds, used = (sum(getattr(tally, field) for tally in tallies.values())
                     for field in ('seconds', 'processor_seconds'))
    yield f'{"together":<12} {seconds / 60:>8.1f} {used / 60:>8.1f}'
    for name, tally in tallies.items():
        for remark in tally.remarks:
            yield f'{name}: {remark}'
    passed, failed, skipped = (
        sum(getattr(tally, field) for tally in tallies.values())
        for field in ('passed', 'failed', 'skipped'))
    yield ''
    yield f'{passed} passed, {failed} failed, {skipped} skipped'


def interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parsed = arguments()
    if parsed.check:
        return 0
    adopt_orphans()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, interrupt)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / 'lock').open('w') as lock:
        if not parsed.answer:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f'tools/test: another run of tools/test uses {RESULTS}; wait for its end, '
                      f'or run this one in a clone of its own.', file=sys.stderr)
                return 1
        return run_parts(parsed)


def run_parts(parsed: argparse.Namespace) -> int:
    tallies: dict[str, Tally] = {}
    status = 0
    try:
        run(list(dict.fromkeys(parsed.parts)), tallies)
    except KeyboardInterrupt:
        tallies.setdefault(next(reversed(tallies), parsed.parts[0]), Tally()).fail('interrupted')
        status = 130
    finally:
        PREPARING.clear()
        end_descendants()
    if parsed.answer:
        # The runner that began this one shows the rest.
        (tally,) = tallies.values()
        Path(parsed.answer).write_text(json.dumps(dataclasses.asdict(tally)))
        return status
    print()
    for line in summary(tallies):
        print(line)
    if not status and any(tally.failed for tally in tallies.values()):
        status = 1
    return status


if __name__ == '__main__':
    sys.exit(main())
