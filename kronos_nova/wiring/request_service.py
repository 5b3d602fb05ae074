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

"""Assembly of kronos-migfra from the configuration; needs the extra ``mqtt``."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from kronos_nova.conf import policy_watch
from kronos_nova.rebalancer.messaging import transport
from kronos_nova.rebalancer.migfra import assembly
from kronos_nova.rebalancer.migfra import cloud_cache
from kronos_nova.rebalancer.store import process_identity
from kronos_nova.wiring import daemons


def make_migfra_service(conf: cfg.ConfigOpts, health: Any) -> tuple[Any, Callable[[], None]]:
    """Return the service for requests over MQTT, and the function to call after it has ended.

    :raises ConfigError: an option cannot be used.
    :raises StoreError: the database cannot be used.
    """
    watch = policy_watch.PolicyWatch(conf.engine.policies_file)
    opened, metrics_source = daemons.open_store(conf), daemons.load_metrics_source(conf)
    looks = cloud_cache.CloudCache(conf, opened, daemons.make_collector(conf), metrics_source)

    def close() -> None:
        metrics_source.close()
        opened.close()

    return assembly.build_service(conf, watch.refresh, daemons.open_connection(conf), opened, looks,
                                  process_identity.name_process(),
                                  transport.this_host(), health), close
