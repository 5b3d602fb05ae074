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

"""Programs that use the examples of the page on extending, each in a process of its own.

``python -m tests.docs.extensions NAME [ARGUMENT ...]`` calls a function below and prints its result
as JSON.
"""

import contextlib
import dataclasses
import io
import json
import pathlib
import sys
import time
from typing import Any

from kronos_nova import model
from kronos_nova import plugins
from kronos_nova.conf import opts


def configure(*lines: str) -> Any:
    """Return the configuration of a daemon with these lines as kronos.conf."""
    from oslo_config import cfg

    path = pathlib.Path('kronos.conf')
    path.write_text('\n'.join(lines) + '\n')
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[str(path)])
    return conf


def plan(path: str, *lines: str) -> dict[str, Any]:
    """Plan a scenario with all installed strategies, and let the checker judge the plan.

    :param lines: of a kronos.conf, whose options replace those of the scenario.
    """
    from kronos_nova.conf import engine
    from kronos_nova.rebalancer import checker
    from kronos_nova.rebalancer import simulation
    from kronos_nova.rebalancer.planning import planner
    from kronos_nova.rebalancer.planning import planning_settings
    from tests.scenarios import loader

    scenario = loader.load(pathlib.Path(path))
    request = dataclasses.replace(scenario.request, strategies=[
        plugins.load_plugin(plugins.STRATEGIES, name)()
        for name in planning_settings.strategy_names()])
    if lines:
        request = dataclasses.replace(request, options=engine.build_options(configure(*lines)))
    proposed = planner.plan(request)
    ceilings = simulation.Simulation(request.cluster, request.scores, request.policies,
                                     request.history, request.options).ceilings
    wrong = checker.check(proposed, request.cluster, request.options, request.history,
                          request.scores, ceilings, request.budget)
    return {'moves': [f'{scenario.names[m.instance_uuid]} {m.from_host} -> {m.to_host}'
                      for m in proposed.moves],
            'expected': scenario.expect.get('moves'), 'wrong': [str(no) for no in wrong]}


def _make_nova_host(name: str, spare: str, instances: int) -> Any:
    from nova import objects
    from nova.scheduler import host_manager

    objects.register_all()
    host = host_manager.HostState(name, name, 'cell')
    host.aggregates = [objects.Aggregate(id=1, name='rack', hosts=[name],
                                         metadata={'spare': spare})]
    host.num_instances = instances
    return host


def filter_hosts(*moving: str) -> list[str]:
    """Return the hosts that Nova's own handler lets pass, with the installed filter alone."""
    from nova import objects
    from nova.scheduler import filters

    hosts = [_make_nova_host('spare1', 'true', 0), _make_nova_host('h1', 'false', 0)]
    spec = objects.RequestSpec(ignore_hosts=['h9'] if moving else None)
    handler = filters.HostFilterHandler()
    classes = [kind for kind in handler.get_matching_classes(['kronos_nova.filters.all_filters'])
               if kind.__name__ == 'SpareHostFilter']
    passed = handler.get_filtered_objects([kind() for kind in classes], hosts, spec)
    return [host.host for host in passed] if classes else []


def weigh_hosts(multiplier: str) -> list[str]:
    """Return the hosts in the order of Nova's own handler, with the installed weigher alone."""
    from nova import objects
    from nova.scheduler import weights

    handler = weights.HostWeightHandler()
    classes = [kind for kind in handler.get_matching_classes(['kronos_nova.weighers.all_weighers'])
               if kind.__name__ == 'CrowdWeigher']
    from kronos_nova.scheduler import runtime

    runtime.CONF.set_override('crowd_weight_multiplier', float(multiplier), 'filter_scheduler')
    hosts = [_make_nova_host('full', '', 9), _make_nova_host('empty', '', 0)]
    weighed = handler.get_weighed_objects([kind() for kind in classes], hosts,
                                          objects.RequestSpec())
    return [host.obj.host for host in weighed] if classes else []


