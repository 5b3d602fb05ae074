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

"""``up --scene imbalance``: an unbalanced cloud, whose plan waits for the first approval."""

import shlex
import sys

from tools.cloud import rebalancer
from tools.cloud import scenario
from tools.cloud import stage
from tools.cloud.client import poll
from tools.cloud.progress import Progress
from tools.cloud.run import Run


def set_scene(run: Run, progress: Progress) -> None:
    """Boot servers, let half of the hosts be busy, and start engine and executor.

    :raises TimeoutError: the engine makes no plan
    """
    there = stage.Stage(run)
    flavors = {flavor: there.flavor(flavor) for flavor in (scenario.BUSY, scenario.LARGE)}
    uuids = {there.cloud.boot(server.name, flavors[server.flavor], there.image, host=server.host):
             server.flavor for server in scenario.servers(run.state.hosts)}
    there.wait_active(list(uuids))
    progress.step(f'{len(uuids)} servers run')
    scores = there.load(scenario.loads(uuids, scenario.FLIPPED))
    progress.step(f'Prometheus shows an imbalance of {scenario.imbalance(scores):.2f}')
    rebalancer.write_configuration(run, {'engine': {
        'mode': 'approve', 'evacuate_disabled_hosts': 'true'}})
    rebalancer.start_engine(run)
    rebalancer.start_executor(run)
    poll(lambda: bool(rebalancer.tasks(run)), 'the engine has made a plan', timeout=120)
    progress.step('a plan waits for approval')
    progress.say(describe_first_steps(run))


def describe_first_steps(run: Run) -> str:
    """Return commands for a reader who has never used the rebalancer."""
    return '\n'.join((
        '', 'Log in, and try:', '',
        f'  . {shlex.quote(str(run.layout.openrc))}; export PATH={sys.prefix}/bin:$PATH',
        '  openstack rebalance scope list',
        '  openstack rebalance plan list',
        '  openstack rebalance plan approve --latest --wait',
        '  openstack rebalance task list',
        f'  openstack rebalance drain start {run.state.hosts[0]} --reason "new memory" --approve',
        f'  kronos host list --config-file {shlex.quote(str(run.layout.kronos_conf))}', '',
        f'Look at the live page, as user admin in project admin: {rebalancer.find_page(run)}',
        f'The password is in {run.layout.openrc}.', '',
        'tools/sandbox down takes it down.'))
