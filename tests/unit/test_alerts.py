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

"""The rules for Prometheus, run by its own promtool on series like those of our daemons:
each alert fires on its own fault and on no other one."""

import json
from pathlib import Path
import re
import subprocess

import pytest
import yaml

from kronos_nova import model
from kronos_nova.rebalancer.monitoring import catalogue
from kronos_nova.rebalancer.monitoring import samples
from kronos_nova.rebalancer.monitoring import stats
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.store import outcomes
from tests import ci

TOP = Path(__file__).resolve().parents[2]
RULES = TOP / 'deploy/prometheus/kronos.rules'
DASHBOARD = TOP / 'deploy/grafana/kronos.json'
PAGE = (TOP / 'doc/source/admin/monitoring.rst').read_text()
RUNBOOK = (TOP / 'doc/source/admin/runbook.rst').read_text()
GROUPS = yaml.safe_load(RULES.read_text())['groups']
ALERTS = {rule['alert']: rule for group in GROUPS for rule in group['rules'] if 'alert' in rule}
RECORDED = {rule['record']: rule for group in GROUPS for rule in group['rules']
            if 'record' in rule}
HOUR = 60
DAEMON = {'job': 'kronos-engine', 'instance': 'one:9585'}
OTHER = {'job': 'kronos-engine', 'instance': 'two:9585'}
DEAD = {'job': 'kronos-engine', 'instance': 'three:9585'}


def series(name, values, **labels):
    text = ','.join(f'{key}={json.dumps(value)}' for key, value in labels.items())
    return {'series': f'{name}{{{text}}}', 'values': values}


def pair(name, bad, good, *, minutes, **labels):
    """A scope that the alert is for, as one engine tells it, and one that it is not for."""
    return [series(name, f'{bad}x{minutes}', scope='bad', **labels, **DAEMON),
            series(name, f'{good}x{minutes}', scope='good', **labels, **DAEMON)]


def daemons(name, bad, good, *, minutes):
    return [series(name, f'{bad}x{minutes}', **DAEMON), series(name, f'{good}x{minutes}', **OTHER)]


def ended(**rates):
    """Tasks ended a minute, by result."""
    return [series('kronos_tasks_ended_total', f'0+{rate}x120', driver='nova', phase='spread',
                   method='live', result=result, **DAEMON) for result, rate in rates.items()]


def attempts(error_type, rate, driver='nova'):
    """Attempts that failed a minute."""
    return series('kronos_failed_attempts_total', f'0+{rate}x120', driver=driver,
                  error_type=error_type, **DAEMON)


def fault(where, error, counts, times):
    """Swallowed errors of a worker, and when the newest came."""
    labels = {'scheduler': 'one', 'worker': '3', 'where': where, 'error': error}
    return [series(f'kronos_scheduler_{name}', values, **labels, **daemon)
            for name, values in (('faults_total', counts), ('fault_timestamp_seconds', times))
            for daemon in (DAEMON, OTHER)]


FILE = {'scheduler': 'one', 'policies_file': '/etc/kronos/policies.yaml'}
OTHER_FILE = {'scheduler': 'two', 'policies_file': '/etc/kronos/policies.yaml'}
BAD = {'scope': 'bad'}
CPU = {'policy': 'cpu'}
INTERVAL = series('kronos_evaluation_interval_seconds', '300x600', **DAEMON)

