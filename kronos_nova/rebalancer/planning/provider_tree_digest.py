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


"""Digest of a host's provider tree, by which a change since the plan is found.

A reshape (POST /reshaper, by a nova-compute that starts after an upgrade) moves inventories and
allocations between the providers of a host: VGPU from the root to one child per card, VCPU and
MEMORY_MB to NUMA nodes, CUSTOM_X to X. A move of its instances then needs other allocations.
"""

import hashlib

from kronos_nova import model


def compute_tree_digest(host: model.Host) -> model.TreeDigest | None:
    """Return the digest of a host's provider tree, None: the host has no provider."""
    if host.provider is None:
        return None
    parts = sorted(' '.join((p.uuid, p.parent_uuid or '-', *sorted(p.inventories)))
                   for p in host.tree)
    digest = hashlib.sha256('\n'.join(parts).encode()).hexdigest()[:16]
    return model.TreeDigest(host=host.name, shape=digest,
                            generation=sum(p.generation for p in host.tree))


def is_tree_reshaped(known: model.TreeDigest, host: model.Host) -> bool:
    """Return whether the host's tree has another shape now; False if it has no tree."""
    now = compute_tree_digest(host)
    return now is not None and now.shape != known.shape
