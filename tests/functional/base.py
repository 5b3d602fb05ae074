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


"""A real Nova (API, conductor, scheduler, computes, Placement) in one process.

Only the hypervisor is Nova's fake one, and it live-migrates. Nothing here
knows scores: see the tests of filters and weighers for that.
"""

import atexit
import contextlib
import functools
from importlib import metadata
import os
import pathlib
import tempfile
import time
import types
from typing import Any
import warnings

import fixtures
import nova.conf
from nova.tests.functional import integrated_helpers

from kronos_nova.conf import scheduler as scheduler_conf
from tests import marks
from tests.functional import bus
from tests.functional import databases
from tests.functional import threads

CONF = nova.conf.CONF


#: Seconds to wait for anything that takes Nova a second or two.
PATIENCE = 60.0


@functools.cache
def api_paste() -> str:
    """Nova's own api-paste.ini but for the API of before 2.1, which would be built
    again in every test and is never asked."""
    for file in metadata.files('nova') or ():
        # Its wheel puts it below the prefix, not into the package.
        if file.name == 'api-paste.ini':
            lines = pathlib.Path(str(file.locate())).read_text().splitlines(keepends=True)
            kept = [line for line in lines if not line.startswith('/v2/+')]
            with tempfile.NamedTemporaryFile('w', suffix='.ini', delete=False) as f:
                f.writelines(kept)
            atexit.register(os.unlink, f.name)
            return f.name
    raise RuntimeError('The installed nova has no api-paste.ini; install it from its wheel.')


