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

"""Read a live cloud, or a snapshot, for subcommands."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import difflib
import os
import sys
import threading
from typing import Any

from oslo_config import cfg
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.cli import _stores
from kronos_nova.conf import engine as engine_conf
from kronos_nova.conf import opts
from kronos_nova.conf import policies as policy_files
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import replay
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.sources import snapshot as snapshot_source
from kronos_nova.wiring import tools

#: Seconds after which a command says that it still reads.
NOTICE_AFTER = 3.0

Seen = cloud_state.Seen
request = cloud_state.build_request


def read_configuration(prog: str, files: Sequence[str], what: str, *,
                       live: bool) -> tuple[cfg.ConfigOpts, policy.PolicySet]:
    """Read kronos.conf and the policy file that it names.

    :param what: the command's action, in a sentence.
    :param live: the command reads the live cloud, not only a snapshot.
    :raises ConfigError: either file cannot be used.
    """
    if live:
        tools.native_threads()  # before the log is set up, as it logs its choice
    conf = cfg.ConfigOpts()
    opts.register(conf)
    tools.configure_command(conf, prog,
                            [part for path in files for part in ('--config-file', path)], [],
                            what)
    return conf, policy_files.load(conf.engine.policies_file)


def new_wish(seen: Seen, plan: model.Plan) -> str | None:
    """Return why imbalance moves wait for sustain_for; None if they do not.

    They wait if the plan has such moves and no cycle has seen the scope's imbalance before.
    """
    if seen.sustain <= 0 or plan.scope in seen.wished or not any(
            m.phase in metrics.IMBALANCE for m in plan.moves):
        return None
    return cloud_state.format_sustain_wait(seen.sustain)


def list_clusters(seen: Seen, scope: str | None) -> list[model.Cluster]:
    """Return the cluster of the given scope, or of every scope for None.

    :raises ConfigError: the scope is not planned.
    """
    clusters = seen.clusters()
    if scope is None:
        return list(clusters.values())
    if scope not in clusters:
        raise exception.ConfigError(
            path='command line', field='--scope', problem=f'{scope} is not planned',
            remedy=f'Planned are: {", ".join(sorted(clusters))}.')
    return [clusters[scope]]


def of_instance(seen: Seen, instance: model.Instance) -> model.Cluster:
    """Return the cluster of the scope that plans the instance's host.

    :raises ConfigError: no scope plans it.
    """
    for cluster in seen.clusters().values():
        if instance.host in cluster.scope_hosts:
            return cluster
    raise exception.ConfigError(
        path='kronos.conf', field='[engine] aggregates',
        problem=f'host {instance.host}, where instance {instance.uuid} is, belongs to no scope '
                'that is planned',
        remedy='Nothing is moved from there; name one of its aggregates, or set '
               'include_unassigned_hosts.')


def make_not_found_error(field: str, given: str, known: Collection[str],
                         problem: str) -> exception.ConfigError:
    """Return the error for a name that the cloud does not have, with a similar name if any."""
    near = difflib.get_close_matches(given, list(known), 1, 0.8)
    if near:
        remedy = f'Is {near[0]} meant?'
    elif field == 'HOST':
        remedy = 'kronos host list has the names of all hosts.'
    elif uuidutils.is_uuid_like(given):
        remedy = 'Give the UUID of an instance.'
    else:
        remedy = ('Give the UUID of an instance, since several may have one name: openstack '
                  'server show NAME -c id prints it.')
    return exception.ConfigError(
        path='command line', field=field, problem=f'{given}: {problem}', remedy=remedy)


def read_snapshot(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, directory: str) -> Seen:
    """Read the cloud from a snapshot.

    :raises SnapshotError: the snapshot cannot be used.
    """
    found = reader.read(directory)
    if conf.engine.require_cpu_compatibility and not found.traits_known:
        raise exception.SnapshotError(
            path=os.path.join(directory, schema.TRAITS), problem='CPU traits were not recorded',
            remedy='Record with require_cpu_compatibility = true, or ask without it.')
    source = snapshot_source.SnapshotSource(conf, directory)
    named = list(conf.engine.aggregates)
    scopes = sorted(replay.choose_scopes(conf, policy_set, found),
                    key=lambda s: named.index(s) if s in named else len(named))
    cluster = dataclasses.replace(
        found.cluster, planned_zone=engine_conf.planned_zone(conf))
    return Seen(
        cluster, {p.name: source.fetch(p) for p in policy_set.enabled}, scopes, {
            s: found.history(s, cooldown=conf.engine.cooldown,
                             instance_cooldown=conf.engine.instance_cooldown)
            for s in scopes}, found.recorded_at, found.warnings,
        named=[s for s in scopes if s != model.UNASSIGNED])


def read_live_cloud(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, *, undecided: bool = True,
                    writes: bool = False,
                    before: Callable[[Any], None] = lambda store: None,
                    also: Callable[[Any, Sequence[str]], None] = lambda store,
                    scopes: None) -> Seen:
    """Read the cloud as the next cycle would see it, except Placement's refusals.

    Only the engine that asked Placement remembers those.

    :param undecided: a plan that waits for approval holds its scope, as it holds engines.
    :param writes: the command stores a plan afterwards, so the database must exist.
    :param before: reads of the database, before Nova is read.
    :param also: reads more of the database, with the planned scopes.
    """
    from kronos_nova.wiring import daemons

    planning_settings.list_planned_scopes(conf, policy_set)
    store = _stores.open_store(conf, reads_only=not writes)
    collector, source = daemons.make_collector(conf), daemons.load_source(conf)
    notice = threading.Timer(NOTICE_AFTER, sys.stderr.write, [
        'Still reading Nova, Placement and metrics; a server that does not answer is retried for '
        'a while.\n'])
    notice.daemon = True
    notice.start()
    try:
        before(store)
        return cloud_state.read_cloud(conf, policy_set, store, collector, source,
                                      undecided=undecided,
                                      also=also)
    finally:
        notice.cancel()
        source.close()
        store.close()


def read_samples(conf: cfg.ConfigOpts,
                 policy_set: policy.PolicySet) -> dict[str, model.PolicySamples]:
    """Return the source's current samples, by policy."""
    from kronos_nova.wiring import daemons

    source = daemons.load_source(conf)
    try:
        return {p.name: source.fetch(p) for p in policy_set.enabled}
    finally:
        source.close()

