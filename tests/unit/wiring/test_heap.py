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


"""The heap of a daemon, in a process of its own: limits hold for the whole process."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

TOP = Path(__file__).resolve().parents[3]
#: Begins threads that all need memory at a time, then prints the number of arenas.
COUNT_ARENAS = '''
import ctypes, sys, threading
from kronos_nova.wiring import heap
if sys.argv[1] == 'limited':
    heap.limit_heap()
gate = threading.Barrier(8)
def allocate():
    gate.wait()
    kept = [bytes(5000) for _ in range(50)]
    gate.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b'w'))
libc.malloc_info(0, file)
libc.fclose(file)
print(open(sys.argv[2]).read().count('<heap nr='))
'''
#: Frees 60 MiB below a block that stays, then waits until the memory is the system's again.
FREE_MEMORY = '''
import sys, time
from kronos_nova.wiring import heap
def measure():
    return int(open('/proc/self/statm').read().split()[1]) * 4096
if sys.argv[1] == 'limited':
    heap.limit_heap(0.1)
kept = [bytes(4000) for _ in range(15000)]
most, last = measure(), kept[-1]
del kept
end = time.monotonic() + float(sys.argv[2])
while measure() > most - 40e6 and time.monotonic() < end:
    time.sleep(0.05)
print(measure() <= most - 40e6)
'''
#: Takes the functions of glibc away; before DROP_CYCLE.
DROP_CYCLE_ELSEWHERE = '''
import ctypes
class Library:
    def __init__(self, name):
        if sys_argument == 'static':
            raise OSError
sys_argument = __import__('sys').argv[3]
ctypes.CDLL = Library
'''
#: Drops an object that refers to itself, then waits until it is gone.
DROP_CYCLE = '''
import sys, time, weakref
from kronos_nova.wiring import heap
class Node:
    pass
if sys.argv[1] == 'limited':
    heap.limit_heap(0.1)
node = Node()
node.itself = node
gone = weakref.ref(node)
del node
end = time.monotonic() + float(sys.argv[2])
while gone() is not None and time.monotonic() < end:
    time.sleep(0.05)
print(gone() is None)
'''


def run_program(code, *arguments, **environment):
    clean = {name: value for name, value in os.environ.items()
             if name not in ('MALLOC_ARENA_MAX', 'GLIBC_TUNABLES')}
    return subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code, *map(str, arguments)], cwd=TOP, check=True,
        env={**clean, **environment}, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(('limited', 'environment', 'least', 'most'), [
    ('limited', {}, 2, 2),
    ('unlimited', {}, 4, 99),
    ('limited', {'MALLOC_ARENA_MAX': '3'}, 3, 3),
    ('limited', {'GLIBC_TUNABLES': 'glibc.malloc.arena_max=3'}, 3, 3)])
def test_threads_share_two_arenas_unless_the_operator_says_otherwise(
        limited, environment, least, most, tmp_path):
    number = int(run_program(COUNT_ARENAS, limited, tmp_path / 'malloc.xml', **environment))
    assert least <= number <= most


@pytest.mark.parametrize('program', [FREE_MEMORY, DROP_CYCLE])
@pytest.mark.parametrize(('limited', 'seconds', 'returned'), [
    ('limited', 60, 'True'), ('unlimited', 1, 'False')])
def test_free_memory_goes_back_to_the_system(program, limited, seconds, returned):
    assert run_program(program, limited, seconds) == returned


@pytest.mark.parametrize('kind', ['musl', 'static'])
def test_cycles_are_collected_without_the_functions_of_glibc(kind):
    assert run_program(DROP_CYCLE_ELSEWHERE + DROP_CYCLE, 'limited', 60, kind) == 'True'
