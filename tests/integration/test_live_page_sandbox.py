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

"""The live page on a sandbox: check a drain, disable the host, approve the plan, see the end."""

import pytest
from selenium.webdriver.common.by import By

from tests.fixtures import chromium
from tests.fixtures import live_page
from tools.cloud import client
from tools.cloud import config
from tools.cloud import down
from tools.cloud import rebalancer
from tools.cloud import scene
from tools.cloud import up
from tools.cloud.layout import CHECKOUT
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress

pytestmark = pytest.mark.long

#: Seconds for cycles of the engine and migrations.
PATIENCE = 240


@pytest.fixture(scope='module')
def run():
    layout = Layout(CHECKOUT / '.sandbox' / 'live-page')
    progress = Progress()
    down.down(layout, keep_logs=False, progress=progress)
    run = up.up(layout, up.Size(hosts=4, api=True), progress)
    try:
        scene.set_scene(run, progress)
        yield run
    finally:
        down.down(layout, keep_logs=True, progress=progress)


@pytest.fixture
def page(run, tmp_path):
    with chromium.drive(tmp_path) as driver:
        page = live_page.LivePage(driver, f'http://127.0.0.1:{run.ports[rebalancer.API]}')
        page.resize(1400)
        yield page


def sign_in(page):
    page.open()
    page.wait(lambda: page.list_shown('#password-form'))
    for name, value in {'user_name': 'admin', 'password': config.PASSWORD,
                        'project_name': 'admin'}.items():
        page.find(f'#password-form [name={name}]').send_keys(value)
    page.find('#password-form button').click()
    page.wait(lambda: page.run(live_page.READY))


def list_states(page):
    """Return the states of the moves that the page shows, by host of origin."""
    return [(row.find_element(By.CSS_SELECTOR, '[data-label=From]').text.split()[0],
             row.find_element(By.CSS_SELECTOR, '[data-label=State]').text)
            for row in page.list_shown('tr[data-move]')]


def show_service(cloud, host):
    """Return the nova-compute of a host as Nova shows it."""
    service, = [service for service in cloud.call('GET', 'nova', '/v2.1/os-services')['services']
                if (service['binary'], service['host']) == ('nova-compute', host)]
    return service


def test_operator_drains_a_host_and_sees_its_moves_end(run, page):
    cloud = client.Cloud(run.ports)
    host = run.state.hosts[0]
    leaving = [server['id'] for server in cloud.servers()
               if server['OS-EXT-SRV-ATTR:host'] == host]
    assert leaving
    sign_in(page)
    assert page.list_shown('[data-approve-plan]'), 'the plan for balance waits'

    field = page.find('#check-form [name=host]')
    field.send_keys(host)
    page.find('#check-form button').click()
    page.wait(lambda: 'is possible' in page.find('#certificate h3').text)
    certificate = page.find('#certificate').text
    assert all(uuid in certificate for uuid in leaving)
    page.find('#certificate .main').click()
    page.wait(lambda: page.list_shown('#drain')).pop()
    page.find('#drain [name=reason]').send_keys('new memory')
    page.find('#drain .main').click()
    page.wait(lambda: not page.list_shown('#drain'))

    service = show_service(cloud, host)
    assert (service['status'], service['disabled_reason']) == ('disabled', 'new memory')

    def show_waiting_drain():
        """Return the states when exactly the moves off the host wait."""
        states = list_states(page)
        waiting = [place for place, state in states if state == 'pending']
        return waiting if waiting and set(waiting) == {host} else None

    assert len(page.wait(show_waiting_drain, PATIENCE)) == len(leaving), (
        'the drain goes before the moves for balance')
    page.find('[data-approve-plan]').click()
    page.wait(lambda: page.list_shown('#approve'))
    page.find('#approve [name=reason]').send_keys('night shift')
    page.find('#approve .main').click()
    page.wait(lambda: not page.list_shown('#approve'))

    page.wait(lambda: [state for place, state in list_states(page) if place == host]
              == ['completed'] * len(leaving), PATIENCE)
    assert not [server for server in cloud.servers()
                if server['OS-EXT-SRV-ATTR:host'] == host]
    # An engine publishes what it has read once a minute.
    page.wait(lambda: [row.find_element(By.CSS_SELECTOR, 'td:nth-of-type(2)').text
                       for row in page.list_shown('#drains tbody tr')] == ['0'], PATIENCE)
    page.wait(lambda: page.list_shown('#drains tbody button')).pop().click()
    page.wait(lambda: page.list_shown('#stop-drain'))
    page.find('#stop-drain .main').click()
    page.wait(lambda: not page.list_shown('#stop-drain'))
    assert show_service(cloud, host)['status'] == 'enabled'
    assert [line for line in page.take_console() if 'SEVERE' in line] == []
