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

"""The table of errors has each error of a migration, with its stored type and its code."""

from pathlib import Path
import re

from kronos_nova import exception

TOP = Path(__file__).resolve().parents[2]
ROW = re.compile(r'   \* - ``(\w+)``\n     - ``(\w+)``, ``([\w.]+)``\n')


def list_errors(kind):
    return {kind, *(error for below in kind.__subclasses__() for error in list_errors(below))}


def test_table_has_type_and_code_of_each_migration_error():
    page = (TOP / 'doc/source/reference/errors.rst').read_text()
    ours = {error for error in list_errors(exception.MigrationError)
            if error.__module__.startswith('kronos_nova.')}
    assert exception.UnexpectedError in ours
    assert sorted(ROW.findall(page)) == sorted(
        (error.wire_type, error.__name__, error.code) for error in ours)
