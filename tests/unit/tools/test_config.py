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

"""The rendered files say what oslo.config, Prometheus and Nova will read."""

import pathlib
import subprocess

from oslo_config import cfg
import pytest
import yaml

from tests import ci
from tools.cloud import config
from tools.cloud import ports
from tools.cloud.hypervisors.base import HostSize
from tools.cloud.hypervisors.simulated import SimulatedHypervisor

FORBIDDEN_IN_COMPUTES = ('database', 'api_database')


@pytest.fixture
def cloud():
    numbers = {name: 20000 + i for i, name in enumerate(ports.NAMES)}
    names = ('keystone', 'placement', 'glance', 'nova_api', 'nova', 'nova_cell0')
    return config.Cloud(
        ports=numbers,
        database={name: f'mysql+pymysql://u:p@127.0.0.1:1/{name}' for name in names},
        venv=pathlib.Path('/venv'),
        etc=pathlib.Path('/etc-of-it'),
        data=pathlib.Path('/data-of-it'),
    )


def read(tmp_path, text, *options):
    """Parse with oslo.config, as a service does; options are (group, option)."""
    file = tmp_path / 'some.conf'
    file.write_text(text)
    conf = cfg.ConfigOpts()
    for group, option in options:
        conf.register_opt(option, group=group)
    conf(['--config-file', str(file)])
    return conf


def test_a_list_gives_an_option_once_per_element(tmp_path):
    text = config.render({'g': {'several': ['a', 'b'], 'one': 1}})
    conf = read(tmp_path, text, ('g', cfg.MultiStrOpt('several')), ('g', cfg.IntOpt('one')))
    assert (conf.g.several, conf.g.one) == (['a', 'b'], 1)


@pytest.mark.needs_nova
def test_nova_default_filters_are_restated():
    import nova.conf

    assert list(config.NOVA_FILTERS) == nova.conf.CONF.filter_scheduler.enabled_filters


def scheduler_options():
    return (
        ('filter_scheduler', cfg.MultiStrOpt('available_filters')),
        ('filter_scheduler', cfg.ListOpt('enabled_filters')),
        ('filter_scheduler', cfg.ListOpt('weight_classes')),
        ('kronos', cfg.StrOpt('policies_file')),
    )


def test_nova_scheduler_loads_our_filters_besides_its_own(cloud, tmp_path):
    text = config.nova(cloud, {'kronos': {'policies_file': '/p.yaml'}})
    conf = read(tmp_path, text, *scheduler_options())
    group = conf.filter_scheduler
    assert group.available_filters == [
        'nova.scheduler.filters.all_filters', 'kronos_nova.filters.all_filters']
    assert group.enabled_filters == [*config.NOVA_FILTERS, *config.KRONOS_FILTERS]
    assert group.weight_classes == [
        'nova.scheduler.weights.all_weighers', 'kronos_nova.weighers.all_weighers']
    assert conf.kronos.policies_file == '/p.yaml'


def test_a_stock_scheduler_knows_nothing_of_us(cloud):
    assert 'kronos' not in config.nova(cloud, None)


def test_our_sections_join_those_that_are_there(cloud, tmp_path):
    text = config.nova(cloud, {'filter_scheduler': {'kronos_weight_multiplier': 3.0}})
    conf = read(tmp_path, text, ('filter_scheduler', cfg.FloatOpt('kronos_weight_multiplier')),
                *scheduler_options())
    assert conf.filter_scheduler.kronos_weight_multiplier == 3.0
    assert conf.filter_scheduler.enabled_filters


def test_nova_computes_get_no_database_options(cloud):
    more = SimulatedHypervisor().build_compute_options(HostSize())
    lines = config.computes(cloud, more).splitlines()
    assert {'[sandbox]', 'compute_driver = sandbox.SandboxDriver'} <= set(lines)
    assert not {f'[{section}]' for section in FORBIDDEN_IN_COMPUTES} & set(lines)


def test_each_compute_has_its_own_state(cloud):
    first, second = (config.compute(cloud, host, {}) for host in ('compute-01', 'compute-02'))
    assert 'state_path = /data-of-it/state/compute-01' in first
    assert 'compute-01' not in second


def list_targets(*hosts):
    return [config.ScrapeTarget(job, host, 29100, f'/{host}/{job}')
            for job in ('node', 'libvirt') for host in hosts]


def test_prometheus_has_two_targets_per_host_with_instances_of_their_own(tmp_path):
    text = config.prometheus(list_targets('compute-01', 'compute-02'))
    jobs = yaml.safe_load(text)['scrape_configs']
    labels = [c['labels'] for job in jobs for c in job['static_configs']]
    assert {(label['instance'], label['__metrics_path__']) for label in labels} == {
        ('compute-01:9100', '/compute-01/node'), ('compute-02:9100', '/compute-02/node'),
        ('compute-01:9177', '/compute-01/libvirt'), ('compute-02:9177', '/compute-02/libvirt')}


def test_promtool_accepts_the_prometheus_configuration(tmp_path):
    file = tmp_path / 'prometheus.yml'
    file.write_text(config.prometheus(list_targets('compute-01')))
    done = subprocess.run([ci.program('promtool', 'prometheus'), 'check', 'config', file],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_stays_on_loopback(cloud):
    texts = [config.keystone(cloud), config.placement(cloud), config.glance(cloud),
             config.nova(cloud, {}), config.computes(cloud, {}), config.openrc(cloud),
             config.prometheus(list_targets('compute-01'))]
    for text in texts:
        for line in text.splitlines():
            assert '://' not in line or '127.0.0.1' in line or 'file://' in line, line
