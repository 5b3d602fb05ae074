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

"""The progress of a campaign: hosts that are over, next or held, and the rest of the forecast."""

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.operations import campaign_views

STATES, HOSTS = model.CampaignState, model.CampaignHostState


def make_campaign(*states, **changes):
    return dataclasses.replace(model.Campaign(
        'id', 'blue', 'firmware [campaign id]', 2, 100.0, 'ann', migrations=8, seconds=400.0,
        waits='a window', hosts=tuple(model.CampaignHost(f'h{n}', n, state)
                                      for n, state in enumerate(states))), **changes)


def test_progress_counts_hosts_and_names_the_next_one():
    campaign = make_campaign(HOSTS.DONE, HOSTS.SKIPPED, HOSTS.HELD, HOSTS.TO_COME, HOSTS.TO_COME)
    progress = campaign_views.build_progress(model.summarise_campaign(campaign), 2)
    assert (progress.over, progress.total, progress.next_host) == (2, 5, 'h3')
    assert progress.states == (('to-come', 2), ('held', 1), ('done', 1), ('skipped', 1))
    assert [host.host for host in progress.begun] == ['h2'] and progress.waits == 'a window'
    assert (progress.migrations, progress.migrations_left, progress.seconds_left) == (2, 6, 300.0)


@pytest.mark.parametrize(('states', 'migrations', 'left', 'seconds'), [
    ((HOSTS.EMPTYING,), 8, 0, None), ((HOSTS.EMPTYING,), 9, 0, None),
    ((HOSTS.HELD, HOSTS.DONE), 2, None, None), ((HOSTS.TO_COME,), 0, 8, 400.0)])
def test_remaining_forecast_ends_with_the_last_host_that_is_emptied(states, migrations, left,
                                                                    seconds):
    progress = campaign_views.build_progress(
        model.summarise_campaign(make_campaign(*states)), migrations)
    assert (progress.migrations_left, progress.seconds_left) == (left, seconds)


def test_unknown_times_stay_unknown():
    campaign = make_campaign(HOSTS.TO_COME, seconds=None)
    assert campaign_views.build_progress(model.summarise_campaign(campaign), 1).seconds_left is None
    assert campaign_views.build_progress(model.summarise_campaign(campaign), 1).migrations_left == 7


@pytest.mark.parametrize(('state', 'held'), [
    (STATES.PAUSED, 'paused by ben: a storm'), (STATES.ABORTING, 'aborted by ben: a storm')])
def test_hold_names_the_person(state, held):
    campaign = make_campaign(HOSTS.HELD, state=state, held_by='ben', held_because='a storm')
    assert campaign_views.build_progress(model.summarise_campaign(campaign), 0).held == held


def test_an_ended_campaign_waits_for_nothing():
    campaign = make_campaign(HOSTS.DONE, HOSTS.TO_COME, state=STATES.ABORTED, ended_at=9.0)
    progress = campaign_views.build_progress(model.summarise_campaign(campaign), 0)
    assert (progress.waits, progress.next_host, progress.migrations_left) == ('', None, None)
