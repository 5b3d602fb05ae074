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


"""What the tests of a rendered cloud share; most files render their own ``cloud``."""

from pathlib import Path

from oslo_config import cfg
import pytest

from tests.deploy import kolla_env
from tests.deploy import kolla_stubs
from tests.deploy import rendered_conf

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items):
    """Let the tests of a file run in one process, for ``--dist loadgroup``."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker('xdist_group') is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope='session')
def deployment(tmp_path_factory) -> kolla_stubs.Deployment:
    kolla_env.prepared()
    return kolla_stubs.Deployment(tmp_path_factory.mktemp('deployment'))


@pytest.fixture(params=rendered_conf.DAEMONS)
def daemon(request) -> str:
    return request.param


@pytest.fixture
def rendered(cloud, daemon) -> cfg.ConfigOpts:
    """kronos.conf of a daemon, read by the options that the daemon has."""
    return rendered_conf.daemon(cloud, daemon)
