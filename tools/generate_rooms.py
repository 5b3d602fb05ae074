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

"""Write the picture of the rooms from the contract in setup.cfg and the real imports, or check it.

    python tools/generate_rooms.py           writes doc/source/contributor/rooms.dot
    python tools/generate_rooms.py --check   exits 1 if it is out of date

An arrow leads from a room to a room that it imports. Where a longer way leads there too, the
direct arrow is left out.
"""

from collections.abc import Mapping
import configparser
import graphlib
from pathlib import Path
import sys

import grimp

TOP = Path(__file__).resolve().parent.parent
PICTURE = TOP / 'doc/source/contributor/rooms.dot'
PACKAGE = 'kronos_nova'
REBALANCER = f'{PACKAGE}.rebalancer'
#: Container -> contract with its layers.
CONTRACTS = {PACKAGE: 'importlinter:contract:layers',
             REBALANCER: 'importlinter:contract:rebalancer-layers'}


def read_layers(container: str) -> list[list[str]]:
    """Return the full names of a container's rooms, the highest layer first.

    Rooms that the contract exempts from the layers are a layer of their own, the last one.
    """
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    contract = setup[CONTRACTS[container]]
    layers = [line.split(' | ') for line in contract['layers'].strip().splitlines()]
    layers.append([name for name in contract['exhaustive_ignores'].split() if name != 'version'])
    return [[f'{container}.{name.strip()}' for name in layer] for layer in layers if layer]


def read_imports(rooms: set[str]) -> dict[str, set[str]]:
    """Return the rooms that each room imports."""
    graph = grimp.build_graph(PACKAGE)
    found: dict[str, set[str]] = {room: set() for room in rooms}
    of = {module: room for module in graph.modules
          if (room := _find_room(module, rooms)) is not None}
    for module, room in of.items():
        found[room] |= {of[other] for other in graph.find_modules_directly_imported_by(module)
                        if other in of and of[other] != room}
    return found


def _find_room(module: str, rooms: set[str]) -> str | None:
    parts = module.split('.')
    return next((room for n in range(len(parts), 0, -1) if (room := '.'.join(parts[:n])) in rooms),
                None)


def drop_implied_arrows(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those to a room that a longer way reaches.

    :raises graphlib.CycleError: rooms import each other.
    """
    below: dict[str, set[str]] = {}
    kept: dict[str, set[str]] = {}
    for room in graphlib.TopologicalSorter(imports).static_order():
        further = set().union(*(below[other] for other in imports[room]))
        kept[room] = imports[room] - further
        below[room] = imports[room] | further
    return kept


def draw() -> str:
    """Return the picture in Graphviz's language."""
    upper, lower = read_layers(PACKAGE), read_layers(REBALANCER)
    rooms = {room for layer in (*upper, *lower) for room in layer} - {REBALANCER}
    arrows = drop_implied_arrows(read_imports(rooms))
    lines = ['// Written by tools/generate_rooms.py.', 'digraph rooms {',
             '  newrank=true; nodesep=0.2; ranksep=0.35;',
             '  node [shape=box, fontname="sans-serif", fontsize=11, height=0.3];',
             '  edge [arrowsize=0.6, color="#707070"];']
    lines += _draw_layers(upper, '  ')
    lines += ['  subgraph cluster_rebalancer {', '    label="rebalancer"; fontname="sans-serif";']
    lines += [*_draw_layers(lower, '    '), '  }']
    lines += [f'  "{room}" -> "{other}";' for room in sorted(arrows)
              for other in sorted(arrows[room])]
    return '\n'.join([*lines, '}', ''])


def _draw_layers(layers: list[list[str]], indent: str) -> list[str]:
    return [f'{indent}{{ rank=same; ' + ' '.join(
        f'"{room}" [label="{room.rpartition(".")[2]}"];' for room in layer if room != REBALANCER)
        + ' }' for layer in layers]


def main() -> int:
    wanted = draw()
    if PICTURE.exists() and PICTURE.read_text() == wanted:
        return 0
    name = PICTURE.relative_to(TOP)
    if '--check' in sys.argv[1:]:
        print(f'{name} is out of date: run python tools/generate_rooms.py')
        return 1
    PICTURE.write_text(wanted)
    print(f'wrote {name}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
