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


"""``kronos snapshot anonymise``: make a snapshot that can be given away."""

import argparse
import sys

from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import snapshot_copies


class AnonymiseSnapshot(command.BaseCommand):
    """Write a copy of a snapshot without a name in it.

    UUIDs, hosts, projects, aggregates, zones, names and labels are replaced
    by a keyed hash: the same ones for the same salt, in every snapshot. Free
    texts are removed. Numbers, times and structure stay, and so do the names
    of policies, metrics and labels. The salt is not written anywhere.
    """

    examples = ('SNAPSHOT OUTPUT_DIR --salt-file salt --policies policies.yaml',)
    config = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('snapshot', metavar='SNAPSHOT',
                            help='As kronos-record or SIGUSR1 to kronos-engine wrote it.')
        parser.add_argument('output_dir', metavar='OUTPUT_DIR',
                            help='Directory in which the directory of the copy is made.')
        parser.add_argument('--salt-file', required=True, metavar='FILE',
                            help='At least 16 random bytes, kept secret.')
        parser.add_argument('--policies', metavar='FILE',
                            help='The policy file of the snapshot: write one that fits into '
                                 'the copy, too. Without it the copy cannot be replayed.')
        parser.add_argument('--keep-order', action='store_true',
                            help='Let UUIDs and hosts sort as before, so that a replay decides '
                                 'ties as before. Each then begins with its place in that '
                                 'order: who knows all names of the cloud can tell them.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def run() -> None:
            path, ordered = snapshot_copies.anonymise_snapshot(
                parsed_args.snapshot, parsed_args.output_dir, parsed_args.salt_file,
                policies_file=parsed_args.policies, keep_order=parsed_args.keep_order)
            if parsed_args.keep_order and not ordered:
                sys.stderr.write(
                    f'{self.prog}: the order is not wholly kept: names of hosts differ in case, '
                    'or in what follows their first part\n')
            sys.stdout.write(f'{path}\n')

        self.run_guarded(run)
