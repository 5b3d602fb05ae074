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

"""Zuul's configuration, judged by zuulcilint and by Zuul's own configuration loader;
what a job runs is there; and the steps of the live-migration job among stubs."""

import configparser
import json
import os
from pathlib import Path
import re
import subprocess

import pytest

from tests.deploy import checkers
from tools import run_tests

TOP = Path(__file__).resolve().parents[2]
ZUUL = TOP / '.zuul.yaml'
REBALANCE = TOP / 'playbooks/live-migration/rebalance.sh'

OURS = {'kronos-nova-functional-eventlet', 'kronos-nova-functional-nova32',
        'kronos-nova-functional-nova33', 'kronos-nova-functional-py313',
        'kronos-nova-kolla-ansible-config', 'kronos-nova-live-migration',
        'kronos-nova-lower-constraints'}
#: Steps of `tools/test long`.
LONG = {f'kronos-nova-long-{step}' for step in run_tests.LONG_STEPS
        if step not in ('novas', 'pythons', 'containers')}
#: Of openstack-zuul-jobs.
THEIRS = {'openstack-tox-pep8', 'openstack-tox-py311', 'openstack-tox-py312',
          'openstack-tox-py313', 'openstack-tox-functional-py311',
          'openstack-tox-functional-py312'}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                          cwd=TOP)


def load(*paths: Path) -> list[dict]:
    done = run(checkers.program('python'), Path(__file__).with_name('zuul_load.py'), *paths)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope='module')
def loaded() -> dict:
    return load(ZUUL)[0]


def test_zuul_loader_accepts_configuration(loaded):
    assert loaded['errors'] == []
    assert set(loaded['jobs']) == OURS | LONG | {'kronos-nova-long'}
    assert set(loaded['pipelines']['check']) == OURS | THEIRS
    assert set(loaded['pipelines']['periodic']) == LONG
    assert set(loaded['templates']) == {
        'check-requirements', 'publish-openstack-docs-pti', 'release-notes-jobs-python3'}


@pytest.mark.turns(3)
def test_zuul_loader_finds_each_error(tmp_path):
    text = ZUUL.read_text()
    paths, expected = [], []
    for good, bad, named in (
            ('timeout: 10800', 'timeout: soon', 'timeout'),
            ('    parent: openstack-tox', '    parents: openstack-tox', 'parents'),
            ('- publish-openstack-docs-pti', '- 5', 'templates'),
            ('        - openstack-tox-pep8', '        - openstack-tox-pep8: {vote: 1}', 'jobs'),
            ('- ^doc/.*$', '- ^(doc/.*$', 'missing ')):
        assert good in text
        paths.append(tmp_path / f'{len(paths)}.yaml')
        paths[-1].write_text(text.replace(good, bad))
        expected.append(named)
    for found, named in zip(load(*paths), expected, strict=True):
        assert any(named in error for error in found['errors']), named


def test_zuulcilint_accepts_configuration(tmp_path):
    lint = checkers.program('zuulcilint')
    done = run(lint, '--warnings-as-errors', '--check-playbook-paths', ZUUL)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / '.zuul.yaml'
    wrong.write_text(ZUUL.read_text().replace('timeout: 10800', 'timeout: soon'))
    assert run(lint, wrong).returncode != 0


def test_every_playbook_exists_with_valid_syntax(loaded):
    for name in (path for job in loaded['jobs'].values() for path in job['run']):
        done = run(checkers.program('ansible-playbook'), '--syntax-check', TOP / name)
        assert done.returncode == 0, done.stderr


def gated(loaded: dict) -> set[str]:
    """Every tox environment that a job runs."""
    jobs = {job for jobs in loaded['pipelines'].values() for job in jobs}
    wanted = {name.removeprefix('openstack-tox-') for name in jobs
              if name.startswith('openstack-tox-')}
    return wanted | {job['vars']['tox_envlist'] for job in loaded['jobs'].values()
                     if job['parent'].startswith(('openstack-tox', 'kronos-nova-long'))
                     and 'tox_envlist' in job['vars']}


def test_every_tox_job_has_its_environment(loaded):
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(TOP / 'tox.ini')
    known = set()
    for section in tox.sections():
        name = section.removeprefix('testenv:')
        match = re.fullmatch(r'([^{]*)\{([^}]*)\}', name)
        known |= {match[1] + part for part in match[2].split(',')} if match else {name}
    wanted = gated(loaded)
    assert wanted == {'deploy', 'functional-eventlet', 'functional-nova32', 'functional-nova33',
                      'functional-py311', 'functional-py312', 'functional-py313',
                      'lower-constraints', 'pep8', 'py311', 'py312', 'py313',
                      *(name.removeprefix('kronos-nova-') for name in LONG)}
    assert {name for name in wanted if not re.fullmatch(r'py3\d+', name)} <= known
    # The constraints that Zuul hands to its tox jobs are the upper ones.
    assert '{env:TOX_CONSTRAINTS_FILE:' in tox['testenv']['deps']


def test_jobs_fail_instead_of_skipping(loaded):
    """Every environment sets CI, except those whose tests never skip a missing program."""
    strict = sorted((gated(loaded) | {'integration'}) - {'pep8', 'functional-eventlet'})
    done = subprocess.run(
        [checkers.program('tox'), 'config', '-e', ','.join(strict), '-k', 'set_env'], cwd=TOP,
        capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != 'CI'})
    assert done.returncode == 0, done.stdout + done.stderr
    found = configparser.ConfigParser(interpolation=None)
    found.read_string(done.stdout)
    assert {name.removeprefix('testenv:') for name in found.sections()
            if 'CI=true' in found[name]['set_env'].split()} == set(strict)


