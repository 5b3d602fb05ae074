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


"""The check of Placement: it is new enough and lists its providers."""

from collections.abc import Iterator

from kronos_nova.checks import base
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import candidates_api
from kronos_nova.rebalancer.clients import placement_api


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    if context.connection is None:
        yield base.report_skip('placement', 'the token is missing')
        return
    placement = placement_api.PlacementApi(context.connection)
    try:
        placement.negotiate_microversions()
        providers = placement.read_providers()
    except api.ApiError as e:
        yield base.report_failure('placement', f'{e.what}: {e.problem}',
                                  'See that Placement answers, and the roles of the user of '
                                  '[nova].')
        return
    yield base.report_ok('placement', f'{len(providers)} resource providers')
    if context.conf.engine.confirm_moves:
        yield _check_candidates(context)


def _check_candidates(context: base.CheckContext) -> base.CheckItem:
    """Check the right to read allocation candidates. Only engines need it."""
    name = 'placement allocation candidates'
    try:
        candidates_api.CandidatesApi(context.connection).find_refusal(
            [('resources', 'MEMORY_MB:1'), ('limit', '1')])
    except api.ApiError as e:
        return base.report_warning(name, e.problem, (
            'kronos-engine will move nothing: grant the right, or set [engine] confirm_moves = '
            'false. An executor does without.'))
    return base.report_ok(name, 'may be asked for')
