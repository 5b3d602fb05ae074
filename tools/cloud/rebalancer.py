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

"""This project's own commands, run against the sandbox."""

from collections.abc import Callable
import json
import pathlib
import subprocess
import sys
import time
from typing import Any
import uuid as uuid_module

import sqlalchemy as sa

from kronos_nova.rebalancer.authorization import key_repository
from tools.cloud import config
from tools.cloud import errors
from tools.cloud import hypervisors
from tools.cloud import policies
from tools.cloud import processes
from tools.cloud.run import Run
from tools.cloud.run import tail

ENGINE, EXECUTOR = 'kronos-engine', 'kronos-executor'
#: Name of the API's process, its port and its account.
API = 'kronos'


def database(run: Run) -> str:
    """SQLAlchemy's URL of plans and tasks."""
    return f'sqlite:///{run.layout.kronos}/kronos.sqlite'


def build_sections(run: Run) -> config.Sections:
    """Return the options of engine, executor and tools."""
    keystone = {**config.password_auth(run.ports, 'admin', 'admin')}
    return {
        'DEFAULT': {
            'transport_url': config.transport_url(run.ports),
            'use_stderr': 'true',
        },
        'engine': {
            'dry_run': 'false',
            'policies_file': run.layout.policies,
            'hypervisor_types': hypervisors.get_hypervisor(run.state.hypervisor).hypervisor_type,
            'evaluation_interval': 10,
            'cooldown': 0,
            # Guests that have just booted may be moved at once.
            'instance_cooldown': 0,
            'settle_seconds': policies.choose_range(run.state),
            'snapshot_dir': run.layout.kronos,
        },
        'executor': {
            'stagger_seconds': 0,
            'poll_interval': 0.5,
            'migration_poll_interval': 1,
            'max_concurrent_migrations': 3,
        },
        'prometheus': {'url': run.url('prometheus'), 'staleness_threshold': 30},
        'signing': {'key_repository': str(get_key_directory(run))},
        'nova': keystone,
        'database': {'connection': database(run)},
        'keystone_authtoken': config.build_token_check(run.ports, 'kronos'),
        'cache': config.cache(run.ports),
    }


def get_key_directory(run: Run) -> pathlib.Path:
    """Return the directory of the keys that sign tasks."""
    return run.layout.kronos / 'signing-keys'


def write_configuration(run: Run, more: config.Sections | None = None) -> None:
    """Write kronos.conf, and the keys that sign tasks.

    :param more: further options.
    """
    if not get_key_directory(run).exists():
        key_repository.create_keys(str(get_key_directory(run)))
    file = run.layout.kronos_conf
    file.touch(mode=0o600)
    file.write_text(config.render(config.merge(build_sections(run), more or {})))


def command(run: Run, name: str, *arguments: str) -> list[str]:
    """The command line of a console script of this project.

    :raises errors.NotPossibleHere: it is not installed
    """
    script = pathlib.Path(sys.prefix, 'bin', name)
    if not script.exists():
        raise errors.NotPossibleHere(
            f'{script} is not there: start through tools/sandbox, which installs this '
            'checkout into .venv'
        )
    return [str(script), '--config-file', str(run.layout.kronos_conf), *arguments]


def plan_once(run: Run, *more: str) -> dict[str, Any]:
    """One cycle of kronos-engine; its report about the hosts in no aggregate.

    :param more: arguments, such as another ``--config-file`` that overrides.

    :raises errors.ServiceDied: it failed, or reports no such scope
    """
    log = run.log('kronos-engine')
    with log.open('ab') as file:
        done = subprocess.run(
            command(run, 'kronos-engine', *more, '--once'), stdout=subprocess.PIPE, stderr=file,
            stdin=subprocess.DEVNULL, env=run.environment(), cwd=run.layout.data, check=False,
        )
    try:
        reports = {row['name']: row for row in json.loads(done.stdout)['aggregates']}
        return dict(reports['_unassigned_'])
    except (ValueError, KeyError, TypeError) as e:
        raise errors.ServiceDied(
            f'kronos-engine --once ended with code {done.returncode} and without a report; '
            f'the end of {log}:\n{tail(log)}'
        ) from e


