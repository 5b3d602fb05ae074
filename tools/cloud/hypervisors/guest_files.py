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

"""Kernel and initramfs of the test guests: Debian's cloud kernel and busybox.

Both are made once and kept in the sandbox's cache. The key names the kernel's version,
busybox and the guest's program, so that a change of one makes them again.
"""

import dataclasses
import gzip
import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile

from tools.cloud import errors

#: A package without files that depends on Debian's present cloud kernel.
KERNEL = 'linux-image-cloud-amd64'
INIT = pathlib.Path(__file__).with_name('guest_init.sh')
BUSYBOX = pathlib.Path('/usr/bin/busybox')
#: Kernel modules of a virtio disk: path below kernel/drivers.
MODULES = ('virtio/virtio_ring', 'virtio/virtio', 'virtio/virtio_pci_legacy_dev',
           'virtio/virtio_pci_modern_dev', 'virtio/virtio_pci', 'block/virtio_blk')
COMMAND_LINE = 'console=ttyS0 quiet mitigations=off'


@dataclasses.dataclass(frozen=True)
class GuestFiles:
    """Paths of a kernel and of an initramfs."""

    kernel: pathlib.Path
    ramdisk: pathlib.Path


def _run(command: list[str], directory: pathlib.Path | None = None,
         data: bytes | None = None) -> bytes:
    done = subprocess.run(command, cwd=directory, input=data, check=False,
                          capture_output=True)
    if done.returncode:
        raise errors.NotPossibleHere(
            f'{" ".join(command)} failed with code {done.returncode}: '
            f'{done.stderr.decode(errors="replace").strip()[-500:]}')
    return done.stdout


def find_kernel_package() -> str:
    """Return the name of Debian's present cloud kernel package.

    :raises errors.NotPossibleHere: apt does not know it
    """
    text = _run(['apt-cache', 'depends', KERNEL]).decode()
    match = re.search(r'Depends: (linux-image-[0-9]\S*)', text)
    if match is None:
        raise errors.NotPossibleHere(
            f'apt knows no kernel for {KERNEL}: run apt-get update on a Debian of amd64')
    return match[1]


def build_ramdisk(modules: pathlib.Path) -> bytes:
    """Pack busybox, the guest's program and the virtio modules.

    :param modules: the kernel package's directory kernel/drivers.
    """
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for directory in ('bin', 'modules'):
            (root / directory).mkdir()
        shutil.copy(BUSYBOX, root / 'bin/busybox')
        shutil.copy(INIT, root / 'init')
        (root / 'init').chmod(0o755)
        for module in MODULES:
            shutil.copy(modules / f'{module}.ko', root / 'modules')
        paths = sorted(str(path.relative_to(root)) for path in root.rglob('*'))
        archive = _run(['cpio', '--quiet', '-o', '-H', 'newc'], root, '\n'.join(paths).encode())
    return gzip.compress(archive, 1)


def make_guest_files(cache: pathlib.Path) -> GuestFiles:
    """Return the files from the cache; download the kernel and build them when absent.

    :raises errors.NotPossibleHere: the kernel cannot be downloaded
    """
    package = find_kernel_package()
    digest = hashlib.sha256(package.encode())
    for file in (INIT, BUSYBOX):
        digest.update(file.read_bytes())
    directory = cache / f'guest-{digest.hexdigest()[:16]}'
    files = GuestFiles(directory / 'vmlinuz', directory / 'initrd.gz')
    if files.ramdisk.exists():
        return files
    with tempfile.TemporaryDirectory(dir=cache) as name:
        temporary = pathlib.Path(name)
        _run(['apt-get', 'download', '-q', package], temporary)
        [archive] = temporary.glob('*.deb')
        _run(['dpkg-deb', '-x', str(archive), str(temporary / 'kernel')])
        [kernel] = (temporary / 'kernel/boot').glob('vmlinuz-*')
        [modules] = (temporary / 'kernel/lib/modules').glob('*/kernel/drivers')
        for old in cache.glob('guest-*'):
            shutil.rmtree(old)
        directory.mkdir()
        shutil.move(kernel, files.kernel)
        # The last one: an interrupted build is made again.
        files.ramdisk.write_bytes(build_ramdisk(modules))
    return files
