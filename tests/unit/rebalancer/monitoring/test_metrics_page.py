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

"""/metrics: the page for Prometheus, with any names and during outages."""

from http import client as http_client
import re
import socket
import threading

from oslo_config import cfg
from prometheus_client import parser
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.feed import worker_records
from kronos_nova.rebalancer.monitoring import bounded_query
from kronos_nova.rebalancer.monitoring import catalogue
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import http_server
from kronos_nova.rebalancer.monitoring import metrics_page as pages
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import tables
from kronos_nova.wiring import daemons
from tests.fixtures import stores
from tests.unit.rebalancer.monitoring import test_stats
from tests.unit.rebalancer.store import cases

ODD = 'a "b" \\ {c}\nd'


def health_of(**facts):
    return healths.DaemonHealth(**{'daemon': 'kronos-engine', 'dry_run': False, **facts})


@pytest.fixture
def store(tmp_path):
    found = stores.in_file(tmp_path / 'kronos.sqlite', lambda: cases.NOW + 60)
    return found


def told(page, accept=''):
    """{(sample, labels): value} and {family: type} of a page."""
    kind, text = page(accept)
    assert kind.startswith('text/plain; version=0.0.4')
    families = list(parser.text_string_to_metric_families(text.decode()))
    return ({(s.name, tuple(sorted(s.labels.items()))): s.value
             for family in families for s in family.samples},
            {family.name: family.type for family in families})


def value(samples, name, **labels):
    return samples.get((name, tuple(sorted(labels.items()))))


def everything(tally):
    """All that a daemon can have to tell."""
    tally.expect_scopes(['blue'])
    policy = {'name': 'cpu', 'imbalance_measured': 0.5, 'imbalance_before': 0.4,
              'imbalance_after': 0.25, 'threshold': 0.1,
              'age_seconds': 12.0, 'coverage': {'a': 0.75, 'b': 0.1},
              'missing_hosts': ['d']}
    tally.record_planned_cycle(test_stats.row(
        hosts=3, instances=9, policies=[policy], combined_measured=0.5, combined_before=0.4,
        combined_after=0.25,
        moves=[test_stats.move()], rejections={'locked': 2},
        failover={'safe': 1, 'unsafe': 2, 'unknown': 3, 'unplaceable': 4},
        undrained=['nobody ordered it', 'nor that'], truncated=True),
        test_stats.scores(), 1000.0, True, 1)
    tally.record_failed_cycle('red', 'kronos.collect')
    tally.count_judged_plan('blue', worse=True)
    tally.count_breaker_trip('blue')
    tally.begin_executor_counts(['MigrationFailed'])
    task = cases.make_task('p', 'blue')
    tally.record_submission(task, 30.0)
    tally.attempt_failed('MigrationFailed')
    tally.count_ended_task(task, model.TaskState.COMPLETED, 42.0)


class Workers:
    """Reads the records of two workers, one of which has no scores."""

    reading = worker_records.RecordReading({
        3: worker_records.WorkerRecord(
            'controller1', 7, 1.0, 2.0,
            (worker_records.FileState('/etc/kronos/policies.yaml', 2, 12.0),),
            {'KronosWeigher': worker_records.PluginWork(5, 0.25),
             'KronosCapacityFilter': worker_records.PluginWork(6, 0.5, 9)},
            {('KronosWeigher', 'KeyError'): worker_records.FaultCount(4, 1000.0)}),
        9: worker_records.WorkerRecord(
            ODD, 8, 1.0, 2.0, (worker_records.FileState(
                'p.yaml', 0, None, 'cpu2: samples are 312 s old, more than 300.5 s (v1.2)'),))},
        refused=1)

    def read(self):
        return self.reading

    def renew_connection(self):
        """No connection is held."""


def full_page(store, **options):
    plan_id, _, _ = cases.save(store, [
        lambda plan_id, scope: cases.make_task(plan_id, scope, instance_name='tenant')])
    with store.engine.begin() as connection:
        connection.execute(tables.outcome.insert().values(
            plan_id=plan_id, scope='blue', planned_at=1.0, combined_before=0.5,
            combined_foreseen=0.2, combined_realised=0.6, realised_at=2.0))
    store.outcomes.open_breaker(cases.lease_of(store), cases.NOW, seconds=None,
                                paused_by=breakers.NAME, reason='x')
    store.run_transaction(lambda c: requests.record_request(c, requests.MigfraRequest(
        'r1', 'a', 'stop vm', '{}', '', store.now() - 60)))
    store.campaigns.create_campaign(model.Campaign(
        'id', 'blue', 'why', 1, cases.NOW, 'me', hosts=(model.CampaignHost('a', 0),)), '')
    tally = tallies.DaemonTally()
    everything(tally)
    health = health_of()
    health.record_part('cycle', {})
    return pages.MetricsPage(
        health, tally, store.statistics.read_census, driver='nova', interval=300.0,
                             workers=Workers(), **options)


