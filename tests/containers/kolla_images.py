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

"""The images of kolla, which kolla-build itself builds with podman from local sources."""

from collections.abc import Iterator
import contextlib
from pathlib import Path
import re
import subprocess
import sys

from tests.containers.podman import Podman
from tests.deploy import kolla_env
from tools.cloud.soak import releases

TOP = Path(__file__).resolve().parents[2]
OVERRIDES = Path(__file__).with_name('kolla-overrides.j2')
NAMESPACE = 'localhost/kolla'
TAG = 'kronos-1'
#: The second build: our package in a later version, with a later schema.
NEXT_TAG, NEXT_VERSION = 'kronos-2', '99.0.0'
#: A plug-in of other makers that kolla puts into each image of Nova.
BLAZAR = 'blazar-nova==10.0.0'
#: From base to leaf; kolla-build is asked for the leaves.
IMAGES = ('base', 'openstack-base', 'nova-base', 'nova-scheduler', 'kronos-base', 'kronos-engine',
          'kronos-executor', 'kronos-migfra', 'kronos-api')
#: What the second build has of its own; it takes the others from the first.
OUR_IMAGES = tuple(image for image in IMAGES if image.startswith('kronos-'))


def name_image(image: str, tag: str = TAG) -> str:
    return f'{NAMESPACE}/{image}:{tag}'


def read_pins() -> dict[str, str]:
    return dict(re.findall(r'^([\w.-]+)==(\S+)$', (TOP / 'constraints.txt').read_text(),
                           re.MULTILINE))


def make_sources(directory: Path) -> Path:
    """Write the archives that kolla-build takes, and return the configuration that names them."""
    requirements = directory / 'requirements'
    requirements.mkdir()
    (requirements / 'upper-constraints.txt').write_text(
        ''.join(f'{name}==={version}\n' for name, version in read_pins().items()))
    for command in (
            ['tar', '-C', str(directory), '-cf', str(directory / 'requirements.tar'),
             'requirements'],
            [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--no-binary', ':all:',
             '--no-build-isolation', '-d', str(directory), f'nova=={read_pins()["nova"]}', BLAZAR],
            [sys.executable, '-m', 'build', '--no-isolation', '--sdist', '--outdir',
             str(directory), '.']):
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (nova,) = directory.glob('nova-*.tar.gz')
    (blazar,) = directory.glob('blazar_nova-*.tar.gz')
    (ours,) = directory.glob('kronos_nova-*.tar.gz')
    return _write_configuration(directory / 'sources.conf', {
        'openstack-base': directory / 'requirements.tar', 'nova-base': nova,
        'nova-base-plugin-blazar': blazar, 'kronos-base': ours, 'nova-base-plugin-kronos': ours})


def make_next_sources(directory: Path) -> Path:
    """Write the archive of a next release, which has one more revision of the schema.

    Return the configuration for kolla-build. ``make_sources`` has written the present release.
    """
    (ours,) = directory.glob('kronos_nova-*.tar.gz')
    tree = directory / 'next' / ours.name.removesuffix('.tar.gz')
    subprocess.run(['tar', '-C', str(directory), '--one-top-level=next', '-xf', str(ours)],
                   check=True)
    releases.write_next_revision(tree / releases.VERSIONS)
    # Where there is no git, pbr takes the version from here.
    metadata = tree / 'PKG-INFO'
    text, count = re.subn(r'^Version: .*$', f'Version: {NEXT_VERSION}', metadata.read_text(),
                          flags=re.MULTILINE)
    assert count == 1
    metadata.write_text(text)
    archive = directory / 'next.tar.gz'
    subprocess.run(['tar', '-C', str(tree.parent), '-czf', str(archive), tree.name], check=True)
    return _write_configuration(directory / 'next.conf', {'kronos-base': archive})


def _write_configuration(path: Path, sources: dict[str, Path]) -> Path:
    path.write_text('\n'.join(f'[{section}]\ntype = local\nlocation = {location}\n'
                              for section, location in sources.items()))
    return path


@contextlib.contextmanager
def serve_api(podman: Podman) -> Iterator[Path]:
    """Run podman's API, which kolla and kolla-ansible use, and yield its socket."""
    address = podman.top / 'api' / 'podman' / 'podman.sock'
    address.parent.mkdir(parents=True)
    with (podman.top / 'api.log').open('wb') as log:
        service = subprocess.Popen(
            ['podman', 'system', 'service', '--time', '0', f'unix://{address}'],
            env=podman.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        podman.wait(address.exists, "podman's API answers", 30)
        yield address
    finally:
        service.terminate()
        service.wait(30)


def build(address: Path, base: str, directory: Path) -> str:
    """Build all; return what kolla-build prints."""
    return _build(address, base, directory, TAG, make_sources(directory), '^kronos',
                  '^nova-scheduler')


def build_next(podman: Podman, address: Path, base: str, directory: Path) -> str:
    """Build our images of a next release, with another tag; return what kolla-build prints."""
    for image in set(IMAGES) - set(OUR_IMAGES):
        podman.call('tag', name_image(image), name_image(image, NEXT_TAG))
    return _build(address, base, directory, NEXT_TAG, make_next_sources(directory),
                  '--skip-existing', '^kronos')


def _build(address: Path, base: str, directory: Path, tag: str, sources: Path,
           *arguments: str) -> str:
    image, _, base_tag = base.partition(':')
    # Each build needs a directory of its own: kolla-build unpacks plug-ins in it, and would take
    # the Dockerfiles in ours for images when it comes again.
    work = directory / f'build-{tag}'
    ours = kolla_env.SHARE / 'kronos-nova/kolla'
    # It logs to its standard error.
    status, output = kolla_env.attempt(
        'bash', '-c', 'exec kolla-build "$@" 2>&1', 'kolla-build',
        '--engine', 'podman', '--podman_base_url', f'unix://{address}', '--base',
        'debian', '--base-image', image, '--base-tag', base_tag, '--nopull', '--namespace',
        NAMESPACE, '--tag', tag, '--threads', '2', '--nosummary',
        '--work-dir', str(work), '--template-override', str(OVERRIDES),
        '--docker-dir', str(ours / 'docker'), '--config-file', str(ours / 'kolla-build.conf'),
        '--config-file', str(sources), *arguments)
    assert status == 0, output[-8000:]
    return output


def read_seconds(output: str) -> dict[str, float]:
    """Map images to the seconds that their build took, as kolla-build logs them."""
    builds = re.findall(r'(\S+):Built at .*\(took (\d+):(\d+):([\d.]+)\)', output)
    return {name.rpartition('.')[2]: int(hours) * 3600 + int(minutes) * 60 + float(seconds)
            for name, hours, minutes, seconds in builds}