def score_from_file(content: str, age: str) -> dict[str, Any]:
    """Return each host's score from the installed source, and why the policy is not trusted."""
    import os

    from kronos_nova import policy
    from kronos_nova import scoring
    from tests.scenarios import loader

    path = pathlib.Path('scores.json')
    path.write_text(content)
    now = time.time()
    os.utime(path, (now - float(age), now - float(age)))
    source = plugins.load_plugin(plugins.SOURCES, 'json_file')(
        configure('[json_file]', f'path = {path.resolve()}'))
    [one] = policy.parse_policies({'policies': [{'name': 'cpu', 'weight': 1.0, 'threshold': 0.1,
                                                 'imbalance_query': 'cpu'}]},
                                  'policies.yaml').policies
    cluster = loader._cluster({'hosts': {'a': {}, 'b': {}}})
    policy_scores = scoring.score_policy(one, source.fetch(one), cluster, now=now,
                                         staleness=300.0)
    return {'hosts': dict(policy_scores.hosts), 'untrusted': policy_scores.untrusted,
            'health': source.health()[0].value}


def carry_out_by_hand(*hosts: str) -> dict[str, Any]:
    """Let a worker carry a task out with the installed executor.

    :param hosts: the host of the instance, as Nova answers before each pass.
    """
    import openstack

    from tests.unit.rebalancer.executors import benches
    from tests.unit.rebalancer.hooks import servers
    from tests.unit.rebalancer.store import cases

    bench = benches.Bench()
    with servers.Server() as nova:
        connection = openstack.connection.Connection(
            auth_type='none', auth={'endpoint': nova.url})
        bench.driver = plugins.load_plugin(plugins.EXECUTORS, 'by_hand').create(None,
                                                                                lambda: connection)
        worker = bench.new_worker('w')
        bench.plan(lambda plan_id, scope: cases.make_task(plan_id, scope, alternates=()))
        server = {'id': bench.tasks[0].instance_uuid}
        version = {'id': 'v2.1', 'status': 'CURRENT', 'version': '2.96', 'min_version': '2.1',
                   'links': [{'rel': 'self', 'href': nova.url}]}

        def answer_request(method: str, path: str, body: bytes) -> Any:
            document = {'server': server} if path.startswith('/servers/') else {'version': version}
            return 200, {'Content-Type': 'application/json'}, json.dumps(document).encode()

        nova.answer = answer_request
        states = []
        for host in hosts:
            server['OS-EXT-SRV-ATTR:host'] = host
            bench.passes(1, by=worker)
            states.append(str(bench.state))
    return {'states': states, 'asked': sorted({method for method, *_ in nova.requests}),
            'error_type': bench.row().attempts[-1].error_type if bench.row().attempts else None}


def call_hook() -> dict[str, Any]:
    """Return the files in the hook's directory at each step of a migration that fails."""
    from kronos_nova.rebalancer.executors import base
    from kronos_nova.rebalancer.executors import hook_catalogue
    from kronos_nova.rebalancer.executors import hook_runner
    from kronos_nova.rebalancer.executors import worker as workers
    from tests.unit.rebalancer.executors import benches
    from tests.unit.rebalancer.store import cases

    directory = pathlib.Path('locks')
    directory.mkdir()
    conf = configure('[hooks]', 'enabled = backup_lock', 'on_request =', '[hook_backup_lock]',
                     f'directory = {directory.resolve()}')
    bench = benches.Bench()
    seen: list[list[str]] = []

    def note(task: model.Task) -> base.MigrationStage:
        seen.append([path.name for path in directory.iterdir()])
        return base.MigrationStage.FAILED

    bench.driver.answers['read_progress'] = [note]
    bench.plan(lambda plan_id, scope: cases.make_task(plan_id, scope, max_retries=0, alternates=()))
    bench.passes(3, by=workers.Worker(
        bench.store, bench.driver, benches.SETTINGS, clock=lambda: bench.now,
        monotonic=lambda: bench.now, name='w', hooks=(
            hook_catalogue.HookCatalogue.load_hooks(conf, lambda: None),
            hook_runner.build_settings(conf))))
    return {'during': seen[0], 'after': [path.name for path in directory.iterdir()],
            'instance': bench.tasks[0].instance_uuid, 'state': str(bench.state)}


def fill_database() -> str:
    """Return the path of a kronos.conf whose database has two tasks of scope blue."""
    from kronos_nova.rebalancer.store import api
    from tests.unit.rebalancer.store import cases

    conf = configure('[database]', f'connection = sqlite:///{pathlib.Path("db").resolve()}')
    store = api.Store(conf)
    store.upgrade()
    cases.save(store, 2)
    store.close()
    return str(pathlib.Path('kronos.conf').resolve())


