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


"""Operators may still run nova-scheduler on eventlet: the doors work there."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import yaml

from tests.fixtures import prometheus_api

ROOT = pathlib.Path(__file__).parents[2]
#: Of tests/fixtures/green_worker.py, which must not be imported here.
SKIPPED = 77


class EventletTestCase(unittest.TestCase):

    def test_scores_are_refreshed_and_weighed_on_eventlet(self):
        environment = dict(os.environ, OS_NOVA_DISABLE_EVENTLET_PATCHING='0')
        with tempfile.TemporaryDirectory() as directory, prometheus_api.running() as api:
            api.series = {'cpu': {'cn1': 0.25, 'cn2': 0.75}}
            # Long enough to see who waits for it.
            api.delay = 1.0
            policies = os.path.join(directory, 'policies.yaml')
            with open(policies, 'w') as f:
                yaml.safe_dump({'policies': [
                    {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu'}]}, f)
            done = subprocess.run(
                [sys.executable, '-m', 'tests.fixtures.green_worker', policies, api.url],
                cwd=ROOT, capture_output=True, text=True, timeout=240, env=environment)
            if done.returncode == SKIPPED:
                self.skipTest(f'eventlet cannot be imported: {done.stdout}')
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            self.assertGreaterEqual(len(api.requests), 2, 'parent and child ask by themselves')
