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

"""Versions that are not of constraints.txt are compared with it only where it made them."""

import importlib.util
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Run check_constraints on a tree whose one pin differs from the installed version."""
    spec = importlib.util.spec_from_file_location('check_constraints',
                                                  TOP / 'tools/check_constraints.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in module.LISTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('')
    (tmp_path / 'setup.cfg').write_text('[extras]\n')
    (tmp_path / 'constraints.txt').write_text('pytest==0.1\n')
    monkeypatch.setattr(module, 'TOP', tmp_path)
    return module


@pytest.mark.parametrize(('given', 'compared'), [
    (None, True), ('', True), ('constraints.txt', True), ('upper-constraints.txt', False),
    ('https://releases.openstack.org/constraints/upper/master', False)])
def test_installed_versions_are_compared_where_constraints_txt_made_them(
        check, tmp_path, monkeypatch, given, compared):
    if given is None:
        monkeypatch.delenv('TOX_CONSTRAINTS_FILE', raising=False)
    else:
        monkeypatch.setenv('TOX_CONSTRAINTS_FILE',
                           str(tmp_path / given) if given.endswith('.txt') else given)
    assert any('pinned: 0.1' in problem for problem in check.check()) is compared


def test_the_lists_are_checked_under_other_constraints_too(check, tmp_path, monkeypatch):
    monkeypatch.setenv('TOX_CONSTRAINTS_FILE', str(tmp_path / 'upper-constraints.txt'))
    (tmp_path / 'requirements.txt').write_text('pytest>=8.0.0 # MIT\n')
    assert check.check() == ['requirements.txt: pytest>=8.0.0 excludes the pin 0.1']
