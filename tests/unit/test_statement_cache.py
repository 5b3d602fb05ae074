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

from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import sqlite

from tests.fixtures import sqlite_engines


def test_engines_of_one_dialect_alone_share_the_sql_of_a_statement():
    cache = sqlite_engines.StatementCache(10)
    cache[sqlite.dialect(), 'statement', ()] = 'SQL of SQLite'
    assert cache.get((sqlite.dialect(), 'statement', ())) == 'SQL of SQLite'
    assert cache.get((mysql.dialect(), 'statement', ())) is None
