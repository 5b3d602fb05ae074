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


"""What it takes to read the provider trees of a whole cloud, cold and warm.

Every host has a root with VCPU, MEMORY_MB and DISK_GB, two children with VGPUs and 26
instances, three of them with a VGPU. Everything is read for the first time (cold), again
when nothing has changed, and when every tenth host has: a generation was raised, or an
instance deleted, which raises none. Each is measured with the search for allocation candidates,
and where it shows no provider, so that each is read by itself. Printed are requests,
seconds by the clock and of this process, the least of several runs, and their part of the first.
Placement is simulated in another process that answers from memory: what is measured is ours::

    python benchmarks/providers.py --hosts 1800 --json
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
from http import server
import json
import multiprocessing
import multiprocessing.connection
import pathlib
import sys
import time
from typing import Any
import uuid

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from openstack import connection

from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_trees

INSTANCES = 26
CHILDREN = 2
#: One in so many has a VGPU.
WITH_VGPU = 9
TOTALS = {'VCPU': 128, 'MEMORY_MB': 2**20, 'DISK_GB': 4000}
CLAIM = {'VCPU': 2, 'MEMORY_MB': 4096, 'DISK_GB': 20}


def identity(*parts: object) -> str:
    """A UUID, the same in each process."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, ' '.join(map(str, parts))))


def cloud(hosts: int) -> Iterator[tuple[str, str | None, dict[str, int],
                                        dict[str, dict[str, int]]]]:
    """Providers: UUID, parent, inventories and what consumers have on it."""
    for host in range(hosts):
        root = identity('root', host)
        on: dict[str, dict[str, int]] = {
            identity('vm', host, n): dict(CLAIM) for n in range(INSTANCES)}
        yield root, None, TOTALS, on
        for child in range(CHILDREN):
            guests = [identity('vm', host, n) for n in range(0, INSTANCES, WITH_VGPU)]
            yield (identity('child', host, child), root, {'VGPU': 4},
                   {guest: {'VGPU': 1} for guest in guests[child::CHILDREN]})


class Simulated:
    """Answers from memory; ``/change`` changes every tenth host, ``/deny`` empties the search."""

    def __init__(self, hosts: int) -> None:
        self.denies = False
        self.records: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, dict[str, Any]] = {}
        for number, (own, parent, totals, on) in enumerate(cloud(hosts)):
            self.records[own] = {
                'uuid': own, 'name': f'p{number}', 'parent_provider_uuid': parent,
                'root_provider_uuid': parent or own, 'generation': 7}
            self.parts[own] = {
                'inventories': {name: {
                    'total': total, 'reserved': 0, 'allocation_ratio': 1.0, 'min_unit': 1,
                    'max_unit': total, 'step_size': 1} for name, total in totals.items()},
                'traits': [f'HW_CPU_X86_{n}' for n in range(60)] if parent is None else [],
                'allocations': {vm: {'resources': found} for vm, found in on.items()}}

    def change(self) -> None:
        roots = [r for r in self.records.values() if r['parent_provider_uuid'] is None]
        for number, record in enumerate(roots[::10]):
            if number % 2:
                record['generation'] += 1
            else:
                allocations = self.parts[record['uuid']]['allocations']
                allocations.pop(next(iter(allocations)))

    def sum_allocations(self, own: str) -> dict[str, int]:
        used = dict.fromkeys(self.parts[own]['inventories'], 0)
        for allocation in self.parts[own]['allocations'].values():
            for name, amount in allocation['resources'].items():
                used[name] += amount
        return used

    def search(self) -> dict[str, Any]:
        """Answer every provider, and the candidates, as Placement does."""
        roots = [own for own, r in self.records.items() if r['parent_provider_uuid'] is None]
        return {
            'allocation_requests': [
                {'allocations': {own: {'resources': {'MEMORY_MB': 1}}}, 'mappings': {'': [own]}}
                for own in roots],
            'provider_summaries': {own: {
                'resources': {name: {'used': used, 'capacity': 2**20}
                              for name, used in self.sum_allocations(own).items()},
                'traits': self.parts[own]['traits'],
                'root_provider_uuid': record['root_provider_uuid'],
                'parent_provider_uuid': record['parent_provider_uuid']}
                for own, record in self.records.items()}}

    def answer(self, path: str) -> dict[str, Any]:
        path, _, query = path.partition('?')
        if path == '/':
            return {'versions': [{'id': 'v1.0', 'max_version': '1.39', 'min_version': '1.0',
                                  'status': 'CURRENT', 'links': [{'rel': 'self', 'href': ''}]}]}
        if path == '/change':
            self.change()
            return {}
        if path == '/deny':
            self.denies = True
            return {}
        if path == '/allocation_candidates':
            return {'provider_summaries': {}} if self.denies else self.search()
        if path == '/resource_providers':
            return {'resource_providers': [] if query else list(self.records.values())}
        _, _, own, part = path.split('/')
        generation = {'resource_provider_generation': self.records[own]['generation']}
        found = self.parts[own]
        if part != 'usages':
            return {part: found[part], **generation}
        return {'usages': self.sum_allocations(own), **generation}


