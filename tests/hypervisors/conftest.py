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

"""A sandbox with two hosts of libvirt for each kind of disks."""

import os
import pathlib

import pytest

from tests.hypervisors.lab import Lab
from tools.cloud import down
from tools.cloud import state
from tools.cloud import up
from tools.cloud.layout import CHECKOUT
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.run import Run


@pytest.fixture(scope='module', params=['shared'])
def lab(request):
    """A sandbox that is up; where KRONOS_SANDBOX names one, that, and it stays up.

    A module that needs local disks says ``@pytest.mark.parametrize('lab', ['local'],
    indirect=True)``.
    """
    given = os.environ.get('KRONOS_SANDBOX')
    if given:
        layout = Layout(pathlib.Path(given))
        run = Run(layout, state.load(layout.state))
        if run.state.disks != request.param:
            pytest.skip(f'{given} has {run.state.disks} disks')
        yield Lab(run)
        return
    layout = Layout(CHECKOUT / '.sandbox' / f'libvirt-{request.param}')
    progress = Progress()
    down.down(layout, keep_logs=False, progress=progress)
    run = up.up(layout, up.Size(hosts=2, hypervisor='libvirt', disks=request.param), progress)
    try:
        yield Lab(run)
    finally:
        down.down(layout, keep_logs=True, progress=progress)


@pytest.fixture
def empty_lab(lab):
    """The lab without guests, daemons of ours or tasks, before and after a test."""
    lab.reset()
    yield lab
    lab.reset()
