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



"""kronos weigh tune as a command, on the example of the documentation."""

import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs_nova

TOP = Path(__file__).resolve().parents[3]
EXAMPLE = TOP / 'doc/examples/tune'
PROGRAM = """
import socket, sys
connect = socket.socket.connect
def refuse(self, *args):
    # Nova learns this host's address from a datagram socket, which sends nothing.
    if self.type == socket.SOCK_STREAM:
        raise SystemExit('a connection was opened')
    return connect(self, *args)
socket.socket.connect = refuse
from kronos_nova.cli import app
sys.exit(app.main(['weigh', 'tune', *sys.argv[1:]]))
"""
PART = ('--config-file', 'kronos.conf', '--trace', 'trace.npz', '--to', '2026-11-02T12:00:00Z',
        '--without-moves')


def run(*arguments, seed='0'):
    return subprocess.run(
        [sys.executable, '-c', PROGRAM, *map(str, arguments)], cwd=EXAMPLE, text=True,
        capture_output=True, check=False, timeout=300,
        env={**os.environ, 'PYTHONHASHSEED': seed, 'PYTHONPATH': str(TOP)})


@pytest.mark.turns(2)
def test_rows_are_history_nova_alone_and_each_given_multiplier():
    done = run(*PART, '--multiplier', '8', '--multiplier', '-8', '-f', 'json')
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row['multiplier'] for row in rows] == [None, 0.0, 8.0, -8.0]
    assert rows[2]['overload_host_minutes'] <= rows[1]['overload_host_minutes']
    assert rows[2]['spread']['cpu'] < rows[1]['spread']['cpu'] < rows[3]['spread']['cpu']
    assert all(row['booted'] > 10 and row['moves'] is None for row in rows)
    assert [row['recommended'] for row in rows] == [False, False, True, False]
    assert done.stderr.count('\n') == 1 and '\r' not in done.stderr
    again = run(*PART, '--multiplier', '8', '--multiplier', '-8', '-f', 'json', seed='9')
    assert (again.stdout, again.stderr) == (done.stdout, done.stderr)


@pytest.mark.turns(2)
def test_another_option_of_nova_conf(tmp_path):
    conf = tmp_path / 'nova.conf'
    conf.write_text('[filter_scheduler]\nweight_classes = '
                    'kronos_nova.weighers.headroom.KronosWeigher\n')
    done = run(*PART, '--multiplier', '1', '--nova-conf', conf, '-f', 'json')
    assert done.returncode == 0, done.stderr
    alone = json.loads(done.stdout)[2]
    loud = json.loads(run(*PART, '--multiplier', '1', '-f', 'json', *(
        part for name in ('cpu', 'ram', 'disk', 'io_ops')
        for part in ('--set', f'{name}_weight_multiplier=0'))).stdout)[2]
    assert alone == loud


@pytest.mark.long
def test_errors_are_one_line():
    for arguments, words in (
            (('--multiplier', 'x'), ('--multiplier',)),
            (('--multiplier', 'nan'), ('--multiplier',)),
            (('--aggregate', 'gpu'), ('--aggregate', 'NAME=X')),
            (('--aggregate', 'gpu=much'), ('--aggregate', 'much')),
            (('--aggregate', 'nowhere=2'), ('--aggregate', 'no aggregate nowhere')),
            (('--set', 'x=1'), ('--set', 'kronos_weight_multiplier')),
            (('--nova-conf', '/nowhere.conf'), ('/nowhere.conf',)),
            (('--policies', '/nowhere.yaml'), ('/nowhere.yaml',)),
            (('--trace', '/nowhere.npz'), ('/nowhere.npz',))):
        done = run(*PART, *arguments)
        assert done.returncode == 1 and not done.stdout, done.stderr
        assert 'Traceback' not in done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith('kronos weigh tune: ')
        for word in words:
            assert word in line
