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

"""Errors an operator may read: one sentence, and a code that never changes.

Each class has a ``msg_fmt``, filled from keyword arguments, and a ``code``
that appears in logs, in JSON output and in the documentation. All are in one
module, so that the list of the codes is complete.
"""

from typing import Any


class KronosException(Exception):
    """Base of all our errors.

    :param message: overrides ``msg_fmt`` when given.
    :param kwargs: fill ``msg_fmt``; a missing one is a programming error.
    """

    msg_fmt = 'An unknown error occurred.'
    code = 'kronos.error'

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        self.kwargs = kwargs
        self.message = message if message is not None else self.msg_fmt % kwargs
        super().__init__(self.message)


def format_sentence(message: object) -> str:
    """Return the text with a full stop, so that another sentence can follow."""
    text = str(message)
    return text if text.endswith('.') else f'{text}.'


class ConfigError(KronosException):
    """A setting cannot be used: names file, field and remedy."""

    msg_fmt = '%(path)s: %(field)s: %(problem)s. %(remedy)s'
    code = 'kronos.config'


class PolicyRulesError(ConfigError):
    """The operator's file of policy rules cannot be used: kronos-api admits no request."""

    code = 'kronos.policy_rules'


class NotFoundError(ConfigError):
    """A plan, task or other record that was named does not exist."""

    code = 'kronos.not_found'


class ConflictError(ConfigError):
    """A record is not in a state for the request."""

    code = 'kronos.conflict'


class UnreadableRowError(ConflictError):
    """A row of the database has a value that no program of ours writes."""

    code = 'kronos.unreadable_row'


class SigningKeyError(ConfigError):
    """The keys that sign tasks cannot be used."""

    code = 'kronos.signing_key'


class ReadingTooOldError(ConflictError):
    """The published reading of the cloud is too old for a decision that creates tasks."""

    code = 'kronos.reading_too_old'


class ReadingMissingError(ConfigError):
    """No engine has published a reading of the cloud, or the first one is not decoded yet."""

    code = 'kronos.reading_missing'


class BusyError(ConfigError):
    """kronos-api makes another calculation of a whole scope."""

    code = 'kronos.api.busy'


class NovaForbiddenError(ConfigError):
    """Nova does not allow the user to do this."""

    code = 'kronos.nova.forbidden'


class NovaUnavailableError(ConfigError):
    """Nova cannot be reached, has failed, or its answer was lost; the text says which."""

    code = 'kronos.nova.unavailable'


class PolicyFileError(ConfigError):
    code = 'kronos.policy_file'


class PluginNotFound(KronosException):
    msg_fmt = ('No plugin named %(name)r in namespace %(namespace)s (found: %(found)s). '
               'Install the package that provides it or correct the name.')
    code = 'kronos.plugin_not_found'


class CollectError(KronosException):
    """Nova or Placement could not be read completely."""

    msg_fmt = 'Could not read %(what)s from %(service)s: %(problem)s. Nothing is moved this cycle.'
    code = 'kronos.collect'


class SnapshotError(KronosException):
    msg_fmt = '%(path)s: %(problem)s. %(remedy)s'
    code = 'kronos.snapshot'


class TraceError(KronosException):
    """A recorded trace cannot be read or written."""

    msg_fmt = '%(path)s: %(problem)s. %(remedy)s'
    code = 'kronos.trace'


class HistoryError(KronosException):
    """The past of a policy's scores cannot be known."""

    msg_fmt = '%(what)s: %(problem)s. %(remedy)s'
    code = 'kronos.history'


class WeighError(KronosException):
    """The weighing of nova-scheduler cannot be shown."""

    msg_fmt = '%(what)s: %(problem)s. %(remedy)s.'
    code = 'kronos.weigh'


class PlanRefused(KronosException):
    """The checker found that a plan breaks a rule."""

    msg_fmt = 'The plan for scope %(scope)s was refused and not stored: %(problem)s'
    code = 'kronos.plan_refused'


class StoreError(KronosException):
    msg_fmt = 'The database %(problem)s. %(remedy)s'
    code = 'kronos.store'