def test_every_metric_of_the_catalogue_is_exported_with_type_and_labels(store):
    samples, families = told(full_page(store))
    ours = {name: kind for name, kind in families.items() if name.startswith('kronos_')}
    assert ours == {name.removesuffix('_total'): str(metric.kind)
                    for name, metric in catalogue.METRICS.items()}
    for (name, labels), _ in samples.items():
        metric = catalogue.METRICS.get(re.sub('_(bucket|count|sum)$', '', name))
        if metric is not None:
            assert {label for label, _ in labels} - {'le'} == set(metric.labels), name
    assert value(samples, 'process_open_fds') > 0


def test_names_follow_the_conventions_of_prometheus():
    for name, metric in catalogue.METRICS.items():
        assert re.fullmatch(r'kronos_[a-z_]+', name) and metric.text.endswith('.')
        assert name.endswith('_total') == (metric.kind is catalogue.MetricKind.COUNTER)
        assert not re.search(r'_(ms|minutes|percent|mb|gb)(_|$)', name)
        if metric.kind is catalogue.MetricKind.HISTOGRAM:
            assert name.endswith('_seconds')


def test_exported_values_equal_the_recorded_ones(store):
    samples, _ = told(full_page(store))
    cpu = {'scope': 'blue', 'policy': 'cpu'}
    for name, expected in (('kronos_imbalance_ratio', 0.5), ('kronos_coverage_ratio', 0.75),
                           ('kronos_missing_hosts', 1), ('kronos_policy_trusted', 1),
                           ('kronos_sample_age_seconds', 12)):
        assert value(samples, name, **cpu) == expected
    assert value(samples, 'kronos_host_score_ratio', host='a', **cpu) == 0.5
    assert value(samples, 'kronos_undrained_hosts', scope='blue') == 1
    assert value(samples, 'kronos_failover_unsafe_hosts', scope='blue') == 2
    assert value(samples, 'kronos_failover_unknown_hosts', scope='blue') == 3
    assert value(samples, 'kronos_failover_unplaceable_instances', scope='blue') == 4
    assert value(samples, 'kronos_failover_certified_timestamp_seconds', scope='blue') == 1000
    assert value(samples, 'kronos_rejected_moves', scope='blue', rule='locked') == 2
    assert value(samples, 'kronos_cycle_step_seconds_bucket', step='plan', le='0.1') == 0
    assert value(samples, 'kronos_cycle_step_seconds_bucket', step='plan', le='0.5') == 1
    assert value(samples, 'kronos_cycle_step_seconds_sum', step='plan') == 0.2
    ended = {'driver': 'nova', 'phase': 'spread', 'method': 'live'}
    assert value(samples, 'kronos_tasks_ended_total', result='completed', **ended) == 1
    assert value(samples, 'kronos_tasks_ended_total', result='failed', **ended) == 0
    assert value(samples, 'kronos_migration_seconds_sum', driver='nova', method='live',
                 result='completed') == 42
    assert value(samples, 'kronos_tasks', scope='blue', phase='spread', state='queued') == 1
    assert value(samples, 'kronos_oldest_task_age_seconds', scope='blue', state='queued') == 60
    assert value(samples, 'kronos_requests', kind='stop vm') == 1
    assert 59 < value(samples, 'kronos_oldest_request_age_seconds', kind='stop vm') < 90
    assert value(samples, 'kronos_breaker_open', scope='blue') == 1
    assert value(samples, 'kronos_cloud_paused') == 0
    assert value(samples, 'kronos_predicted_gain', scope='blue') == pytest.approx(0.3)
    assert value(samples, 'kronos_realised_gain', scope='blue') == pytest.approx(-0.1)


