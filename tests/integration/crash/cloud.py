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


"""A real Nova that outlives the daemons: run as a process by the harness.

Nova's own in-process fixtures, with its fake hypervisor, and a Prometheus API,
on loopback. Commands come as JSON, one a line, on standard input; each is
answered by one line on standard output. Ends at the end of its input.
"""

import faulthandler
import json
import os
import signal
import sys
import traceback
from typing import Any
import unittest

from tests.fixtures import prometheus_api

# Before anything of OpenStack is imported: see there.
from tests.functional import api
from tests.functional import base

POOL = 'executor_thread_pool_size'
HOSTS = ('host1', 'host2', 'host3')


class Cloud(api.ApiTestCase):
    """A cloud whose ``host1`` is drained."""

    hosts = HOSTS

    def configure(self) -> None:
        super().configure()
        from oslo_messaging import opts as messaging

        # Each of 5 services would keep 64 threads that look for work all the time.
        base.CONF.register_opts([
            opt for _group, opts in messaging.list_opts() for opt in opts if opt.name == POOL])
        self.flags(**{POOL: 8})

    def serve(self) -> None:
        self.prometheus = prometheus_api.PrometheusAPI()
        self.prometheus.start()
        self.addCleanup(self.prometheus.stop)
        self.answer({'nova': self.nova_api.url, 'placement': self.placement_api.url,
                     'prometheus': self.prometheus.url})
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = getattr(self, f'do_{command.pop("do")}')(**command)
            except Exception:
                answer = {'error': traceback.format_exc()}
            self.answer(answer)

    @staticmethod
    def answer(document: Any) -> None:
        ANSWERS.write(json.dumps(document) + '\n')
        ANSWERS.flush()

    def do_disable(self, host: str | None) -> None:
        """That host alone."""
        for service in self.admin_api.get_services(binary='nova-compute'):
            wanted = 'disabled' if service['host'] == host else 'enabled'
            if service['status'] != wanted:
                reason = {'disabled_reason': 'maintenance'} if wanted == 'disabled' else {}
                self.admin_api.put_service(service['id'], {'status': wanted, **reason})

    def do_begin(self, count: int) -> list[str]:
        """Boot new instances on host1 and disable it; earlier instances are deleted."""
        self.do_end()
        body = {'server': {**self._build_server(
            flavor_id=self.flavor['id'], networks='none', host='host1'), 'min_count': count}}
        self.admin_api.post_server(body)

        def active() -> list[str] | None:
            servers = self.admin_api.get_servers()
            return ([s['id'] for s in servers]
                    if [s['status'] for s in servers] == ['ACTIVE'] * count else None)
        uuids: list[str] = self.wait_for(active, f'{count} instances')
        self.do_disable('host1')
        self.nova_api.door.requests.clear()
        return uuids

    def do_end(self) -> None:
        self.prometheus.requests.clear()
        self.do_disable(None)
        for server in self.admin_api.get_servers():
            self.admin_api.delete_server(server['id'])
        self.wait_for(lambda: not self.admin_api.get_servers(), 'the instances to go')

    def do_load(self, hosts: dict[str, float], instances: dict[str, float]) -> None:
        self.prometheus.series = {'cpu': hosts, 'vm': instances}

    def do_look(self) -> dict[str, Any]:
        """Each instance as it is, with its migrations and the POSTs about it."""
        posts = [path.rsplit('/', 2)[1] for method, path in list(self.nova_api.door.requests)
                 if method == 'POST' and path.endswith('/action')]
        return {
            server['id']: {
                'host': server['OS-EXT-SRV-ATTR:host'], 'status': server['status'],
                'task_state': server['OS-EXT-STS:task_state'], 'posts': posts.count(server['id']),
                'migrations': [(m['migration_type'], m['status'], m['dest_compute'])
                               for m in self.migrations(server)]}
            for server in self.admin_api.get_servers()}


if __name__ == '__main__':
    # Whatever prints goes to standard error: the answers have a way of their own.
    faulthandler.register(signal.SIGUSR1)
    ANSWERS = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    result = unittest.TestResult()
    Cloud('serve').run(result)
    for _test, text in (*result.errors, *result.failures):
        print(text, file=sys.stderr)
    sys.exit(bool(result.errors or result.failures))
