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

"""Freezes jobs as Zuul's scheduler does: variants, parents, playbooks and variables merged by
Zuul's own models.

Runs in an environment that has Zuul (tests/deploy/checkers.py): ``freeze_jobs.py SOURCES JOB...``
prints a JSON object, job -> {"pre_run", "run", "post_run": [[project, path]], "variables",
"required_projects", "parents"}. SOURCES is the directory that tests/gate/sources.py describes.
``base``, the parent of all jobs, is an empty job here: OpenDev's is in its private configuration.
"""

import collections
import json
from pathlib import Path
import sys
from types import SimpleNamespace
from typing import Any

from zuul import configloader
from zuul import model

TOP = Path(__file__).resolve().parents[2]
OURS = 'openstack/kronos-nova'
BASE = '- job: {name: base, parent: null}'


class Tenant:
    """What Zuul's layout asks of a tenant: projects that are not trusted and have one branch."""

    default_base_job = 'base'
    max_job_timeout = -1

    def getProject(self, name: str) -> tuple[bool, Any]:
        bare = name.removeprefix('opendev.org/')
        return False, SimpleNamespace(name=bare, canonical_name=f'opendev.org/{bare}')

    def getProjectBranches(self, _name: str) -> list[str]:
        return ['master']

    def getTPC(self, _name: str) -> Any:
        return SimpleNamespace(implied_branch_matchers=None, trusted=False,
                               always_dynamic_branches=())

    def isTrusted(self, _name: str) -> bool:
        return False


def parse(project: str, path: str, text: str) -> Any:
    context = model.SourceContext(f'opendev.org/{project}', project, 'opendev', 'master', path)
    parser = configloader.ParseContext(
        SimpleNamespace(connections={}),
        SimpleNamespace(max_hold_expiration=0, default_hold_expiration=0), None,
        SimpleNamespace(getSupportedVersions=list, requestVersion=lambda _: None,
                        default_version='11'))
    unparsed = model.UnparsedConfig()
    unparsed.extend(configloader.safe_load_yaml(text, context))
    parsed = configloader.TenantParser.parseConfig(None, unparsed, parser)
    errors = [f'{path}: {error.error}' for name in vars(parsed) if name.endswith('_errors')
              for error in getattr(parsed, name)]
    assert not errors, errors
    return parsed


def read_configuration(sources: Path) -> list[Any]:
    """Return what the files of the three projects define."""
    definitions = [parse('opendev/base-jobs', 'base', BASE)]
    for project in ('zuul/zuul-jobs', 'openstack/openstack-zuul-jobs'):
        definitions += [parse(project, path.name, path.read_text())
                        for path in sorted((sources / project / 'zuul.d').glob('*jobs.yaml'))]
    return [*definitions, parse(OURS, '.zuul.yaml', (TOP / '.zuul.yaml').read_text())]


def freeze(layout: Any, name: str, variants: list[Any]) -> dict[str, Any]:
    """Return a job as the executor gets it.

    :param variants: of the pipeline.
    """
    item = SimpleNamespace(annotateLogger=lambda log: log)
    change = SimpleNamespace(branch='master', ref='refs/heads/master',
                             project=SimpleNamespace(canonical_name=f'opendev.org/{OURS}'))
    job = None
    for variant in layout.collectJobs(item, name, change):
        if job is None:
            job = variant.copy()
            job.setBase(layout, None)
        else:
            job.applyVariant(variant, layout, None)
            job.name = variant.name
    assert job is not None
    job.name = name
    for variant in variants:
        job.applyVariant(variant, layout, None)
    return {'variables': dict(job.variables), 'parents': list(job.inheritance_path),
            'required_projects': sorted(job.required_projects),
            **{phase: [[playbook.source_context.project_name, playbook.path]
                       for playbook in getattr(job, phase)]
               for phase in ('pre_run', 'run', 'post_run')}}


def main(sources: str, *names: str) -> None:
    configuration = read_configuration(Path(sources))
    layout = model.Layout(Tenant())
    # Which nodes there are is not asked here.
    layout.nodesets = SimpleNamespace(get=lambda _name: model.NodeSet())
    layout.jobs = collections.defaultdict(list)
    for parsed in configuration:
        for job in parsed.jobs:
            layout.jobs[job.name].append(job)
    (project,) = configuration[-1].projects
    variants: dict[str, list[Any]] = {}
    for pipeline in project.pipelines.values():
        variants.update(pipeline.job_list.jobs)
    print(json.dumps({name: freeze(layout, name, variants[name]) for name in names},
                     default=dict))


if __name__ == '__main__':
    main(*sys.argv[1:])
