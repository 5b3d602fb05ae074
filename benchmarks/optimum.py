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


"""CP-SAT and a linear relaxation, run as an outside program: JSON in, JSON out.

Run by a Python in which ``ortools`` is installed; ours need not be. An
instance is where it is or on one other host; at most ``budget`` are elsewhere
at the end; every host has room for what is on it at the end. Nothing is asked
of the order and of server groups, so what is found may be better than any
plan, and the bounds hold for every planner:

``linear``
    instances may be divided between hosts
``bound``
    what CP-SAT has proven in the time it had
``best``
    the best placement that CP-SAT knows, ``hint`` being one to begin with
"""

import json
import sys
import time

from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

#: Scores are whole numbers of this part: rounding is far below what is told.
UNIT = 1e-6


def linear(case):
    """The least weighted sum of max - min over divisible instances."""
    solver = pywraplp.Solver.CreateSolver('GLOP')
    infinity = solver.infinity()
    hosts = range(len(case['score'][0]))
    x = [[solver.NumVar(0.0, 1.0, '') for _ in hosts] for _ in case['place']]
    for row in x:
        solver.Add(sum(row) == 1.0)
    solver.Add(sum(row[h] for row, home in zip(x, case['place'], strict=True)
                   for h in hosts if h != home) <= case['budget'])
    total = 0
    for weight, score, share in zip(case['weights'], case['score'], case['share'], strict=True):
        high, low = solver.NumVar(0.0, infinity, ''), solver.NumVar(0.0, infinity, '')
        for h in hosts:
            fixed = score[h] - sum(share[n][h] for n, home in enumerate(case['place'])
                                   if home == h)
            load = fixed + sum(share[n][h] * row[h] for n, row in enumerate(x) if share[n][h])
            solver.Add(load <= high)
            solver.Add(load >= low)
        total += weight * (high - low)
    for limit, need in zip(case['limit'], case['need'], strict=True):
        for h in hosts:
            solver.Add(sum(need[n] * row[h] for n, row in enumerate(x)) <= limit[h])
    solver.Minimize(total)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    return solver.Objective().Value()


def integral(case):
    """Best placement and bound within ``seconds``."""
    model = cp_model.CpModel()
    hosts = range(len(case['score'][0]))
    x = [[model.NewBoolVar('') for _ in hosts] for _ in case['place']]
    for row in x:
        model.AddExactlyOne(row)
    away = [row[h] for row, home in zip(x, case['place'], strict=True)
            for h in hosts if h != home]
    model.Add(sum(away) <= case['budget'])
    total = []
    for weight, score, share in zip(case['weights'], case['score'], case['share'], strict=True):
        high, low = model.NewIntVar(0, 4_000_000, ''), model.NewIntVar(0, 4_000_000, '')
        for h in hosts:
            fixed = score[h] - sum(share[n][h] for n, home in enumerate(case['place'])
                                   if home == h)
            load = round(fixed / UNIT) + sum(round(share[n][h] / UNIT) * row[h]
                                             for n, row in enumerate(x) if share[n][h])
            model.Add(load <= high)
            model.Add(load >= low)
        total.append(round(weight * 1000) * (high - low))
    for limit, need in zip(case['limit'], case['need'], strict=True):
        for h in hosts:
            model.Add(sum(round(need[n]) * row[h] for n, row in enumerate(x)) <= int(limit[h]))
    model.Minimize(sum(total))
    elsewhere = {int(n): h for n, h in case['hint']}
    for n, row in enumerate(x):
        for h in hosts:
            model.AddHint(row[h], int(elsewhere.get(n, case['place'][n]) == h))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = case['seconds']
    solver.parameters.num_workers = case['workers']
    status = solver.Solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {}
    moves = [[n, h] for n, row in enumerate(x) for h in hosts
             if solver.Value(row[h]) and h != case['place'][n]]
    return {'best': solver.ObjectiveValue() * UNIT / 1000, 'moves': moves,
            'bound': solver.BestObjectiveBound() * UNIT / 1000}


def main():
    case = json.load(sys.stdin)
    started = time.perf_counter()
    answer = {'linear': linear(case)} | integral(case)
    answer['seconds'] = time.perf_counter() - started
    json.dump(answer, sys.stdout)


if __name__ == '__main__':
    main()