#: Alert -> series, minutes after which it fires, labels of what fires; of the same
#: series it is silent a minute after they began.
CASES = {
    'KronosDaemonDown': (daemons('up', 0, 1, minutes=20), 11, [DAEMON]),
    'KronosDaemonHangs': (daemons('kronos_alive', 0, 1, minutes=20), 6, [DAEMON]),
    'KronosNotReady': (daemons('kronos_ready', 0, 1, minutes=60), 31, [DAEMON]),
    'KronosStoreDown': (daemons('kronos_store_up', 0, 1, minutes=20), 11, [DAEMON]),
    # promtool's clock begins at 0: the good scope is planned every minute.
    'KronosScopeNotPlanned': (
        [INTERVAL, *pair('kronos_scope_configured', 1, 1, minutes=60),
         series('kronos_scope_configured', '1x60', scope='never', **DAEMON),
         series('kronos_scope_planned_timestamp_seconds', '0x60', scope='bad', **DAEMON),
         series('kronos_scope_planned_timestamp_seconds', '0+60x60', scope='good', **OTHER),
         # Every engine that was to plan it is dead.
         *(series(name, f'{values} stale', **labels, **DEAD) for name, values, labels in (
             ('kronos_evaluation_interval_seconds', '300x5', {}),
             ('kronos_scope_configured', '1x5', {'scope': 'dead'}),
             ('kronos_scope_planned_timestamp_seconds', '0+60x5', {'scope': 'dead'}))),
         # An engine was told to plan it no more.
         series('kronos_scope_configured', '1x5 stale', scope='removed', **DAEMON),
         series('kronos_scope_planned_timestamp_seconds', '0x5 stale', scope='removed',
                **DAEMON)],
        52, [BAD, {'scope': 'never'}, {'scope': 'dead'}]),
    'KronosMetricsUntrusted': (
        pair('kronos_policy_trusted', 0, 1, minutes=60, **CPU), 31, [{**BAD, **CPU}]),
    'KronosMissingHosts': (
        pair('kronos_missing_hosts', 2, 0, minutes=120, **CPU), 61, [{**BAD, **CPU}]),
    'KronosCoverageOdd': (
        [*pair('kronos_coverage_ratio', 3.5, 0.9, minutes=120, **CPU),
         series('kronos_coverage_ratio', '0.1x120', scope='low', **CPU, **DAEMON)], 61,
        [{**BAD, **CPU}, {'scope': 'low', **CPU}]),
    # Every daemon tells the same of the database: one alert.
    'KronosBreakerOpen': (
        [*pair('kronos_breaker_open', '_x2 1', 0, minutes=20),
         series('kronos_breaker_open', '_x2 1x20', scope='bad', **OTHER)], 5, [BAD]),
    'KronosPaused': (
        [*pair('kronos_scope_paused', 1, 1, minutes=25 * HOUR),
         *pair('kronos_breaker_open', 0, 1, minutes=25 * HOUR),
         series('kronos_cloud_paused', f'1x{25 * HOUR}', **DAEMON)],
        24 * HOUR + 20, [BAD, {}]),
    'KronosMigrationsFail': (
        [*ended(completed=0.5, failed=0), attempts('MigrationFailed', 0.25),
         attempts('MigrationTimeout', 0.15)], 100, [{}]),
    'KronosTasksOverdue': (pair('kronos_overdue_tasks', 1, 0, minutes=30), 16, [BAD]),
    'KronosNoExecutor': (
        [series('kronos_tasks', '1x30', scope='bad', phase='spread', state='queued', **DAEMON),
         series('kronos_tasks', '1x30', scope='bad', phase='spread', state='queued', **OTHER),
         series('kronos_tasks', '1x30', scope='good', phase='spread', state='pending', **DAEMON),
         series('kronos_loop_age_seconds', '1x30', loop='cycle', **DAEMON),
         series('up', '0x30', job='kronos-executor', instance='one:9586')], 17, [BAD]),
    'KronosPlansMakeItWorse': (
        [*pair('kronos_judged_plans_total', '0+0.01', '0+0.001', minutes=600, result='worse'),
         *pair('kronos_judged_plans_total', '0+0.001', '0+0.01', minutes=600, result='better')],
        400, [BAD]),
    # An hour lies between two cycles.
    'KronosPlansTruncated': (
        [*pair('kronos_truncated_plans_total', '0+0.0166', '0+0.005', minutes=480),
         *pair('kronos_cycles_total', '0+0.0166', '0+0.0166', minutes=480, result='nothing'),
         *pair('kronos_cycles_total', '0+1', '0+1', minutes=480, result='failed')], 460, [BAD]),
    'KronosLeaseFlaps': (
        pair('kronos_lease_epoch', '1+1', 7, minutes=30), 10, [BAD]),
    'KronosHostsUndrained': (
        pair('kronos_undrained_hosts', 1, 0, minutes=400), 380, [BAD]),
    'KronosFailoverUnsafe': (
        pair('kronos_failover_unsafe_hosts', 1, 0, minutes=60), 40, [BAD]),
    'KronosCampaignPaused': (
        pair('kronos_campaign_paused', 1, 0, minutes=30), 16, [BAD]),
    'KronosFailoverUncertified': (
        [*pair('kronos_scope_planned_timestamp_seconds', '0+60', '0+60', minutes=60),
         *pair('kronos_failover_certified_timestamp_seconds', 0, '0+60', minutes=60)], 45, [BAD]),
    'KronosPlanAwaitsApproval': (
        [series('kronos_tasks', '_x3 3x60', scope='bad', phase=phase, state='pending', **daemon)
         for phase in ('spread', 'evacuate') for daemon in (DAEMON, OTHER)]
        + [series('kronos_tasks', '3x60', scope='good', phase='spread', state='queued', **DAEMON),
           series('kronos_tasks', '0x60', scope='good', phase='spread', state='pending',
                  **DAEMON)], 16, [BAD]),
    # Both engines tell the same of one worker without scores; another worker has some.
    'KronosSchedulerBlind': (
        [series('kronos_scheduler_scored_hosts', f'{hosts}x60', worker=worker, **file, **daemon)
         for file, worker, hosts in ((FILE, '3', 0), (FILE, '4', 20), (OTHER_FILE, '5', 20))
         for daemon in (DAEMON, OTHER)], 17, [FILE]),
    # A plug-in's fault counts at once, and a thread's when it returns.
    'KronosSchedulerFaults': (
        [*fault('KronosWeigher', 'KeyError', '_x3 0+0x60', '_x3 120x60'),
         *fault('kronos-noticeboard', 'TimeoutError', '1+1x60', '60+60x60'),
         *fault('kronos-scoreboard', 'OSError', '1x60', '60x60')], 40,
        [{'scheduler': 'one', 'where': 'KronosWeigher', 'error': 'KeyError'},
         {'scheduler': 'one', 'where': 'kronos-noticeboard', 'error': 'TimeoutError'}]),
}
def uncertified(minutes):
    """The series of an engine that never certifies one scope, and should not certify another."""
    tally, values = stats.DaemonTally(), {}
    for minute in range(minutes):
        for scope, mode in (('bad', model.FailoverMode.ENFORCE), ('good', model.FailoverMode.OFF)):
            tally.record_planned_cycle(
                {**cycle_report.render_failed_scope(scope, ''), 'timings': {}},
                model.ClusterScores({}), 60.0 * minute, False, failover=mode)
        for name, (scope, *_), value in samples.list_tally_samples(
                tally.copy_tally(), 'nova', host_scores=False):
            if name.endswith('_timestamp_seconds'):
                values.setdefault((name, scope), []).append(f'{value:.0f}')
    return [series(name, ' '.join(points), scope=scope, **DAEMON)
            for (name, scope), points in values.items()]


