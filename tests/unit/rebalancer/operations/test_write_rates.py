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

"""Past rates of drains: the queries, their times, and the meaning of answers."""

import array
import dataclasses
import math
import time
import types

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import policy as policies
from kronos_nova.conf import freeze
from kronos_nova.conf import opts
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.sources import base
from kronos_nova.sources import ranges
from tests.fixtures import stores
from tests.unit.rebalancer.planning import test_quiet_hours as quiet

NOW, HOUR, MIB = quiet.NOW, quiet.HOUR, quiet.MIB
UUID = '11111111-1111-4111-8111-11111111111'


class HistorySource(base.MetricsSource):
    """A source of a day: each series has one value for each hour; None: no sample."""

    def __init__(self, **series):
        self.series = series
        self.keys = None
        self.steps = (0, 192, 64, 128)
        self.error = None
        self.asked = []

    def fetch(self, policy, *, profile=True):
        raise AssertionError('not asked here')

    def health(self):
        return model.SourceHealth.HEALTHY, ''

    def query_range(self, query, label, mark, window, progress=ranges.ignore_progress):
        self.asked.append((query, label, window))
        if self.error is not None:
            return ranges.RangeResult(query, window, error=self.error)
        values = tuple(array.array('f', [
            math.nan if rate is None else rate + more for rate in rates
            for more in self.steps]) for rates in self.series.values())
        keys = self.keys or tuple(self.series)
        return ranges.RangeResult(query, window, keys=keys, marks=keys, values=values)


def let_open(monkeypatch, find_source):
    """Let a reader open the source that the function returns."""
    load_plugin = plugins.load_plugin
    monkeypatch.setattr(plugins, 'load_plugin', lambda namespace, name: (
        load_plugin(namespace, name) if namespace != plugins.SOURCES
        else lambda conf: find_source()))


@pytest.fixture
def conf():
    made = cfg.ConfigOpts()
    opts.register(made)
    made([], default_config_files=[])
    for name, value in {'drain_quiet_wait': 7200, 'evacuate_disabled_hosts': True}.items():
        made.set_override(name, value, 'engine')
    return made


def policy_set(label_type='nova_internal_name', **fields):
    return policies.parse_policies({'policies': [{
        'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'load', 'vm_profile_query': 'vm',
        'vm_dirty_rate_query': 'rate(dirty[5m])', 'vm_profile_label': 'domain',
        'vm_profile_label_type': label_type, **fields}]}, 'test')


def cloud(count=1):
    request = quiet.cloud(None, count=count)
    instances = {uuid: dataclasses.replace(i, internal_name=f'instance-{uuid}', name=f'"{uuid}')
                 for uuid, i in request.cluster.instances.items()}
    return dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=instances))


def samples(request, rate=quiet.LOUD):
    return {'cpu': model.PolicySamples(
        'cpu', model.QueryResult('load', model.SourceHealth.HEALTHY, {}),
        dirty_rate=model.QueryResult('d', model.SourceHealth.HEALTHY, {
            request.cluster.instances[u].internal_name: rate
            for u in request.cluster.instances}))}


def read(conf, source, request=None, found=None, risky=('i0',)):
    request = request or cloud()
    return write_rates.RateQuestions(
        conf, source, stores.in_memory(), found or policy_set(), NOW).add_rates(
            request.cluster, risky, request.history)


def test_an_hour_has_the_highest_rate_of_its_samples(conf):
    source = HistorySource(**{'instance-i0': [MIB * n for n in range(24)]})
    history = read(conf, source)
    assert history.hourly_write_rates == {'i0': tuple(
        (HOUR - 86400 + 3600 * n, MIB * n + 192) for n in range(24))}
    (_query, label, window), = source.asked
    assert (label, window.start, window.end, window.count) == (
        'domain', HOUR - 86400, HOUR - 900, 96)


def test_a_query_names_the_instances(conf):
    source = HistorySource()
    read(conf, source, cloud(3))
    (query, _label, _window), = source.asked
    assert query == ('(rate(dirty[5m])\n) and on (domain) '
                     '(label_replace(vector(1), "domain", "instance-i0", "", ""))')
    read(conf, source, risky=())
    read(conf, source, quiet.cloud(quiet.profile()))
    assert len(source.asked) == 1, 'nothing is missing'


def test_a_name_that_is_no_plain_word_is_in_no_query(conf):
    request, source = cloud(2), HistorySource()
    instances = {**request.cluster.instances, 'i0': dataclasses.replace(
        request.cluster.instances['i0'], internal_name='x"} or vector(1)')}
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=instances))
    read(conf, source, request, risky=('i0', 'i1'))
    assert 'instance-i1' in source.asked[0][0] and 'x"' not in source.asked[0][0]


