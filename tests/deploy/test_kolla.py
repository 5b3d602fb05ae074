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

"""The images: what kolla-build makes of our templates, without a daemon."""

from pathlib import Path
import re
import subprocess

import pytest

from tests.deploy import kolla_env
from tests.deploy import kolla_page

IMAGES = ('kronos-base', 'kronos-engine', 'kronos-executor', 'kronos-migfra', 'kronos-api')


@pytest.fixture(scope='module')
def home() -> Path:
    return kolla_env.prepared()


@pytest.fixture(scope='module')
def rendered(home, tmp_path_factory) -> dict[str, str]:
    """Image name -> its Dockerfile, by the commands of the page."""
    work = tmp_path_factory.mktemp('kolla')
    status, output = kolla_page.attempt(
        kolla_page.commands('Build the images', r'images=|kolla-build '), work, work)
    assert status == 0, f'{kolla_page.PAGE}\n{output}'
    found = {path.parent.name: path.read_text() for path in work.rglob('Dockerfile')}
    for path in work.rglob('extend_start.sh'):
        if path.parent.name in IMAGES:
            found[f'{path.parent.name}/extend_start.sh'] = path.read_text()
    return found


def statements(dockerfile: str) -> list[str]:
    """A Dockerfile's statements, each on one line."""
    joined = re.sub(r'\\\n\s*', ' ', dockerfile)
    return [' '.join(line.split()) for line in joined.splitlines() if line.strip()]


def test_each_image_has_parent_and_labels(rendered):
    assert set(IMAGES) <= set(rendered)
    for image, parent in zip(IMAGES, ('openstack-base', *['kronos-base'] * 4), strict=True):
        lines = statements(rendered[image])
        assert lines[0] == f'FROM kolla/{parent}:kronos-1'
        assert any(line.startswith('LABEL ') and line.endswith(f'name="{image}"')
                   for line in lines)


def test_daemons_run_as_user_of_kolla(rendered):
    base = statements(rendered['base'])
    assert any('groupadd --gid 42900 kronos' in line and '--uid 42900 --gid 42900 kronos' in line
               for line in base)
    assert any('usermod --append --home /var/lib/kronos --groups kolla kronos' in line
               for line in statements(rendered['kronos-base']))
    for image in IMAGES[1:]:
        assert statements(rendered[image])[-1] == 'USER kronos'


def test_images_install_only_hash_pinned_requirements(rendered):
    (line,) = [line for line in statements(rendered['kronos-base']) if ' pip ' in line]
    installs = re.findall(r'pip \S+ install --upgrade\s+([^&]*?) &&', line)
    assert installs == ['--require-hashes -r /kronos-requirements.txt', '--no-deps /kronos']
    assert 'COPY requirements.txt /kronos-requirements.txt' in rendered['kronos-base']
    assert 'ADD kronos-base-archive /kronos-base-source' in rendered['kronos-base']
    assert 'ADD plugins-archive /' in rendered['nova-base']


@pytest.mark.parametrize('image', IMAGES[:2])
def test_extend_start_is_valid_script(rendered, image):
    script = rendered[f'{image}/extend_start.sh']
    done = subprocess.run(['bash', '-n'], input=script, text=True, check=False)
    assert done.returncode == 0
    place = 'kolla_extend_start' if image == 'kronos-base' else 'kolla_kronos_extend_start'
    assert f'COPY extend_start.sh /usr/local/bin/{place}' in rendered[image]


@pytest.mark.parametrize(('variables', 'made'), [({}, False), ({'KOLLA_BOOTSTRAP': ''}, True)])
def test_engine_image_creates_schema_only_at_bootstrap(rendered, tmp_path, variables, made):
    (tmp_path / 'kronos-manage').write_text('#!/bin/bash\necho "called: $*"\n')
    (tmp_path / 'kronos-manage').chmod(0o755)
    done = subprocess.run(
        ['bash', '-c', rendered['kronos-engine/extend_start.sh'] + '\necho goes on'],
        env={'PATH': f'{tmp_path}:/usr/bin:/bin', **variables}, capture_output=True, text=True,
        check=True)
    assert done.stdout == (
        'called: --config-file /etc/kronos/kronos.conf db sync\n' if made else 'goes on\n')


def test_example_configuration_gives_both_images_source(home):
    ours = kolla_env.SHARE / 'kronos-nova/kolla'
    code = '''
from oslo_config import cfg
import sys
from kolla.common import config
conf = cfg.ConfigOpts()
config.parse(conf, ['--config-file', sys.argv[1]], prog='kolla-build')
for section in ('kronos-base', 'nova-base-plugin-kronos'):
    assert section in conf.list_all_sections(), section
    if section not in conf._groups:
        conf.register_opts(config.get_source_opts(), section)
    assert conf[section].type == 'local' and conf[section].location, section
'''
    kolla_env.run('python', '-c', code, ours / 'kolla-build.conf')
