# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``tools/sandbox``: the command line."""

import argparse
from collections.abc import Sequence
import os
import pathlib
import sys

from tools.cloud import errors
from tools.cloud import state
from tools.cloud.layout import CHECKOUT
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress


def _hosts(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 99:
        raise argparse.ArgumentTypeError('1 to 99 hosts')
    return count


def parser() -> argparse.ArgumentParser:
    """The argument parser."""
    top = argparse.ArgumentParser(
        prog='tools/sandbox',
        description='An OpenStack control plane on 127.0.0.1 with simulated hosts and load.',
        epilog='Exit codes: 0 done, 1 failed, 2 not possible here, 3 already there, '
        '4 not up, 5 a service died, 130 interrupted.',
    )
    top.add_argument(
        '--dir',
        type=pathlib.Path,
        default=os.environ.get('KRONOS_SANDBOX', str(CHECKOUT / '.sandbox')),
        help='where everything lies (default: $KRONOS_SANDBOX, else .sandbox in the checkout)',
    )
    commands = top.add_subparsers(dest='command', required=True)
    start = commands.add_parser('up', help='bring it up')
    start.add_argument('--hosts', type=_hosts, default=6, help='nova-computes (default 6)')
    start.add_argument('--migration-seconds', type=float, default=2.0,
                       help='how long a live migration runs (default 2)')
    start.add_argument('--base-port', type=int,
                       help='use consecutive ports from here (default: any free ones)')
    start.add_argument('--hypervisor', choices=state.HYPERVISORS, default=state.HYPERVISORS[0],
                       help='simulated hosts (fake, the default), or libvirt and QEMU')
    start.add_argument('--disks', choices=state.DISKS, default=state.DISKS[0],
                       help='where libvirt hosts keep disks (default shared)')
    start.add_argument('--scene', choices=state.SCENES,
                       help='also servers with an imbalance, engine and executor; the plan waits '
                            'for approval')
    start.add_argument('--stock-scheduler', action='store_true',
                       help="nova-scheduler without this project's filters and weigher")
    commands.add_parser('status', help='processes, memory, ports, services')
    show = commands.add_parser('demo', help='show boots and live migrations that follow the load')
    show.add_argument('--hosts', type=_hosts, default=6,
                      help='nova-computes, when it has to bring the sandbox up (default 6)')
    show.add_argument('--keep', action='store_true',
                      help='leave the sandbox up that the demo has brought up')
    many = commands.add_parser(
        'burst', help='boot many at once, with several workers of nova-scheduler')
    many.add_argument('--hosts', type=_hosts, default=6, help='nova-computes (default 6)')
    many.add_argument('--workers', type=int, default=4, choices=range(1, 9),
                      help='of nova-scheduler (default 4)')
    many.add_argument('--boots', type=int, default=36, help='in each burst (default 36)')
    roll = commands.add_parser(
        'campaign', help='empty six hosts, restart their nova-computes, and enable them again')
    roll.add_argument('--hosts', type=_hosts, default=6,
                      help='nova-computes, when it has to bring the sandbox up (default 6)')
    roll.add_argument('--keep', action='store_true',
                      help='leave the sandbox up that the campaign has brought up')
    stop = commands.add_parser('down', help='stop everything and delete its data')
    stop.add_argument('--keep', action='store_true', help='keep the logs')
    return top


def dispatch(arguments: argparse.Namespace, progress: Progress) -> None:
    """Run the chosen command; its modules are imported only now."""
    layout = Layout(pathlib.Path(arguments.dir).expanduser().absolute())
    if arguments.command == 'up':
        from tools.cloud import up
        from tools.cloud.hypervisors import base

        if arguments.scene and (arguments.hosts < 2 or arguments.stock_scheduler
                                or arguments.hypervisor != state.HYPERVISORS[0]):
            raise errors.NotPossibleHere(
                'a scene needs 2 simulated hosts at least, and our scheduler plug-ins')
        size = up.Size(
            hosts=arguments.hosts,
            host=base.HostSize(migration_seconds=arguments.migration_seconds),
            base_port=arguments.base_port,
            kronos=not arguments.stock_scheduler,
            api=not arguments.stock_scheduler,
            hypervisor=arguments.hypervisor,
            disks=arguments.disks,
        )
        run = up.up(layout, size, progress)
        if arguments.scene:
            from tools.cloud import scene

            try:
                scene.set_scene(run, progress)
            except TimeoutError as e:
                raise errors.ServiceDied(f'{e}; logs: {layout.log}') from e
        progress.say(f'login: . {layout.openrc}    logs: {layout.log}')
    elif arguments.command == 'demo':
        from tools.cloud import demo
        from tools.cloud import up

        if arguments.hosts < 2:
            raise errors.NotPossibleHere('a demo needs 2 hosts at least')
        size = up.Size(hosts=arguments.hosts, api=True)
        if not demo.demo(layout, size, arguments.keep, progress):
            raise errors.SandboxError('not everything happened that should have (see above)')
        progress.step('the demo is over')
    elif arguments.command == 'burst':
        from tools.cloud import burst

        if not burst.burst(layout, arguments.hosts, arguments.workers, arguments.boots, progress):
            raise errors.SandboxError('the burst did not end as it should have (see above)')
        progress.step('the burst is over')
    elif arguments.command == 'campaign':
        from tools.cloud import campaign
        from tools.cloud import up

        if arguments.hosts < 2:
            raise errors.NotPossibleHere('a campaign needs 2 hosts at least')
        size = up.Size(hosts=arguments.hosts, api=True)
        if not campaign.campaign(layout, size, arguments.keep, progress):
            raise errors.SandboxError('not everything happened that should have (see above)')
        progress.step('the campaign is over')
    elif arguments.command == 'status':
        from tools.cloud import status

        status.status(layout, progress)
    else:
        from tools.cloud import down

        down.down(layout, arguments.keep, progress)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; every foreseeable failure is one message on stderr and an exit code."""
    arguments = parser().parse_args(argv)
    try:
        dispatch(arguments, Progress())
    except errors.SandboxError as e:
        print(f'tools/sandbox {arguments.command}: {e}', file=sys.stderr)
        return e.code
    except KeyboardInterrupt:
        print(f'tools/sandbox {arguments.command}: interrupted', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
