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


"""The benchmark of a large replay records what a replay can plan."""

import time

from oslo_config import cfg

from benchmarks import clusters
from benchmarks import replay_large
from kronos_nova.conf import opts
from kronos_nova.rebalancer.snapshots import replay


def test_a_generated_cloud_is_recorded_and_planned_alike_each_time(tmp_path):
    case = clusters.build(clusters.Spec('small', 6, 60, grouped=0.2, threshold=0.05), 1)
    snapshot, path = replay_large.record(case, str(tmp_path))
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[path])
    first, again = (replay.replay_snapshot(conf, snapshot, time.perf_counter)[0] for _ in range(2))
    assert (first['hosts'], first['instances']) == (6, 60)
    assert first['moves'] == again['moves'] != []