def test_only_instances_of_drains_that_may_not_converge_are_risky(conf):
    def risky(request, rate=quiet.LOUD):
        hosts = write_rates.list_waiting_hosts(conf, request.cluster)
        return hosts and write_rates.list_risky_instances(
            conf, request.cluster, write_rates.map_present_rates(
                policy_set(), request.cluster, samples(request, rate)), request.history, hosts)

    assert risky(cloud(2)) == ['i0', 'i1']
    assert risky(cloud(), quiet.QUIET) == [] == risky(dataclasses.replace(
        cloud(), history=model.MoveHistory()))
    services = {**cloud().cluster.services, 'a': dataclasses.replace(
        cloud().cluster.services['a'], status='enabled')}
    assert risky(dataclasses.replace(cloud(), cluster=dataclasses.replace(
        cloud().cluster, services=services))) == []
    conf.set_override('mode', 'approve', 'engine')
    assert risky(cloud()) == [], 'a plan for a quiet hour may be approved in a loud one'
    conf.set_override('mode', 'auto', 'engine')
    assert risky(cloud()) == ['i0']
    conf.set_override('drain_quiet_wait', 0, 'engine')
    assert risky(cloud()) == []


def test_a_display_name_is_in_no_query(conf):
    source = HistorySource(**{'"i0': [MIB] * 24})
    history = read(conf, source, found=policy_set('nova_display_name'))
    assert source.asked[0][0] == 'rate(dirty[5m])' and list(history.hourly_write_rates) == ['i0']


def test_gaps_and_foreign_series_have_no_rate(conf):
    source = HistorySource(**{'instance-i0': [None] * 23 + [MIB], 'instance-i9': [MIB] * 24})
    assert read(conf, source).hourly_write_rates == {'i0': ((HOUR - 3600, MIB + 192),)}


@pytest.mark.parametrize('rate', [math.inf, -1.0])
def test_impossible_rates_are_left_out(conf, rate):
    source = HistorySource(**{'instance-i0': [rate] * 24})
    source.steps = (0, 0, 0, 0)
    assert read(conf, source).hourly_write_rates == {}


def test_an_instance_that_migrated_has_the_highest_rate_of_its_series(conf):
    """Exporters of hosts name the host: the series of the two hosts overlap in an hour."""
    source = HistorySource(here=[MIB] * 12 + [None] * 12, there=[None] * 11 + [2 * MIB] * 13,
                           other=[9 * MIB] * 24)
    source.keys = ('instance-i0', 'instance-i0', 'instance-i1')
    assert [rate - 192 for _at, rate in read(conf, source).hourly_write_rates['i0']] == (
        [MIB] * 11 + [2 * MIB] * 13)


def test_a_failed_query_is_a_warning_and_no_rate(conf, caplog):
    source = HistorySource()
    source.error = 'the server is busy'
    assert read(conf, source).hourly_write_rates == {}
    assert 'the server is busy' in caplog.text


def test_freezes_until_a_day_after_the_longest_wait_are_known(conf):
    conf.set_override('freeze_windows', [freeze.WindowType()('30 2 * * * 1h')], 'engine')
    history = read(conf, HistorySource(**{'instance-i0': [MIB] * 24}))
    assert history.freezes == tuple(
        (HOUR + 5400 + day, HOUR + 9000 + day) for day in (0, 86400)), '02:30 UTC'


def test_a_query_names_no_more_instances_than_the_bound(conf, monkeypatch):
    monkeypatch.setattr(write_rates, 'MOST_NAMES', 1)
    source = HistorySource(**{'instance-i0': [MIB] * 24, 'instance-i1': [MIB] * 24})
    history = read(conf, source, cloud(2), risky=('i1', 'i0'))
    assert ['instance-i1' in query for query, _label, _window in source.asked] == [True, False]
    assert list(history.hourly_write_rates) == ['i0', 'i1']


def test_the_longest_query_is_shorter_than_servers_allow(conf):
    uuids = [f'11111111-1111-4111-8111-{n:012}' for n in range(write_rates.MOST_NAMES)]
    request, source = cloud(), HistorySource()
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances={uuid: dataclasses.replace(
            request.cluster.instances['i0'], uuid=uuid) for uuid in uuids}))
    read(conf, source, request, policy_set('nova_instance_uuid'), uuids)
    (query, _label, _window), = source.asked
    assert uuids[-1] in query and len(query) < 16384


def test_several_policies_are_one_answer(conf):
    """The highest rate counts; one failed query of several leaves no rate."""
    document = {'policies': [{
        'name': name, 'weight': weight, 'imbalance_query': 'load', 'vm_profile_query': 'vm',
        'vm_dirty_rate_query': query, 'vm_profile_label': 'domain',
        'vm_profile_label_type': 'nova_internal_name'}
        for name, weight, query in (('one', 0.5, 'low'), ('two', 0.25, 'high'),
                                    ('three', 0.25, 'high'))]}
    source, found = HistorySource(), policies.parse_policies(document, 'test')
    query_range = source.query_range

    def answer(query, *args):
        source.series = {'instance-i0': [2 * MIB if 'high' in query else MIB] * 24}
        return query_range(query, *args)

    source.query_range = answer
    rates = read(conf, source, found=found).hourly_write_rates['i0']
    assert {rate for _at, rate in rates} == {2 * MIB + 192}
    assert len(source.asked) == 2, 'a query that two policies share is asked once'
    source.query_range = lambda query, *args: (
        ranges.RangeResult(query, args[-2], error='busy') if 'high' in query
        else query_range(query, *args))
    assert read(conf, source, found=found).hourly_write_rates == {}


