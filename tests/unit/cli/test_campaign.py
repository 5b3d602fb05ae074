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

"""``kronos campaign plan`` on the example's snapshot, run as an operator does."""

import contextlib
import dataclasses
import json
from pathlib import Path

import pytest

from kronos_nova import model
from kronos_nova.cli import campaign
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import campaign_calendars
from kronos_nova.rebalancer.operations import campaign_forecasts
from tests import commands

EXAMPLE = Path(__file__).resolve().parents[3] / 'doc/examples/replay'


def plan(*options):
    return commands.main('kronos_nova.cli.app', 'campaign', 'plan', *options, '--config-file',
                         'kronos.conf', '--snapshot', 'snapshot', '-f', 'json', cwd=EXAMPLE)


def test_campaign_names_steps_and_the_instances_that_stay():
    done = plan('compute-05', 'compute-06', 'compute-07')
    assert done.returncode == 1, done.stderr
    rows = [tuple(row.values()) for row in json.loads(done.stdout)]
    assert rows[0][:2] == ('step 1', 'empties') and rows[0][2].startswith('compute-05: ')
    stays = [detail for what, verdict, detail in rows if verdict == 'stays']
    assert any(detail.startswith('on compute-07: locked: ') for detail in stays)
    what, verdict, detail = rows[-1]
    assert (what, verdict) == ('conclusion', 'blocked') and '1 host in 1 step' in detail


def test_campaign_of_hosts_that_all_become_empty_exits_with_0():
    done = plan('compute-05', '--together', '1')
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[-1]['Verdict'] == 'possible'


def test_options_that_keep_engines_from_it_are_named(tmp_path):
    conf = (EXAMPLE / 'kronos.conf').read_text().replace(
        'evacuate_disabled_hosts = true', 'evacuate_disabled_hosts = false').replace(
        'policies.yaml', str(EXAMPLE / 'policies.yaml'))
    (tmp_path / 'kronos.conf').write_text(conf)
    done = commands.main(
        'kronos_nova.cli.app', 'campaign', 'plan', 'compute-05', '--config-file',
        tmp_path / 'kronos.conf', '--snapshot', 'snapshot', '-f', 'json', cwd=EXAMPLE)
    rows = [tuple(row.values()) for row in json.loads(done.stdout)]
    assert done.returncode == 1 and rows[-1][1] == 'waits'
    assert any(row[:2] == ('engines', 'refuse') and 'evacuate_disabled_hosts' in row[2]
               for row in rows)


def test_hosts_that_were_not_forecast_in_time_are_named_and_the_exit_status_is_1():
    done = plan('compute-05', '--max-seconds', '0')
    assert done.returncode == 1, done.stderr
    rows = [tuple(row.values()) for row in json.loads(done.stdout)]
    assert rows[0] == ('host compute-05', 'not forecast', 'not forecast in time (--max-seconds)')
    assert rows[1][:2] == ('conclusion', 'incomplete')
    assert rows[1][2].startswith('1 host not forecast in time; 0 hosts in 0 steps')


@pytest.mark.parametrize(('changes', 'verdict', 'end'), [
    ({}, 'possible', '; the expected end is 1970-01-01T02:00:00+00:00'),
    ({'schedule': ()}, 'possible', 'about 1.0 hours of migrations'),
    ({'unforecast': ('c',)}, 'incomplete',
     '; these hosts are done about 1970-01-01T02:00:00+00:00'),
    ({'unforecast': ('c',), 'staying': {'b': (
        blocked_instances.BlockedInstance('u', 'locked'),)}}, 'blocked',
     '; these hosts are done about 1970-01-01T02:00:00+00:00'),
    ({'staying': {'b': (
        blocked_instances.BlockedInstance('u', 'cut off', is_cut_off=True),)}}, 'incomplete',
     '; these hosts are done about 1970-01-01T02:00:00+00:00')])