#: Of other series: name -> alert, series, minutes after which it fires, labels.
MORE = {
    'no certificate was ever made': ('KronosFailoverUncertified', uncertified(60), 45, [BAD]),
    'every engine is dead': (
        'KronosScopeNotPlanned',
        [series(name, f'{values} stale', **labels, **DAEMON) for name, values, labels in (
            ('kronos_evaluation_interval_seconds', '300x5', {}),
            ('kronos_scope_configured', '1x5', BAD),
            ('kronos_scope_planned_timestamp_seconds', '0+60x5', BAD))], 50, [BAD]),
    'an executor that is no target any more': (
        'KronosNoExecutor',
        [series('kronos_tasks', '1x60', scope='bad', phase='spread', state='queued', **DAEMON),
         series('kronos_loop_age_seconds', '5x10 stale', loop='pass', **OTHER)], 30, [BAD]),
    'the engine cannot read the channel': (
        'KronosSchedulerBlind',
        [series('kronos_scheduler_channel_up', '1x5 0x60', **DAEMON),
         series('kronos_scheduler_channel_up', '1x65', **OTHER)], 25, [{}]),
    'workers have another key': (
        'KronosSchedulerBlind',
        [series('kronos_scheduler_refused_records', '0x5 4x60', **DAEMON)], 25, [{}]),
    'no worker is left': (
        'KronosSchedulerBlind',
        [series('kronos_scheduler_workers', '4x20 0x600', **DAEMON)], 460, [{}]),
}
#: What is none of them.
QUIET = {
    'few of many migrations fail': (
        'KronosMigrationsFail',
        [*ended(completed=1.5, failed=0.1), attempts('MigrationFailed', 0.1)]),
    'one alone fails': (
        'KronosMigrationsFail',
        [*ended(completed=0, failed=0.02), attempts('MigrationFailed', 0.02)]),
    'Nova was never asked': (
        'KronosMigrationsFail',
        [*ended(completed=0.1, failed=1), attempts('PreFlightError', 1),
         attempts('MigrationFailed', 0)]),
    'a rehearsal moves nothing': (
        'KronosMigrationsFail',
        [*ended(completed=0, failed=0), attempts('MigrationFailed', 1, driver='dry_run')]),
    'an executor comes round': (
        'KronosNoExecutor',
        [series('kronos_tasks', '1x120', scope='bad', phase='spread', state='queued', **DAEMON),
         series('kronos_loop_age_seconds', '5x120', loop='pass', **OTHER)]),
    'a scope has changed hands, and cycles are rare': (
        'KronosScopeNotPlanned',
        [series('kronos_evaluation_interval_seconds', '7200x120', **DAEMON),
         series('kronos_scope_configured', '1x120', scope='bad', **DAEMON),
         series('kronos_scope_planned_timestamp_seconds', '60x10 stale', scope='bad', **DAEMON)]),
    'every engine is dead, and cycles are rare': (
        'KronosScopeNotPlanned',
        [series(name, f'{value}x10 stale', **labels, **DAEMON) for name, value, labels in (
            ('kronos_evaluation_interval_seconds', 7200, {}),
            ('kronos_scope_configured', 1, BAD),
            ('kronos_scope_planned_timestamp_seconds', 60, BAD))]),
    'no executor is scraped': (
        'KronosNoExecutor',
        [series('kronos_tasks', '1x120', scope='bad', phase='spread', state='queued', **DAEMON),
         series('kronos_loop_age_seconds', '1x120', loop='cycle', **DAEMON),
         series('up', '1x120', **DAEMON)]),
    'nova-scheduler was restarted at night': (
        'KronosSchedulerBlind', [series('kronos_scheduler_workers', '4x20 0x200', **DAEMON)]),
    'nova-scheduler has no plug-in of ours': (
        'KronosSchedulerBlind', [series('kronos_scheduler_workers', '0x200', **DAEMON),
                                 series('kronos_scheduler_channel_up', '1x200', **DAEMON)]),
    'a fault that did not return': (
        'KronosSchedulerFaults', fault('KronosWeigher', 'KeyError', '1x200', '60x200')),
    'another job is down': ('KronosDaemonDown', [series('up', '0x120', job='node')]),
}