class LateSource(HistorySource):
    """A source whose parts come late."""

    def query_range(self, query, label, mark, window, progress=ranges.ignore_progress):
        self.asked.append(query)
        while True:
            time.sleep(0.02)
            progress(0)


class HangingSource(HistorySource):
    def query_range(self, query, label, mark, window, progress=ranges.ignore_progress):
        time.sleep(1)
        return super().query_range(query, label, mark, window, progress)


@pytest.mark.parametrize('source', [LateSource(), HangingSource()])
def test_a_question_ends_in_its_time(conf, source, monkeypatch, caplog):
    monkeypatch.setattr(write_rates, 'ANSWER_SECONDS', 0.1)
    began = time.monotonic()
    assert read(conf, source).hourly_write_rates == {}
    assert time.monotonic() - began < 0.9 and 'no answer within 0.1 s' in caplog.text


def test_all_questions_of_a_command_have_one_time(conf, monkeypatch):
    monkeypatch.setattr(write_rates, 'ANSWER_SECONDS', 0.2)
    source, request = LateSource(), cloud(9)
    questions = write_rates.RateQuestions(conf, source, stores.in_memory(), policy_set(), NOW)
    began = time.monotonic()
    for n in range(9):
        questions.add_rates(request.cluster, [f'i{n}'], request.history)
    assert time.monotonic() - began < 1.5 and len(source.asked) == 1


def test_the_window_of_a_campaign_ends_no_wait_where_none_can_be_read(conf):
    class Campaigns:
        def __init__(self, found):
            self.found = found

        def find_live_campaign(self, scope):
            if isinstance(self.found, Exception):
                raise self.found
            return self.found

    def find_ends(found, **awaited):
        history = model.MoveHistory(awaited_write_rates=awaited)
        store = types.SimpleNamespace(campaigns=Campaigns(found))
        return write_rates.add_window_ends(conf, store, history, 'blue', cloud().cluster,
                                           NOW).window_ends

    campaign = model.Campaign(
        'c', 'blue', 'x', 1, NOW, 'me', hosts=(
            model.CampaignHost('a', 0, model.CampaignHostState.EMPTYING),
            model.CampaignHost('b', 1, model.CampaignHostState.EMPTYING),
            model.CampaignHost('gone', 2, model.CampaignHostState.EMPTYING)))
    window = maintenance_windows.parse_window('1:00-5:00')
    closed = dataclasses.replace(campaign, windows=(window,))
    assert find_ends(closed, i0=NOW + 300) == {'a': HOUR + 4 * 3600}, 'b is enabled'
    for found in (None, campaign, exception.UnreadableRowError(
            path='campaign', field='windows', problem='x', remedy='y')):
        assert find_ends(found, i0=NOW + 300) == {}
    assert find_ends(closed) == {}, 'no drain can wait'


def test_the_decision_uses_the_rates_that_the_reader_adds(conf):
    rates = [quiet.LOUD] * 24
    rates[2] = MIB
    request = cloud()
    history = read(conf, HistorySource(**{'instance-i0': rates}), request)
    waits = quiet_hours.find_quiet_waits(request.cluster, request.scores, history,
                                         request.options, NOW, budget=5)
    assert waits['i0'].until == HOUR + 2 * 3600


@pytest.mark.parametrize('waits', [True, False])
def test_a_check_before_a_drain_asks_for_the_instances_of_its_host(conf, waits):
    rates = [quiet.LOUD] * 24
    rates[2] = MIB
    source, request = HistorySource(**{'instance-i0': rates}), quiet.supposed(cloud(2))
    request = dataclasses.replace(request, options=dataclasses.replace(
        request.options, drain_quiet_wait=7200.0))
    session = types.SimpleNamespace(
        conf=conf, policies=policy_set(), metrics_source=source, asks_metrics=True,
        store=stores.in_memory(),
        cloud_for_requests=cloud_state.CloudState(
            request.cluster, {}, [model.UNASSIGNED], {}, NOW),
        build_request=lambda cluster, cloud: request, count_needed_approvals=lambda scope: 0)
    answer = drain_checks.check_drain(session, 'a', deadline=None if waits else HOUR + 2 * 3600)
    assert len(source.asked) == 1
    assert [b.movable_from for b in answer.check.blocked] == ([HOUR + 2 * 3600] if waits else [])
    assert answer.risky.keys() == {'i0'}
    assert ('the deadline of the drain' in str(answer.wait_obstacles)) != waits
    source.asked.clear()
    session.count_needed_approvals = lambda scope: 1
    answer = drain_checks.check_drain(session, 'a')
    assert not answer.check.blocked and not source.asked
    assert answer.wait_obstacles == {'i0': 'plans of its scope wait for approval'}
    session.count_needed_approvals, session.asks_metrics = lambda scope: 0, False
    answer = drain_checks.check_drain(session, 'a')
    assert not answer.check.blocked and not source.asked
    assert answer.wait_obstacles == {'i0': 'its memory writes of the last day are not known'}
