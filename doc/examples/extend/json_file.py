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

"""The source that reads scores from a JSON file, which another program replaces each minute.

The file maps the text of a query to values by host (or instance): ``{"cpu": {"compute-01": 0.4}}``.
"""

import json
import math
import os
import time

from oslo_config import cfg

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.sources import base


class JsonFileSource(base.MetricsSource):
    """Source of the answers in ``[json_file] path``; samples are as old as the file."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        conf.register_opts([cfg.StrOpt('path', default='/run/scores.json',
                                       help='The file with the scores.')], group='json_file')
        self._path = conf.json_file.path

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        now = time.time()
        age = None
        try:
            age = now - os.stat(self._path).st_mtime
        except OSError:
            pass  # each query says so below
        vm_query = policy.vm_profile_query if profile else None
        return model.PolicySamples(
            policy.name, self._ask(policy.imbalance_query), age=age, taken_at=now,
            profile=None if vm_query is None else self._ask(vm_query))

    def health(self) -> tuple[model.SourceHealth, str]:
        if os.access(self._path, os.R_OK):
            return model.SourceHealth.HEALTHY, f'{self._path} can be read'
        return model.SourceHealth.UNREACHABLE, f'{self._path} cannot be read'

    def _ask(self, query: str) -> model.QueryResult:
        """Answer one query; a file that is missing or broken is an error, no empty answer."""
        try:
            with open(self._path, encoding='utf-8') as f:
                series = {label: float(value) for label, value in json.load(f)[query].items()}
            if not all(map(math.isfinite, series.values())):
                raise ValueError('a value is no finite number')
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as e:
            return model.QueryResult(query, model.SourceHealth.UNREACHABLE,
                                     error=f'{self._path}: {type(e).__name__}: {e}')
        return model.QueryResult(query, model.SourceHealth.HEALTHY, series)
