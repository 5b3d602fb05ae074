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

"""The tox jobs of the gate: frozen by Zuul's own models, run by ansible-playbook on this machine.

Real are the inheritance of jobs, the playbooks and roles of zuul-jobs, the variables, bindep, tox
and the environments of tox. Packages of the distribution are recorded, not installed; sudo refuses,
so that nothing is there to revoke. The machine's own user runs everything, with a home of its own.
"""

import functools
import json
import os
from pathlib import Path
import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.deploy import checkers
from tests.gate import sources

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PROJECT = 'opendev.org/openstack/kronos-nova'
PHASES = ('pre_run', 'run', 'post_run')
#: The job of the unit tests has the Python that runs these.
VERSION = f'{sys.version_info.major}.{sys.version_info.minor}'
ENVIRONMENT = 'py' + VERSION.replace('.', '')
#: All that runs of it here: the whole is `tools/test unit`.
SELECTION = 'tests/unit/test_packaging.py'

#: An environment of tox takes minutes to install.
pytestmark = pytest.mark.timeout(1800)


def list_jobs() -> list[str]:
    """Return the jobs of all pipelines that are tox jobs."""
    (project,) = (entry['project'] for entry in yaml.safe_load((TOP / '.zuul.yaml').read_text())
                  if 'project' in entry)
    names = {name for pipeline in ('check', 'gate', 'periodic')
             for name in project[pipeline]['jobs']}
    return sorted(names - {'kronos-nova-live-migration'})


