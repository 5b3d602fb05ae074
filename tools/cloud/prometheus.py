# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A private Prometheus, and the few questions the sandbox itself asks it."""

from collections.abc import Sequence
import json
from typing import Any
import urllib.parse
import urllib.request

from tools.cloud.run import Run


def start(run: Run, config: str) -> None:
    """Start the server with the given configuration text; ``wait`` says when it serves."""
    file = run.layout.etc / 'prometheus.yml'
    file.write_text(config)
    run.spawn(
        'prometheus',
        [
            'prometheus',
            f'--config.file={file}',
            f'--storage.tsdb.path={run.layout.data}/prometheus',
            f'--web.listen-address=127.0.0.1:{run.ports["prometheus"]}',
            '--log.level=warn',
        ],
    )


def get(run: Run, path: str, **parameters: str) -> Any:
    """``data`` of an API answer.

    :raises OSError: no connection, or an HTTP error
    """
    address = f'{run.url("prometheus")}/api/v1/{path}?{urllib.parse.urlencode(parameters)}'
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=10) as response:
        return json.load(response)['data']


def query(run: Run, expression: str, label: str) -> dict[str, float]:
    """An instant vector as label value -> value."""
    result = get(run, 'query', query=expression)['result']
    return {series['metric'][label]: float(series['value'][1]) for series in result}


def wait_targets(run: Run, hosts: Sequence[str]) -> None:
    """Wait until every host's two exporters have been scraped without error."""

    def ready() -> str | None:
        try:
            targets = get(run, 'targets', state='active')['activeTargets']
        except OSError as e:
            return str(e)
        wanted = 2 * len(hosts)
        down = [t for t in targets if t['health'] != 'up']
        if len(targets) != wanted:
            return f'{len(targets)} of {wanted} targets'
        return f'{down[0]["labels"]["instance"]}: {down[0]["lastError"]}' if down else None

    run.wait('Prometheus scrapes every host', ready)
