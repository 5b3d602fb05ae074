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

"""What the documentation shows is what the code accepts."""

from pathlib import Path
import re

from keystoneauth1 import loading
from keystonemiddleware import opts as auth_token_opts
from oslo_config import cfg
from oslo_messaging import opts as messaging_opts
import promql_parser
import pytest

from kronos_nova import policy
from kronos_nova.conf import opts
from kronos_nova.conf import policies
from kronos_nova.conf import scheduler

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted((TOP / 'doc/source').rglob('*.rst'))
#: Ours; *-policy.yaml are Nova's and Placement's, see tests/functional/test_policies.py.
POLICY_FILES = sorted(path for path in (TOP / 'etc/kronos').rglob('*.yaml')
                      if not path.name.endswith('-policy.yaml'))
BLOCK = re.compile(r'^\.\. code-block:: (\w+)\n\n((?:   .*\n|\n)+)', re.MULTILINE)


def _blocks(language: str) -> list[object]:
    """(page, text) of every code block in that language."""
    return [
        pytest.param(re.sub('^   ', '', text, flags=re.MULTILINE),
                     id=f'{page.relative_to(TOP)}-{number}')
        for page in PAGES
        for number, (found, text) in enumerate(BLOCK.findall(page.read_text()))
        if found == language
    ]


def token_options():
    """Return the options of [keystone_authtoken], with those of a login by password."""
    return [*auth_token_opts.list_auth_token_opts(), ('keystone_authtoken', [
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options('password')])]


def _known_options() -> set[tuple[str, str]]:
    """(group, name) of every option of ours, and Nova's that we tell people to set."""
    known = {('filter_scheduler', name)
             for name in ('available_filters', 'enabled_filters', 'weight_classes')}
    for group, options in (*opts.list_opts(), *scheduler.list_opts(),
                           *messaging_opts.list_opts(), *token_options()):
        known.update((str(group or 'DEFAULT'), option.dest) for option in options)
    return known


@pytest.mark.parametrize('text', _blocks('ini'))
def test_every_option_of_an_ini_example_exists(text, tmp_path):
    path = tmp_path / 'example.conf'
    path.write_text(text)
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(str(path), sections).parse()
    shown = {(group, name) for group, options in sections.items() for name in options}
    assert shown, 'the example sets nothing'
    assert shown <= _known_options()


@pytest.mark.parametrize('path', POLICY_FILES, ids=lambda path: path.name)
def test_every_shipped_policy_file_loads_and_its_queries_parse(path):
    loaded = policies.load_policies(str(path))
    for one in loaded.policies:
        assert one.queries
        for query in one.queries.values():
            promql_parser.parse(query)


def test_at_least_one_policy_file_is_shipped():
    assert POLICY_FILES


def test_every_field_of_a_policy_is_documented():
    page = (TOP / 'doc/source/admin/policies.rst').read_text()
    fields = {*policy.Policy.model_fields, *policy.PolicySet.model_fields}
    assert not {field for field in fields if not re.search(rf'^(``\w+``, )?``{field}``', page,
                                                           re.MULTILINE)}
