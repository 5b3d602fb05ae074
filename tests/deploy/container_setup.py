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

"""A container's files as kolla's own set_configs.py sets them up from config.json."""

import json
from pathlib import Path
import shutil
import stat
from typing import Any

from tests.deploy import kolla_env

#: Runs kolla's set_configs.py where it thinks it is in a container: twice, first to
#: set up, then to look whether anything has changed since.
SET_CONFIGS = '''
import argparse, importlib.util, os, sys
spec = importlib.util.spec_from_file_location('set_configs', sys.argv[1])
set_configs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(set_configs)
argparse.ArgumentParser().parse_args([])  # imports what it needs
os.chroot(sys.argv[2])
os.chdir('/')
for arguments in ([], ['--check']):
    sys.argv[1:] = arguments
    status = set_configs.main()
    if status:
        sys.exit(f'{arguments}: {status}')
'''

#: Has kolla load and validate the config.json of a directory by its own functions, and look
#: for each source there; and once more with a mistake, which it has to find.
VALIDATE = """
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location('set_configs', sys.argv[1])
set_configs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(set_configs)
inside = '/var/lib/kolla/config_files'
real = open
set_configs.open = lambda path, *rest: real(path.replace(inside, sys.argv[2]), *rest)
config = set_configs.load_config()
missing = []
for data in config['config_files']:
    try:
        set_configs.validate_source({**data, 'source': data['source'].replace(
            inside, sys.argv[2])})
    except set_configs.MissingRequiredSource as error:
        missing.append(str(error))
del config['config_files'][0]['dest']
try:
    set_configs.validate_config(config)
    found = False
except set_configs.InvalidConfig:
    found = True
print(json.dumps({'command': config['command'], 'missing': missing, 'mistake found': found}))
"""


def set_up(source: Path, root: Path) -> None:
    """Set up the files of a directory below a root, which is in the place of the container's.

    It needs root, and has to succeed.
    """
    inside = root / 'var/lib/kolla/config_files'
    shutil.copytree(source, inside)
    (root / 'etc').mkdir()
    (root / 'etc/passwd').write_text(
        'root:x:0:0::/:/bin/sh\nkronos:x:42900:42900::/:/bin/sh\nfluentd:x:42474:42474::/:/bin/sh\n')
    (root / 'etc/group').write_text(
        'root:x:0:\nkronos:x:42900:\nkolla:x:42400:\nfluentd:x:42474:\n')
    kolla_env.run('python', '-c', SET_CONFIGS, kolla_env.find_base_image() / 'set_configs.py',
                  root, KOLLA_CONFIG_STRATEGY='COPY_ALWAYS')


def validate(source: Path) -> dict[str, Any]:
    """Return the command, the missing sources, and whether kolla finds a seeded mistake."""
    return dict(json.loads(kolla_env.run(
        'python', '-c', VALIDATE, kolla_env.find_base_image() / 'set_configs.py', source)))


def read_owner(path: Path) -> tuple[int, int, int]:
    """Return user, group and mode."""
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)