def promtool():
    return ci.program('promtool', 'prometheus')


def annotations(alert, labels):
    """As Prometheus fills them in."""
    def filled(text):
        text = re.sub(r'\{\{ with \$labels\.(\w+) \}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}',
                      lambda m: m[2].replace('{{ . }}', labels[m[1]]) if m[1] in labels else m[3],
                      text)
        return re.sub(r'\{\{ \$labels\.(\w+) \}\}', lambda m: labels[m[1]], text)
    return {name: filled(text) for name, text in ALERTS[alert]['annotations'].items()}


def groups(slow):
    """Tests for promtool; ``slow``: of what takes hours, which is looked at less often."""
    found = []
    cases = [(name, name, *case) for name, case in CASES.items()]
    cases += [(name, *case) for name, case in MORE.items()]
    for name, alert, given, minutes, firing in cases:
        if (minutes > 150) is not slow:
            continue
        expected = [{'exp_labels': {**labels, **ALERTS[alert]['labels']},
                     'exp_annotations': annotations(alert, labels)} for labels in firing]
        found.append({'interval': '1m', 'name': name, 'input_series': given, 'alert_rule_test': [
            {'eval_time': '1m', 'alertname': alert, 'exp_alerts': []},
            {'eval_time': f'{minutes}m', 'alertname': alert, 'exp_alerts': expected}]})
    for name, (alert, given) in () if slow else QUIET.items():
        found.append({'interval': '1m', 'name': name, 'input_series': given, 'alert_rule_test': [
            {'eval_time': '100m', 'alertname': alert, 'exp_alerts': []}]})
    return found


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize('slow', [False, True])
def test_each_alert_fires_on_its_own_fault_alone(tmp_path, slow):
    assert set(CASES) == set(ALERTS)
    file = tmp_path / 'test.yml'
    file.write_text(yaml.safe_dump({
        'rule_files': [str(RULES)], 'evaluation_interval': '10m' if slow else '1m',
        'tests': groups(slow)}))
    assert 'SUCCESS' in run([promtool(), 'test', 'rules', str(file)])


