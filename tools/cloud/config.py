# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Configuration files of the control plane, as text."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib

PASSWORD = 'sandbox'
REGION = 'RegionOne'
#: Nova's own default of [filter_scheduler] enabled_filters; a test holds it against Nova
NOVA_FILTERS = (
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'ImagePropertiesFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
)
KRONOS_FILTERS = ('KronosPlacementFilter', 'KronosCapacityFilter')

#: Job of an exporter -> its usual port, which the label instance names.
EXPORTER_PORTS = {'node': 9100, 'libvirt': 9177}

Sections = Mapping[str, Mapping[str, object]]


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What the files depend on: URLs, sizes and places, no running process."""

    ports: Mapping[str, int]
    database: Mapping[str, str]
    venv: pathlib.Path
    etc: pathlib.Path
    data: pathlib.Path
    schedulers: int = 1

    def url(self, name: str) -> str:
        return f'http://127.0.0.1:{self.ports[name]}'


def render(sections: Sections) -> str:
    """An oslo.config file; a list or tuple gives an option once per element."""
    lines = []
    for section, options in sections.items():
        lines.append(f'[{section}]')
        for name, value in options.items():
            for one in value if isinstance(value, (list, tuple)) else [value]:
                lines.append(f'{name} = {one}'.rstrip())
        lines.append('')
    return '\n'.join(lines)


def password_auth(
    ports: Mapping[str, int], user: str, project: str = 'service'
) -> dict[str, object]:
    """keystoneauth options of an account made by ``accounts``."""
    return {
        'auth_url': f'http://127.0.0.1:{ports["keystone"]}/v3',
        'auth_type': 'password',
        'username': user,
        'password': PASSWORD,
        'project_name': project,
        'user_domain_id': 'default',
        'project_domain_id': 'default',
        'region_name': REGION,
    }


def transport_url(ports: Mapping[str, int]) -> str:
    """oslo.messaging's URL of the private RabbitMQ."""
    return f'rabbit://guest:guest@127.0.0.1:{ports["rabbitmq"]}/'


def cache(ports: Mapping[str, int]) -> dict[str, object]:
    """oslo.cache's options for the private memcached."""
    return {
        'enabled': 'true',
        'backend': 'dogpile.cache.pymemcache',
        'memcache_servers': f'127.0.0.1:{ports["memcached"]}',
    }


def build_token_check(ports: Mapping[str, int], user: str) -> dict[str, object]:
    """Return keystonemiddleware's options for a service that speaks as the account."""
    auth = password_auth(ports, user)
    del auth['region_name']
    return {
        **auth,
        'www_authenticate_uri': auth['auth_url'],
        'memcached_servers': f'127.0.0.1:{ports["memcached"]}',
        'service_token_roles_required': 'true',
        'service_token_roles': 'service',
    }


def keystone(cloud: Cloud) -> str:
    return render({
        'DEFAULT': {'use_stderr': 'true'},
        'database': {'connection': cloud.database['keystone']},
        'cache': cache(cloud.ports),
        'fernet_tokens': {'key_repository': cloud.etc / 'fernet'},
        'fernet_receipts': {'key_repository': cloud.etc / 'fernet'},
        'credential': {'key_repository': cloud.etc / 'credential'},
        # the cheapest bcrypt: every service start would pay for a dear one
        'identity': {'password_hash_rounds': 4},
    })


def placement(cloud: Cloud) -> str:
    return render({
        'DEFAULT': {'use_stderr': 'true'},
        'placement_database': {'connection': cloud.database['placement']},
        'api': {'auth_strategy': 'keystone'},
        'keystone_authtoken': build_token_check(cloud.ports, 'placement'),
    })


def glance(cloud: Cloud) -> str:
    images = cloud.data / 'images'
    return render({
        'DEFAULT': {
            'use_stderr': 'true',
            'enabled_backends': 'fs:file',
            'worker_self_reference_url': cloud.url('glance'),
            'node_staging_uri': f'file://{images}/staging',
        },
        'database': {'connection': cloud.database['glance']},
        'glance_store': {'default_backend': 'fs'},
        'fs': {'filesystem_store_datadir': images},
        'os_glance_staging_store': {'filesystem_store_datadir': images / 'staging'},
        'os_glance_tasks_store': {'filesystem_store_datadir': images / 'tasks'},
        # the sandbox' image is a few bytes that no guest will ever boot
        'image_format': {'require_image_format_match': 'false'},
        'paste_deploy': {
            'flavor': 'keystone',
            'config_file': cloud.venv / 'etc/glance/glance-api-paste.ini',
        },
        'oslo_concurrency': {'lock_path': cloud.data / 'locks'},
        'keystone_authtoken': build_token_check(cloud.ports, 'glance'),
    })


def _nova(cloud: Cloud) -> dict[str, dict[str, object]]:
    """Options of every Nova service."""
    sections: dict[str, dict[str, object]] = {
        'DEFAULT': {
            'my_ip': '127.0.0.1',
            'host': 'controller',
            'use_stderr': 'true',
            'concurrency_backend': 'threading',
            'state_path': cloud.data / 'state/controller',
            'transport_url': transport_url(cloud.ports),
            # by default periodic tasks first run within a random minute
            'periodic_fuzzy_delay': 0,
            'report_interval': 5,
            'service_down_time': 30,
        },
        'oslo_concurrency': {'lock_path': cloud.data / 'locks'},
        'service_user': {'send_service_user_token': 'true', **password_auth(cloud.ports, 'nova')},
        'placement': password_auth(cloud.ports, 'nova'),
        'neutron': password_auth(cloud.ports, 'nova'),
        'glance': {'service_type': 'image', **password_auth(cloud.ports, 'nova')},
    }
    del sections['service_user']['region_name']
    return sections


