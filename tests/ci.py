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

"""What a test does without a program that it needs: it is skipped, and fails in CI, which
has everything that bindep.txt names."""

import os
import shutil
from typing import NoReturn

import pytest


def missing(what: str, package: str | None = None) -> NoReturn:
    """Skip the test, or fail it under CI=true.

    :param package: of bindep.txt, which has it.
    """
    said = f'{what} is missing' + (f': install {package} (bindep.txt)' if package else '')
    # As tools/run_tests.py reads it.
    if os.environ.get('CI', '').lower() in ('1', 'true', 'yes'):
        pytest.fail(said)
    pytest.skip(said)


def program(name: str, package: str) -> str:
    """The path of a program."""
    return shutil.which(name) or missing(name, package)
