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

"""Ends of the connections that the checks of kronos-test-config open."""

from oslo_config import cfg
import pytest

from kronos_nova.checks import base
from kronos_nova.checks import catalogue
from kronos_nova.conf import opts
from kronos_nova.conf import secret_mask


class Connection:
    """A source or a connection, which counts how often it was closed."""

    def __init__(self, error=None):
        self.error, self.closed = error, 0

    def close(self):
        self.closed += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize('source', [
    None, Connection(), Connection(OSError('the socket is gone')), Connection(ValueError('no'))])
def test_source_that_cannot_be_closed_leaves_no_connection_open(monkeypatch, source):
    connection = Connection(OSError('gone'))

    def open_both(context, names):
        context.source, context.connection = source, connection
        yield base.report_ok('nova')

    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], project='kronos', default_config_files=[], default_config_dirs=[])
    monkeypatch.setattr(catalogue, 'run_checks', open_both)
    monkeypatch.setattr(secret_mask, '_active', secret_mask.SecretMask())  # run() replaces it
    assert [item.name for item in catalogue.run(conf)] == ['nova']
    assert connection.closed == 1 and (source is None or source.closed == 1)
