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


"""Comparison of provider trees between plan and pre-flight.

A tree that has merely changed (another generation) needs no rule here: pre-flight judges
everything again. In a tree of another shape the plan's reasons are about providers that are gone.
The executor then replaces a destination by the next one, and ends the tasks of a source one by
one.
"""

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.planning import provider_tree_digest

LOG = logging.getLogger(__name__)


def refuse_reshaped_trees(task: model.Task, cluster: model.Cluster) -> None:
    """Raise unless both hosts still have the provider trees of the plan.

    :raises PreFlightError: the provider tree of a host was reshaped.
    """
    marks = {mark.host: mark for mark in task.trees}
    for name in (task.from_host, task.to_host):
        known, host = marks.get(name), cluster.hosts.get(name)
        if known is None or host is None:
            continue
        if provider_tree_digest.is_tree_reshaped(known, host):
            raise exception.PreFlightError(
                instance_uuid=task.instance_uuid,
                rule='source-reshaped' if name == task.from_host else 'tree-reshaped',
                problem=f'not moved to {task.to_host}: the resource providers of {name} (root '
                        f'{host.uuid}) were reshaped since it was planned '
                        f'({"source" if name == task.from_host else "tree"}-reshaped); the next '
                        'plan knows')
        now = sum(p.generation for p in host.tree)
        if now != known.generation:
            LOG.debug('%s: the resource providers of %s have changed since it was planned '
                      '(generations %d, now %d in sum); checking it again',
                      model.format_task(task), name, known.generation, now)
