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

"""The assembly of kronos-migfra from its parts."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import policy
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.authorization import request_authorization
from kronos_nova.rebalancer.authorization import signatures
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import server_constraints as pinned_zones
from kronos_nova.rebalancer.messaging import mqtt
from kronos_nova.rebalancer.migfra import cloud_cache
from kronos_nova.rebalancer.migfra import moves
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import power
from kronos_nova.rebalancer.migfra import repin
from kronos_nova.rebalancer.migfra import request_repository
from kronos_nova.rebalancer.migfra import request_worker
from kronos_nova.rebalancer.migfra import service
from kronos_nova.rebalancer.migfra import vcpu_pinning
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.store import api as store_api


def build_service(conf: cfg.ConfigOpts, policies: Callable[[], policy.PolicySet], connection: Any,
                  store: store_api.Store, looks: cloud_cache.CloudCache,
                  worker: str, machine: str,
                  health: healths.DaemonHealth | None = None) -> service.MigfraService:
    """Return a service that is not running yet.

    :param policies: returns the newest valid policies.
    :param connection: an openstacksdk connection.
    :param worker: the name of this process, as requests bear it.
    :param machine: the name of this machine, for the broker.
    :raises ConfigError: an option cannot be used.
    """
    if not conf.mqtt.host:
        raise exception.ConfigError(
            path='kronos.conf', field='[mqtt] host', problem='no broker is named',
            remedy='Name the MQTT broker that tasks come from.')
    authorization = request_authorization.RequestAuthorization(signatures.open_keys(conf))
    authorization.check_keys()
    client_id = conf.migfra.client_id or f'kronos-migfra-{machine}'
    repository = request_repository.MigfraRequestRepository(
        store, worker, conf.migfra.claim_seconds, authorization=authorization)
    nova = nova_api.NovaApi(connection, pinned_zones.make_disruption_settings(conf))
    hosts = names.ScopesByHost(nova, planning_settings.list_planned_scopes(conf, policies()),
                               engine_conf.planned_zone(conf))
    pinned = vcpu_pinning.VcpuPinning(conf)
    lanes = [
        request_worker.MigfraRequestWorker(conf, repository, power.PowerHandler(
            conf, nova, hosts, repository.record_progress, store.hooks.has_pending_hook)),
        request_worker.MigfraRequestWorker(conf, repository, moves.MoveHandler(
            conf, policies, nova, hosts, store, looks, repository.record_plan, pinned.pin_vcpus)),
        request_worker.MigfraRequestWorker(conf, repository,
                                           repin.PinHandler(conf, nova, hosts, pinned.pin_vcpus))]
    return service.MigfraService(
        conf, repository, hosts, lanes, lambda heard: mqtt.MqttConnection(
            conf, client_id, heard, f'{conf.mqtt.prefix}/migfra/{client_id}/status'), health)
