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

"""``kronos policy lint``: every problem with its place, and nothing silently unchecked."""

import json
import socketserver
import subprocess
import sys
import threading

import pytest

from kronos_nova import model
from kronos_nova import presets
from kronos_nova.cli import policy as policy_commands
from kronos_nova.sources import base as sources
from tests import commands
from tests.fixtures import prometheus_server

WITHOUT_PARSER = ('import sys; sys.modules["promql_parser"] = None; '
                  'from kronos_nova.cli.app import main; sys.exit(main())')
VALID = '''
policies:
  - name: cpu
    weight: 1
    host_label: node
    imbalance_query: max by (node) (x)
'''
BROKEN = VALID + '''    age_query: |-
      time() - max by (node) (
        timestamp(x) *** 2)
'''


@pytest.fixture
def file(tmp_path):
    def write(text, name='policies.yaml'):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def lint(*arguments, program=None):
    """Rows as (field, status, what), and the exit status."""
    chosen = ('policy', 'lint', '-f', 'json', *arguments)
    done = (commands.run(program, *chosen) if program
            else commands.main('kronos_nova.cli.app', *chosen))
    assert 'Traceback' not in done.stderr
    rows = json.loads(done.stdout)
    assert all(r['What'] and (r['What to do'] or r['Status'] == 'ok') for r in rows)
    return [(r['Field'], r['Status'], r['What']) for r in rows], done.returncode


def test_a_valid_file_is_reported_as_ok(file):
    rows, status = lint(file(VALID))
    assert rows == [('file', 'ok', 'spread by cpu (1); 1 queries parsed')] and status == 0


def test_every_preset_is_right(file):
    rows, status = lint(*(file(presets.read_preset(name), name) for name in presets.list_presets()))
    assert [r[1] for r in rows] == ['ok'] * len(presets.list_presets()) and status == 0


def test_a_syntax_error_is_reported_with_its_position(file):
    rows, status = lint(file(BROKEN))
    ((field, state, what),) = rows
    assert (field, state, status) == ('policies[0] (cpu).age_query', 'failed', 1)
    assert 'line 2, column 17 of the query, at ** 2)' in what


def test_all_problems_of_all_files_are_reported_at_once(file):
    first = file(BROKEN.replace('weight: 1', 'weight: 2\n    treshold: 1'), 'first.yaml')
    second = file(VALID.replace('(node)', '(host)') + '    threshold: 7\n', 'second.yaml')
    rows, status = lint(first, second, '/none.yaml')
    assert status == 1
    assert sorted(field for field, state, _ in rows if state == 'failed') == [
        'file', 'policies[0] (cpu).age_query', 'policies[0] (cpu).imbalance_query',
        'policies[0] (cpu).threshold', 'policies[0] (cpu).treshold', 'policies[0] (cpu).weight']


def test_problems_of_the_whole_file_are_reported(file):
    rows, _ = lint(file(VALID.replace('weight: 1', 'weight: 0.5')))
    assert rows[0][:2] == ('policies', 'failed') and 'sum to 1.0' in rows[0][2]


@pytest.mark.parametrize('text', ['- a\n', 'policies: [1]\n', 'policies: 3\n', 'x: &a 1\n', ''])
def test_a_file_without_policies_is_reported(text, file):
    rows, status = lint(file(text))
    assert rows and {r[1] for r in rows} == {'failed'} and status == 1


def test_an_overlong_query_is_reported_and_not_parsed(file):
    rows, status = lint(file(VALID.replace('max by (node) (x)', 'x{' * 10_000)))
    assert [r[:2] for r in rows] == [('policies[0] (cpu).imbalance_query', 'failed')]
    assert '16384 characters' in rows[0][2] and status == 1


def test_doubts_do_not_fail(file):
    rows, status = lint(file(VALID.replace('(x)', '(rate(x[1m]))')
                             + '    vm_profile_query: frob(x)\n'
                               '    vm_profile_label_type: nova_display_name\n'))
    assert [r[1] for r in rows] == ['warning', 'warning', 'warning', 'ok'] and status == 0


def test_one_age_for_all_hosts_needs_no_label(file):
    rows, status = lint(file(VALID + '    age_query: time() - max(timestamp(x))\n'))
    assert [r[1] for r in rows] == ['ok'] and status == 0


