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

"""The operator's file of contracts, and errors that name file, field and remedy."""

import re

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import contracts
from kronos_nova.conf import opts
from kronos_nova.model import movement_hours
from kronos_nova.model import spread_requests

FILE = """\
default: {disruption: live}
projects:
  "0e5b0d2f1f7c4a56a3f1a5f0d7c2b7aa":
    disruption: drain-only
    hours: "* 22-23,0-5 * * *"
    max_moves: 2/7d
"""


@pytest.fixture
def conf(tmp_path):
    found = cfg.ConfigOpts()
    opts.register(found)
    found([])
    found.set_override('file', str(tmp_path / 'contracts.yaml'), 'contracts')
    return found


def load(conf, text):
    with open(conf.contracts.file, 'wb') as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return contracts.load_project_contracts(conf)


def test_a_file_has_contracts_by_project_and_for_the_rest(conf):
    found = load(conf, FILE)
    assert found.find_contract('0e5b0d2f1f7c4a56a3f1a5f0d7c2b7aa') == model.Contract(
        model.ContractSource.PROJECT, model.Disruption.DRAIN_ONLY,
        movement_hours.parse_hours('* 22-23,0-5 * * *'),
        model.MoveQuota(2, 604800))
    assert found.find_contract('other') == model.Contract(
        model.ContractSource.PROJECT, model.Disruption.LIVE)
    assert opts.wrong_values(conf) == []


def test_a_file_asks_for_a_spread(conf):
    found = load(conf, """\
default: {spread: "rack,pdu"}
projects:
  p: {spread: "rack:web", disruption: live}
  q: {disruption: never}
""")
    assert found.find_spread('p') == (spread_requests.SpreadRequest('rack', 'web'),)
    assert found.find_spread('q') == ()
    assert list(map(str, found.find_spread('r'))) == ['pdu', 'rack']
    assert found.find_contract('r') is None, 'an entry with a spread alone is no contract'
    assert found.find_contract('p').disruption is model.Disruption.LIVE


def test_an_empty_file_and_no_file_state_nothing(conf):
    assert load(conf, '').find_contract('p') is None
    assert load(conf, 'projects:').find_contract('p') is None
    conf.set_override('file', '', 'contracts')
    assert contracts.load_project_contracts(conf).find_contract('p') is None


@pytest.mark.parametrize(('text', 'field', 'words'), [
    ('[]', 'document', 'it is not a mapping'),
    ('project: {}', 'project', 'no such field. Write one of default, projects'),
    ('projects: {p: {disruptoin: live}}', 'projects.p.disruptoin', 'no such field'),
    ('projects: {p: {disruption: maybe}}', 'projects.p.disruption', 'it is not one of poweroff-ok'),
    ('projects: {p: {disruption: no}}', 'projects.p.disruption', 'it is no text'),
    ('projects: {p: {hours: "* * * *"}}', 'projects.p.hours', 'five fields'),
    ('projects: {p: {max_moves: 2/31d}}', 'projects.p.max_moves', 'keep_days'),
    ('projects: {p: {}}', 'projects.p', 'it states nothing'),
    ('projects: {p: }', 'projects.p', 'it is not a mapping'),
    ('projects: {7: {disruption: live}}', 'projects', "'7' is no ID of a project. Write the ID"),
    ('projects: {"a b": {disruption: live}}', 'projects', "'a b' is no ID of a project"),
    ('projects: []', 'projects', 'it is not a mapping'),
    ('projects: false', 'projects', 'it is not a mapping'),
    ('projects: {0e5b0d2f-1f7c-4a56-a3f1-a5f0d7c2b7aa: {disruption: live}}', 'projects',
     'Write "0e5b0d2f1f7c4a56a3f1a5f0d7c2b7aa"'),
    ('default: {disruption: live, notice: 24h}', 'default.notice', 'no such field'),
    ('default: {notify: 31d}', 'default.notify', 'it is no time from 1m to 30d'),
    ('default: {release: "2026-11-01T00:00:00Z"}', 'default.release', 'no such field'),
    ('default: {hours: "0-3 22 * * *"}', 'default.hours', 'it opens for less than 5 minutes'),
    ('a: [', 'line 1', '.'), (b'\xff', 'file', 'it is not UTF-8 text'),
    (b'#' * (contracts.MAX_BYTES + 1), 'file', 'larger than 4 MiB')])
def test_errors_name_the_place_and_the_remedy(conf, text, field, words):
    with pytest.raises(exception.ConfigError) as error:
        load(conf, text)
    assert error.value.kwargs['path'] == conf.contracts.file
    assert error.value.kwargs['field'] == field and words in str(error.value)
    assert error.value.kwargs['remedy'].endswith('.')
    assert [str(e) for e in opts.wrong_values(conf)] == [str(error.value)]


def test_a_missing_file_is_an_error_at_start(conf):
    (error,) = opts.wrong_values(conf)
    assert 'it cannot be read (No such file or directory)' in str(error)


@pytest.mark.parametrize('text', ['soon', '2026', '-2d', '2026-13-01', '1793570400'])
def test_a_deadline_is_a_time(conf, text):
    with pytest.raises(ValueError, match='is no time'):
        conf.set_override('ignore_after', text, 'contracts')


def digest(conf, text):
    load(conf, text)
    return contracts.digest_settings(conf)


def test_digest_is_of_the_contracts_not_of_the_text(conf):
    one = digest(conf, 'projects: {a: {disruption: live}, b: {disruption: never}}')
    assert re.fullmatch('[0-9a-f]{64}', one)
    assert digest(conf, """# a comment
projects:
  b: {disruption: never}
  a: {disruption: live}
""") == one
    assert digest(conf, 'projects: {a: {disruption: live}}') != one


@pytest.mark.parametrize(('option', 'value'), [
    ('strongest_for_tenants', 'drain-only'), ('ignore_after', '2026-11-01T22:00:00Z'),
    ('opt_out', 'drain-only'), ('timezone', 'Europe/Berlin'), ('file', '')])
def test_digest_differs_with_each_option_that_executors_judge_by(conf, option, value):
    one = digest(conf, FILE)
    conf.set_override(option, value, 'contracts')
    assert contracts.digest_settings(conf) != one
