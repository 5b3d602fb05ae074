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
other host; at most ``budget`` are elsewhere at the end, and every host has room for the members on
it at the end. Nothing is asked of the order, so the result may be better than any plan.
"""

import json
import sys

from ortools.sat.python import cp_model


def spread(case):
    model = cp_model.CpModel()
    hosts = range(len(case['domain']))
    x = [[model.NewBoolVar('') for _ in hosts] for _ in case['place']]
    for row, allowed, home in zip(x, case['allowed'], case['place'], strict=True):
        model.AddExactlyOne(row)
        for h in hosts:
            if h != home and not allowed[h]:
                model.Add(row[h] == 0)
    model.Add(sum(row[h] for row, home in zip(x, case['place'], strict=True)
                  for h in hosts if h != home) <= case['budget'])
    for room, need in zip(case['room'], case['need'], strict=True):
        for h in hosts:
            model.Add(sum(need[n] * row[h] for n, row in enumerate(x)) <= room[h])
    domains = sorted(set(case['domain']))
    base, total = len(domains) + 1, 0
    for domain in domains:
        count = sum(row[h] for row in x for h in hosts if case['domain'][h] == domain)
        for least in range(1, case['most'] + 1):
            # The number of domains with so many members, the largest number first.
            reaches = model.NewBoolVar('')
            model.Add(count <= least - 1 + len(x) * reaches)
            total += base ** (least - 1) * reaches
        model.Add(count <= case['most'])
    model.Minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 20
    status = solver.Solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {'proven': False, 'counts': None}
    counts = [sum(solver.Value(row[h]) for row in x for h in hosts if case['domain'][h] == d)
              for d in domains]
    return {'proven': status == cp_model.OPTIMAL,
            'counts': sorted((c for c in counts if c), reverse=True)}


for line in sys.stdin:
    print(json.dumps(spread(json.loads(line))), flush=True)
