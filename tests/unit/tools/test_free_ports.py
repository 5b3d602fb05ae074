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

"""Two test processes are never given the same port."""

import os
import subprocess
import sys

import pytest

from tests.fixtures import free_ports
from tools.cloud import ports

ANOTHER = '''
import sys
from tests.fixtures import free_ports
free_ports.LOWEST, free_ports.HIGHEST = map(int, sys.argv[1:])
print(free_ports.reserve_port(), flush=True)
input()
'''


def test_two_processes_reserve_different_ports(monkeypatch):
    lowest = free_ports.LOWEST + os.getpid() % 7000
    monkeypatch.setattr(free_ports, '_RESERVATIONS', [])
    monkeypatch.setattr(free_ports, 'LOWEST', lowest)
    monkeypatch.setattr(free_ports, 'HIGHEST', lowest + 20)
    with subprocess.Popen(
            [sys.executable, '-c', ANOTHER, str(lowest), str(lowest + 20)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        theirs = int(other.stdout.readline())
        ours = []
        with pytest.raises(OSError, match='no free port'):
            while True:
                ours.append(free_ports.reserve_port())
        assert theirs not in ours and len(ours) == len(set(ours)) > 0
        other.communicate('\n')
    assert free_ports._reserve_number(theirs), 'the end of a process frees its ports'
    for reservation in free_ports._RESERVATIONS:
        reservation.close()


def test_reserved_ports_stay_below_those_of_the_sandbox():
    assert free_ports.HIGHEST <= ports.LOWEST