def test_check_and_gate_run_same_jobs(loaded):
    assert loaded['pipelines']['check'] == loaded['pipelines']['gate']
    assert set(loaded['pipelines']['gate']) >= OURS


def test_each_periodic_job_runs_its_step_of_the_long_tests(loaded):
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(TOP / 'tox.ini')
    (section,) = (name for name in tox.sections() if name.startswith('testenv:long-'))
    for name in LONG:
        step = name.removeprefix('kronos-nova-long-')
        variables = dict(loaded['jobs'][name]['vars'])
        if step == 'gate':
            # Where Zuul puts the checkouts of its required-projects.
            assert variables.pop('tox_environment') == {
                'KRONOS_GATE_SOURCES': '{{ ansible_user_dir }}/src/opendev.org'}
        assert variables == {'tox_envlist': f'long-{step}'}
        assert f'{step}: KRONOS_LONG={step}' in tox[section]['setenv']
    assert tox[section]['commands'].strip() == 'python tools/run_tests.py long'


def test_job_settings_exist_in_devstack_plugin(loaded):
    settings = (TOP / 'devstack/settings').read_text()
    for name in loaded['jobs']['kronos-nova-live-migration']['vars']['devstack_localrc']:
        assert f'{name}=${{{name}:-' in settings


def test_bashate_passes():
    done = run(checkers.program('bashate'), '-i', 'E006', '-e', 'E005,E042', REBALANCE)
    assert (done.returncode, done.stdout) == (0, ''), done.stderr


@pytest.fixture
def cloud(tmp_path):
    """Runs the script on a cloud of two hosts that files describe: openstack, kronos
    and curl are programs of a few lines."""
    for name, text in {
        'openstack': f'''
            case "$*" in
                *"flavor create"* | *"server delete"*) ;;
                *"image list"*) echo cirros-0.6.3 ;;
                *"endpoint list --service rebalance --interface public"*) echo http://api ;;
                *"token issue"*) echo a-token ;;
                *"server create"*) echo "$*" >> {tmp_path}/created ;;
                *"server show"*) cat {tmp_path}/calm ;;
                *"server list --host"*) cat {tmp_path}/moved ;;
                *"server list --long"*) echo kronos-rebalance-calm ;;
                *) exit 9 ;;
            esac''',
        'kronos': f'''
            case "$1 $2" in
                "task list") cat {tmp_path}/tasks ;;
                "pause --config-file") echo "$*" > {tmp_path}/paused ;;
                *) exit 9 ;;
            esac''',
        'curl': f'''
            case "$*" in
                *readyz*) echo '{{"status": "ok"}}' ;;
                *query*) cat {tmp_path}/scores ;;
                *"X-Auth-Token: a-token http://api/v1/tasks"*) cat {tmp_path}/api ;;
                *) exit 9 ;;
            esac''',
        'nproc': 'echo 4'}.items():
        program = tmp_path / 'bin' / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\n{text}\n')
        program.chmod(0o755)

    def scores(busy: float, idle: float) -> None:
        (tmp_path / 'scores').write_text(json.dumps({'data': {'result': [
            {'metric': {'nodename': name}, 'value': [0, str(value)]}
            for name, value in (('one', busy), ('two', idle))]}}))

    def watch() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ['bash', str(REBALANCE), 'one', 'two', str(tmp_path / 'output')], text=True,
            capture_output=True, check=False, stdin=subprocess.DEVNULL,
            env={'PATH': f'{tmp_path}/bin:{os.environ["PATH"]}', 'KRONOS_PATIENCE': '0',
                 'KRONOS_PAUSE': '0'})

    scores(0.6, 0.1)
    (tmp_path / 'calm').write_text('two\n')
    (tmp_path / 'tasks').write_text('t1 _unassigned_ i1 one two spread live submitted - \n')
    (tmp_path / 'moved').write_text('i1\n')
    (tmp_path / 'api').write_text('{"tasks": [{"instance_id": "i1"}], "next": null}')
    watch.scores = scores
    return watch


def test_playbook_detects_rebalance(cloud, tmp_path):
    done = cloud()
    assert done.returncode == 0, done.stdout + done.stderr
    created = (tmp_path / 'created').read_text().splitlines()
    assert [('--host one' in line, 'busy.sh' in line) for line in created] == [
        (True, True), (True, True), (False, False)]
    assert '--reason' in (tmp_path / 'paused').read_text()
    assert 'rebalanced: i1' in done.stdout


@pytest.mark.parametrize(('file', 'text', 'said'), [
    ('calm', 'one\n', 'a new instance was booted there'),
    ('moved', '', 'not within 0 s: a busy instance is on two'),
    ('tasks', '', 'has not shown a task'),
    ('api', '{"tasks": [{"instance_id": "i2"}]}', 'not within 0 s: kronos-api tells of the task')])
@pytest.mark.turns(3)
def test_missing_step_fails_job(cloud, tmp_path, file, text, said):
    (tmp_path / file).write_text(text)
    done = cloud()
    assert done.returncode == 1
    assert said in done.stdout


@pytest.mark.turns(3)
def test_equally_busy_hosts_fail_job(cloud):
    cloud.scores(0.6, 0.5)
    done = cloud()
    assert done.returncode == 1
    assert 'not within 0 s: one is busier than two' in done.stdout
