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

import logging
import os

logging.getLogger('kronos_nova').setLevel(logging.DEBUG)


def pytest_runtest_setup(item):
    """For mutmut, which runs all tests in forks of one process: what builds a statement is
    reached by every test that executes it, not by the first alone."""
    if 'MUTANT_UNDER_TEST' in os.environ:
        from kronos_nova.rebalancer.store import statements
        statements._build_statement.cache_clear()
