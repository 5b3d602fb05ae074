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


"""What the tests of a rendered cloud share; each file renders its own ``cloud``."""

from oslo_config import cfg
import pytest

from tests.deploy import rendered_conf


@pytest.fixture(params=rendered_conf.DAEMONS)
def daemon(request) -> str:
    return request.param


@pytest.fixture
def rendered(cloud, daemon) -> cfg.ConfigOpts:
    """kronos.conf of a daemon, read by the options that the daemon has."""
    return rendered_conf.daemon(cloud, daemon)
