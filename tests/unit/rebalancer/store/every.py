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


"""Every case of every module beside this one: what SQLite and the servers are held to."""

from tests.unit.rebalancer.store import agendas
from tests.unit.rebalancer.store import approvals
from tests.unit.rebalancer.store import asked
from tests.unit.rebalancer.store import auditing
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store import exact
from tests.unit.rebalancer.store import faults
from tests.unit.rebalancer.store import hooks
from tests.unit.rebalancer.store import kept
from tests.unit.rebalancer.store import measuring
from tests.unit.rebalancer.store import requested
from tests.unit.rebalancer.store import swapping

MODULES = (cases, agendas, faults, exact, approvals, asked, auditing, hooks, kept, measuring,
           requested, swapping)
ALL = [case for module in MODULES for case in module.ALL]
