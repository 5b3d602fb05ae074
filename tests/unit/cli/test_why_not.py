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

"""``kronos why-not`` on a recorded cloud."""

import json
from pathlib import Path

import pytest

from tests import commands

EXAMPLE = Path(__file__).resolve().parents[3] / 'doc/examples/replay'
#: Moved to compute-04 by the example's plan.
MOVED = 'ee2a96c5-0647-54d5-8ea1-0df4c1d44587'


def ask(*arguments):
    return commands.main('kronos_nova.cli.app', 'why-not', '--config-file', 'kronos.conf',
                         '--snapshot', 'snapshot', *arguments, cwd=EXAMPLE)


def rows(*arguments):
    done = ask(*arguments, '-f', 'json')
    assert done.returncode == 0, done.stderr
    return [tuple(row.values()) for row in json.loads(done.stdout)]


def test_a_move_that_is_planned_is_refused_by_no_rule_and_improves():
    found = rows(MOVED, 'compute-04')
    assert {verdict for what, verdict, _ in found if not what.startswith('policy')} == {'passed'}
    cpu = next(row for row in found if row[0] == 'policy cpu')
    assert cpu[1] == 'better' and '(threshold 0.1500); fill of the host' in cpu[2]
    assert found[-1][0] == 'conclusion' and 'it would lower the imbalance' in found[-1][2]


def test_a_host_that_does_not_serve_is_refused_with_every_reason():
    found = rows(MOVED, 'compute-12')
    refused = {what: detail for what, verdict, detail in found if verdict == 'refused'}
    assert refused.keys() == {'out-of-scope', 'service-disabled', 'conclusion'}
    assert 'compute-12' in refused['service-disabled']
    assert refused['conclusion'] == 'refused by out-of-scope, service-disabled'


def test_a_drain_asks_for_no_improvement():
    found = rows('32f73e56-a6ac-5f71-a3ec-baac46b04cd0', 'compute-08', '--phase', 'evacuate')
    assert found[-1] == ('conclusion', 'passed', 'no rule refuses it: it is one of the '
                         'destinations that are compared')


@pytest.mark.parametrize(('arguments', 'said'), [
    ((MOVED, 'compute-013'), 'HOST: compute-013: no such compute host. Is compute-03 '
                             'meant?'),
    ((MOVED, 'nowhere'), 'HOST: nowhere: no such compute host. kronos host list has the '
                         'names of all hosts'),
    (('nobody', 'compute-01'), 'INSTANCE: nobody: no host has such an instance. Give the UUID'),
    ((MOVED, 'compute-01', '--snapshot', 'nowhere'), 'nowhere')])
def test_a_missing_object_gives_one_line_on_standard_error(arguments, said):
    done = ask(*arguments)
    assert done.returncode == 1 and done.stdout == ''
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
