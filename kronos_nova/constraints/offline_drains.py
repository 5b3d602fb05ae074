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

"""Drains that shut an instance down after its live migration did not arrive in time."""

import dataclasses

from kronos_nova import model
from kronos_nova.constraints import contracts
from kronos_nova.constraints import statuses
from kronos_nova.constraints import view as views

#: Statements of a contract by which a shutdown is welcome.
CONSENTS = frozenset({model.Disruption.COLD_OK, model.Disruption.POWEROFF_OK})
_CONSENT = 'kronos:disruption = cold-ok'
_NEVER = 'set [engine] drain_offline to consent or allow, at executors as well'


@dataclasses.dataclass(frozen=True, slots=True)
class ShutdownObstacle:
    """A reason why a drain may not shut an instance down, and its remedy.

    ``passes``: it ends with time, as closed hours do, or by a notice that an engine gives.
    ``lacks_notice``: nothing that lasts forbids it, and the owner has no notice that names it.
    """

    detail: str
    remedy: str
    passes: bool = False
    lacks_notice: bool = False


def is_admitted(view: views.CloudView, move: model.Move) -> bool:
    """Return whether the move is to be made offline: shut down, moved cold, started again.

    Only drains are.
    """
    return move.phase is model.Phase.EVACUATE and find_obstacle(view, move) is None


def is_late(view: views.CloudView, move: model.Move) -> bool:
    """Return whether the newest migration of the instance was a late live one off the host."""
    return view.find_late_drain(move.instance_uuid) == move.from_host


def is_quarantined(view: views.CloudView, uuid: str) -> bool:
    """Return whether a quarantine holds the next live migration of the instance."""
    return view.find_quarantine_end(uuid) is not None


def may_shut_down(view: views.CloudView, move: model.Move) -> bool:
    """Return whether a drain shuts the instance down once its live migration was late.

    Obstacles that pass are left out: the answer holds for the time at which the instance may move.
    """
    obstacle = find_obstacle(view, move, suppose_late=True)
    return move.phase is model.Phase.EVACUATE and (obstacle is None or obstacle.passes)


def find_obstacle(view: views.CloudView, move: model.Move, *,
                  suppose_late: bool = False) -> ShutdownObstacle | None:
    """Return why a drain may not shut the instance down; None: it may.

    The newest migration of the instance was a live one off the same host, and late. What an owner
    says counts in full.

    :param suppose_late: judge the instance as if its live migration had been late.
    """
    instance, option = view.find_instance(move.instance_uuid), view.options.drain_offline
    if option == model.OfflineDrains.NEVER:
        return ShutdownObstacle('[engine] drain_offline is never', _NEVER)
    if not suppose_late and not is_late(view, move):
        return ShutdownObstacle(
            f'its newest migration is no late live one of a drain off {move.from_host}',
            'a drain moves it live, and shuts it down when that was late')
    if instance is None or instance.status != statuses.ACTIVE:
        return ShutdownObstacle('it is not active', 'a drain moves it without a shutdown, if Nova '
                                                    'moves instances in its status')
    if option == model.OfflineDrains.CONSENT and not any(
            stated.disruption in CONSENTS for stated in instance.contracts):
        return ShutdownObstacle(
            'no contract says cold-ok or poweroff-ok',
            f'its owner, its flavor or [contracts] file says {_CONSENT}; or set [engine] '
            'drain_offline to allow')
    return _find_contract_obstacle(view, move, instance)


def _find_contract_obstacle(view: views.CloudView, move: model.Move,
                            instance: model.Instance) -> ShutdownObstacle | None:
    full = contracts.count_in_full(view.options.contracts)
    limits = list(contracts.list_shutdown_limits(view, move, full))
    lasting = next((limit for limit in limits if limit.rejection.rule not in contracts.PASSING),
                   None)
    if lasting is not None:
        return _describe_limit(view, move, lasting)
    # Hours that are open now count as well: they may close before the others open.
    if not view.is_returning(instance.uuid) and contracts.find_opening(
            view, contracts.list_limits(view, move, full), view.taken_at) is None:
        return ShutdownObstacle('the hours that its contracts state are not open together within '
                                'a year', 'one of its contracts states other hours (kronos:hours)')
    notice = _find_notice_obstacle(view, move, instance, full)
    if notice is not None:
        return notice
    return None if not limits else dataclasses.replace(
        _describe_limit(view, move, limits[0]), passes=True)


def _find_notice_obstacle(view: views.CloudView, move: model.Move, instance: model.Instance,
                          full: model.ContractOptions) -> ShutdownObstacle | None:
    if contracts.lacks_shutdown_notice(view, instance):
        has_one = contracts.has_notice(view, instance.uuid)
        return ShutdownObstacle(
            'the notice to its owner does not name the shutdown' if has_one
            else 'its owner asks for notice, and has had none',
            f'an engine gives {"a further one" if has_one else "one"}, at the latest once the live '
            'migration was late; or its owner releases it (kronos:release)',
            passes=True, lacks_notice=True)
    waiting = next((limit.rejection for limit in contracts.list_limits(view, move, full)
                    if limit.holds and limit.notice is not None), None)
    return None if waiting is None else ShutdownObstacle(
        waiting.detail, str(contracts.CONTRACT_RULE.codes[waiting.rule].remedy), passes=True)


def _describe_limit(view: views.CloudView, move: model.Move,
                    limit: contracts.Limit) -> ShutdownObstacle:
    cap = _find_cap(view, move, limit)
    return ShutdownObstacle(limit.description + (
        '' if cap is None else f', which counts in full here, beyond [contracts] {cap}'),
        _find_remedy(limit))


def _find_cap(view: views.CloudView, move: model.Move, limit: contracts.Limit) -> str | None:
    """Return the option of [contracts] that lifts the limit for other moves; None: it stays."""
    if limit.stated is None or not limit.stated.source.is_tenants:
        return None
    options = view.options.contracts
    for cap, counted in ((None, options), (
            'ignore_after', dataclasses.replace(options, ignore_after=None))):
        if any((other.rejection, other.stated) == (limit.rejection, limit.stated)
               for other in contracts.list_shutdown_limits(view, move, counted)):
            return cap
    return 'strongest_for_tenants'


def _find_remedy(limit: contracts.Limit) -> str:
    """Return what lifts a limit that counts in full: the caps for tenants do not."""
    if limit.rejection.rule != 'contract-disruption' or limit.stated is None:
        return str(contracts.CONTRACT_RULE.codes[limit.rejection.rule].remedy)
    return {
        model.ContractSource.FLAVOR: f'it is resized to a flavor with {_CONSENT}, or moved by hand',
        model.ContractSource.PROJECT: f'[contracts] file says {_CONSENT}',
    }.get(limit.stated.source, f'its owner says {_CONSENT}')