def serve(hosts: int, pipe: multiprocessing.connection.Connection) -> None:
    placement = Simulated(hosts)

    class Handler(server.BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            answer = json.dumps(placement.answer(self.path)).encode()
            self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n'
                             b'Content-Length: %d\r\n\r\n' % len(answer) + answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as listening:
        pipe.send(listening.server_port)
        listening.serve_forever()


@contextlib.contextmanager
def running(hosts: int) -> Iterator[str]:
    """The URL of a Placement; it is ended afterwards."""
    fresh = multiprocessing.get_context('spawn')
    ours, theirs = fresh.Pipe()
    process = fresh.Process(target=serve, args=(hosts, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        try:
            port = ours.recv()
        except EOFError:
            raise SystemExit('Placement did not start.') from None
        yield f'http://127.0.0.1:{port}'
    finally:
        process.kill()
        process.join()


def measure(url: str, hosts: int, runs: int) -> dict[str, dict[str, float]]:
    found = connection.Connection(
        session=session.Session(auth=token_endpoint.Token(url, 'admin')),
        placement_endpoint_override=url)
    placement = placement_api.PlacementApi(found)
    requests = [0]
    get = found.placement.get

    def counted(*args: Any, **kwargs: Any) -> Any:
        requests[0] += 1  # of several threads: good enough within one interpreter lock
        return get(*args, **kwargs)

    found.placement.get = counted

    def read(reader: provider_trees.TreeReader) -> None:
        with parallel_reads.ReadingContext(3600) as reads:
            forest = reader.read(reads, placement.read_providers,
                                 provider_trees.read_sharing(reads, placement))
        # Each change deletes instances.
        least_instances = hosts * (INSTANCES - 2 * runs)
        if len(forest.map_trees()) != hosts or len(forest.map_allocations()) < least_instances:
            raise SystemExit('Something was not read.')

    def least(before: Callable[[], provider_trees.TreeReader]) -> dict[str, float]:
        best: dict[str, float] = {}
        for _run in range(runs):
            reader = before()
            requests[0] = 0
            wall, cpu = time.perf_counter(), time.process_time()
            read(reader)
            now = {'requests': requests[0], 'seconds': time.perf_counter() - wall,
                   'cpu_seconds': time.process_time() - cpu}
            best = {name: min(value, best.get(name, value)) for name, value in now.items()}
        return best

    def fresh() -> provider_trees.TreeReader:
        return provider_trees.TreeReader(placement, remembers=True)

    def measure_all(beside: str) -> dict[str, dict[str, float]]:
        def changed() -> provider_trees.TreeReader:
            found.session.get(f'{url}/change', authenticated=False)
            return warm

        warm = fresh()
        read(warm)
        return {f'cold{beside}': least(fresh),
                f'nothing has changed{beside}': least(lambda: warm),
                f'a tenth has changed{beside}': least(changed)}

    measured = measure_all('')
    found.session.get(f'{url}/deny', authenticated=False)
    return measured | measure_all(', no search')


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--hosts', type=int, default=1800)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    with running(args.hosts) as url:
        found = measure(url, args.hosts, args.runs)
    if args.json:
        print(json.dumps({'hosts': args.hosts, **found}))
        return
    for name, row in found.items():
        print(f'{name:30} {row["requests"]:8.0f} requests {row["seconds"]:8.2f} s '
              f'{row["cpu_seconds"]:8.2f} s of ours '
              f'{row["seconds"] / found["cold"]["seconds"]:6.1%} of cold')


if __name__ == '__main__':
    main()
