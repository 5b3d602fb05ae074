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

"""The events of kronos-api, read one after the other: a request waits for the next one."""

import time

from kronos_nova.osc import client

#: Longest wait of one request, in seconds; proxies end requests that take longer than 30 or 60 s.
LONGEST_WAIT = 20.0
#: Seconds between two requests that the service answered at once, and after an answer that failed.
PAUSE = 2.0


class EventFeed:
    """Events since a time; None: since now.

    A wait goes on while the service does not answer, as during its restart.
    """

    def __init__(self, rebalance: client.RebalanceClient, since: str | None = None) -> None:
        self._client = rebalance
        self._query = {} if since is None else {'changes-since': since}
        if since is None:
            self._query = {'since': rebalance.send('GET', '/v1/events')['marker']}

    def read(self, seconds: float, limit: int | None = None) -> list[client.Document]:
        """Return the next events; wait for the first one up to so many seconds.

        The answer may be empty before the time is up.

        :raises UnavailableError: the service does not answer, and no time is left.
        :raises CommandError: it refuses the request.
        """
        wait = max(0.0, min(seconds, LONGEST_WAIT))
        try:
            page = self._client.send('GET', '/v1/events', query={
                **self._query, **({} if limit is None else {'limit': limit}),
                **({'wait_seconds': f'{wait:.1f}'} if wait else {})})
        except client.UnavailableError:
            if seconds <= PAUSE:
                raise
            time.sleep(PAUSE)
            return []
        self._query = {'since': page['marker']}
        if not page['events'] and not page['waited']:
            time.sleep(min(PAUSE, max(0.0, seconds)))
        return list(page['events'])