def test_records_of_workers_are_exported_by_scheduler_and_worker(store):
    samples, _ = told(full_page(store))
    one = {'scheduler': 'controller1', 'worker': '3'}
    other = {'scheduler': ODD, 'worker': '9', 'policies_file': 'p.yaml'}
    file = {**one, 'policies_file': '/etc/kronos/policies.yaml'}
    fault = {**one, 'where': 'KronosWeigher', 'error': 'KeyError'}
    for name, labels, expected in (
            ('channel_up', {}, 1), ('workers', {}, 2), ('refused_records', {}, 1),
            ('scored_hosts', file, 2), ('score_age_seconds', file, 12),
            ('scored_hosts', other, 0), ('score_age_seconds', other, None),
            # The age in it would make a new series of each scrape.
            ('unscored_info', {
                **other, 'reason': 'cpu2: samples are N s old, more than N s (v1.2)'}, 1),
            ('requests_total', {**one, 'plugin': 'KronosWeigher'}, 5),
            ('request_seconds_total', {**one, 'plugin': 'KronosWeigher'}, 0.25),
            ('refused_hosts_total', {**one, 'plugin': 'KronosCapacityFilter'}, 9),
            ('faults_total', fault, 4), ('fault_timestamp_seconds', fault, 1000)):
        assert value(samples, f'kronos_scheduler_{name}', **labels) == expected, (name, labels)


def test_a_lost_channel_is_exported_and_an_unconfigured_one_is_not(store):
    workers = Workers()
    workers.reading = None
    samples, _ = told(
        pages.MetricsPage(health_of(), tallies.DaemonTally(), store.statistics.read_census,
                          workers=workers))
    found = {name: number for (name, _), number in samples.items() if '_scheduler_' in name}
    assert found == {'kronos_scheduler_channel_up': 0}
    samples, _ = told(
        pages.MetricsPage(health_of(), tallies.DaemonTally(), store.statistics.read_census))
    assert not any('_scheduler_' in name for name, _ in samples)


def test_a_scrape_asks_the_database_and_the_cache_at_once(store):
    """Asked one after the other, neither would answer."""
    together = threading.Barrier(2)

    class Slow(Workers):
        def read(self):
            together.wait(30)
            return self.reading

    def census():
        together.wait(30)
        return store.statistics.read_census()

    samples, _ = told(pages.MetricsPage(health_of(), tallies.DaemonTally(), census, workers=Slow()))
    assert value(samples, 'kronos_scheduler_workers') == 2
    assert value(samples, 'kronos_store_up') == 1


@pytest.mark.parametrize('hosts, expected', [
    ({'a': 0.5, 'b': 0.05, 'c': 0.01}, 0.7), ({'a': 0.04, 'b': 0.04, 'c': 0.01}, None)])
def test_idle_hosts_say_nothing_of_a_unit(store, hosts, expected):
    """Their load comes from the operating system."""
    tally = tallies.DaemonTally()
    policy = {'name': 'cpu', 'imbalance_measured': 0.0, 'imbalance_before': 0.0,
              'imbalance_after': 0.0, 'threshold': 0.1,
              'age_seconds': None, 'coverage': {'a': 0.8, 'b': 0.6, 'c': 0.01},
              'missing_hosts': []}
    scores = model.ClusterScores({'cpu': model.PolicyScores('cpu', hosts)})
    tally.record_planned_cycle(test_stats.row(policies=[policy]), scores, 1.0, False)
    samples, _ = told(pages.MetricsPage(health_of(), tally, store.statistics.read_census))
    assert value(samples, 'kronos_coverage_ratio', scope='blue', policy='cpu') == (
        None if expected is None else pytest.approx(expected))


def test_a_campaign_that_pauses_is_exported_with_its_hosts(store):
    hosts = [model.CampaignHost('a', 0, model.CampaignHostState.HELD),
             model.CampaignHost('b', 1), model.CampaignHost('c', 2)]
    store.campaigns.create_campaign(model.Campaign(
        'id', 'blue', 'why', 1, cases.NOW, 'me', hosts=tuple(hosts)), '')
    page = pages.MetricsPage(health_of(), tallies.DaemonTally(), store.statistics.read_census)
    samples, _ = told(page)
    assert value(samples, 'kronos_campaign_paused', scope='blue') == 0
    assert [value(samples, 'kronos_campaign_hosts', scope='blue', state=state)
            for state in ('to-come', 'held', 'done')] == [2, 1, 0]
    store.campaigns.order_state('id', [model.CampaignState.RUNNING], model.CampaignState.PAUSED,
                                command='campaign paused', by='me', reason='a storm')
    samples, _ = told(pages.MetricsPage(
        health_of(), tallies.DaemonTally(), store.statistics.read_census))
    assert value(samples, 'kronos_campaign_paused', scope='blue') == 1


