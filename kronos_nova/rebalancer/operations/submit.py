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

"""Storage of plans that operators request, beside those of the scope's engine.

Executors carry them out as any other plan.
"""

from collections.abc import Callable

from oslo_config import cfg
from oslo_utils import uuidutils
import sqlalchemy as sa

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plans


def store_requested_plan(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, store: api.Store,
                         plan: model.Plan,
                         cluster: model.Cluster, mark: plans.LiveWork,
                         said: plan_approvals.OperatorDecision,
                         verb: str, *,
                         adjust: Callable[[model.Task], model.Task] = lambda task: task,
                         also: Callable[[sa.Connection, str], None] = lambda connection,
                         plan_id: None,
                         ) -> list[model.Task]:
    """Store a plan with its tasks.

    :param mark: state of the database before the cloud was read.
    :param adjust: turns a task into the requested form.
    :param also: writes more in the same transaction; gets its connection and the plan's UUID.
    :raises StoreError: another plan was stored since, or an instance is being moved; nothing was
        written.
    """
    now, plan_id = store.now(), uuidutils.generate_uuid()
    rows = [adjust(task) for task in tasks.from_plan(
        plan, cluster, tuple(p.name for p in policy_set.enabled), plan_id=plan_id, now=now,
        stagger_seconds=conf.executor.stagger_seconds, max_retries=conf.executor.max_retries,
        new_id=uuidutils.generate_uuid, options=engine_conf.build_options(conf))]
    store.plans.save_requested_plan(mark, plan, rows, plan_id=plan_id, now=now,
                                    instance_cooldown=conf.engine.instance_cooldown, said=said,
                                    verb=verb,
                                    also=lambda connection: also(connection, plan_id))
    return rows