def test_last_row_names_the_expected_end_of_the_hosts_that_are_forecast(changes, verdict, end):
    forecast = dataclasses.replace(campaign_forecasts.CampaignForecast(
        (campaign_forecasts.CampaignStep(('a',), (model.Move('u', 'a', 'x', model.Phase.EVACUATE),),
                                         seconds=3600.0),), {}, 1,
        schedule=(campaign_calendars.ScheduledStep(0.0, 3600.0, 7200.0),)), **changes)
    rows = list(campaign._render_rows(forecast))
    assert rows[-1][1] == verdict and rows[-1][2].endswith(end.replace('1.0 hours', '60 minutes'))
    assert (rows[0][2] == 'a: 1 move, about 60 minutes; begins 1970-01-01T00:00:00+00:00, ends '
            '1970-01-01T02:00:00+00:00') == bool(forecast.schedule)


def test_instances_of_which_planning_was_cut_off_are_not_called_staying():
    unknown = blocked_instances.BlockedInstance(
        'u', 'planning was cut off', later=True, is_cut_off=True)
    forecast = campaign_forecasts.CampaignForecast((), {
        'a': (unknown,), 'b': (unknown, blocked_instances.BlockedInstance('v', 'locked')),
        'c': (blocked_instances.BlockedInstance('w', 'its hours', later=True),)},
        0, unforecast=('d',))
    rows = list(campaign._render_rows(forecast))
    assert [row[:2] for row in rows[:4]] == [
        ('instance u', 'not forecast'), ('instance u', 'not forecast'), ('instance v', 'stays'),
        ('instance w', 'later')]
    assert rows[-1][1] == 'blocked' and rows[-1][2].startswith(
        '2 hosts would keep instances: b, c; ')
    unstuck = dataclasses.replace(forecast, staying={'a': (unknown,)})
    assert list(campaign._render_rows(unstuck))[-1][1:] == (
        'incomplete', '1 host not forecast in time; 1 host not forecast to the end; 0 hosts in 0 '
        'steps; 0 migrations, 0 instances on these hosts')


def test_number_of_hosts_at_a_time_has_a_row_where_it_has_a_reason():
    forecast = campaign_forecasts.CampaignForecast((), {}, 0, 2, '2 and not 4 hosts at a time')
    rows = list(campaign._render_rows(forecast))
    assert rows[0] == ('together', '2', '2 and not 4 hosts at a time') and len(rows) == 2
    assert len(list(campaign._render_rows(dataclasses.replace(
        forecast, together_reason='')))) == 1


def test_a_start_says_how_many_hosts_it_empties_at_a_time_where_that_has_a_reason(
        monkeypatch, capsys):
    started = model.Campaign('id', 'blue', 'x', 2, 0.0, 'ann')
    forecast = campaign_forecasts.CampaignForecast((), {}, 0, 2, 'a reason')
    monkeypatch.setattr(campaign.campaign_orders, 'start_campaign',
                        lambda *_args, **_more: (started, forecast))
    command = campaign.StartCampaign(None, None)
    monkeypatch.setattr(command, 'open_session',
                        lambda *_args, **_more: contextlib.nullcontext())
    args = command.get_parser('start').parse_args(['a', '--reason', 'x'])
    command._start_campaign(args)
    assert 'It empties 2 at a time: a reason. kronos campaign status' in capsys.readouterr().out


@pytest.mark.parametrize(('options', 'said'), [
    ((), 'HOST: no compute host is named'),
    (('compute-99',), 'HOST: compute-99: no such compute host. Is compute-09 meant?'),
    (('--aggregate', 'fast-storag'), 'no such aggregate. Is fast-storage meant?'),
    (('--aggregate', 'rack'), 'rack: no such aggregate. openstack aggregate list has the names'),
    (('compute-01', 'compute-05'), 'compute-01 belongs to scope fast-storage, and compute-05 to'),
    (('--aggregate', 'fast-storage', '--together', '2'), '--together: engines drain 1 to 1 of'),
    (('--aggregate', 'fast-storage', '--together', '0'), '--together: engines drain 1 to 1 of'),
    (('compute-05', '--window', 'Sat 25:00-04:00'), "--window: 'Sat 25:00-04:00': 25:00 is no")])
def test_bad_input_is_named_with_its_remedy(options, said):
    done = plan(*options)
    assert done.returncode == 1 and said in done.stderr and 'Traceback' not in done.stderr