def test_a_pause_of_an_unleased_scope_is_exported(store):
    """In a dry run none is leased."""
    store.pauses.pause_scope('new', cases.NOW, seconds=None, paused_by='me', reason='mine')
    samples, _ = told(
        pages.MetricsPage(health_of(), tallies.DaemonTally(), store.statistics.read_census))
    assert value(samples, 'kronos_scope_paused', scope='new') == 1
    assert value(samples, 'kronos_breaker_open', scope='new') == 0
    assert value(samples, 'kronos_scope_leased', scope='new') is None


def test_a_dry_run_plans_and_executes_nothing(store):
    tally = tallies.DaemonTally()
    tally.record_planned_cycle(test_stats.row(moves=[test_stats.move()]), test_stats.scores(), 1.0,
                               True)
    samples, _ = told(
        pages.MetricsPage(health_of(dry_run=True), tally, store.statistics.read_census))
    assert value(samples, 'kronos_dry_run') == 1
    assert value(samples, 'kronos_planned_moves_total', scope='blue', phase='spread',
                 method='live', dry_run='true') == 1
    assert not any(name.startswith(('kronos_tasks', 'kronos_migration')) for name, _ in samples)
    assert value(samples, 'kronos_scope_leased', scope='blue') is None


def test_health_that_fails_is_no_reason_to_tell_nothing(store):
    health = health_of()
    health.record_part('cycle', {'': 'Nova is away'})
    samples, _ = told(
        pages.MetricsPage(health, tallies.DaemonTally(), store.statistics.read_census))
    assert (value(samples, 'kronos_alive'), value(samples, 'kronos_ready')) == (1, 0)


def test_without_host_scores_nothing_is_as_many_as_the_hosts(store):
    samples, _ = told(full_page(store, host_scores=False))
    assert not any('host' in dict(labels) for _, labels in samples)


def test_odd_names_are_escaped(store):
    tally = tallies.DaemonTally()
    tally.record_planned_cycle(test_stats.row(ODD, hosts=1), test_stats.scores(), 1.0, False)
    page = pages.MetricsPage(health_of(), tally, store.statistics.read_census)
    samples, _ = told(page)
    assert value(samples, 'kronos_hosts', scope=ODD) == 1
    kind, text = page('application/openmetrics-text; version=1.0.0')
    assert kind.startswith('application/openmetrics-text') and text.endswith(b'# EOF\n')


def test_the_page_names_no_instance(store):
    """Neither its name, which a tenant writes, nor its UUID, of which there are too many."""
    page = full_page(store)
    _, text = page('')
    row, = store.tasks.list_tasks_in_states([model.TaskState.QUEUED])
    assert row.task.instance_name == 'tenant' and 'tenant' not in text.decode()
    assert not re.search(r'[0-9a-f]{8}-[0-9a-f]{4}-', text.decode())


def test_a_lost_database_is_exported_beside_all_other_metrics(store):
    def away():
        raise exception.StoreError(problem='is away', remedy='')

    tally = tallies.DaemonTally()
    everything(tally)
    samples, _ = told(pages.MetricsPage(health_of(), tally, away))
    assert value(samples, 'kronos_store_up') == 0
    assert value(samples, 'kronos_hosts', scope='blue') == 3
    assert value(samples, 'kronos_tasks', scope='blue', phase='spread', state='queued') is None


def test_a_hanging_query_delays_no_reader():
    """One query runs for any number of readers; the next one starts when it has
    ended."""
    asked, go_on = [], threading.Event()

    def ask():
        asked.append(1)
        go_on.wait(60)
        return 'answer'

    now = [0.0]
    asking_ = bounded_query.BoundedQuery(ask, patience=0.01, fresh=2.0, monotonic=lambda: now[0])
    assert asking_.read_answer() is None and asking_.read_answer() is None
    now[0] = 50.0
    assert asking_.read_answer() is None and len(asked) == 1
    go_on.set()
    patient = bounded_query.BoundedQuery(ask, patience=60.0, fresh=60.0)
    assert patient.read_answer() == patient.read_answer() == 'answer' and len(asked) == 2