def nova(cloud: Cloud, kronos: Sections | None) -> str:
    """nova.conf of nova-api, -conductor and -scheduler.

    ``kronos`` are our sections for nova-scheduler; None leaves our plug-ins out.
    """
    filters: dict[str, object] = {
        'available_filters': ['nova.scheduler.filters.all_filters'],
        'enabled_filters': ','.join(NOVA_FILTERS),
        'weight_classes': 'nova.scheduler.weights.all_weighers',
    }
    if kronos is not None:
        filters = {
            'available_filters': [
                'nova.scheduler.filters.all_filters',
                'kronos_nova.filters.all_filters',
            ],
            'enabled_filters': ','.join(NOVA_FILTERS + KRONOS_FILTERS),
            'weight_classes': (
                'nova.scheduler.weights.all_weighers,kronos_nova.weighers.all_weighers'
            ),
        }
    sections: dict[str, dict[str, object]] = {
        **_nova(cloud),
        'api': {'auth_strategy': 'keystone'},
        'wsgi': {'api_paste_config': cloud.venv / 'etc/nova/api-paste.ini'},
        'api_database': {'connection': cloud.database['nova_api']},
        'database': {'connection': cloud.database['nova']},
        'conductor': {'workers': 1},
        'scheduler': {'workers': cloud.schedulers},
        'filter_scheduler': filters,
        'quota': dict.fromkeys(
            ('instances', 'cores', 'ram', 'server_groups', 'server_group_members'), -1
        ),
        'keystone_authtoken': build_token_check(cloud.ports, 'nova'),
    }
    for section, options in (kronos or {}).items():
        sections.setdefault(section, {}).update(options)
    return render(sections)


def merge(*several: Sections) -> dict[str, dict[str, object]]:
    """Merge sections; of an option that several have, the last counts."""
    merged: dict[str, dict[str, object]] = {}
    for sections in several:
        for name, options in sections.items():
            merged.setdefault(name, {}).update(options)
    return merged


def computes(cloud: Cloud, more: Sections) -> str:
    """nova-compute.conf of all nova-computes: no database, as anywhere.

    :param more: options of the hypervisor.
    """
    sections = _nova(cloud)
    sections['DEFAULT'] |= {
        # no agent answers for a port, so no service waits for one
        'vif_plugging_is_fatal': 'false',
        'vif_plugging_timeout': 0,
        'update_resources_interval': 30,
        'reserved_host_memory_mb': 0,
    }
    sections['compute'] = {'live_migration_wait_for_vif_plug': 'false'}
    sections['vnc'] = {'enabled': 'false'}
    return render(merge(sections, more))


def compute(cloud: Cloud, host: str, more: Sections) -> str:
    """Further options of one nova-compute.

    :param more: options of the hypervisor for this host.
    """
    return render(merge({
        'DEFAULT': {'host': host, 'state_path': cloud.data / 'state' / host},
        'oslo_concurrency': {'lock_path': cloud.data / 'locks' / host},
    }, more))


@dataclasses.dataclass(frozen=True)
class ScrapeTarget:
    """An exporter of a host: its job of :data:`EXPORTER_PORTS`, its real port and its path."""

    job: str
    host: str
    port: int
    path: str


def prometheus(targets: Sequence[ScrapeTarget], scrape_seconds: int = 1) -> str:
    """Prometheus's file: one node and one libvirt target per host, as real deployments have.

    All have the address of this machine, so the file states ``instance``.
    """
    lines = [
        'global:',
        f'  scrape_interval: {scrape_seconds}s',
        f'  scrape_timeout: {scrape_seconds}s',
        'scrape_configs:',
    ]
    for job, port in EXPORTER_PORTS.items():
        lines += [f'- job_name: {job}', '  static_configs:']
        for target in targets:
            if target.job == job:
                lines += [
                    f"  - targets: ['127.0.0.1:{target.port}']",
                    '    labels:',
                    f'      __metrics_path__: {target.path}',
                    f"      instance: '{target.host}:{port}'",
                ]
    return '\n'.join(lines) + '\n'


def openrc(cloud: Cloud) -> str:
    """Shell variables with which any OpenStack client is the cloud's administrator."""
    variables = {
        'OS_AUTH_URL': f'{cloud.url("keystone")}/v3',
        'OS_USERNAME': 'admin',
        'OS_PASSWORD': PASSWORD,
        'OS_PROJECT_NAME': 'admin',
        'OS_USER_DOMAIN_ID': 'default',
        'OS_PROJECT_DOMAIN_ID': 'default',
        'OS_IDENTITY_API_VERSION': '3',
        'OS_REGION_NAME': REGION,
        'OS_COMPUTE_API_VERSION': '2.96',
        'PROMETHEUS_URL': cloud.url('prometheus'),
    }
    return ''.join(f'export {name}={value}\n' for name, value in variables.items())
