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

"""Operations that operators ask for, as functions on a :class:`Session`.

Every command of ``kronos`` calls one function; a dashboard or a notebook calls the functions the
same way. Each is imported at its first use: a read of the database needs neither planner nor cloud.
"""

import importlib
from typing import Any

#: The module of each name.
_MODULES = {
    name: module for module, names in {
        'cloud_state': ('Session',),
        'cloud_views': ('list_hosts', 'read_instance'),
        'drain_checks': ('check_drain',),
        'drain_lists': ('list_drains',),
        'drain_starts': ('start_drain',),
        'drain_stops': ('stop_drain',),
        'drain_watches': ('WatchTimes', 'watch_drain'),
        'failover_checks': ('check_failover',),
        'instance_swaps': ('swap_instances',),
        'move_verdicts': ('explain_move', 'judge_move'),
        'operator_decisions': ('approve_plan', 'cancel_plan', 'cancel_task', 'lift_quarantine',
                               'pause_scope', 'reject_plan', 'resolve_task', 'resume_scope'),
        'plan_comparisons': ('Supposition', 'compare_plans', 'plan_scopes_today'),
        'past_loads': ('LoadPeriod', 'PastSource'),
        'plan_requests': ('retry_plan', 'revert_plan'),
        'report_pages': ('render_report',),
        'simulations': ('PolicyComparison', 'SimulationQuestion', 'simulate_policies'),
        'snapshot_copies': ('anonymise_snapshot',),
        'stored_views': ('list_pauses', 'list_plan_page', 'list_plans', 'list_quarantines',
                         'list_scope_states', 'list_task_page', 'list_tasks', 'read_plan',
                         'read_task'),
        'sessions': ('SharedDatabase',),
    }.items() for name in names}

__all__ = tuple(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(f'{__name__}.{_MODULES[name]}'), name)
