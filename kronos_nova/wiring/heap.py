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


"""The heap of a daemon: memory that is free goes back to the system.

glibc gives threads heaps of their own, "arenas", up to eight for each processor. Each keeps the
most that its threads ever needed at a time. Daemons begin threads all the time, and each thread
takes any arena. So without limits the resident memory grows for hours, although nothing is lost: a
list of all servers, read in another thread each time, or a reconnection to the database costs some
MiB in each arena. Objects in cycles wait as long: Python looks for them when a quarter of all
objects is new, and a daemon has 200,000 from its start.
"""

import ctypes
import gc
import os
import threading
import time

#: All threads share so many arenas: Python lets one thread compute at a time anyway.
ARENAS = 2
#: Seconds between two returns of free memory. Each takes about 0.1 s.
TRIM_SECONDS = 60.0
#: From malloc.h of glibc.
_M_ARENA_MAX = -8


def limit_heap(seconds: float = TRIM_SECONDS) -> None:
    """Let all threads share few arenas, and return free memory to the system from time to time.

    Call it before other threads begin, and after signals are blocked: it begins one. A C library
    without these functions, such as musl, has no such arenas; objects in cycles are collected there
    as well. The operator's MALLOC_ARENA_MAX, or GLIBC_TUNABLES, decides about the arenas where it
    is set.

    :param seconds: between two returns.
    """
    library = _load_library()
    if library is not None and not (
            'MALLOC_ARENA_MAX' in os.environ
            or 'glibc.malloc.arena_max' in os.environ.get('GLIBC_TUNABLES', '')):
        library.mallopt(_M_ARENA_MAX, ARENAS)
    threading.Thread(target=_return_memory, args=(library, seconds), name='kronos-heap',
                     daemon=True).start()


def _load_library() -> ctypes.CDLL | None:
    """Return the C library of this process; None without the functions of glibc."""
    try:
        library = ctypes.CDLL(None)
    except OSError:  # a static build
        return None
    return library if hasattr(library, 'mallopt') and hasattr(library, 'malloc_trim') else None


def _return_memory(library: ctypes.CDLL | None, seconds: float) -> None:
    while True:
        time.sleep(seconds)
        gc.collect()
        if library is not None:
            library.malloc_trim(0)
