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


"""Workers forked after the plug-ins were made refresh scores of their own."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import yaml

from tests.fixtures import prometheus_api

ROOT = pathlib.Path(__file__).parents[2]


class ForkTestCase(unittest.TestCase):

    def test_parent_and_forked_workers_each_see_scores(self):
        with tempfile.TemporaryDirectory() as directory, prometheus_api.running() as api:
            api.series = {'cpu': {'cn1': 0.25, 'cn2': 0.75}}
            policies = os.path.join(directory, 'policies.yaml')
            with open(policies, 'w') as f:
                yaml.safe_dump({'policies': [
                    {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu'}]}, f)
            done = subprocess.run(
                [sys.executable, '-m', 'tests.functional.forked_worker', policies, api.url],
                cwd=ROOT, capture_output=True, text=True, timeout=240)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            # Each of the three processes asked by itself.
            self.assertGreaterEqual(len(api.requests), 3)