class NovaTestCase(marks.MarkedTestCase, integrated_helpers.ProviderUsageBaseTestCase):
    """Nova with ``hosts`` as computes and, unless told not to, our plug-ins.

    ``plugins``: load our filters and weigher through their entry points, as a
    nova.conf does. ``flavor``: the smallest one.
    """

    compute_driver = 'fake.MediumFakeDriver'
    microversion = 'latest'
    hosts: tuple[str, ...] = ('host1', 'host2', 'host3')
    plugins = True

    def setUp(self) -> None:
        self.useFixture(bus.PromptBus())
        self.useFixture(databases.KeptConnections())
        self.useFixture(databases.SharedStatements())
        self.useFixture(threads.FewThreads())
        self.configure()
        super().setUp()
        # Nova makes errors of SQLAlchemy's deprecations and still uses
        # noload(), which SQLAlchemy 2.1 deprecates.
        warnings.filterwarnings('ignore', message=r'The noload\(\) option')
        for host in self.hosts:
            self._start_compute(host)
        self.flavor = min(self.api.get_flavors(), key=lambda f: (f['vcpus'], f['ram']))

    def configure(self) -> None:
        """Set options that services read when they start; runs before them."""
        self.flags(api_paste_config=api_paste(), group='wsgi')
        # It is Nova's own, and takes longer than the answers do.
        self.flags(response_validation='ignore', group='api')
        for group in ('database', 'api_database'):
            self.flags(sqlite_synchronous=False, group=group)
        # FakeLiveMigrateDriver looks 50 times, 0.1 s apart, whether it is to end: too soon
        # for what a test does meanwhile on a busy machine, and on eventlet.
        self.useFixture(fixtures.MonkeyPatch('nova.virt.fake.time', types.SimpleNamespace(
            sleep=lambda seconds: time.sleep(5 * seconds))))
        if not self.plugins:
            return
        scheduler_conf.register(CONF)
        enabled = [*CONF.filter_scheduler.enabled_filters,
                   'KronosPlacementFilter', 'KronosCapacityFilter']
        self.flags(
            available_filters=['nova.scheduler.filters.all_filters',
                               'kronos_nova.filters.all_filters'],
            enabled_filters=enabled,
            weight_classes=['nova.scheduler.weights.all_weighers',
                            'kronos_nova.weighers.all_weighers'],
            group='filter_scheduler')

    # What tests do to Nova.

    def boot(self, host: str | None = None, hints: dict[str, Any] | None = None,
             expected_state: str = 'ACTIVE', flavor: dict[str, Any] | None = None,
             ) -> dict[str, Any]:
        """Boot a server and wait for it; returns it as the API shows it.

        :param host: pin it there (the API's ``host``).
        :param hints: scheduler hints, such as ``{'group': uuid}``.
        """
        body: dict[str, Any] = {'server': self._build_server(
            flavor_id=(flavor or self.flavor)['id'], networks='none', host=host)}
        if hints:
            body['os:scheduler_hints'] = hints
        server = self.admin_api.post_server(body)
        return self._wait_for_state_change(server, expected_state)

    def live_migrate(self, server: dict[str, Any], host: str | None = None,
                     expected: str = 'completed') -> dict[str, Any]:
        """Live-migrate, wait for the migration record; returns the server.

        :param expected: the status its migration must end in.
        """
        before = {m['id'] for m in self.migrations(server)}
        self.admin_api.post_server_action(
            server['id'], {'os-migrateLive': {'host': host, 'block_migration': 'auto'}})

        def ended() -> bool:
            return any(m['status'] == expected for m in self.migrations(server)
                       if m['id'] not in before)

        self.wait_for(ended, f'a migration of {server["id"]} in status {expected}')
        return self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})

    def migrations(self, server: dict[str, Any]) -> list[dict[str, Any]]:
        listed = self.admin_api.api_get(
            f'/os-migrations?instance_uuid={server["id"]}').body['migrations']
        return list(listed)

    def host_of(self, server: dict[str, Any]) -> str:
        """The service host the server is on now."""
        return str(self.admin_api.get_server(server['id'])['OS-EXT-SRV-ATTR:host'])

    def aggregate(self, name: str, *hosts: str, **values: str) -> dict[str, Any]:
        """Create a host aggregate with metadata."""
        aggregate: dict[str, Any] = self.admin_api.post_aggregate({'aggregate': {'name': name}})
        for host in hosts:
            self.admin_api.add_host_to_aggregate(aggregate['id'], host)
        if values:
            self.admin_api.post_aggregate_action(
                aggregate['id'], {'set_metadata': {'metadata': values}})
        return aggregate

    def server_group(self, name: str, policy: str, **rules: int) -> dict[str, Any]:
        """Create a server group; its uuid is ``['id']``."""
        body: dict[str, Any] = {'name': name, 'policy': policy}
        if rules:
            body['rules'] = rules
        return dict(self.admin_api.post_server_groups(body))

    def wait_for(self, condition: Any, what: str, patience: float = PATIENCE) -> Any:
        """Poll until ``condition()`` is true, and return its result."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(0.1)
        self.fail(f'Waited {patience:.0f} s in vain for {what}.')

    def _wait_for_server_parameter(self, server: dict[str, Any], expected_params: dict[str, Any],
                                   *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        """Looks more often than Nova's, and longer: the machine may be busy."""

        def there() -> dict[str, Any] | None:
            shown: dict[str, Any] = self.admin_api.get_server(server['id'])
            if expected_params.get('status') not in (None, 'ERROR'):
                self.assertNotEqual('ERROR', shown['status'], shown)
            if expected_params.get('status') == 'ERROR' and 'fault' not in shown:
                return None
            return shown if all(shown[k] == v for k, v in expected_params.items()) else None

        changed_server: dict[str, Any] = self.wait_for(
            there, f'{expected_params} of {server["id"]}')
        return changed_server

    @contextlib.contextmanager
    def disabled(self, host: str) -> Any:
        """The compute service of ``host`` is disabled meanwhile."""
        service = self.admin_api.get_services(host=host, binary='nova-compute')[0]
        self.admin_api.put_service(
            service['id'], {'status': 'disabled', 'disabled_reason': 'maintenance'})
        try:
            yield
        finally:
            self.admin_api.put_service(service['id'], {'status': 'enabled'})