def ask(run: Run, *arguments: str) -> tuple[int, str]:
    """A subcommand of kronos: its exit status and its output."""
    script = command(run, 'kronos')[0]
    done = subprocess.run(
        [script, *arguments, '--config-file', str(run.layout.kronos_conf)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        env=run.environment(), cwd=run.layout.data, check=False)
    return done.returncode, done.stdout


def start_api(run: Run) -> None:
    """Make the database, and start kronos-api; it answers when it has read its configuration."""
    run.task('kronos-manage', command(run, 'kronos-manage', 'db', 'sync'))()
    run.spawn(API, [sys.executable, '-m', 'tools.cloud.wsgi', str(run.ports[API]),
                    'kronos_nova.api.wsgi'],
              env={'OS_KRONOS_CONFIG_FILES': str(run.layout.kronos_conf)})
    run.wait_http(API)


def find_page(run: Run) -> str:
    """Return the address of the live page of kronos-api."""
    return f'http://127.0.0.1:{run.ports[API]}/page/'


def start_engine(run: Run) -> None:
    run.spawn(ENGINE, command(run, ENGINE))


def start_executor(run: Run) -> None:
    run.spawn(EXECUTOR, command(run, EXECUTOR))


def stop_executor(run: Run) -> int | None:
    """Send SIGTERM and return the exit status; None when it had to be killed."""
    return run.stop_one(EXECUTOR, grace=30)


def record(run: Run, directory: pathlib.Path) -> Callable[[], None]:
    """Begin to write a snapshot with kronos-record; the function waits until it is there."""
    return run.task('kronos-record', command(run, 'kronos-record', str(directory)))


def tasks(run: Run) -> list[dict[str, Any]]:
    """Every task of the store."""
    from kronos_nova.rebalancer.store import api

    store = api.Store.from_url(database(run))
    try:
        return [
            {
                'task': row.task.task_id,
                'instance': row.task.instance_uuid,
                'from_host': row.task.from_host,
                'to_host': row.task.to_host,
                'state': str(row.task.state),
            }
            for plan in store.plans.list_plans()
            for row in store.tasks.list_plan_tasks(plan.plan_id)
        ]
    finally:
        store.close()


def queue_task_by_hand(run: Run, uuid: str, from_host: str, to_host: str) -> str:
    """Copy the instance's last task and queue it for other hosts; return the new task's UUID.

    That is what a thief of the database's password can do: the copy has a real signature.
    """
    from kronos_nova.rebalancer.store import api
    from kronos_nova.rebalancer.store import tables

    store = api.Store.from_url(database(run))
    table = tables.task
    try:
        with store.engine.begin() as connection:
            row = dict(connection.execute(sa.select(table).where(
                table.c.instance_uuid == uuid).order_by(table.c.created_at.desc()).limit(1)
                ).mappings().one())
            row |= {'task_id': str(uuid_module.uuid4()), 'active_instance': uuid,
                    'from_host': from_host, 'to_host': to_host,
                    'destinations': json.dumps([to_host]), 'state': 'queued', 'attempt': 0,
                    'retry_count': 0, 'not_before': 0.0, 'expires_at': time.time() + 3600,
                    **dict.fromkeys(('worker', 'heartbeat_at', 'marker', 'reference',
                                     'submitted_at', 'completed_at', 'error', 'error_type',
                                     'attempts', 'timings', 'deadline'))}
            connection.execute(sa.insert(table).values(row))
        return str(row['task_id'])
    finally:
        store.close()


def is_running(run: Run) -> bool:
    """Whether an executor of this sandbox runs."""
    return any(p.name == EXECUTOR and processes.is_alive(p) for p in run.state.processes)