def test_the_scrape_interval_is_an_option(file):
    path = file(VALID.replace('(x)', '(rate(x[1m]))'))
    assert len(lint(path)[0]) == 2
    assert [r[1] for r in lint(path, '--scrape-interval', 15)[0]] == ['ok']
    done = commands.main('kronos_nova.cli.app', 'policy', 'lint', path, '--scrape-interval', 'nan')
    assert done.returncode == 2 and 'Traceback' not in done.stderr
    assert "--scrape-interval: 'nan' is no number of seconds" in done.stderr


@pytest.mark.parametrize('value', ['abc', '', 'nan', '0', '-5', '86400.1', 'inf'])
def test_a_wrong_scrape_interval_is_refused_with_its_option_value_and_form(capsys, value):
    parser = policy_commands.LintPolicies(None, None).get_parser('kronos policy lint')
    with pytest.raises(SystemExit):
        parser.parse_args(['policies.yaml', f'--scrape-interval={value}'])
    *_, error = capsys.readouterr().err.splitlines()
    assert error == (
        f'kronos policy lint: error: argument --scrape-interval: {value!r} is no number of seconds '
        'above 0 and up to 86400; write for example 60')


@pytest.mark.parametrize('value', ['0.1', '15', '86400'])
def test_a_scrape_interval_of_up_to_a_day_is_accepted(value):
    parser = policy_commands.LintPolicies(None, None).get_parser('kronos policy lint')
    args = parser.parse_args(['policies.yaml', '--scrape-interval', value])
    assert args.scrape_interval == float(value)


def test_grafanas_variables_are_named(file):
    done = commands.main('kronos_nova.cli.app', 'policy', 'lint', '-f', 'json',
                         file(VALID.replace('(x)', '(rate(x[$__rate_interval]))')))
    assert 'Grafana' in json.loads(done.stdout)[0]['What to do']


def test_control_characters_do_not_reach_the_terminal(file):
    done = commands.main('kronos_nova.cli.app', 'policy', 'lint',
                         file(VALID.replace('max by', '"max \\e[2Jby').replace('(x)', '(x)"')))
    assert done.returncode == 1 and '\x1b' not in done.stdout + done.stderr


def test_without_parser_and_server_nothing_is_green(file):
    rows, status = lint(file(BROKEN), program=WITHOUT_PARSER)
    assert rows == [('queries', 'skipped', rows[0][2])] and status == 2
    assert 'PromQL of 2 queries was not parsed: promql-parser is not installed' in rows[0][2]
    rows, status = lint(file(BROKEN.replace('weight: 1', 'weight: 3')), program=WITHOUT_PARSER)
    assert [r[1] for r in rows] == ['failed', 'skipped'] and status == 1


def test_with_a_server_that_is_away_nothing_is_green(file):
    conf = file('[prometheus]\nurl = http://127.0.0.1:1\nmax_retries = 0\n', 'kronos.conf')
    rows, status = lint(file(BROKEN), '--config-file', conf, program=WITHOUT_PARSER)
    assert [r[1] for r in rows] == ['skipped'] and status == 2
    assert 'http://127.0.0.1:1 cannot be reached' in rows[0][2]


