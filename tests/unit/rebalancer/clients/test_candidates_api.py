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


"""What Placement's answers about candidates mean; its texts are those of a real
one (tests/functional/test_confirming.py)."""

from collections.abc import Sequence
from typing import Any
from urllib import parse

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import candidates_api
from tests.unit.rebalancer.clients import answers

ASKED = [('in_tree', 'root'), ('required', 'COMPUTE_NEW,CUSTOM_OWN'), ('resources', 'VCPU:1'),
         ('root_required', '!COMPUTE_STATUS_DISABLED')]
ONE = {'allocation_requests': [{}]}


def path(query: Sequence[tuple[str, str]]) -> str:
    return f'/allocation_candidates?{parse.urlencode(query)}'


def bad(text: str) -> answers.Response:
    return answers.Response({'errors': [{'status': 400, 'detail': text}]}, 400)


def refusal(*turns: tuple[Sequence[tuple[str, str]], Any]) -> str | None:
    """:param turns: all that is to be asked, with the answers."""
    connection = answers.Answers()
    for query, answer in turns:
        connection.answers[path(query)] = [answer]
    found = candidates_api.CandidatesApi(connection).find_refusal(ASKED, {'CUSTOM_OWN'})
    assert [at for at, _, _ in connection.asked] == [path(query) for query, _ in turns]
    return found


def test_one_candidate_does() -> None:
    assert refusal((ASKED, ONE)) is None
    assert refusal((ASKED, {'allocation_requests': []})) == candidates_api.NONE


def test_a_trait_that_only_we_have_asked_for_is_no_reason_to_refuse() -> None:
    """A Placement that does not know it belongs to a Nova that does not ask."""
    less = [*ASKED[:1], ('required', 'CUSTOM_OWN'), *ASKED[2:]]
    no = bad('Invalid query string parameters: No such trait(s): COMPUTE_NEW.')
    assert refusal((ASKED, no), (less, ONE)) is None
    assert refusal((ASKED, no), (less, {'allocation_requests': []})) == candidates_api.NONE
    assert refusal((ASKED, bad('No such trait(s): COMPUTE_STATUS_DISABLED.')),
                   (ASKED[:3], ONE)) is None


@pytest.mark.parametrize('text', [
    'No such trait(s): CUSTOM_OWN.', 'Invalid resource class in resources parameter: VCPU'])
def test_an_unknown_name_from_the_flavor_is_a_refusal(text: str) -> None:
    assert refusal((ASKED, bad(text))) == f'HTTP 400: {text}', 'in its own words'


def test_a_reduced_query_that_fails_too_is_a_refusal() -> None:
    less = [*ASKED[:1], ('required', 'CUSTOM_OWN'), *ASKED[2:]]
    assert refusal((ASKED, bad('No such trait(s): COMPUTE_NEW, CUSTOM_OWN.')),
                   (less, bad('No such trait(s): CUSTOM_OWN.'))) == (
        'HTTP 400: No such trait(s): CUSTOM_OWN.')


@pytest.mark.parametrize('status', [401, 403, 500, 503])
def test_an_error_status_of_the_query_raises(status: int) -> None:
    with pytest.raises(api.ApiError) as found:
        refusal((ASKED, answers.Response({}, status)))
    assert found.value.status == status and not found.value.unreachable
