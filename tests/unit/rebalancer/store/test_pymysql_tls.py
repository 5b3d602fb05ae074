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


"""Contexts of TLS of PyMySQL's connections. A closed port stands for the server: the context is
made before."""

import ssl
from unittest import mock

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import pymysql_tls


@pytest.fixture
def made():
    """The contexts that are made."""
    pymysql_tls._make_connection_class.cache_clear()
    with mock.patch.object(ssl, 'create_default_context', autospec=True,
                           side_effect=ssl.create_default_context) as create:
        yield create
    pymysql_tls._make_connection_class.cache_clear()


def connect_often(options=''):
    for _ in range(2):
        engine = database.from_url(f'mysql+pymysql://u:p@127.0.0.1:1/x{options}')
        for _ in range(2):
            with pytest.raises(exception.StoreError), database.explain_errors(engine):
                engine.connect()
        engine.dispose()


def test_connections_without_options_of_tls_share_a_context(made):
    connect_often()
    # PyMySQL before 1.2 makes none.
    assert made.call_count <= 1


def test_connections_with_options_of_tls_have_their_own_context(made, tmp_path):
    (tmp_path / 'ca.pem').write_text('')
    with mock.patch.object(ssl.SSLContext, 'load_verify_locations', autospec=True):
        connect_often(f'?ssl_ca={tmp_path}/ca.pem')
    assert [call.kwargs['cafile'] for call in made.call_args_list] == [f'{tmp_path}/ca.pem'] * 4
