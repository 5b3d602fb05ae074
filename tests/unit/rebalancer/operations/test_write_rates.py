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
import types

from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import freeze
from kronos_nova.conf import opts
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.sources import base
from kronos_nova.sources import ranges
from tests.unit.rebalancer.planning import test_quiet_hours as quiet

NOW, HOUR, MIB = quiet.NOW, quiet.HOUR, quiet.MIB
UUID = '11111111-1111-4111-8111-11111111111'


class HistorySource(base.MetricsSource):
    """A source of a day: each series has one value for each hour; None: no sample."""

    def __init__(self, **series):
        self.series = series
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
            for more in (0, 192, 64, 128)]) for rates in self.series.values())
        return ranges.RangeResult(query, window, keys=tuple(self.series), marks=tuple(self.series),
                                  values=values)


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


def read(conf, source, request=None, found=None, hosts=('a',)):
    request = request or cloud()
    return write_rates.add_write_rates(
        conf, source, found or policy_set(), request.cluster, request.scores, request.history,
        hosts, NOW)


def test_an_hour_has_the_highest_rate_of_its_samples(conf):
    source = HistorySource(**{'instance-i0': [MIB * n for n in range(24)]})
    history = read(conf, source)
    assert history.hourly_write_rates == {'i0': tuple(
        (HOUR - 86400 + 3600 * n, MIB * n + 192) for n in range(24))}
    (_query, label, window), = source.asked
    assert (label, window.start, window.end, window.count) == (
        'domain', HOUR - 86400, HOUR - 900, 96)


def test_a_query_names_only_instances_that_may_not_converge(conf):
    source = HistorySource()
    assert read(conf, source, cloud(3)) is not None
    (query, _label, _window), = source.asked
    assert query == ('(rate(dirty[5m])\n) and on (domain) '
                     '(label_replace(vector(1), "domain", "instance-i0", "", ""))')
    for request, hosts in ((cloud(), ('b',)), (quiet.cloud(None, rate=quiet.QUIET), ('a',)),
                           (quiet.cloud(None, measured=()), ('a',))):
        assert read(conf, source, request, hosts=hosts) is None
    conf.set_override('drain_quiet_wait', 0, 'engine')
    assert read(conf, source) is None and len(source.asked) == 1


def test_a_display_name_is_in_no_query(conf):
    source = HistorySource(**{'"i0': [MIB] * 24})
    history = read(conf, source, found=policy_set('nova_display_name'))
    assert source.asked[0][0] == 'rate(dirty[5m])' and list(history.hourly_write_rates) == ['i0']


def test_gaps_duplicates_and_foreign_series_have_no_rate(conf):
    source = HistorySource(**{'instance-i0': [None] * 23 + [MIB], 'instance-i9': [MIB] * 24})
    assert read(conf, source).hourly_write_rates == {'i0': ((HOUR - 3600, MIB + 192),)}
    twice = dataclasses.replace(
        source.query_range('q', 'l', 'l', ranges.QueryWindow(0, 1, 96)), keys=('instance-i0',) * 2)
    source.query_range = lambda *_: twice
    assert read(conf, source).hourly_write_rates == {}


def test_a_failed_query_is_a_warning_and_no_rate(conf, caplog):
    source = HistorySource()
    source.error = 'the server is busy'
    assert read(conf, source).hourly_write_rates == {}
    assert 'the server is busy' in caplog.text


def test_frozen_hours_are_those_that_begin_in_a_freeze_window(conf):
    conf.set_override('freeze_windows', [freeze.WindowType()('30 2 * * * 1h')], 'engine')
    history = read(conf, HistorySource(**{'instance-i0': [MIB] * 24}))
    assert history.frozen_hours == (HOUR + 2 * 3600,), '03:00; the wait ends at 03:46'


def samples(request):
    return {'cpu': model.PolicySamples(
        'cpu', model.QueryResult('load', model.SourceHealth.HEALTHY, {}),
        dirty_rate=model.QueryResult('d', model.SourceHealth.HEALTHY, {
            request.cluster.instances[u].internal_name: quiet.LOUD
            for u in request.cluster.instances}))}


def test_an_engine_asks_once_an_hour_and_when_a_further_host_is_drained(conf):
    source = HistorySource(**{'instance-i0': [quiet.LOUD] + [MIB] * 23})
    reader, request = write_rates.WriteRateReader(conf, source), cloud(2)
    both = {**request.cluster.services, 'b': dataclasses.replace(
        request.cluster.services['b'], status='disabled', disabled_reason='x')}
    instances = {**request.cluster.instances, 'j': dataclasses.replace(
        request.cluster.instances['i1'], uuid='j', host='b', internal_name='instance-j')}
    more = dataclasses.replace(request.cluster, services=both, instances=instances)

    def ask(now, cluster=request.cluster):
        history = reader.add_rates(request.history, cluster, samples(request), policy_set(), now)
        return len(source.asked), list(history.hourly_write_rates)

    assert ask(NOW) == ask(HOUR + 3599) == (1, ['i0'])
    assert ask(HOUR + 3600) == ask(HOUR + 7199) == (2, ['i0'])
    assert ask(HOUR + 7199, more) == ask(HOUR + 7199) == (3, ['i0'])
    assert reader.add_known_rates(request.cluster.scope, request.history).hourly_write_rates
    source.error = 'the server is busy'
    assert ask(HOUR + 7200) == ask(HOUR + 7300) == (4, []), 'a failure counts for its hour'
    enabled = dataclasses.replace(request.cluster, services={
        name: dataclasses.replace(s, status='enabled')
        for name, s in request.cluster.services.items()})
    assert ask(HOUR + 10800, enabled) == (4, [])
    assert not reader.add_known_rates(request.cluster.scope, request.history).hourly_write_rates


def test_a_query_names_no_more_instances_than_the_bound(conf, caplog, monkeypatch):
    monkeypatch.setattr(write_rates, 'MOST_INSTANCES', 1)
    source, request = HistorySource(), cloud(2)
    policies_ = {
        name: dataclasses.replace(scores, dirty_rates={'i0': quiet.LOUD, 'i1': 2 * quiet.LOUD})
        for name, scores in request.scores.policies.items()}
    read(conf, source, dataclasses.replace(request, scores=dataclasses.replace(
        request.scores, policies=policies_)))
    assert 'instance-i1' in source.asked[0][0] and 'instance-i0' not in source.asked[0][0]
    assert '1 instance of drains' in caplog.text


def test_the_decision_uses_the_rates_that_the_reader_adds(conf):
    rates = [quiet.LOUD] * 24
    rates[2] = MIB
    request = cloud()
    history = read(conf, HistorySource(**{'instance-i0': rates}), request)
    waits = quiet_hours.find_quiet_waits(request.cluster, request.scores, history,
                                         request.options, NOW)
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
        cloud_for_requests=cloud_state.CloudState(
            request.cluster, {}, [model.UNASSIGNED], {}, NOW),
        build_request=lambda cluster, cloud: request)
    answer = drain_checks.check_drain(session, 'a', deadline=None if waits else HOUR + 2 * 3600)
    assert len(source.asked) == 1
    assert [b.movable_from for b in answer.check.blocked] == ([HOUR + 2 * 3600] if waits else [])
    source.asked.clear()
    session.asks_metrics = False
    assert not drain_checks.check_drain(session, 'a').check.blocked and not source.asked
