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

"""A real nova-scheduler on a nova.conf that kolla-ansible has rendered.

Run by test_kolla_ansible.py, in a process of its own; ``KRONOS_RENDERED`` is the
directory that stands for /etc/kolla. What this machine does not have is replaced:
database, broker, Keystone and its users, and the addresses of Prometheus and of the
policies, whose rendered values rendered_conf.py looks at. The rest is as rendered.
"""

import base64
import os
from pathlib import Path

import fixtures
from nova import config
import nova.conf
from oslo_config import cfg

from tests.functional import scores

CONF = nova.conf.CONF
NODE = Path(os.environ['KRONOS_RENDERED'])
REPLACED = (
    (None, 'log_dir', None), ('database', 'connection', 'sqlite://'),
    ('api_database', 'connection', 'sqlite://'), ('cache', 'enabled', False),
    ('service_user', 'send_service_user_token', False), ('placement', 'auth_type', None))


class RenderedTestCase(scores.ScoredTestCase):
    plugins = False
    hosts = ('host1', 'host2')
    scores = {'host1': 0.2, 'host2': 0.8}

    def configure(self) -> None:
        parse = config.parse_args

        def parse_rendered(argv, default_config_files=None, **kwargs):
            parse(argv, default_config_files=[str(NODE / 'nova-scheduler/nova.conf')], **kwargs)
            for group, name, value in REPLACED:
                CONF.set_override(name, value, group)
                self.addCleanup(CONF.clear_override, name, group)

        self.useFixture(fixtures.MonkeyPatch('nova.config.parse_args', parse_rendered))
        super().configure()
        self.flags(policies_file=[str(NODE / 'kronos-policies/policies.yaml')], group='kronos')

    def test_nova_accepts_every_value(self):
        self.assertEqual('nova.scheduler.filters.all_filters',
                         CONF.filter_scheduler.available_filters[0])
        read = 0
        for group in [None, *CONF]:
            section = CONF if group is None else CONF[group]
            if not isinstance(section, cfg.ConfigOpts | cfg.ConfigOpts.GroupAttr):
                continue
            for name in section:
                section[name]
                read += 1
        self.assertGreater(read, 500)

    def test_scheduler_starts_and_boots_by_load(self):
        manager = self.scheduler_service.manager.host_manager
        self.assertEqual(
            ['ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
             'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter',
             'KronosPlacementFilter', 'KronosCapacityFilter'],
            [type(filter_).__name__ for filter_ in manager.enabled_filters])
        self.assertIn('KronosWeigher', [type(each).__name__ for each in manager.weighers])
        self.assertIn('RAMWeigher', [type(each).__name__ for each in manager.weighers])
        self.wait_for_scores(host1=0.2, host2=0.8)
        user = f'kronos:{CONF.prometheus.password}'.encode()
        self.assertEqual(f'Basic {base64.b64encode(user).decode()}',
                         self.prometheus.requests[-1][2]['Authorization'])
        self.assertEqual('host1', self.chosen())
