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


"""The page about replay tells of every key, and its command works."""

import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

from tests import commands

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/reference/replay.rst').read_text()
COMMAND = re.compile(
    r'^   \$ cd (?P<cwd>\S+)\n   \$ kronos-replay (?P<arguments>.*)$', re.MULTILINE)


def shown():
    """What the page's own command prints."""
    found = COMMAND.search(PAGE)
    assert found is not None
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cmd import replay; '
                               'sys.exit(replay.main())', *found['arguments'].split()],
        cwd=TOP / found['cwd'], capture_output=True, text=True, check=False,
        env={**os.environ, 'PYTHONPATH': str(TOP)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def documented(title):
    """The keys of one table of the page."""
    table = PAGE.split(f'.. list-table:: {title}\n')[1].split('\n\n.. ')[0].split('\nFiles\n')[0]
    return {key for line in re.findall(r'^   \* - (``.*)$', table, re.MULTILINE)
            for key in re.findall(r'``(\w+)``', line)}


def test_command_returns_documented_keys():
    result = shown()
    assert set(result) == {'aggregates'}
    for row in result['aggregates']:
        assert row['moves'] and row['policies']
        assert set(row) == documented('A scope')
        assert all(set(p) == documented('A policy') for p in row['policies'])
        assert all(set(m) == documented('A move') for m in row['moves'])
        assert set(row['timings']) == {'collect', 'score', 'plan', 'check'}


def test_every_file_of_the_example_is_documented():
    documented_files = set(re.findall(r'``((?:\w+/)?[\w]+\.json)``', PAGE))
    folder = TOP / 'doc/examples/replay/snapshot'
    for path in folder.rglob('*.json'):
        name = str(path.relative_to(folder))
        general = re.sub(r'_(cpu|memory)\.json$', '_POLICY.json', name)
        assert {general, general.removeprefix('prometheus/')} & documented_files, name


def test_case_is_anonymised_as_documented(tmp_path):
    (block,) = re.findall(r'^   \$ (openssl rand .*)\n   \$ kronos (snapshot anonymise .*) \\\n'
                          r' +(.*)\n   (/var/tmp/\S+)$', PAGE, re.MULTILINE)
    salt, command, options, printed = block
    subprocess.run(salt.split(), cwd=tmp_path, check=True)
    snapshot = re.search(r'/var/tmp/kronos-engine-snapshot-\S+', command)[0]
    shutil.copytree(TOP / 'doc/examples/replay/snapshot', tmp_path / Path(snapshot).name)
    words = [word.replace('/var/tmp', str(tmp_path)).replace(
        '/etc/kronos/policies.yaml', str(TOP / 'doc/examples/replay/policies.yaml'))
        for word in f'{command} {options}'.split()]
    done = commands.main('kronos_nova.cli.app', *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed.replace('/var/tmp', str(tmp_path))
