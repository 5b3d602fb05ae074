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

"""Every line that we log is written out in tests, or a wrong one would be noticed by an
operator first: pytest's handler fails a test whose line has other arguments than its text."""

import _thread
import gc
import http.client
import http.server
import logging
import os
import socketserver
import sys
import threading

import pytest

from tests import marks
from tests.fixtures import sqlite_engines

logging.getLogger('kronos_nova').setLevel(logging.DEBUG)
#: eventlet puts its own in the place of this, in both modules.
allocate_native_lock = _thread.allocate_lock


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    marks.mark_turns(items)


def pytest_collection_finish():
    """Refuse to patch this process for eventlet: Nova's libraries load it, and packages of tests
    patch on import. A later test with a thread of its own would hang without a word.

    To load ``eventlet.wsgi``, as a library of Nova may do in any test, is enough for that: then
    ``http.server`` and ``http.client`` are eventlet's copies, which wait in its hub. So tests take
    these modules by ``from http import server``.
    """
    for name in ('server', 'client'):
        assert getattr(http, name) is sys.modules[f'http.{name}'], (
            f'a module of tests loads eventlet.wsgi: other modules now have its http.{name}')
    eventlet = sys.modules.get('eventlet')
    if eventlet is not None:
        eventlet.monkey_patch = eventlet.patcher.monkey_patch = refuse_patches
    # Else each full collection looks through Nova and its libraries again.
    gc.freeze()


@pytest.fixture(scope='session', autouse=True)
def shared_statements():
    """Make the SQL of each statement once for all tests that have a database on SQLite."""
    with sqlite_engines.share_statements():
        yield


def refuse_patches(*_args, **_modules):
    raise RuntimeError('a test, or a module that it imports, patches this process for eventlet')


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Name the test after which locks are those of eventlet."""
    assert threading._allocate_lock is allocate_native_lock, 'threading is patched for eventlet'
    assert sys.modules['threading'] is socketserver.threading is threading, (
        'modules have another copy of threading')


def pytest_runtest_setup(item):
    """For mutmut, which runs all tests in forks of one process: what builds a statement is
    reached by every test that executes it, not by the first alone."""
    if 'MUTANT_UNDER_TEST' in os.environ:
        from kronos_nova.rebalancer.store import statements
        statements._build_statement.cache_clear()
