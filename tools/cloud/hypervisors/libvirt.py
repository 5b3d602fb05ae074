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

"""Real hosts: libvirt and QEMU (TCG), each in namespaces of its own on this machine.

A host is a process that keeps a mount, a host name and a network namespace open; its
libvirtd and nova-compute enter these. nova-compute keeps the machine's network, where the
control plane listens on the loopback address; libvirtd and QEMU have the host's. A switch,
a bridge in a network namespace without a way out, joins the hosts.

Every process of a host has the host's directory for temporary files in its environment. QEMU
inherits it through libvirtd, so that ``down`` finds it also after the host died.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from tools.cloud import config
from tools.cloud import processes
from tools.cloud.client import Cloud
from tools.cloud.hypervisors import guest_files
from tools.cloud.hypervisors.base import HostSize
from tools.cloud.run import Run

ENTER = pathlib.Path(__file__).with_name('enter_host.sh')
NETWORK = '10.77.0'
SWITCH = 'switch'
#: Debian's libvirt for Python, of the version of its libvirtd.
BINDINGS = pathlib.Path('/usr/lib/python3/dist-packages')
DISK_MIB = 16


class LibvirtHypervisor:
    """Hosts of libvirt; :meth:`run_virsh` and the ``start_`` methods are for tests, too."""

    programs: Mapping[str, str] = {
        'libvirtd': 'libvirt-daemon-system',
        'virsh': 'libvirt-clients',
        'qemu-system-x86_64': 'qemu-system-x86',
        'qemu-img': 'qemu-utils',
        'bindfs': 'bindfs',
        'busybox': 'busybox-static',
        'cpio': 'cpio',
        'ip': 'iproute2',
        'tc': 'iproute2',
        'nc': 'netcat-openbsd',
        'sshd': 'openssh-server',
        'prometheus-node-exporter': 'prometheus-node-exporter',
        'prometheus-libvirt-exporter': 'prometheus-libvirt-exporter',
    }
    host_memory_mib = 600
    hypervisor_type = 'QEMU'

    # -- places ----------------------------------------------------------------

    @staticmethod
    def find_directory(run: Run, host: str) -> pathlib.Path:
        """The directory of what a host keeps."""
        return run.layout.data / 'hosts' / host

    @staticmethod
    def find_instances(run: Run) -> pathlib.Path:
        """Nova's instances_path as the hosts see it; elsewhere it is empty."""
        return run.layout.data / 'instances'

    @staticmethod
    def find_store(run: Run) -> pathlib.Path:
        """The directory of the disks that all hosts share."""
        return run.layout.data / 'store'

    @staticmethod
    def find_address(run: Run, host: str) -> str:
        """The host's address in the network of migrations."""
        return f'{NETWORK}.{run.state.hosts.index(host) + 1}'

    # -- configuration ---------------------------------------------------------

    def list_ports(self, hosts: Sequence[str]) -> list[str]:
        return [f'{job}-{host}' for job in config.EXPORTER_PORTS for host in hosts]

    def build_compute_options(self, size: HostSize) -> config.Sections:
        return {
            'DEFAULT': {
                'compute_driver': 'libvirt.LibvirtDriver',
                # Else Nova makes qcow2 of a raw disk that has moved cold, and the guest reads
                # that as raw.
                'use_cow_images': 'false',
                # The test guest does not obey the power button.
                'shutdown_timeout': 5,
            },
            'libvirt': {
                'virt_type': 'qemu',
                'cpu_mode': 'none',
                'images_type': 'raw',
                'live_migration_scheme': 'tcp',
                'sysinfo_serial': 'none',
            },
            'workarounds': {
                # QEMU's emulated processors differ from the machine's.
                'skip_cpu_compare_on_dest': 'true',
                'skip_cpu_compare_at_startup': 'true',
                # The guests' disks hold no file system that an inspection would know.
                'disable_deep_image_inspection': 'true',
            },
        }

    def build_host_options(self, run: Run, host: str) -> config.Sections:
        address = self.find_address(run, host)
        helper = f'{sys.prefix}/bin/privsep-helper --config-file ' \
                 f'{run.layout.etc}/nova-compute.conf'
        return {
            'DEFAULT': {'my_ip': address, 'instances_path': self.find_instances(run)},
            'libvirt': {'live_migration_inbound_addr': address},
            'nova_sys_admin': {'helper_command': helper},
        }

    # -- processes -------------------------------------------------------------

    @staticmethod
    def build_python_path(run: Run) -> dict[str, str]:
        """Return the environment in which Python finds Debian's libvirt."""
        return {'PYTHONPATH': os.pathsep.join([run.environment()['PYTHONPATH'],
                                               str(run.layout.data / 'bindings')])}

    def _build_environment(self, run: Run, host: str) -> dict[str, str]:
        return {'TMPDIR': str(self.find_directory(run, host) / 'tmp'),
                **self.build_python_path(run)}

    @staticmethod
    def _find_process(run: Run, name: str) -> processes.Process:
        return next(p for p in run.state.processes if p.name == name)

    def _enter(self, run: Run, host: str, *options: str) -> list[str]:
        holder = self._find_process(run, host)
        return ['nsenter', '-t', str(holder.pid), '--mount', '--uts', *options]

    def _configure_network(self, run: Run, holder: str, *command: str) -> None:
        pid = str(self._find_process(run, holder).pid)
        subprocess.run(['nsenter', '-t', pid, '--net', *command], check=True,
                       env=run.environment())

    def start_computes(self, run: Run) -> None:
        bindings = run.layout.data / 'bindings'
        bindings.mkdir()
        for file in BINDINGS.glob('libvirt*'):
            if file.suffix in ('.py', '.so'):
                (bindings / file.name).symlink_to(file)
        self.find_store(run).mkdir()
        run.task('ssh-keygen', ['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f',
                                str(run.layout.data / 'nova_key')])()
        run.spawn(SWITCH, ['unshare', '--net', 'sleep', 'infinity'])
        run.wait('the switch has a network', lambda: self._miss_namespace(run, SWITCH, 'net'))
        self._configure_network(run, SWITCH, 'ip', 'link', 'add', 'br0', 'type', 'bridge')
        self._configure_network(run, SWITCH, 'ip', 'link', 'set', 'br0', 'up')
        for host in run.state.hosts:
            self.start_host(run, host)
        for host in run.state.hosts:
            self.wait_for_libvirtd(run, host)
            self.start_compute(run, host)

    @staticmethod
    def _miss_namespace(run: Run, name: str, kind: str) -> str | None:
        pid = LibvirtHypervisor._find_process(run, name).pid
        own = os.readlink(f'/proc/self/ns/{kind}')
        return f'{name} shares ours' if os.readlink(f'/proc/{pid}/ns/{kind}') == own else None

    def start_host(self, run: Run, host: str) -> None:
        """Open a host's namespaces, join it to the switch and start its libvirtd."""
        directory = self.find_directory(run, host)
        directory.mkdir(parents=True, exist_ok=True)
        ready = directory / 'ready'
        ready.unlink(missing_ok=True)
        store = self.find_store(run) if run.state.disks == 'shared' else ''
        run.spawn(
            host,
            ['unshare', '--mount', '--uts', '--net', str(ENTER), host, str(directory),
             self.find_address(run, host), str(self.find_instances(run)), str(store),
             str(run.layout.data / 'nova_key')],
            env=self._build_environment(run, host))
        run.wait(f'{host} has its namespaces', lambda: None if ready.exists() else 'not yet')
        pid = str(self._find_process(run, host).pid)
        port = f'port{run.state.hosts.index(host) + 1}'
        self._configure_network(run, SWITCH, 'ip', 'link', 'add', port, 'type', 'veth',
                                'peer', 'name', 'migration', 'netns', pid)
        self._configure_network(run, SWITCH, 'ip', 'link', 'set', port, 'master', 'br0', 'up')
        for command in (f'addr add {self.find_address(run, host)}/24 dev migration',
                        'link set migration up', 'link set lo up'):
            self._configure_network(run, host, 'ip', *command.split())
        run.spawn(f'sshd-{host}', [*self._enter(run, host, '--net'), '/usr/sbin/sshd', '-D', '-e'],
                  env=self._build_environment(run, host))
        self.start_libvirtd(run, host)

    def start_libvirtd(self, run: Run, host: str) -> None:
        """Start the host's libvirtd, at first or after it was killed."""
        run.spawn(
            f'libvirtd-{host}',
            [*self._enter(run, host, '--net'), 'libvirtd', '--listen', '--pid-file',
             f'{self.find_directory(run, host)}/libvirtd.pid'],
            env=self._build_environment(run, host))

    def wait_for_libvirtd(self, run: Run, host: str) -> None:
        """Wait until the host's libvirtd answers."""
        def ready() -> str | None:
            done = self.run_virsh(run, host, 'uri')
            return None if done.returncode == 0 else done.stderr.strip()

        run.wait(f'libvirtd of {host} answers', ready)

    def start_compute(self, run: Run, host: str) -> None:
        """Start the host's nova-compute, at first or after it was killed."""
        files = [f'--config-file={run.layout.etc}/{name}.conf' for name in ('nova-compute', host)]
        run.spawn(
            f'nova-compute-{host}',
            [*self._enter(run, host), f'{sys.prefix}/bin/nova-compute', *files],
            env=self._build_environment(run, host))

    def restart_host(self, run: Run, host: str) -> None:
        """Start a host and its services after :meth:`kill_host`; its guests stay off."""
        self.start_host(run, host)
        self.wait_for_libvirtd(run, host)
        self.start_compute(run, host)
        self.start_host_exporters(run, host)

    def start_exporters(self, run: Run, size: HostSize) -> list[config.ScrapeTarget]:
        hosts = run.layout.data / 'hosts'
        run.spawn(
            'host-procfs',
            [sys.executable, '-m', 'tools.cloud.hypervisors.host_procfs', str(hosts),
             *run.state.hosts])
        first = hosts / run.state.hosts[-1] / 'proc/meminfo'
        run.wait('hosts have a /proc', lambda: None if first.exists() else 'not yet')
        for host in run.state.hosts:
            self.start_host_exporters(run, host)
        return [config.ScrapeTarget(job, host, run.ports[f'{job}-{host}'], '/metrics')
                for job in config.EXPORTER_PORTS for host in run.state.hosts]

    def start_host_exporters(self, run: Run, host: str) -> None:
        """Start node_exporter and the exporter of libvirt on a host."""
        collectors = [f'--collector.{name}' for name in ('cpu', 'meminfo', 'stat', 'time',
                                                         'uname')]
        commands = {
            'node': ['prometheus-node-exporter', '--collector.disable-defaults', *collectors,
                     f'--path.procfs={self.find_directory(run, host)}/proc'],
            'libvirt': ['prometheus-libvirt-exporter', '--libvirt.export-nova-metadata'],
        }
        for job, command in commands.items():
            address = f'--web.listen-address=127.0.0.1:{run.ports[f"{job}-{host}"]}'
            run.spawn(f'{job}-exporter-{host}', [*self._enter(run, host), *command, address],
                      env=self._build_environment(run, host))

    def run_virsh(
        self, run: Run, host: str, *arguments: str
    ) -> 'subprocess.CompletedProcess[str]':
        """Run virsh on a host."""
        return subprocess.run(
            [*self._enter(run, host), 'virsh', '--quiet', '--connect', 'qemu:///system',
             *arguments],
            check=False, capture_output=True, text=True, env=run.environment())

    def limit_link(self, run: Run, host: str, megabits: int | None) -> None:
        """Limit what a host sends to the others, in Mbit/s; None ends the limit."""
        limit = ('del dev migration root' if megabits is None else
                 f'replace dev migration root tbf rate {megabits}mbit burst 64kb latency 400ms')
        self._configure_network(run, host, 'tc', 'qdisc', *limit.split())

    def kill_host(self, run: Run, host: str) -> None:
        """End every process of a host at once, as a power failure does; its disks stay."""
        directory = self.find_directory(run, host) / 'tmp'
        for process in processes.list_with_variable('TMPDIR', str(directory)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        # sshd writes its title over its environment.
        daemons = ('libvirtd', 'sshd', 'nova-compute', 'node-exporter', 'libvirt-exporter')
        names = {host, *(f'{name}-{host}' for name in daemons)}
        for name in [p.name for p in run.state.processes if p.name in names]:
            run.kill(name)
        shutil.rmtree(self.find_directory(run, host) / 'run', ignore_errors=True)

    # -- guests ----------------------------------------------------------------

    def ensure_image(self, cloud: Cloud, run: Run, name: str) -> None:
        if cloud.find_image(name) is not None:
            return
        files = guest_files.make_guest_files(run.layout.cache)
        kernel = cloud.create_image(f'{name}-kernel', files.kernel.read_bytes(),
                                    disk_format='aki', container_format='aki')
        ramdisk = cloud.create_image(f'{name}-ramdisk', files.ramdisk.read_bytes(),
                                     disk_format='ari', container_format='ari')
        cloud.create_image(
            name, bytes(DISK_MIB * 1024 * 1024), disk_format='raw', container_format='bare',
            kernel_id=kernel, ramdisk_id=ramdisk, os_command_line=guest_files.COMMAND_LINE)