class DecisionRefused(StoreError):
    """A decision does not fit the tasks of its plan: nothing was written."""

    code = 'kronos.decision_refused'


class PlanConflict(StoreError):
    """A requested plan does not fit the plans and tasks that were stored meanwhile."""

    code = 'kronos.plan_conflict'


class LeaseLost(StoreError):
    msg_fmt = ('Scope %(scope)s is leased by another engine (epoch %(epoch)s is over). '
               'Nothing was written.')
    code = 'kronos.lease_lost'


class ScopeTaken(StoreError):
    msg_fmt = ('Another engine plans scope %(scope)s. That is as it should be when several run; '
               'this one takes over when the other stops.')
    code = 'kronos.scope_taken'


class MessageError(KronosException):
    msg_fmt = 'Message field %(field)s: %(problem)s'
    code = 'kronos.message'


class BrokerConflict(KronosException):
    """RabbitMQ has an exchange or a queue of ours with other properties."""

    msg_fmt = ('Another program has declared the %(kind)s %(name)s with other properties '
               '(%(problem)s). Kronos 0.2.0 does, on its own virtual host. Give Kronos a virtual '
               'host of its own in transport_url, or set rabbit_quorum_queue and '
               'rabbit_transient_quorum_queue to false in [oslo_messaging_rabbit].')
    code = 'kronos.broker_conflict'


class MigrationError(KronosException):
    """Base of the reasons a task can fail; ``wire_type`` is Kronos's name."""

    msg_fmt = 'Instance %(instance_uuid)s: %(problem)s'
    code = 'kronos.migration'
    wire_type = 'MigrationFailed'
    #: Trying again can help.
    retriable = True


class PreFlightError(MigrationError):
    code = 'kronos.migration.pre_flight'
    wire_type = 'PreFlightError'
    retriable = False


class OtherCell(PreFlightError):
    """Nova does not find a destination that is up: rule ``cell-differs``; blames neither side."""

    msg_fmt = ('Instance %(instance_uuid)s: from %(from_host)s Nova does not find %(to_host)s, '
               'whose nova-compute is up (%(problem)s). They are probably in different cells, '
               'and Nova moves instances within a cell: name the cells of hosts in the metadata of '
               'aggregates (see [engine] cell_metadata_key), or correct the names')
    code = 'kronos.migration.other_cell'
    wire_type = 'MigrationFailed'


class TaskNotAuthorized(MigrationError):
    """No holder of a signing key has allowed the move; blames neither instance nor host."""

    msg_fmt = ('Instance %(instance_uuid)s: the task is not authorized: %(problem)s. No request '
               'went to Nova. %(remedy)s')
    code = 'kronos.migration.not_authorized'
    wire_type = 'PreFlightError'
    retriable = False


class MigrationFailed(MigrationError):
    code = 'kronos.migration.failed'


class FailureUntold(MigrationError):
    """A migration failed without a reason: the task tries the next host and blames none."""

    msg_fmt = ('Instance %(instance_uuid)s: its migration to %(to_host)s failed, and Nova did not '
               'say why within %(seconds)s s (%(problem)s). See its events (openstack server '
               'event list %(instance_uuid)s) and the logs of nova-api and nova-conductor')
    code = 'kronos.migration.untold'


class InstanceRefused(MigrationError):
    """Nova refuses the instance itself: no destination would do."""

    msg_fmt = ('Instance %(instance_uuid)s: Nova does not migrate it to any host: %(problem)s. '
               'Correct that, or add it to [engine] pinned_instances.')
    code = 'kronos.migration.instance_refused'
    retriable = False


class AllocationsLeft(MigrationError):
    """A failed migration has left allocations: no other host is tried."""

    msg_fmt = ('Instance %(instance_uuid)s: %(problem)s. No other host is tried while Placement '
               'charges it twice. See nova-manage placement audit')
    code = 'kronos.migration.allocations_left'
    retriable = False


class MigrationAbandoned(MigrationError):
    """Nova has left a migration whose record says otherwise; blames neither instance nor host."""

    msg_fmt = ('Instance %(instance_uuid)s: %(problem)s. Nova works on it no more: see the '
               'nova-compute log of both hosts')
    code = 'kronos.migration.abandoned'
    retriable = False


