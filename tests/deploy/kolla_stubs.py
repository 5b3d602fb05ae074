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

"""A cloud without containers, Keystone and MariaDB: a log records the requests of kolla-ansible.

The three modules of kolla-ansible are real up to their calls of Docker, so they check the
arguments. ``docker`` of the command line is a script.
"""

import dataclasses
import json
import os
from pathlib import Path
import shutil
import subprocess
from typing import Any

import yaml

from tests.deploy import kolla_cloud
from tests.deploy import kolla_env

#: The tests of one deployment run in one process.
GROUP = 'deployment'
SETTINGS = {**kolla_cloud.MIGFRA, **kolla_cloud.API,
            'kronos_engine_image': 'registry.example.org/kolla/kronos-engine',
            'kronos_tag': 'kronos-1'}
ASKED = """
import json
import os


def asked(kind, what, args, **more):
    with open(TOP + '/asked', 'a') as log:
        log.write(json.dumps(dict(kind=kind, what=what, args=args, **more)) + chr(10))
"""

#: Module -> what it does instead. Containers of others are as they should be, ours are not.
INSTEAD = {
    'kolla_container': """
def main():
    module = generate_module()
    args = module.params
    sources = [volume.split(':')[0] for volume in args.get('volumes') or ()]
    asked(args['action'], args.get('name') or args['image'], args, mounted={
        source: sorted(os.listdir(source)) for source in sources if os.path.isdir(source)})
    changed = args['action'] != 'compare_container' or args['name'].startswith('kronos_')
    module.exit_json(changed=changed, result=changed)
""",
    'kolla_container_facts': """
class DockerFactsWorker(ContainerFactsWorker):

    def __init__(self, module):
        self.params, self.result = module.params, {}

    def get_containers(self):
        asked('get_containers', ' '.join(self.params['name']), self.params)
        with open(TOP + '/running.json') as running:
            self.result['containers'] = {name: found for name, found in json.load(running).items()
                                         if name in self.params['name']}
""",
    'kolla_toolbox': """
class KollaToolboxWorker:

    def __init__(self, module, client, container_errors):
        self.params, self.result = module.params, {'changed': True}

    def main(self):
        args = self.params['module_args']
        asked(self.params['module_name'].rpartition('.')[2],
              args.get('name') or args.get('user') or args['endpoint_interface'], args)


def create_container_client(module):
    return None, None
"""}
#: Needs D-Bus, and is not needed.
WORKER = 'from ansible.module_utils.kolla_container_worker import ContainerWorker'
DOCKER = """
import sys
asked('docker ' + sys.argv[1], sys.argv[2], sys.argv[3:])
"""


@dataclasses.dataclass(frozen=True)
class Asked:
    """``kind``: an action of kolla_container, a module of kolla_toolbox, ``docker exec``.

    ``what``: the container, image or user of the action. ``args``: all arguments of the module.
    ``mounted``: the content of the volumes of the container at that time.
    """

    kind: str
    what: str
    args: Any
    mounted: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f'{self.kind} {self.what}'


class Cloud(kolla_cloud.Cloud):

    def asked(self, action: str, *arguments: str) -> list[Asked]:
        """What an action of kolla-ansible asks for, in order; it has to succeed."""
        status, output = self.act(action, *arguments)
        assert status == 0, output
        return self.log()

    def act(self, action: str, *arguments: str) -> tuple[int, str]:
        """Execute an action and return its exit status and output; the log has its requests."""
        (self.top / 'asked').write_text('')
        return self.attempt(action, self.top / 'playbooks/kronos.yml', *arguments)

    def log(self) -> list[Asked]:
        return [Asked(**json.loads(line))
                for line in (self.top / 'asked').read_text().splitlines()]

    def run_containers(self, **status: str) -> None:
        """Let these run, with such a status: ``Up 2 hours (healthy)``."""
        (self.top / 'running.json').write_text(json.dumps({
            name: {'Status': status[name]} for name in status}))

    @property
    def ports(self) -> dict[str, int]:
        """Daemon -> where it answers about its health."""
        given = yaml.safe_load((self.config / 'globals.yml').read_text())
        return {f'kronos-{name}': given[f'kronos_{name}_port']
                for name in ('engine', 'executor', 'migfra', 'api')}

    def stub(self) -> None:
        """Playbooks beside those of kolla-ansible, with other modules; and ``docker``."""
        tree, top = self.top / 'playbooks', f'\n\nTOP = {str(self.top)!r}\n'
        (tree / 'library').mkdir(parents=True)
        for path in kolla_env.ANSIBLE.iterdir():
            if path.name not in ('library', 'kronos.yml'):
                (tree / path.name).symlink_to(path)
        # A link to it would lead to the modules beside the file that is meant.
        (tree / 'kronos.yml').write_bytes((kolla_env.ANSIBLE / 'kronos.yml').read_bytes())
        for name, instead in INSTEAD.items():
            module, main, _ = (kolla_env.ANSIBLE / f'library/{name}.py').read_text().replace(
                WORKER, '').partition('\n\nif __name__ == ')
            assert main, name
            (tree / f'library/{name}.py').write_text(
                f'{module}{top}{ASKED}{instead}\n\nmain()\n')
        docker = self.top / 'bin/docker'
        docker.parent.mkdir()
        docker.write_text(f'#!{kolla_env.HOME}/bin/python{top}{ASKED}{DOCKER}')
        docker.chmod(0o755)

    def _variables(self) -> dict[str, str]:
        return {**super()._variables(), 'PATH': f'{self.top}/bin:{os.environ["PATH"]}'}


class Deployment:
    """A cloud that kolla-ansible has deployed once; each file of tests begins with that state.

    ``asked``: the requests of the deployment.
    """

    def __init__(self, top: Path) -> None:
        self._cloud = Cloud(top)
        self._cloud.write(SETTINGS, ('Install', 'Tell kolla-ansible', 'Policies'))
        self._cloud.stub()
        self.asked = self._cloud.asked('deploy')
        for directory in self._directories():
            copy_tree(directory, self._find_copy(directory))

    def begin(self) -> Cloud:
        """Put the files of the operator and of the host back, and return the cloud."""
        for directory in self._directories():
            shutil.rmtree(directory)
            copy_tree(self._find_copy(directory), directory)
        return self._cloud

    def _directories(self) -> tuple[Path, Path]:
        return self._cloud.config, self._cloud.node

    def _find_copy(self, directory: Path) -> Path:
        return self._cloud.top / f'deployed-{directory.name}'


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory with the owners of its files, which Python's copytree changes."""
    subprocess.run(['cp', '-a', source, target], check=True)
