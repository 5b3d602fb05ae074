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

"""A report is written whole or not at all, and replaces only an older report."""

import os
from pathlib import Path
import stat

import pytest

from kronos_nova import exception
from kronos_nova.cli import report
from kronos_nova.rebalancer.report import page
from tests.unit.rebalancer.report import made

TEXT = page.render_page(made.report())


def written(path, force=False):
    report.refuse_foreign_file(str(path), force)
    report.write_report(str(path), TEXT)


def test_a_report_is_private_and_keeps_the_mode_of_an_older_one(tmp_path):
    path = tmp_path / 'report.html'
    written(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == TEXT
    path.chmod(0o644)
    before = path.stat().st_ino
    written(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644 and path.stat().st_ino != before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_no_report_is_replaced_only_by_force(tmp_path):
    path = tmp_path / 'notes.html'
    path.write_text('<title>Kronos report</title> my own words')
    with pytest.raises(exception.ConfigError, match='is no report of ours. .* --force'):
        written(path)
    assert path.read_text().endswith('my own words')
    written(path, force=True)
    assert path.read_text() == TEXT


def test_only_regular_files_are_replaced(tmp_path):
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path('/dev/null')):
        with pytest.raises(exception.ConfigError, match='it is no file'):
            written(path, force=True)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and stat.S_ISCHR(Path('/dev/null').stat().st_mode)


def test_writing_to_a_link_writes_its_target(tmp_path):
    (tmp_path / 'there').mkdir()
    link = tmp_path / 'link.html'
    link.symlink_to(tmp_path / 'there' / 'report.html')
    written(link)
    assert link.is_symlink() and (tmp_path / 'there' / 'report.html').read_text() == TEXT


def test_error_about_an_unwritable_path_names_the_cause(tmp_path):
    with pytest.raises(exception.ConfigError, match=r'it cannot be written \(No such file'):
        written(tmp_path / 'nowhere' / 'report.html')


def test_a_failed_write_leaves_the_older_report_alone(tmp_path):
    path = tmp_path / 'report.html'
    written(path)
    with pytest.raises(UnicodeEncodeError):
        report.write_report(str(path), TEXT + '\ud800')
    assert path.read_text() == TEXT and list(tmp_path.iterdir()) == [path]