def test_hanging_queries_are_abandoned_up_to_a_limit():
    """Each query has its own connection: a hanging one blocks no other."""
    hang, renewed, asked = threading.Event(), [], []

    def ask():
        asked.append(1)
        if hang.is_set():
            return 'answer'
        hang.wait(60)
        return None

    now = [0.0]
    asking_ = bounded_query.BoundedQuery(ask, patience=0.01, hung=60.0,
                                         renew=lambda: renewed.append(1),
                                         monotonic=lambda: now[0])
    for _ in range(bounded_query.LEFT + 3):
        assert asking_.read_answer() is None
        now[0] += 59
        asking_.read_answer()
        now[0] += 1
    assert len(asked) == bounded_query.LEFT + 1 and len(renewed) == bounded_query.LEFT
    hang.set()
    for question in asking_._abandoned:
        assert question.answered.wait(60)
    assert asking_._question.answered.wait(60)
    asking_._patience = 60.0
    assert asking_.read_answer() == 'answer'


@pytest.mark.parametrize('url', ['mysql+pymysql://kronos:x@127.0.0.1:{}/kronos',
                                 'postgresql+psycopg2://kronos:x@127.0.0.1:{}/kronos'])
def test_a_database_that_accepts_and_says_nothing_is_given_up(url, monkeypatch):
    monkeypatch.setattr(database, 'IMPATIENCE', 1)
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    with socket.create_server(('127.0.0.1', 0)) as silent:
        conf.set_override('connection', url.format(silent.getsockname()[1]), 'database')
        impatient = api.Store(engine=database.create_engine(conf, patient=False))
        with pytest.raises(exception.StoreError, match='(?i)timed out|timeout'):
            impatient.statistics.read_census()


def test_the_census_uses_its_own_connection_with_short_limits(monkeypatch, tmp_path):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('connection', f'sqlite:///{tmp_path}/kronos.sqlite', 'database')
    patience, connect = [], database.create_engine

    def connected(conf, patient=True):
        patience.append(patient)
        return connect(conf, patient)

    monkeypatch.setattr(database, 'create_engine', connected)
    monkeypatch.setattr(pages, 'MetricsPage', lambda health, tally, census, **kw: (census, kw))
    assert daemons.make_metrics_page(conf, None, None, 'engine_port') is None and not patience
    conf.set_override('engine_port', 9585, 'monitoring')
    census, given = daemons.make_metrics_page(conf, None, None, 'engine_port')
    assert patience == [False]
    pool = census.__self__._runner.engine.pool
    given['renew']()
    assert census.__self__._runner.engine.pool is not pool


@pytest.mark.parametrize('url, limits', [
    ('mysql+pymysql://k:x@h/k', {'read_timeout': 5, 'write_timeout': 5}),
    ('postgresql+psycopg2://k:x@h/k', {'tcp_user_timeout': '2500',
                                       'keepalives_idle': '5'})])
def test_limits_that_an_operator_gives_the_connection_stay(url, limits):
    """Each name once: two of a kind are no number."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('connection', url, 'database')
    conf.set_override('connection_parameters', 'connect_timeout=60', 'database')
    built = database.create_engine(conf, patient=False)
    _, found = built.dialect.create_connect_args(built.url)
    assert int(found['connect_timeout']) == 60
    assert {name: found[name] for name in limits} == limits


def test_prometheus_and_a_person_get_the_page_over_http(store):
    page = full_page(store)
    monitor = http_server.MonitoringServer(health_of(), '127.0.0.1', 0, 'engine_port', page).start()
    try:
        connection = http_client.HTTPConnection('127.0.0.1', monitor.port, timeout=60)
        connection.request('GET', '/metrics')
        response = connection.getresponse()
        body = response.read().decode()
        assert (response.status, response.headers['Content-Type']) == (
            200, 'text/plain; version=0.0.4; charset=utf-8')
        assert 'kronos_build_info{daemon="kronos-engine",version="' in body
        connection.close()
    finally:
        monitor.stop()


def test_a_defect_of_ours_is_500_and_a_line_in_the_log(caplog):
    def broken(accept):
        raise ZeroDivisionError

    monitor = http_server.MonitoringServer(health_of(), '127.0.0.1', 0, 'engine_port',
                                           broken).start()
    try:
        connection = http_client.HTTPConnection('127.0.0.1', monitor.port, timeout=60)
        connection.request('GET', '/metrics')
        response = connection.getresponse()
        assert response.status == 500 and b'a defect of ours' in response.read()
        connection.close()
    finally:
        monitor.stop()
    assert 'a defect of ours' in caplog.text
