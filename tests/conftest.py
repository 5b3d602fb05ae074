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

logging.getLogger('kronos_nova').setLevel(logging.DEBUG)


def pytest_sessionstart(session):
    """In a process that has run tests before, statements are built anew: a mutant of what
    builds them is not seen otherwise."""
    from kronos_nova.rebalancer.store import statements
    statements._built.cache_clear()