def test_a_recording_rule_counts_what_every_daemon_tells_once(tmp_path):
    tasks = {'scope': 'blue', 'state': 'queued'}
    file = tmp_path / 'test.yml'
    file.write_text(yaml.safe_dump({
        'rule_files': [str(RULES)], 'evaluation_interval': '1m', 'tests': [{
            'interval': '1m', 'input_series': [
                *(series('kronos_tasks', f'{n}x9', phase=phase, **tasks, **daemon)
                  for phase, n in (('spread', 2), ('evacuate', 1)) for daemon in (DAEMON, OTHER)),
                *(series('kronos_migration_seconds_bucket', f'0+{n}x9', le=le, method='live',
                         driver='nova', result='completed', **DAEMON)
                  for le, n in (('10.0', 0), ('20.0', 10), ('+Inf', 10))),
                *(series('kronos_migration_seconds_bucket', '0+90x9', le=le, method='live',
                         driver='dry_run', result='completed', **DAEMON)
                  for le in ('10.0', '20.0', '+Inf'))],
            'promql_expr_test': [
                {'eval_time': '5m', 'expr': 'scope_state:kronos_tasks:sum', 'exp_samples': [
                    {'labels': 'scope_state:kronos_tasks:sum{scope="blue",state="queued"}',
                     'value': 3}]},
                {'eval_time': '5m', 'expr': 'method:kronos_migration_seconds:p95_6h',
                 'exp_samples': [{'labels': 'method:kronos_migration_seconds:p95_6h{method="live"}',
                                  'value': 19.5}]}]}]}))
    assert 'SUCCESS' in run([promtool(), 'test', 'rules', str(file)])


def test_failed_migrations_are_those_that_the_circuit_breaker_counts():
    kinds = re.search('error_type=~"(.*?)"',
                      RECORDED['error_type:kronos_failed_migrations:increase1h']['expr'])[1]
    assert set(kinds.split('|')) == set(outcomes.FAILURES)


def names_in(expression):
    """Metrics of ours in a query."""
    return set(re.findall(r'(?<![\w:])[a-z_]*:?kronos_[a-z_]+(?::\w+)?', expression))


def exists(name):
    base = re.sub('_(bucket|count|sum)$', '', name)
    metric = catalogue.METRICS.get(base)
    return name in RECORDED or (metric is not None and (
        base == name or metric.kind is catalogue.MetricKind.HISTOGRAM))


def queries():
    board = json.loads(DASHBOARD.read_text())
    return [target['expr'] for panel in board['panels'] for target in panel.get('targets', ())
            ] + [annotation['expr'] for annotation in board['annotations']['list']]


def choices():
    """Queries of the dashboard's variables; Grafana's own function does not belong to PromQL."""
    board = json.loads(DASHBOARD.read_text())
    return [item['query'] for item in board['templating']['list'] if item['type'] == 'query']


@pytest.mark.parametrize('expression', [rule['expr'] for group in GROUPS
                                        for rule in group['rules']] + queries()
                         + choices())
def test_queries_name_exported_metrics_alone(expression):
    found = names_in(expression)
    assert found or 'up{' in expression
    assert [name for name in found if not exists(name)] == []


@pytest.mark.parametrize('expression', [
    rule['expr'] for group in GROUPS for rule in group['rules']] + queries() + choices())
def test_queries_use_exported_labels_alone(expression):
    for name, matchers in re.findall(r'(?<![\w:])(kronos_[a-z_]+)\{(.*?)\}', expression):
        metric = catalogue.METRICS[re.sub('_(bucket|count|sum)$', '', name)]
        assert set(re.findall(r'(\w+)[=!]', matchers)) <= {*metric.labels, 'le'}, name
    # What is by a label is nothing where the innermost metric has none such.
    for labels, name in re.findall(
            r'by \(([\w, ]+)\)\s*\((?:\w+\()?(kronos_[a-z_]+)', expression):
        metric = catalogue.METRICS[re.sub('_(bucket|count|sum)$', '', name)]
        assert set(labels.split(', ')) <= {*metric.labels, 'le', 'instance'}, name


