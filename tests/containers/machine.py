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

"""What this machine gives to an image: its Debian mirrors and pip's configuration.

No mirror stands in the project: apt and pip of this machine say which there are.
"""

import os
from pathlib import Path
import shutil
import subprocess
import sys

from tests import ci
from tests.containers.podman import Podman

#: In the image, the authorities by which pip knows its index here.
AUTHORITIES = '/etc/pip-authorities.crt'
#: Of pip's configuration, what says where and how it fetches.
FETCHING = ('index-url', 'extra-index-url', 'trusted-host', 'proxy', 'timeout')


def read_mirrors() -> tuple[str, str]:
    """Return the URLs of Debian's archive and of its security updates, as apt has them."""
    said = subprocess.run(
        ['apt-get', 'indextargets', '--format', '$(SITE) $(RELEASE)', 'Created-By: Packages'],
        check=True, capture_output=True, text=True).stdout
    site_by_release = {release: site for site, release in map(str.split, said.splitlines())}
    archive = site_by_release.get('bookworm') or ci.missing(
        'an archive of Debian 12 in the sources of apt')
    return archive, site_by_release.get('bookworm-security', '')


def write_sources(root: Path, suite: str) -> None:
    """Let apt of an image fetch what apt of this machine fetches."""
    archive, security = read_mirrors()
    lines = [f'deb {archive} {name} main' for name in (suite, f'{suite}-updates')]
    if security:
        lines.append(f'deb {security} {suite}-security main')
    (root / 'etc/apt/sources.list').write_text('\n'.join(lines) + '\n')


def write_pip_configuration(root: Path) -> None:
    """Let pip of an image fetch what pip of this machine fetches."""
    said = subprocess.run([sys.executable, '-m', 'pip', 'config', 'list'], check=True,
                          capture_output=True, text=True).stdout
    options = {}
    for line in said.splitlines():
        name, _, value = line.partition('=')
        options[name.rpartition('.')[2]] = value.strip('\'"')
    kept = {name: ' '.join(word for word in options[name].split()
                           if not word.startswith(('file:', '/')))
            for name in FETCHING if name in options}
    authorities = options.get('cert') or os.environ.get('REQUESTS_CA_BUNDLE')
    if authorities:
        shutil.copyfile(authorities, root / AUTHORITIES.lstrip('/'))
        kept['cert'] = AUTHORITIES
    lines = [f'{name} = {value}' for name, value in kept.items() if value]
    (root / 'etc/pip.conf').write_text('\n'.join(['[global]', *lines]) + '\n')


def make_base(podman: Podman, directory: Path, suite: str) -> str:
    """Make an image of Debian by debootstrap; return its name."""
    root = directory / suite
    archive, _ = read_mirrors()
    done = subprocess.run(
        [ci.program('debootstrap', 'debootstrap'), '--variant=minbase', suite, str(root), archive],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    for cache in ('var/cache/apt', 'var/lib/apt/lists'):
        shutil.rmtree(root / cache)
        (root / cache).mkdir()
    write_sources(root, suite)
    write_pip_configuration(root)
    name = f'localhost/debian:{suite}-slim'
    packed = directory / f'{suite}.tar'
    subprocess.run(['tar', '-C', str(root), '-cf', str(packed), '.'], check=True)
    podman.call('import', str(packed), name)
    packed.unlink()
    shutil.rmtree(root)
    return name