@functools.cache
def freeze_jobs() -> dict[str, Any]:
    directory = sources.find_checkout('zuul/zuul-jobs').parents[1]
    sources.find_checkout('openstack/openstack-zuul-jobs')
    done = subprocess.run(
        [checkers.program('python'), HERE / 'freeze_jobs.py', directory, *list_jobs()],
        capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


class ZuulNode:
    """A node as an executor prepares it: a home with the change, and an inventory."""

    def __init__(self, home: Path, job: str) -> None:
        self.home = home
        self.job = freeze_jobs()[job]
        self.calls = home / 'calls'
        self.logs = home / 'executor-logs'
        self.returned = home / 'result.json'
        self.work = home / 'src' / PROJECT
        self.roles = sources.find_checkout('zuul/zuul-jobs') / 'roles'
        self._prepare_projects()
        self._prepare_programs()
        self.logs.mkdir()
        (home / 'zuul-output/logs').mkdir(parents=True)
        (home / 'inventory.yaml').write_text(yaml.safe_dump({'all': {
            'hosts': {'node': {'ansible_connection': 'local'}},
            'vars': {**self.job['variables'], 'zuul': self._describe_build(job)}}}))

    def _prepare_projects(self) -> None:
        self.work.parent.mkdir(parents=True)
        subprocess.run(['git', 'clone', '-q', '--shared', str(TOP), str(self.work)], check=True)
        # Of OpenStack's requirements this file alone; ours, as those are in no package index.
        requirements = self.home / 'src/opendev.org/openstack/requirements'
        requirements.mkdir()
        (requirements / 'upper-constraints.txt').write_bytes(
            (TOP / 'constraints.txt').read_bytes())

    def _prepare_programs(self) -> None:
        (self.home / 'bin').mkdir()
        sudo = self.home / 'bin/sudo'
        sudo.write_text('#!/bin/sh\nexit 1\n')
        sudo.chmod(0o755)
        actions = self.home / 'actions'
        actions.mkdir()
        for name in ('package', 'apt', 'synchronize'):
            (actions / f'{name}.py').symlink_to(HERE / 'actions/package.py')
        (zuul_return,) = checkers.home().glob(
            'lib/python*/site-packages/zuul/ansible/base/action/zuul_return.py')
        (actions / 'zuul_return.py').symlink_to(zuul_return)
        # Where this machine's pip finds its index.
        configured = Path.home() / '.config/pip'
        if configured.exists():
            (self.home / '.config').mkdir()
            (self.home / '.config/pip').symlink_to(configured)

    def _describe_build(self, job: str) -> dict[str, Any]:
        project = {'name': 'openstack/kronos-nova', 'short_name': 'kronos-nova',
                   'canonical_hostname': 'opendev.org', 'canonical_name': PROJECT,
                   'src_dir': f'src/{PROJECT}', 'required': False, 'checkout': 'master'}
        return {'build': '0' * 32, 'job': job, 'branch': 'master', 'pipeline': 'check',
                'tenant': 'openstack', 'voting': True, 'jobtags': [],
                'project': project, 'projects': {PROJECT: project, **{
                    name: {**project, 'name': name.partition('/')[2], 'canonical_name': name,
                           'short_name': Path(name).name, 'required': True,
                           'src_dir': str(self.home / 'src' / name)}
                    for name in self.job['required_projects']}},
                'executor': {'log_root': str(self.logs), 'work_root': str(self.home),
                             'hostname': 'localhost', 'result_data_file': str(self.returned)}}

    def run_phase(self, phase: str, **variables: Any) -> tuple[int, str]:
        """Run the playbooks of a phase until one fails; return status and output."""
        output = ''
        for project, path in self.job[phase]:
            top = self.work if project == 'openstack/kronos-nova' else (
                sources.find_checkout(project))
            status, said = self._play(top / path, variables)
            output += said
            if status:
                return status, output
        return 0, output

    def _play(self, playbook: Path, variables: dict[str, Any]) -> tuple[int, str]:
        # A connection by SSH begins in the home; one on this machine beside the playbook.
        given = {'ansible_user_dir': str(self.home), 'zuul_work_dir': str(self.work),
                 'zuul_site_use_fetch_output': True,
                 'ansible_python_interpreter': checkers.program('python'), **variables}
        kept = {name: value for name, value in os.environ.items() if name.startswith('PIP_')}
        done = subprocess.run(
            [checkers.program('ansible-playbook'), '-i', self.home / 'inventory.yaml',
             '-e', json.dumps(given), playbook], cwd=self.home, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=30 * 60,
            env={**kept, 'HOME': str(self.home), 'LANG': 'C.UTF-8', 'CALLS': str(self.calls),
                 'PATH': f'{self.home}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin',
                 'ANSIBLE_ROLES_PATH': str(self.roles), 'ANSIBLE_NOCOLOR': '1',
                 'ANSIBLE_ACTION_PLUGINS': str(self.home / 'actions'),
                 'ANSIBLE_LOCALHOST_WARNING': 'false',
                 # As Zuul's executor: what a playbook finds out (where tox is) the next knows.
                 'ANSIBLE_CACHE_PLUGIN': 'jsonfile', 'ANSIBLE_GATHERING': 'smart',
                 'ANSIBLE_CACHE_PLUGIN_CONNECTION': str(self.home / 'facts'),
                 # Zuul's Ansible 11 (core 2.18) allows what 2.19 asks for so.
                 'ANSIBLE_ALLOW_BROKEN_CONDITIONALS': 'true'})
        return done.returncode, done.stdout

    def list_packages(self) -> set[str]:
        """Return the distribution's packages that the roles would have installed."""
        found: set[str] = set()
        for line in self.calls.read_text().splitlines() if self.calls.exists() else ():
            _action, arguments = json.loads(line)
            names = arguments.get('name', [])
            found |= {names} if isinstance(names, str) else set(names)
        return found


@pytest.mark.parametrize('name', list_jobs())
def test_job_inherits_tox_playbooks_that_exist(name):
    job = freeze_jobs()[name]
    assert [path for _, path in job['run']] == ['playbooks/tox/run.yaml']
    assert [path for _, path in job['pre_run']][-1] == 'playbooks/tox/pre.yaml'
    assert [path for _, path in job['post_run']][0] == 'playbooks/tox/post.yaml'
    for phase in PHASES:
        for project, path in job[phase]:
            assert (sources.find_checkout(project) / path).exists(), path
    expected = name.removeprefix('openstack-tox-').removeprefix('kronos-nova-')
    assert job['variables']['tox_envlist'] == {
        'kolla-ansible-config': 'deploy'}.get(expected, expected)
    assert job['variables']['enable_fips'] is False
    assert 'opendev.org/openstack/requirements' in job['required_projects']


def select_tests(*tests: str) -> str:
    """Return what a job gives to tox, with other commands."""
    commands = shlex.quote(f'testenv:{ENVIRONMENT}.commands=python -m pytest -q {" ".join(tests)}'
                           ' --junitxml={envlogdir}/selection.xml')
    return f'-vv --skip-missing-interpreters=false -x {commands}'


def test_whole_job_of_pep8_runs_lint(tmp_path):
    node = ZuulNode(tmp_path, 'openstack-tox-pep8')
    for phase in PHASES:
        status, output = node.run_phase(phase)
        assert status == 0, output
    logs = node.home / 'zuul-output/logs/tox/pep8'
    assert any('tools/run_tests.py lint' in path.read_text() for path in logs.glob('*.log'))


def test_unit_job_runs_selection_and_fails_with_a_failed_test(tmp_path):
    node = ZuulNode(tmp_path, f'openstack-tox-{ENVIRONMENT}')
    status, output = node.run_phase('pre_run')
    assert status == 0, output
    assert {f'python{VERSION}-dev', f'python{VERSION}-venv'} <= node.list_packages()
    chosen = {'tox_extra_args': select_tests(SELECTION)}
    status, output = node.run_phase('run', **chosen)
    assert status == 0, output
    status, output = node.run_phase('post_run', **chosen)
    assert status == 0, output
    assert (node.home / 'zuul-output/logs/tox' / ENVIRONMENT / 'selection.xml').exists()
    broken = node.work / 'tests/unit/test_broken.py'
    broken.write_text('def test_broken():\n    assert False\n')
    status, output = node.run_phase(
        'run', tox_extra_args=select_tests('tests/unit/test_broken.py'),
        tox_install_siblings=False)
    assert status != 0 and '1 failed' in output


def test_missing_constraints_fail_a_job(tmp_path):
    node = ZuulNode(tmp_path, 'openstack-tox-pep8')
    (node.home / 'src/opendev.org/openstack/requirements/upper-constraints.txt').unlink()
    status, output = node.run_phase('run')
    assert status != 0
    assert 'tox_constraints_file is defined but was not found' in output
