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
"""The rule that keeps instances spread over failure domains.

The spread of a set is the number of its members by domain, the largest first. Of two spreads the
one is worse whose largest number is larger: the failure of one domain takes out more members. If
the largest are equal, the second largest decide, and so on. One move changes the numbers of two
domains alone, so it makes the spread worse exactly if the destination's domain has more other
members than the source's. Hosts without a domain of the kind count as one domain.
"""

from kronos_nova import model
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import rules
from kronos_nova.constraints import service_state
from kronos_nova.constraints import view as views
from kronos_nova.model import spread_requests


def worsens_spread(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move that worsens the spread of a set, in any outcome of the moves under way.

    Drains and requested moves are free: a drain prefers hosts that keep the spread. Free is also
    the way back of a swap, to a spread that was there before.
    """
    if move.phase in service_state.LEAVING:
        return None
    for spread_set in view.list_spread_sets_of(move.instance_uuid):
        rejection = _judge_set(view, move, spread_set)
        if rejection is not None:
            return None if _is_way_back(view, move) else rejection
    return None


WORSENS_SPREAD_RULE = rules.Rule(
    worsens_spread, keys=frozenset({failure_domains.KEY}),
    codes={
        'worsens-spread': rules.RejectionCode(
            meaning='The instances of its set are spread over failure domains (kronos:spread), and '
                    'one domain would hold more members.',
            remedy='other members of the set leave the domain of the destination first',
            retry=rules.RetryClass.ELSEWHERE),
        'unclear-domain': rules.RejectionCode(
            meaning='Its set is spread over failure domains, and the metadata kronos:domain does '
                    'not tell the one domain of the destination.',
            remedy='kronos:domain of the aggregates of the destination is written as KIND:NAME and '
                   'names one domain of the kind',
            retry=rules.RetryClass.ELSEWHERE),
        'unclear-source-domain': rules.RejectionCode(
            meaning='Its set is spread over failure domains, and the metadata kronos:domain does '
                    'not tell the one domain of its own host.',
            remedy='kronos:domain of the aggregates of its host is written as KIND:NAME and names '
                   'one domain of the kind',
            retry=rules.RetryClass.FINAL)})


def count_change(view: views.CloudView, move: model.Move,
                 spread_set: spread_requests.SpreadSet) -> int:
    """Return by how many other members the destination's domain surpasses the source's.

    Above 0: the move makes the spread worse; 0 also within a domain; below 0: better. Members under
    way count where the move looks worst. The domains of both hosts are clear.
    """
    domains, kind = view.domains, spread_set.kind
    source = domains.list_domains(kind, move.from_host)
    destination = domains.list_domains(kind, move.to_host)
    if source == destination:
        return 0
    return (view.count_possible_members(spread_set, destination, move.instance_uuid)
            - view.count_certain_members(spread_set, source, move.instance_uuid))


def may_improve(view: views.CloudView, move: model.Move) -> bool:
    """Return whether the move makes a set's spread better in any outcome of the moves under way."""
    for spread_set in view.list_spread_sets_of(move.instance_uuid):
        source, destination = (view.domains.list_domains(spread_set.kind, host)
                               for host in (move.from_host, move.to_host))
        if source != destination and (
                view.count_certain_members(spread_set, destination, move.instance_uuid)
                < view.count_possible_members(spread_set, source, move.instance_uuid)):
            return True
    return False


def _judge_set(view: views.CloudView, move: model.Move,
               spread_set: spread_requests.SpreadSet) -> model.Rejection | None:
    kind = spread_set.kind
    if view.domains.is_unclear(kind, move.from_host):
        return model.Rejection('unclear-source-domain',
                               view.domains.describe_error(kind, move.from_host))
    if view.domains.is_unclear(kind, move.to_host):
        return model.Rejection('unclear-domain', view.domains.describe_error(kind, move.to_host))
    if count_change(view, move, spread_set) <= 0:
        return None
    domain = next(iter(view.domains.list_domains(kind, move.to_host)), None)
    where = (f'the hosts without a domain of the kind {kind} have' if domain is None
             else f'{kind} {domain} has')
    return model.Rejection('worsens-spread', f'{where} more members of {spread_set.title} than '
                                             f'the one of {move.from_host} would keep')


def _is_way_back(view: views.CloudView, move: model.Move) -> bool:
    instance = view.find_instance(move.instance_uuid)
    return view.is_returning(move.instance_uuid) or (
        instance is not None and instance.host == move.to_host)
