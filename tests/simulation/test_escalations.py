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

"""Executors that die at each step against a migration that does not converge, seed by seed."""

import collections
import os

import pytest

from tests.simulation import escalating_world

SEEDS = int(os.environ.get('KRONOS_ESCALATION_SEEDS', '24'))


def test_every_task_ends_and_no_step_comes_twice():
    seen = collections.Counter()
    for seed in range(SEEDS):
        run = escalating_world.Run(seed)
        try:
            run.go(steps=300)
        except AssertionError as e:
            pytest.fail(f'seed {seed}: {e}')
        finally:
            run.store.close()
        seen.update(run.counts)
    for event in ('force refused', 'force held up', 'force unanswered', 'contract', 'abort',
                  'postcopy', 'pause without end', 'completed by force',
                  'ended by the abort of a force', 'deadline', 'no deadline'):
        assert seen[event], event
    assert any('force_completion' in event for event in seen if event.startswith('crash'))
