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
"""The best spread of one set over failure domains by CP-SAT, run as an outside program.

Run by a Python in which ``ortools`` is installed; ours need not be. JSON in, a line for each case;
JSON out, the numbers of members by domain, the largest first. A member is where it is or on one
other host; at most ``budget`` are elsewhere at the end, and every host has room for the members.
With ``ordered`` false nothing is asked of the order, so the result may be better than any plan.
With ``ordered`` true the members move one after the other, each into room that is there, and no
move makes the spread worse, as the rule demands.
"""

import json
import sys

from ortools.sat.python import cp_model


def spread(case):
    model = cp_model.CpModel()
    hosts = range(len(case['domain']))
    steps = case['budget'] if case['ordered'] else 1
    states = [[[int(h == home) for h in hosts] for home in case['place']]]
    moved = []
    for _step in range(steps):
        before, after = states[-1], [[model.NewBoolVar('') for _ in hosts] for _ in case['place']]
        for row, allowed, home in zip(after, case['allowed'], case['place'], strict=True):
            model.AddExactlyOne(row)
            for h in hosts:
                if h != home and not allowed[h]:
                    model.Add(row[h] == 0)
        for room, need in zip(case['room'], case['need'], strict=True):
            for h in hosts:
                model.Add(sum(need[n] * row[h] for n, row in enumerate(after)) <= room[h])
        if case['ordered']:
            moved.append(order_step(model, case, before, after))
        states.append(after)
    if case['ordered']:
        for n in range(len(case['place'])):
            model.Add(sum(step[n] for step in moved) <= 1)
    else:
        model.Add(sum(row[h] for row, home in zip(states[-1], case['place'], strict=True)
                      for h in hosts if h != home) <= case['budget'])
    domains = sorted(set(case['domain']))
    base, total = len(domains) + 1, 0
    for domain in domains:
        count = count_in(case, states[-1], domain)
        for least in range(1, case['most'] + 1):
            # The number of domains with so many members, the largest number first.
            reaches = model.NewBoolVar('')
            model.Add(count <= least - 1 + len(case['place']) * reaches)
            total += base ** (least - 1) * reaches
        model.Add(count <= case['most'])
    model.Minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 60
    status = solver.Solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), status
    counts = [sum(solver.Value(row[h]) for row in states[-1] for h in hosts
                  if case['domain'][h] == d) for d in domains]
    return {'proven': status == cp_model.OPTIMAL,
            'counts': sorted((c for c in counts if c), reverse=True)}


def order_step(model, case, before, after):
    """Let at most one member move, never to a domain with as many others as its own has."""
    hosts, moved = range(len(case['domain'])), []
    for old, new in zip(before, after, strict=True):
        move = model.NewBoolVar('')
        for h in hosts:
            model.Add(new[h] <= old[h] + move)
            model.Add(old[h] <= new[h] + move)
        for a in set(case['domain']):
            for b in set(case['domain']) - {a}:
                crosses = model.NewBoolVar('')
                leaves = sum(old[h] for h in hosts if case['domain'][h] == a)
                enters = sum(new[h] for h in hosts if case['domain'][h] == b)
                model.Add(leaves + enters <= 1 + crosses)
                model.Add(count_in(case, before, b) + 1 <= count_in(case, before, a)
                          ).OnlyEnforceIf(crosses)
        moved.append(move)
    model.Add(sum(moved) <= 1)
    return moved


def count_in(case, state, domain):
    return sum(row[h] for row in state for h in range(len(case['domain']))
               if case['domain'][h] == domain)


for line in sys.stdin:
    print(json.dumps(spread(json.loads(line))), flush=True)