def test_queries_of_the_dashboard_are_promql(tmp_path):
    board = json.loads(DASHBOARD.read_text())
    variables = {item['name'] for item in board['templating']['list']}
    rules = []
    for number, query in enumerate(queries()):
        used = set(re.findall(r'\$(\w+)', query)) - {'__rate_interval'}
        assert used <= variables, query
        text = re.sub(r'\$__rate_interval', '5m', re.sub(r'\$(?!__)(\w+)', '.*', query))
        rules.append({'record': f'kronos:query:{number}', 'expr': text})
    assert len(rules) > 15
    file = tmp_path / 'queries.rules'
    file.write_text(yaml.safe_dump({'groups': [{'name': 'queries', 'rules': rules}]}))
    run([promtool(), 'check', 'rules', str(file)])


def panel(title):
    found, = (panel for panel in json.loads(DASHBOARD.read_text())['panels']
              if panel['title'] == title)
    return found


def asked(title):
    """The panel's first query, of everything."""
    return re.sub(r'\$__rate_interval', '5m', re.sub(
        r'\$(?!__)(\w+)', '.*', panel(title)['targets'][0]['expr']))


def test_the_dashboard_counts_paused_scopes_and_dead_daemons_once(tmp_path):
    paused, dead = asked('Paused scopes'), asked('Daemons not ready')
    tasks = [series('kronos_tasks', f'{n}x30', scope='blue', phase='spread', state=state, **daemon)
             for state, n in (('pending', 5), ('queued', 2), ('submitted', 1))
             for daemon in (DAEMON, OTHER)]
    scopes = [series('kronos_scope_configured', '1x30', scope=scope, **daemon)
              for scope in ('blue', 'red') for daemon in (DAEMON, OTHER)]
    scopes += [series('kronos_scope_paused', f'{n}x30', scope=scope, **daemon)
               for scope, n in (('blue', 1), ('red', 0)) for daemon in (DAEMON, OTHER)]
    tests = []
    for given, query, expected in (
            (scopes, paused, 1),
            ([*scopes, series('kronos_cloud_paused', '0x30', **DAEMON)], paused, 1),
            ([*scopes, series('kronos_cloud_paused', '1x30', **DAEMON)], paused, 2),
            ([], paused, 0),
            (daemons('kronos_ready', 0, 1, minutes=30), dead, 1),
            ([*daemons('up', 0, 1, minutes=30), *daemons('kronos_ready', 0, 1, minutes=30)],
             dead, 1),
            ([*daemons('up', 0, 0, minutes=30), series('up', '0x30', job='node')], dead, 2),
            (daemons('kronos_ready', 1, 1, minutes=30), dead, 0),
            (tasks, asked('Tasks under way'), 3), ([], asked('Tasks under way'), 0),
            (tasks, asked('Waiting for approval'), 5), ([], asked('Waiting for approval'), 0),
            # A cloud of many hosts does not draw a line for each of them.
            ([series('kronos_host_score_ratio', f'0.{n:03}x30', scope='blue', policy='cpu',
                     host=f'h{n}', **DAEMON) for n in range(100)],
             f'count({asked("Highest scores of hosts")})', 20),
            # Two engines move, each its own scopes; in a dry run both plan all.
            ([series('kronos_planned_moves_total', '0+2x30', scope='blue', phase='spread',
                     dry_run='false', **daemon) for daemon in (DAEMON, OTHER)],
             f'sum({asked("Planned moves")})', 20),
            ([series('kronos_planned_moves_total', '0+2x30', scope=scope, phase='spread',
                     dry_run='true', **daemon)
              for scope in ('blue', 'red') for daemon in (DAEMON, OTHER)],
             f'sum({asked("Planned moves")})', 20)):
        tests.append({'interval': '1m', 'input_series': given, 'promql_expr_test': [
            {'eval_time': '20m', 'expr': query, 'exp_samples': [
                {'labels': '{}', 'value': expected}]}]})
    file = tmp_path / 'test.yml'
    file.write_text(yaml.safe_dump({'rule_files': [], 'tests': tests}))
    assert 'SUCCESS' in run([promtool(), 'test', 'rules', str(file)])


