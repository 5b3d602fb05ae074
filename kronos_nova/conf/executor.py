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

"""[executor]: the options of carrying out moves."""

from oslo_config import cfg
from oslo_config import types

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import nova

GROUP = cfg.OptGroup('executor', title='Carrying out moves')

#: Seconds after which a step of an executor (a pre-flight, a request, a look) counts as hung:
#: the executor then stops renewing its claims.
STEP_SECONDS = 900.0
#: Requests, of [nova] timeout each, that a step sends after reading within collect_timeout.
_REQUESTS = 3
#: GiB of memory for which the deadline of a migration grows at least.
_LEAST_GIB = 2.0

OPTS: list[cfg.Opt] = [
    cfg.IntOpt('max_concurrent_migrations', default=2, min=1, max=10,
               help='Migrations one scope may have in flight.'),
    cfg.IntOpt('migration_timeout', default=600, min=60,
               help='Seconds a migration may take before its task becomes unknown. The deadline '
                    'grows with memory and copied disk, as Nova\'s own does; this is its floor.'),
    cfg.IntOpt('migration_poll_interval', default=10, min=1,
               help='Seconds between two looks at a running migration.'),
    cfg.IntOpt('max_retries', default=3, min=0,
               help='How often a task that failed for a passing reason is tried again.'),
    cfg.FloatOpt('retry_backoff', default=30.0, min=0.0,
                 help='Seconds before the first retry, counted from the failure; it doubles '
                      'each time.'),
    cfg.IntOpt('stagger_seconds', default=30, min=0,
               help='Seconds between the starts of two moves of one wave.'),
    # New in kronos-nova.
    cfg.IntOpt('max_concurrent_migrations_total', default=8, min=1,
               help='Migrations the whole cloud may have in flight through us.'),
    cfg.IntOpt('max_concurrent_per_source', default=1, min=1,
               help='Migrations that may leave one host at a time. Nova queues what exceeds '
                    '[DEFAULT] max_concurrent_live_migrations of nova.conf (1 by default), where '
                    'it ages unseen; raise both or none. There, 0 means no limit but, since Nova '
                    '33 (2026.1) with native threads, 5.'),
    cfg.IntOpt('max_concurrent_per_destination', default=2, min=1,
               help='Migrations that may come to one host at a time.'),
    cfg.IntOpt('scheduler_instance_sync_interval', default=120, min=0,
               help='Nova\'s [DEFAULT] scheduler_instance_sync_interval: for so many seconds '
                    'nova-scheduler may take an instance that was live-migrated for one that is '
                    'still on its source. A move that ServerGroupAntiAffinityFilter, '
                    'DifferentHostFilter or SameHostFilter would refuse for it waits so long. '
                    'Where Nova has 0, set 60 here, what that means in Nova; where it has a '
                    'negative value, which ends the telling, set another one there. 0 here, '
                    'where [filter_scheduler] track_instance_changes is false: nothing waits.'),
    cfg.FloatOpt('poll_interval', default=10.0, min=0.1, max=60.0,
                 help='Seconds between two looks into the task table. Messages only shorten it.'),
    cfg.FloatOpt('seconds_per_gib', default=800.0, min=0.0,
                 help='What the deadline adds per GiB of memory and copied disk; Nova\'s '
                      'live_migration_completion_timeout has the same default.'),
    cfg.BoolOpt('abort_at_deadline', default=False,
                help='Ask Nova to abort a live migration of ours that is past its deadline. It '
                     'keeps its slot until Nova says how it ended, as it does without this. A '
                     'cold migration is never aborted. Nova 32 to 34 then put the instance '
                     'into ERROR while its guest runs on its source; see '
                     'reset_state_after_abort.'),
    cfg.BoolOpt('reset_state_after_abort', default=False,
                help='When Nova puts an instance into ERROR because of an abort at the deadline, '
                     'reset its state to active, if its guest runs on its source. Needs a role '
                     'that policy os_compute_api:os-admin-actions:reset_state allows.'),
    cfg.ListOpt('drain_escalation', default=[],
                item_type=types.String(choices=[kind.value for kind in model.EscalationKind]),
                help='Steps against a live migration of a drain that does not arrive within '
                     'drain_arrival_seconds; without any it runs until its deadline. '
                     'force-complete: Nova ends it by post-copy, where [libvirt] '
                     'live_migration_permit_post_copy is set on the compute nodes, else by a pause '
                     'of the guest. A guest whose host or network fails during post-copy is lost. '
                     'An instance whose owner, flavor or project forbids a shutdown is left alone; '
                     'one without a contract is not. Needs reset_state_after_abort: a migration '
                     'that does not arrive after this step is aborted.'),
    cfg.IntOpt('drain_arrival_seconds', default=600, min=60,
               help='Seconds from the begin of the copying within which a live migration of a '
                    'drain is to arrive, for drain_escalation. Set it below [libvirt] '
                    'live_migration_completion_timeout for the memory of your instances, after '
                    'which Nova ends the migration itself.'),
    cfg.IntOpt('drain_longest_pause', default=60, min=1,
               help='Longest pause of a guest, in seconds, for which drain_escalation may use '
                    'force-complete, as expected from the measured rates. In the worst case, when '
                    'the guest or the network changes, the guest is paused until Nova carries out '
                    'an abort: the executor asks for it after 1.5 times this option and two '
                    'migration_poll_interval; while no executor runs, or Nova does not answer, '
                    'nothing ends the pause but Nova\'s own timeout. The measurement is no finer '
                    'than a few migration_poll_interval: a pause shorter than '
                    'four intervals is seldom found. With post-copy the guest runs on, slower.'),
    cfg.IntOpt('claim_seconds', default=45, min=30,
               help='Seconds after which a task claimed by an executor that went silent may be '
                    'taken over. An executor renews its claims six times within them, also '
                    'while Nova keeps it waiting; one renewal waits about 20 s for a database '
                    'that does not answer, so less than 30 is refused.'),
    cfg.ListOpt('hosts', default=[],
                help='Names of the hosts that run kronos-executor. Only used to refuse a '
                     'database that they cannot share: SQLite serves one host.'),
    cfg.ListOpt('aggregates', default=[],
                help='Scopes this executor serves; empty means all.'),
]


