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

"""Small traces for these tests, written as lists."""

import math

import numpy as np

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer.backtest import history
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import evacuate
from kronos_nova.rebalancer.strategies import pack
from kronos_nova.rebalancer.strategies import repair
from kronos_nova.rebalancer.strategies import spread
from kronos_nova.sources import ranges

START = 1_000_000.0
STEP = 300.0
CORES = 10
SCOPES = (model.UNASSIGNED,)


def policy_set(**fields):
    fields = {'name': 'cpu', 'weight': 1, 'imbalance_query': 'cpu', 'vm_profile_query': 'used',
              'vm_profile_label': 'uuid', 'vm_profile_label_type': 'nova_instance_uuid',
              'vm_profile_unit': 'absolute', 'host_capacity': 'VCPU', 'threshold': 0.2, **fields}
    return policy.parse_policies({'policies': [fields]})


def cluster(places, *, memory_mb=1000, services=(), groups=(), taken_at=START):
    """``places``: instance -> host; hosts h1 to h3 of 10 cores."""
    instances = {u: model.Instance(uuid=u, host=h, name=f'name {u}', vcpus=1, memory_mb=memory_mb,
                                   claims={'VCPU': 1, 'MEMORY_MB': memory_mb})
                 for u, h in places.items()}
    hosts = {}
    for name in ('h1', 'h2', 'h3'):
        count = sum(h == name for h in places.values())
        hosts[name] = model.Host(
            name, hypervisor_hostname=f'{name}.example.org', provider=model.Provider(
                name, inventories={'VCPU': model.Inventory(CORES, allocation_ratio=4.0),
                                   'MEMORY_MB': model.Inventory(100_000)},
                used={'VCPU': count, 'MEMORY_MB': count * memory_mb}))
    service_by_host = {h: model.Service(h) for h in hosts} | {s.host: s for s in services}
    return model.Cluster(hosts=hosts, instances=instances, services=service_by_host, groups=groups,
                         taken_at=taken_at)


def answer(series, marks=None):
    """``series``: key -> values, or a list of (key, mark, values)."""
    rows = series if isinstance(series, list) else [(k, '', v) for k, v in series.items()]
    return recorded_trace.RecordedSeries(
        tuple(k for k, _m, _v in rows), tuple(m for _k, m, _v in rows),
        np.array([[math.nan if x is None else x for x in v] for _k, _m, v in rows],
                 dtype=np.float32).T)


def trace(cloud, hosts, used, *, policies=None, step=STEP, **more):
    """``hosts`` and ``used`` by time, as :func:`answer` takes them.

    :param more: further answers by field.
    """
    chosen = (policies or policy_set()).policies[0]
    questions = recorded_trace.list_questions(chosen)
    answers = {questions['imbalance_query']: answer(hosts)}
    if used is not None:
        answers[questions['vm_profile_query']] = answer(used)
    for field, series in more.items():
        answers[questions[field]] = answer(series)
    count = len(next(iter(answers.values())).values)
    return recorded_trace.RecordedTrace(ranges.QueryWindow(START, step, count), cloud, SCOPES,
                                        answers)


def built(cloud, hosts, used, *, policies=None, **more):
    chosen = policies or policy_set()
    return history.build_past(trace(cloud, hosts, used, policies=chosen, **more), [chosen], SCOPES)


def scores_of(places, usages, base=0.1):
    """The host scores that follow from usages by time."""
    count = max(len(v) for v in usages.values())
    return {h: [base + sum(usages[u][k] for u in usages if places[u] == h) / CORES
                for k in range(count)] for h in ('h1', 'h2', 'h3')}


def settings(policies=None, **options):
    return planning_pipeline.PassSettings(
        policies or policy_set(), model.PlanningOptions(dry_run=False, **options),
        [evacuate.Evacuate(), repair.Repair(), spread.Spread(), pack.Pack()], deadline=math.inf)