class InstanceInError(MigrationError):
    """Nova has put the instance into ERROR: people must look at it first."""

    msg_fmt = ('Instance %(instance_uuid)s is in ERROR: %(problem)s. It is left as it is and '
               'quarantined for ever. See its events and the nova-compute log of both hosts, '
               'repair it, then lift the quarantine with kronos quarantine lift instance '
               '%(instance_uuid)s')
    code = 'kronos.migration.instance_error'
    retriable = False


class AbortSuspected(MigrationError):
    """The instance is in ERROR on its source, perhaps because its migration was aborted.

    Nova does not let us read the actions of the instance.
    """

    msg_fmt = ('Instance %(instance_uuid)s is in ERROR: %(problem)s. Nova does not let the user of '
               '[nova] read os-instance-actions, so this may be the work of an abort. See its '
               'events and the nova-compute log of both hosts; if its guest runs, make it active '
               'again: openstack server set --state active %(instance_uuid)s')
    code = 'kronos.migration.abort_suspected'
    retriable = False


class MigrationTimeout(MigrationError):
    code = 'kronos.migration.timeout'
    wire_type = 'MigrationTimeout'


class PlacementRejected(MigrationError):
    """The destination has no room: the instance is well, and never quarantined for it."""

    code = 'kronos.migration.placement'
    wire_type = 'PlacementRejected'


class NovaClientError(MigrationError):
    """The API failed, not the instance: never quarantines."""

    code = 'kronos.migration.nova_client'
    wire_type = 'NovaClientError'


class ServiceUnavailable(NovaClientError):
    """A service is down before the request: the task waits and uses up no retry."""

    code = 'kronos.migration.service_unavailable'


class HeldUp(NovaClientError):
    """The executor could not send the request yet: the task waits and uses up no retry."""

    code = 'kronos.migration.held_up'


class HookFailed(MigrationError):
    """A hook failed before the request with on_failure = abort; blames neither instance nor host.
    """

    msg_fmt = 'Instance %(instance_uuid)s: hook %(hook)s %(problem)s.'
    code = 'kronos.migration.hook'
    wire_type = 'HookFailed'


class HookNotAllowed(HookFailed):
    """The executor may not call the hook; its configuration does not change by waiting."""

    code = 'kronos.migration.hook_not_allowed'
    retriable = False


class AmbiguousSubmit(MigrationError):
    """The request may or may not have reached Nova: look, never repeat."""

    msg_fmt = ('Instance %(instance_uuid)s: Nova did not answer the request to migrate it '
               '(%(problem)s). It may be running; it is looked up before anything else is done.')
    code = 'kronos.migration.ambiguous'
    wire_type = 'NovaClientError'


class UnexpectedError(MigrationError):
    """An exception that the executor does not know: a fault of its driver, or a defect of ours."""

    msg_fmt = ('Instance %(instance_uuid)s: the executor failed unexpectedly (%(problem)s); report '
               'this with the log')
    code = 'kronos.migration.unexpected'
    wire_type = 'UnexpectedError'


class RepinError(KronosException):
    """vCPUs of an instance could not be pinned."""

    msg_fmt = '%(what)s %(problem)s. %(remedy)s'
    code = 'kronos.repin'


class RepinUnsupported(RepinError):
    """Pinning is not enabled or not installed, or Nova pins the instance itself."""

    code = 'kronos.repin.unsupported'


class RepinRefused(RepinError):
    """The request to pin is not valid; libvirt has changed nothing."""

    code = 'kronos.repin.refused'


class RepinFailed(RepinError):
    """libvirt could not be reached or has refused; it has changed no pin."""

    msg_fmt = ('The vCPUs of instance %(instance)s on host %(host)s were not pinned: %(problem)s. '
               '%(remedy)s')
    code = 'kronos.repin.failed'


class RepinUnknown(RepinError):
    """Some vCPUs of the instance may be pinned, and others not."""

    msg_fmt = ('Some vCPUs of instance %(instance)s on host %(host)s may be pinned and others '
               'not: %(problem)s. %(remedy)s')
    code = 'kronos.repin.unknown'
