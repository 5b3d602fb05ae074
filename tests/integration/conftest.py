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

"""The order of the files: those that take longest begin first, so that no process of pytest goes
on for minutes after the others."""

from pathlib import Path

import pytest

LONGEST = ('test_live_page', 'test_store', 'test_crashes', 'test_legacy_broker', 'test_defect_19',
           'test_simulate', 'test_broker_check', 'test_transport', 'test_silent_database',
           'test_report')


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    order = {name: number for number, name in enumerate(LONGEST)}
    ordered = iter(sorted(here, key=lambda item: order.get(item.path.stem, len(LONGEST))))
    items[:] = [next(ordered) if item.path.parent == Path(__file__).parent else item
                for item in items]