def find_inconsistency(conf: cfg.ConfigOpts) -> exception.ConfigError | None:
    """Return an error when options of executors contradict each other, or None.

    Timeouts must not let a healthy step count as hung.
    """
    executor = conf.executor
    if executor.drain_escalation and not executor.reset_state_after_abort:
        return exception.ConfigError(
            path='the configuration', field='[executor] drain_escalation',
            problem='a migration that does not arrive after a step is aborted, and Nova then puts '
                    'its instance into ERROR',
            remedy='Set reset_state_after_abort = true, or remove the steps.')
    shortest = executor.migration_timeout + _LEAST_GIB * executor.seconds_per_gib
    if executor.drain_escalation and shortest <= executor.drain_arrival_seconds:
        return exception.ConfigError(
            path='the configuration', field='[executor] drain_arrival_seconds',
            problem=f'the deadline of a small instance, {shortest:g} s, ends before '
                    f'{executor.drain_arrival_seconds} s, so no step is taken',
            remedy='Lower it, or raise migration_timeout or seconds_per_gib.')
    timeout = conf.nova.timeout or nova.REQUEST_TIMEOUT
    longest = conf.nova.collect_timeout + _REQUESTS * timeout
    if longest <= STEP_SECONDS:
        return None
    return exception.ConfigError(
        path='the configuration', field='[nova] collect_timeout',
        problem=f'with [nova] timeout = {timeout:g} one step of an executor may take '
                f'{longest:g} s, and after {STEP_SECONDS:g} s the executor loses its claims',
        remedy=f'Lower one: collect_timeout + {_REQUESTS} * timeout is at most '
               f'{STEP_SECONDS:g}.')
