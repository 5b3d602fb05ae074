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

"""The topics of the hosts that are served, under the aliases of [migfra] host_aliases."""

from collections.abc import Callable
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import plurals
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import protocol

LOG = logging.getLogger(__name__)


class HostTopics:
    """Topics by host.

    :raises ConfigError: an alias cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts, hosts: names.ScopesByHost) -> None:
        self.aliases = names.read_host_aliases(conf.migfra.host_aliases)
        self._named = {host: alias for alias, host in self.aliases.items()}
        self._prefix = f'{conf.mqtt.prefix}/migfra/'
        self._hosts = hosts
        self._topics: frozenset[str] = frozenset()

    def refresh_topics(self, subscribe: Callable[[Sequence[str]], None]) -> None:
        """Read the hosts again; subscribe to their topics if these have changed."""
        try:
            scope_by_host = self._hosts.refresh_hosts()
        except api.ApiError as e:
            LOG.warning('Which hosts there are is not known: %s. It is looked at again.', e)
            return
        served, foreign = [], []
        for host in scope_by_host:
            if host in self.aliases and host not in self._named:
                # Its topic would be that of the host with this alias.
                foreign.append(host)
                continue
            try:
                protocol.host_name(self._named.get(host, host))
                served.append(host)
            except ValueError:
                foreign.append(host)
        topics = frozenset(self.format_topic(host, 'task') for host in served)
        if topics == self._topics:
            return
        if foreign:
            LOG.warning('%s not served: no topic can bear the name, or [migfra] host_aliases '
                        'names another host so: %s',
                        plurals.count_with_verb(len(foreign), 'host'),
                        api.format_printable(', '.join(sorted(foreign)[:5])))
        LOG.info('Tasks are accepted on the topics of %s',
                 plurals.count_noun(len(topics), 'host'))
        self._topics = topics
        subscribe(sorted(topics))

    def format_topic(self, host: str, end: str) -> str:
        return f'{self._prefix}{self._named.get(host, host)}/{end}'

    def parse_alias(self, topic: str) -> str:
        """Return the alias in a task's topic, or the name of a host without one."""
        return topic.removeprefix(self._prefix).removesuffix('/task')
