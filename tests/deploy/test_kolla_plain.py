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

"""A cloud with the defaults of kolla-ansible: without TLS, and with our sample policies.

It has Blazar besides, whose filter is in the same list as ours, and Grafana.
"""

import json

from keystoneauth1 import loading
import pytest
import sqlalchemy
import yaml

from kronos_nova.conf import opts
from kronos_nova.conf import policies
from kronos_nova.rebalancer.messaging import transport
from tests.deploy import kolla_cloud
from tests.deploy import kolla_env
from tests.deploy import rendered_conf

#: With a quarter of the commits: the cloud with TLS has most of the same lines.
pytestmark = pytest.mark.turns(4, 3)

SETTINGS = {'enable_blazar': True, 'enable_grafana': True}
#: Without policies of the operator's own.
SECTIONS = tuple(name for name in kolla_cloud.SECTIONS if name != 'Policies')
BLAZAR = 'blazarnova.scheduler.filters.blazar_filter.BlazarFilter'


@pytest.fixture(scope='module')
def cloud(tmp_path_factory) -> kolla_cloud.Cloud:
    kolla_env.prepared()
    made = kolla_cloud.Cloud(tmp_path_factory.mktemp('plain'))
    made.write(SETTINGS, SECTIONS)
    made.genconfig(made.playbook(kolla_cloud.PLACEMENT_AND_GRAFANA))
    return made


@pytest.fixture(params=rendered_conf.DAEMONS[:2])
def daemon(request) -> str:
    return request.param


def test_migfra_and_api_are_off_by_default(cloud):
    assert (cloud.node / 'kronos-engine').exists()
    for name in ('kronos-migfra', 'kronos-api'):
        assert not (cloud.node / name).exists()
    assert list((cloud.node / 'haproxy/services.d').iterdir()) == []


class TestNovaScheduler(rendered_conf.NovaScheduler):

    def test_blazar_filter_comes_before_our_filters(self, cloud):
        lists = rendered_conf.nova(cloud, 'nova-scheduler').filter_scheduler
        assert lists.available_filters[1] == BLAZAR
        assert lists.enabled_filters[-3:] == ['BlazarFilter', *rendered_conf.OURS[
            'enabled_filters']]

    def test_scheduler_reads_prometheus_without_tls(self, cloud):
        assert rendered_conf.nova(cloud, 'nova-scheduler').prometheus.url == (
            'http://192.0.2.10:9091')


def test_daemons_connect_without_tls(rendered):
    assert opts.wrong_values(rendered) == []
    assert rendered.prometheus.url == 'http://192.0.2.10:9091'
    assert loading.load_auth_from_conf_options(
        rendered, 'nova').auth_url == 'http://192.0.2.10:5000'
    url = transport.parse_broker_url(rendered)
    assert [(host.hostname, host.port) for host in url.hosts] == [('127.0.0.1', 5672)]
    assert transport.choose_queue_type(rendered) == 'quorum'
    assert not rendered.oslo_messaging_rabbit.ssl
    assert sqlalchemy.make_url(rendered.database.connection).query == {}


def test_our_files_name_no_authority(cloud, daemon):
    """An empty value would be one more thing to wonder about."""
    given = rendered_conf.given(cloud.node / daemon / 'kronos.conf') | {
        (section, name)
        for section, name in rendered_conf.given(cloud.node / 'nova-scheduler/nova.conf')
        if section == 'prometheus'}
    assert {(section, name) for section, name in given
            if name in ('cafile', 'ca_cert', 'ssl_ca_file')} == set()


def test_container_gets_no_authorities(cloud, daemon):
    files = cloud.json(f'{daemon}/config.json')['config_files']
    assert [file['dest'] for file in files] == ['/etc/kronos/kronos.conf']
    assert not (cloud.node / daemon / 'ca-certificates').exists()


def test_sample_policies_are_the_default(cloud, rendered):
    sample = kolla_cloud.ETC / 'policies.yaml'
    copied = [path.name for path in (cloud.node / 'kronos-policies').iterdir()]
    assert copied == [rendered.engine.policies_file.rpartition('/')[2]]
    assert (cloud.node / 'kronos-policies' / copied[0]).read_bytes() == sample.read_bytes()
    assert policies.load_policies(str(cloud.node / 'kronos-policies' / copied[0])).policies


@pytest.mark.parametrize('service', ['nova', 'placement'])
def test_role_rules_reach_api_unchanged(cloud, service):
    ours = yaml.safe_load((kolla_cloud.ETC / f'{service}-policy.yaml').read_text())
    folder = cloud.node / f'{service}-api'
    assert yaml.safe_load((folder / 'policy.yaml').read_text()) == ours
    assert ('oslo_policy', 'policy_file') in rendered_conf.given(folder / f'{service}.conf')
    assert f'/etc/{service}/policy.yaml' in [
        file['dest'] for file in cloud.json(f'{service}-api/config.json')['config_files']]


def test_grafana_gets_dashboard(cloud):
    ours = json.loads((kolla_cloud.KRONOS / 'grafana/kronos.json').read_text())
    placed = cloud.json('grafana/dashboards/kronos.json')
    assert placed == ours and placed['panels']
    provided = yaml.safe_load((cloud.node / 'grafana/provisioning.yaml').read_text())
    (folder,) = [file['dest'] for file in cloud.json('grafana/config.json')['config_files']
                 if file['source'].endswith('/dashboards/')]
    assert folder in [provider['options']['path'] for provider in provided['providers']]
