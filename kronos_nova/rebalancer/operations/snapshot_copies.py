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

"""Anonymous copies of snapshots, for a report of a defect."""

import yaml

from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer.snapshots import anonymiser
from kronos_nova.rebalancer.snapshots import writer


def anonymise_snapshot(directory: str, output_dir: str, salt_file: str, *,
                       policies_file: str | None = None,
                       keep_order: bool = False) -> tuple[str, bool]:
    """Write a copy of a snapshot without names into a new directory.

    :param output_dir: where the new directory is made.
    :param salt_file: the secret from which the new names follow; made if it does not exist.
    :param policies_file: the policies of the snapshot; the copy gets policies that fit.
    :param keep_order: let UUIDs and hosts sort as before.
    :returns: the new directory, and whether the order was wholly kept.
    :raises KronosException: a file cannot be read or written.
    """
    salt = anonymiser.salt_of(salt_file)
    policy_set = policy_files.load_policies(policies_file) if policies_file else None
    anonymised = anonymiser.anonymise_snapshot(directory, salt, policy_set=policy_set,
                                               keep_order=keep_order)
    text = None if anonymised.policies is None else yaml.safe_dump(
        dict(anonymised.policies), sort_keys=False, allow_unicode=True)
    stamp = anonymised.documents['meta.json']['recorded_at']
    name = 'kronos-anonymised-' + ''.join(c for c in stamp[:19] if c.isalnum()) + 'Z'
    return (writer.publish_directory(output_dir, anonymised.documents, name, text),
            anonymised.ordered)