def test_the_dashboard_marks_plans_pauses_and_the_breaker(tmp_path):
    board = json.loads(DASHBOARD.read_text())
    found = {each['name']: re.sub(r'\$(\w+)', '.*', each['expr'])
             for each in board['annotations']['list']}
    given = [*pair('kronos_scope_paused', 1, 0, minutes=30),
             *pair('kronos_breaker_open', 0, 0, minutes=30),
             series('kronos_scope_paused', '1x30', scope='tripped', **DAEMON),
             series('kronos_breaker_open', '1x30', scope='tripped', **DAEMON),
             *pair('kronos_plans_total', '0+1', '3+0', minutes=30, dry_run='false')]
    tests = [{'interval': '1m', 'input_series': given, 'promql_expr_test': [
        {'eval_time': '20m', 'expr': f'count by (scope) ({found[name]})',
         'exp_samples': [{'labels': f'{{scope="{scope}"}}', 'value': 1}]}]}
        for name, scope in (('Plans', 'bad'), ('Paused', 'bad'), ('Circuit breaker', 'tripped'))]
    file = tmp_path / 'test.yml'
    file.write_text(yaml.safe_dump({'rule_files': [], 'tests': tests}))
    assert 'SUCCESS' in run([promtool(), 'test', 'rules', str(file)])


def test_the_dashboard_does_not_say_that_a_wet_run_moves():
    """In a scope with mode = approve it does not, before it is approved."""
    mapping, = panel('Dry run')['fieldConfig']['defaults']['mappings']
    assert {value: option['text'] for value, option in mapping['options'].items()} == {
        '0': 'off', '1': 'on'}


def test_single_numbers_come_from_instant_queries():
    """The last value of a range may belong to a dead daemon."""
    stats = [panel for panel in json.loads(DASHBOARD.read_text())['panels']
             if panel['type'] == 'stat']
    assert len(stats) > 5
    assert all(target['instant'] for panel in stats for target in panel['targets'])


def test_the_dashboard_can_be_brought_in_anywhere():
    """No site's data source, no number of a database, no two panels at one place."""
    board = json.loads(DASHBOARD.read_text())
    assert board['id'] is None and board['uid'] == 'kronos-nova'
    assert len({panel['id'] for panel in board['panels']}) == len(board['panels'])
    places = set()
    for panel in board['panels']:
        at = panel['gridPos']
        cells = {(x, y) for x in range(at['x'], at['x'] + at['w'])
                 for y in range(at['y'], at['y'] + at['h'])}
        assert not cells & places and at['x'] + at['w'] <= 24, panel['title']
        places |= cells
        if panel['type'] != 'row':
            assert panel['datasource'] == {'type': 'prometheus', 'uid': '${datasource}'}
            assert panel['description'], panel['title']


def test_the_page_has_every_metric_with_its_labels_and_text():
    for metric in catalogue.METRICS.values():
        wanted = f'   * - ``{metric.name}``\n'
        assert wanted in PAGE, metric.name
        row = PAGE.partition(wanted)[2].partition('\n   * - ')[0]
        for label in metric.labels:
            assert f'``{label}``' in row, (metric.name, label)
        assert ' '.join(metric.text.split()) in ' '.join(row.split()), metric.name
    told = set(re.findall(r'``(kronos_[a-z_]+)``', PAGE))
    assert [name for name in told if not exists(name)] == []


@pytest.mark.parametrize('alert', ALERTS)
def test_each_alert_says_what_to_do_and_so_does_the_page(alert):
    rule = ALERTS[alert]
    assert rule['labels']['severity'] in ('critical', 'warning', 'info')
    assert set(rule['annotations']) == {'summary', 'description'}
    title = f'\n{alert}\n{"-" * len(alert)}\n'
    assert RUNBOOK.count(title) == 1
    text = RUNBOOK.partition(title)[2].partition('\n\nKronos')[0]
    parts = re.findall(r'^(Meaning|Check|Remedy)\n   \S', text, re.MULTILINE)
    assert parts == ['Meaning', 'Check', 'Remedy']
    assert '``' in text.partition('\nCheck\n')[2].partition('\nRemedy\n')[0]


def test_the_runbook_names_no_alert_that_there_is_not():
    assert set(re.findall(r'^(Kronos[A-Z]\w+)$', RUNBOOK, re.MULTILINE)) == set(ALERTS)


def test_the_runbook_says_how_severe_an_alert_is_and_when_it_fires():
    rows = re.findall(r'^   \* - (Kronos\w+)_\n     - ``(\w+)``\n     - (.+)$', RUNBOOK,
                      re.MULTILINE)
    assert rows == [(name, rule['labels']['severity'], rule.get('for', 'at once'))
                    for name, rule in ALERTS.items()]


def test_a_metric_that_the_runbook_names_exists():
    told = set(re.findall(r'``(kronos_[a-z_]+)``', RUNBOOK))
    assert told and [name for name in told if not exists(name)] == []
