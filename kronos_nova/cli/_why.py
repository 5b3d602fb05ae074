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

"""What ``kronos why-not`` and ``kronos report`` read: a cloud, or a snapshot of one."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import difflib
import os
import time
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.cmd import _tool
from kronos_nova.conf import opts
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer import configured
from kronos_nova.rebalancer import cycle
from kronos_nova.rebalancer import explaining
from kronos_nova.rebalancer import replay
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.sources import snapshot as snapshot_source

PROG = 'kronos why-not'


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A cloud at a time; ``scopes`` in the order of precedence, ``histories`` by scope.
    ``warnings``: what could not be read of it."""

    cluster: model.Cluster
    samples: dict[str, model.PolicySamples]
    scopes: Sequence[str]
    histories: dict[str, model.History]
    now: float
    warnings: tuple[str, ...] = ()


def answer(args: argparse.Namespace) -> explaining.Answer:
    """:raises KronosException: something cannot be read, or is not there."""
    if not args.snapshot:
        _tool.native_threads()  # before the log is set up, as it tells of itself
    conf = cfg.ConfigOpts()
    opts.register(conf)
    files = [part for path in args.config_file for part in ('--config-file', path)]
    _tool.configure(conf, PROG, files, [], 'Says why a move was not made.')
    policy_set = policy_files.load(conf.engine.policies_file)
    seen = (recorded(conf, policy_set, args.snapshot) if args.snapshot
            else live(conf, policy_set))
    instance = seen.cluster.instances.get(args.instance)
    if instance is None:
        raise _absent('INSTANCE', args.instance, seen.cluster.instances,
                      'no host has such an instance')
    if args.host not in seen.cluster.hosts:
        raise _absent('HOST', args.host, seen.cluster.hosts, 'there is no such compute host')
    scope, cluster = _scoped(seen, instance)
    settings = configured.settings(conf, policy_set)
    scores = cycle.score(cluster, seen.samples, settings, seen.now)
    busy = sum(1 for f in cluster.flights
               if f.source == 'task' and f.from_host in cluster.scope_hosts)
    request = cycle.asked(cluster, scores, seen.histories[scope], settings, now=seen.now,
                          busy=busy)
    phase = model.Phase(args.phase or policy_set.mode)
    return explaining.why_not(request, args.instance, args.host, phase)


def _scoped(seen: Seen, instance: model.Instance) -> tuple[str, model.Cluster]:
    """The scope that the instance's host is planned in."""
    named = [s for s in seen.scopes if s != model.UNASSIGNED]
    for scope in seen.scopes:
        if scope == model.UNASSIGNED or scope in seen.cluster.aggregates:
            cluster = seen.cluster.scoped(scope, named)
            if instance.host in cluster.scope_hosts:
                return scope, cluster
    raise exception.ConfigError(
        path='kronos.conf', field='[engine] aggregates',
        problem=f'host {instance.host}, where instance {instance.uuid} is, belongs to no scope '
                'that is planned',
        remedy='Nothing is moved from there; name an aggregate of it, or set '
               'include_unassigned_hosts.')


def _absent(field: str, given: str, known: Collection[str],
            problem: str) -> exception.ConfigError:
    near = difflib.get_close_matches(given, list(known), 1, 0.8)
    return exception.ConfigError(
        path='command line', field=field, problem=f'{given}: {problem}',
        remedy=f'Is {near[0]} meant?' if near else 'Give the UUID of an instance and the name of '
                                                   'its compute service\'s host.')


def recorded(conf: cfg.ConfigOpts, policy_set: Any, directory: str) -> Seen:
    """:raises SnapshotError: it cannot be used."""
    found = reader.read(directory)
    if conf.engine.require_cpu_compatibility and not found.traits_known:
        raise exception.SnapshotError(
            path=os.path.join(directory, schema.TRAITS), problem='CPU traits were not recorded',
            remedy='Record with require_cpu_compatibility = true, or ask without it.')
    source = snapshot_source.SnapshotSource(conf, directory)
    named = list(conf.engine.aggregates)
    scopes = sorted(replay.scopes(conf, policy_set, found),
                    key=lambda s: named.index(s) if s in named else len(named))
    return Seen(
        found.cluster, {p.name: source.fetch(p) for p in policy_set.enabled}, scopes, {
            s: found.history(s, cooldown=conf.engine.cooldown,
                             instance_cooldown=conf.engine.instance_cooldown)
            for s in scopes}, found.recorded_at, found.warnings)


def live(conf: cfg.ConfigOpts, policy_set: Any,
         also: Callable[[Any, Sequence[str]], None] = lambda store, scopes: None) -> Seen:
    """As the next cycle would see it; what Placement has told an engine it alone knows.

    :param also: reads more of the database, of these scopes.
    """
    from kronos_nova.cmd import _wiring
    from kronos_nova.rebalancer.snapshots import recorder
    from kronos_nova.rebalancer.store import api
    from kronos_nova.rebalancer.store import database

    scopes = configured.scopes(conf, policy_set)
    # Whoever asks neither makes the database nor brings its schema up.
    database.must_exist(conf.database.connection)
    store = api.Store(conf)
    collector, source = _wiring.collector(conf), _wiring.source(conf)
    try:
        store.check()
        found = recorder.record(collector, source, store, policy_set, scopes, time.time)
        also(store, scopes)
    finally:
        source.close()
        store.close()
    if isinstance(found.cluster, str):
        raise _unread('Nova and Placement', found.cluster)
    if isinstance(found.histories, str):
        raise _unread('the database', found.histories)
    return Seen(found.cluster, dict(found.samples), scopes, dict(found.histories), found.now)


def _unread(what: str, problem: str) -> exception.ConfigError:
    return exception.ConfigError(
        path='kronos.conf', field=what, remedy='See kronos-test-config.',
        problem=problem.removesuffix('Nothing is moved this cycle.').strip().rstrip('.'))