def read_metrics() -> list[str]:
    """Return the samples of /metrics while one executor runs."""
    from kronos_nova.rebalancer.monitoring import health
    from kronos_nova.rebalancer.monitoring import metrics_page
    from kronos_nova.rebalancer.monitoring import stats
    from tests.fixtures import stores

    store = stores.in_memory(time.time)
    store.executors.record_heartbeat('w1', None)
    page = metrics_page.MetricsPage(health.DaemonHealth(daemon='kronos-engine', dry_run=False),
                                    stats.DaemonTally(), store.statistics.read_census)
    return [line for line in page('text/plain')[1].decode().splitlines()
            if not line.startswith('#')]


def hear_of_plan() -> dict[str, Any]:
    """Return the payload of plan.created, as a listener on oslo.messaging gets it."""
    import queue

    from oslo_config import cfg
    import oslo_messaging

    from kronos_nova.rebalancer.messaging import messages
    from kronos_nova.rebalancer.messaging import plan_events
    from kronos_nova.rebalancer.messaging import senders
    from kronos_nova.rebalancer.messaging import transport

    opts.register(cfg.CONF)
    cfg.CONF([], default_config_files=[])
    transport.find_broker_url(cfg.CONF)  # registers the options of oslo.messaging
    cfg.CONF.set_override('transport_url', 'fake://')
    bus = transport.get_transport(cfg.CONF)
    heard: queue.Queue[dict[str, Any]] = queue.Queue()

    class Endpoint:
        def info(self, context: Any, publisher: str, event: str, payload: dict[str, Any],
                 metadata: Any) -> None:
            heard.put(payload)

    listener = oslo_messaging.get_notification_listener(
        bus, [oslo_messaging.Target(topic=messages.plans_topic('blue'))], [Endpoint()],
        executor='threading')
    listener.start()
    plan = model.Plan('blue', (model.Move('u', 'h1', 'h2', model.Phase.SPREAD),), truncated=True)
    senders.PlanNotifier(bus)(plan_events.PLANNED, 'blue', plan_events.plan_payload(
        plan, 'p', 1.0, model.TaskState.QUEUED, {'u': model.MoveMethod.LIVE}))
    heard_payload = heard.get(timeout=30)
    listener.stop()
    listener.wait()
    return heard_payload


#: An instance with a stored task.
INSTANCE = '6f1c2d3e-0000-4000-8000-000000000001'


def ask_api(address: str) -> dict[str, Any]:
    """Ask kronos-api, with all endpoints that are registered, as an administrator."""
    from kronos_nova.api import application
    from kronos_nova.api import policies
    from tests.fixtures import stores
    from tests.unit.rebalancer.store import cases

    conf = configure('[database]', f'connection = sqlite:///{pathlib.Path.cwd()}/kronos.sqlite')
    store = stores.in_file('kronos.sqlite')
    cases.save(store, [lambda plan_id, scope: cases.make_task(plan_id, scope,
                                                              instance_uuid=INSTANCE)])
    store.close()
    client = application.make_routes(conf).test_client()
    answer = client.get(address, headers={
        'X-Identity-Status': 'Confirmed', 'X-Roles': 'admin', 'X-User-Id': 'u',
        'X-Project-Id': 'p'})
    return {'status': answer.status_code, 'document': answer.get_json(),
            'paths': list(client.get('/v1/openapi.json').get_json()['paths']),
            'rules': [rule.name for rule in policies.list_rules()]}


def run_client(*arguments: str) -> dict[str, Any]:
    """Run a command of openstack rebalance against kronos-api, which knows a failed task."""
    from openstackclient import shell

    from kronos_nova.api import application
    from tests.fixtures import stores
    from tests.unit.osc import conftest
    from tests.unit.rebalancer.store import cases

    conf = configure('[database]', f'connection = sqlite:///{pathlib.Path.cwd()}/kronos.sqlite')
    store = stores.in_file('kronos.sqlite')
    cases.save(store, [lambda plan_id, scope: cases.make_task(plan_id, scope,
                                                              instance_name='web-1')])
    cases.end(store, cases.claim(store), model.TaskState.FAILED, error_type='NoValidHost')
    store.close()
    server, output = conftest.Server(application.make_routes(conf)), io.StringIO()
    with contextlib.redirect_stdout(output):
        status = shell.OpenStackShell().run(
            ['--os-auth-type', 'none', '--os-endpoint', server.url, 'rebalance', *arguments])
    server.stop()
    return {'status': status, 'output': output.getvalue()}


if __name__ == '__main__':
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
