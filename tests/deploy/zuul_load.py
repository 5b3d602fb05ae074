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

"""Reads a Zuul configuration as Zuul does: its YAML loader, its parsers, its models.

Runs in an environment that has Zuul, see checkers.py: ``zuul_load.py FILE...``. Prints for
each, as a line of JSON, {"errors": [str], "jobs": {name: {"parent", "run", "vars"}}, "templates":
[str], "pipelines": {pipeline: [job]}}. It does not look for parents, templates and pipelines:
these belong to other projects.
"""

import json
import sys
from types import SimpleNamespace

from zuul import configloader
from zuul import model


def main(path: str) -> dict[str, object]:
    project = 'opendev.org/openstack/kronos-nova'
    context = model.SourceContext(project, 'openstack/kronos-nova', 'opendev', 'master', path)
    globals_ = SimpleNamespace(max_hold_expiration=0, default_hold_expiration=0)
    parse = configloader.ParseContext(
        SimpleNamespace(connections={}), globals_, None,
        SimpleNamespace(getSupportedVersions=list, requestVersion=lambda _: None,
                        default_version='11'))
    with open(path, encoding='utf-8') as stream:
        data = configloader.safe_load_yaml(stream.read(), context)
    unparsed = model.UnparsedConfig()
    unparsed.extend(data)
    parsed = configloader.TenantParser.parseConfig(None, unparsed, parse)
    errors = [str(error.error) for name in vars(parsed) if name.endswith('_errors')
              for error in getattr(parsed, name)]
    errors += [str(error.error) for error in parse.error_list]
    return {
        'errors': errors,
        'jobs': {job.name: {
            'parent': job.parent, 'run': [entry['path'] if isinstance(entry, dict) else entry.path
                                          for entry in job.run],
            'vars': dict(job.variables), 'timeout': job.timeout} for job in parsed.jobs},
        'templates': [name for project in parsed.projects for name in project.templates],
        'pipelines': {pipeline: sorted(config.job_list.jobs) for project in parsed.projects
                      for pipeline, config in project.pipelines.items()}}


if __name__ == '__main__':
    for argument in sys.argv[1:]:
        print(json.dumps(main(argument)))