@pytest.fixture
def hanging():
    """(address of a server that takes requests and never answers, those that it has taken)"""
    taken, ended = [], threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            taken.append(self.request.recv(9))
            ended.wait(60)

    with socketserver.ThreadingTCPServer(('127.0.0.1', 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f'http://127.0.0.1:{server.server_address[1]}', taken
        ended.set()
        server.shutdown()


def test_a_hanging_server_gets_one_request_for_all_files(file, hanging):
    url, taken = hanging
    conf = file(f'[prometheus]\nurl = {url}\nmax_retries = 0\ntimeout = 1\n', 'kronos.conf')
    files = [file(BROKEN, f'{name}.yaml') for name in 'abc']
    rows, status = lint(*files, '--config-file', conf, program=WITHOUT_PARSER)
    assert [r[:2] for r in rows] == [('queries', 'skipped')] * 3 and status == 2
    assert all('was not parsed' in r[2] and f'{url} did not answer' in r[2]
               and 'policies[0] (cpu).imbalance_query, policies[0] (cpu).age_query' in r[2]
               for r in rows)
    assert len(taken) == 1
    # The parser goes on without it.
    doubtful = file(VALID.replace('(x)', '(frob(x))') + '    age_query: frob(x)\n')
    rows, status = lint(doubtful, file(BROKEN, 'broken.yaml'), '--config-file', conf)
    assert [r[1] for r in rows] == ['warning', 'warning', 'ok', 'failed'] and status == 1
    assert all(f'{url} did not answer' in r[2] for r in rows[:2])
    assert len(taken) == 2


PANIC = VALID.replace('(x)', '(x offset Inf)')


def test_a_query_that_the_parser_fails_on_is_not_green_and_no_traceback(file):
    done = commands.main('kronos_nova.cli.app', 'policy', 'lint', '-f', 'json', file(PANIC))
    (row,) = json.loads(done.stdout)
    assert (row['Status'], done.returncode, done.stderr) == ('skipped', 2, '')
    assert 'promql-parser failed on it' in row['What'] and '--config-file' in row['What to do']


def test_a_query_with_too_many_operators_is_not_green(file):
    rows, status = lint(file(VALID.replace('(x)', '(x' + '+x' * 1001 + ')')))
    assert [r[:2] for r in rows] == [('policies[0] (cpu).imbalance_query', 'skipped')]
    assert 'more than 1000 operators' in rows[0][2] and status == 2


def test_without_a_parser_a_real_prometheus_checks_the_queries(file, tmp_path):
    with prometheus_server.running(tmp_path, []) as url:
        conf = file(f'[prometheus]\nurl = {url}\n', 'kronos.conf')
        rows, status = lint(file(BROKEN), '--config-file', conf, program=WITHOUT_PARSER)
        ((field, state, what),) = rows
        assert (field, state, status) == ('policies[0] (cpu).age_query', 'failed', 1)
        assert 'line 2, column 17 of the query, at ** 2)' in what and url not in what
        rows, status = lint(file(VALID), '--config-file', conf, program=WITHOUT_PARSER)
        assert [r[1] for r in rows] == ['ok'] and status == 0
        rows, status = lint(file(VALID.replace('max by (node) (x)', 'x[5m]')),
                            '--config-file', conf, program=WITHOUT_PARSER)
        assert [r[1] for r in rows] == ['failed'] and status == 1
        # It is asked of what the parser fails on, too.
        rows, status = lint(file(PANIC), '--config-file', conf)
        assert [r[1] for r in rows] == ['failed'] and 'parse error' not in rows[0][2]
        rows, status = lint(file(VALID.replace('(x)', '(x' + '+x' * 1001 + ')')),
                            '--config-file', conf)
        assert [r[1] for r in rows] == ['ok'] and status == 0
        # With both, the server has the last word about what the parser refuses.
        rows, status = lint(file(VALID.replace('(x)', '(frob(x))')), '--config-file', conf)
        assert [r[1] for r in rows] == ['failed'] and 'unknown function' in rows[0][2]


@pytest.mark.parametrize('form', ['table', 'csv', 'value', 'yaml'])
def test_every_form_is_printed(form, file):
    done = commands.main('kronos_nova.cli.app', 'policy', 'lint', '-f', form, file(VALID))
    assert done.returncode == 0 and 'spread by cpu' in done.stdout


def test_no_client_of_a_service_is_loaded_for_it(file):
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', 'import sys; from kronos_nova.cli import app; '
         'app.main(sys.argv[1:]); print({"openstack", "sqlalchemy", "oslo_messaging", "numpy"} '
         '& {*sys.modules})', 'policy', 'lint', file(VALID), '-f', 'value', '-c', 'Status'],
        capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == 'ok\nset()\n'


class _Other(sources.MetricsSource):
    """A third-party plug-in without PromQL."""

    def fetch(self, policy, *, profile=True):
        raise NotImplementedError

    def health(self):
        raise NotImplementedError


def test_a_source_that_knows_no_promql_cannot_tell():
    found = _Other().check_syntax('x')
    assert found.health is model.SourceHealth.UNREACHABLE and '_Other' in found.error


@pytest.mark.mutant
def test_help_has_an_example():
    done = commands.main('kronos_nova.cli.app', 'policy', 'lint', '--help')
    assert 'kronos policy lint /etc/kronos/policies.yaml' in ' '.join(done.stdout.split())


def test_field_without_effect_is_a_warning_with_its_line(file):
    rows, status = lint(file(VALID + '    owner: team-x\n'))
    (found,) = [row for row in rows if row[1] == 'warning']
    assert status == 0 and found[0] == 'policies[0] (cpu).owner'
    assert found[2].startswith(f'line {VALID.count(chr(10)) + 1}: no such field')
