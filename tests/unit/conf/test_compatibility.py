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


"""Options of Kronos 0.2.0 keep their names and defaults, and its values are admitted."""

from oslo_config import cfg
import pytest

from kronos_nova.conf import opts

#: group -> option -> its default there, and the values at its bounds there.
KRONOS = {
    'engine': {
        'evaluation_interval': (60, 5), 'dry_run': (True,),
        'policies_file': ('/etc/kronos/policies.yaml',), 'instance_cooldown': (900, 0),
        'instance_quarantine_seconds': (3600, -1), 'cooldown': (600, 0),
        'availability_zone': (None, 'nova'), 'aggregates': ([],),
        'include_unassigned_hosts': (True,), 'enforce_hard_affinity': (False,),
        'enforce_soft_affinity': (False,), 'snapshot_dir': ('',),
        'evacuate_disabled_hosts': (False,), 'enforce_placement_claims': (True,),
        # Kronos's false stands for "not set" now; who sets it gets what it meant.
        'enforce_placement_disk': (None, False, True), 'require_cpu_compatibility': (False,)},
    'prometheus': {
        'timeout': (30, 1), 'max_retries': (3, 0, 50), 'retry_backoff': (1.0, 0.1),
        'staleness_threshold': (300, 10), 'verify_ssl': (True,), 'ca_cert': (None,),
        'bearer_token': (None,), 'bearer_token_file': (None,), 'username': (None,),
        'password': (None,)},
    'executor': {
        'max_concurrent_migrations': (2, 1, 10), 'migration_timeout': (600, 60),
        'migration_poll_interval': (10, 5), 'max_retries': (3, 0), 'retry_backoff': (30.0, 1.0),
        'stagger_seconds': (30, 0)},
    'messaging': {
        'transport': ('rabbit',), 'host': ('localhost',), 'port': (5672,), 'username': (None,),
        'password': (None,), 'virtual_host': ('/',)},
    # keystoneauth's: how to log in, the session, and which endpoints.
    'nova': {
        'auth_type': (None,), 'auth_section': (None,), 'cafile': (None,), 'insecure': (False,),
        'region_name': (None,), 'endpoint_override': (None,), 'valid_interfaces': ([],)},
}
CASES = [(group, name) for group, options in KRONOS.items() for name in options]


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    opts.register(found)
    found([], default_config_files=[])
    return found


@pytest.mark.parametrize('group, name', CASES)
def test_an_option_keeps_its_name_default_and_range(conf, group, name):
    default, *bounds = KRONOS[group][name]
    assert conf[group][name] == default
    for value in bounds:
        conf.set_override(name, value, group)
        assert conf[group][name] == value
