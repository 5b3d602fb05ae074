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

"""One storage of podman and one sandbox for all tests; they take minutes to make."""

from collections.abc import Callable
from collections.abc import Iterator
import os
from pathlib import Path
import tempfile

import pytest

from tests import ci
from tests.containers import cloud as clouds
from tests.containers import machine
from tests.containers.podman import Podman

TOP = Path(__file__).resolve().parents[2]
#: tools/run_tests.py shows its lines at the end.
MEASURED = TOP / '.test/containers.txt'


@pytest.fixture(scope='session')
def place() -> Iterator[Path]:
    """A directory with a short path, as a socket's must be."""
    if os.geteuid() != 0:
        ci.missing('root, who alone makes images here,')
    with tempfile.TemporaryDirectory(prefix='kronos-containers-') as directory:
        yield Path(directory)


@pytest.fixture(scope='session')
def podman(place: Path) -> Iterator[Podman]:
    top = place / 'podman'
    top.mkdir()
    made = Podman(top)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope='session')
def make_base(podman: Podman, place: Path) -> Callable[[str], str]:
    """Make the image of a release of Debian."""
    return lambda suite: machine.make_base(podman, place, suite)


@pytest.fixture(scope='session')
def cloud(place: Path) -> Iterator[clouds.Cloud]:
    with clouds.make_cloud(place) as made:
        yield made


@pytest.fixture(scope='session')
def measure() -> Callable[[str], None]:
    """Write down a measured value."""
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text('')

    def note(line: str) -> None:
        with MEASURED.open('a') as file:
            file.write(f'{line}\n')

    return note
