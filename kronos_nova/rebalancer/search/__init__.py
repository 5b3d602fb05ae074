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


"""Better plans than a greedy one: many cheap tries, one careful replay.

* :mod:`measure`: values of states, and the gain that a migration must bring.
* :mod:`board`: arrays to try moves on; :mod:`choice`: candidate instances, hosts.
* :mod:`soft_extremes`: a convex stand-in for max - min that has no plateaus.
* :mod:`ruin_recreate`: local search over the moves of one budget.
* :mod:`variants`: several changes of one plan, tried at once.
* :mod:`swaps`: two moves in opposite directions, judged exactly.
* :mod:`replay`: a set of moves in an order that every rule permits.
* :mod:`portfolio`: runs the searches within counted work; the best plan wins.

A new neighbourhood is a function in :mod:`ruin_recreate`, or a file that changes
a board, and its line in ``ruin_recreate.RUINS``.
"""
