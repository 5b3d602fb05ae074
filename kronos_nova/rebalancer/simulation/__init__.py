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

"""A Cluster and its scores as arrays, with moves applied and undone.

:mod:`cluster_simulation` is the one mutable planning object; each other module is a part.
"""

from kronos_nova.rebalancer.simulation.arrays import Bools as Bools
from kronos_nova.rebalancer.simulation.arrays import Floats as Floats
from kronos_nova.rebalancer.simulation.arrays import Ints as Ints
from kronos_nova.rebalancer.simulation.ceilings import compute_ceilings as compute_ceilings
from kronos_nova.rebalancer.simulation.cluster_simulation import first_legal as first_legal
from kronos_nova.rebalancer.simulation.cluster_simulation import Simulation as Simulation
