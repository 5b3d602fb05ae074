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


"""Whether a host's provider tree is still the one that a plan knew.

A reshape (POST /reshaper, by a nova-compute that starts after an upgrade)
moves inventories and allocations between the providers of a host: VGPU from
the root to one child per card, VCPU and MEMORY_MB to NUMA nodes, CUSTOM_X to
X. What a move of its instances needs is then another thing.
"""

import hashlib

from kronos_nova import model


def mark(host: model.Host) -> model.TreeMark | None:
    """What is to be remembered of a host; None where it has no provider."""
    if host.provider is None:
        return None
    parts = sorted(' '.join((p.uuid, p.parent_uuid or '-', *sorted(p.inventories)))
                   for p in host.tree)
    digest = hashlib.sha256('\n'.join(parts).encode()).hexdigest()[:16]
    return model.TreeMark(host=host.name, shape=digest,
                          generation=sum(p.generation for p in host.tree))


def reshaped(known: model.TreeMark, host: model.Host) -> bool:
    """Whether its tree has another shape now; without one it is not judged."""
    now = mark(host)
    return now is not None and now.shape != known.shape
