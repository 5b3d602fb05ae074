// Licensed under the Apache License, Version 2.0 (the "License"); you may
// not use this file except in compliance with the License. You may obtain
// a copy of the License at
//
//      http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
// WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
// License for the specific language governing permissions and limitations
// under the License.

// The heat map: a pointer or arrow keys choose a host; its moves and their other ends light up.

import { formatScore, make } from './parts.js';

// As the service draws squares: their distance, their side, and the squares of a row.
const STEP = 10, SIDE = 9, ROW = 50;
const SVG = 'http://www.w3.org/2000/svg';

export class HeatMap {
  /** `choose` is called with the name of a host that is clicked or entered. */
  constructor(root, tip, announce, choose) {
    this.root = root;
    this.tip = tip;
    this.announce = announce;
    this.choose = choose;
    this.view = { hosts: [], moves: [], policies: [] };
    this.places = new Map();
    this.movesByHost = new Map();
    this.moveElements = new Map();
    this.hostRows = new Map();
    this.lit = [];
    this.host = null;
    this.move = null;
    this.pending = null;
    root.addEventListener('pointermove', (event) => this.follow(event));
    root.addEventListener('pointerleave', () => this.light(null, null));
    root.addEventListener('click', (event) => this.click(event));
    root.addEventListener('keydown', (event) => this.step(event));
    root.addEventListener('focusout', () => this.light(null, null));
  }

  /** Take the data of a fragment that was just put into the root. */
  attach(view) {
    const name = this.host === null ? null : this.view.hosts[this.host]?.name;
    this.view = view;
    this.places = new Map(view.hosts.map((host, place) => [host.name, place]));
    // A pointer crosses many squares in a second: what lights up is looked for here, once.
    this.movesByHost = new Map();
    for (const move of view.moves) {
      for (const host of new Set([move.from_host, move.to_host])) {
        collect(this.movesByHost, host, move);
      }
    }
    this.moveElements = new Map();
    this.hostRows = new Map();
    for (const element of this.root.querySelectorAll('[data-move]')) {
      collect(this.moveElements, Number(element.dataset.move), element);
    }
    for (const row of this.root.querySelectorAll('tr[data-host]')) {
      collect(this.hostRows, Number(row.dataset.host), row);
    }
    this.lit = [];
    this.drawings = [...this.root.querySelectorAll('svg.squares')];
    for (const drawing of this.drawings) {
      drawing.append(document.createElementNS(SVG, 'g'), document.createElementNS(SVG, 'g'));
    }
    this.host = this.move = null;
    this.light(name === null ? null : this.places.get(name) ?? null, null);
  }

  /** Cover the squares of hosts that a filter leaves out, and hide moves. */
  filter(shownHosts, shownMoves) {
    let covered = '';
    this.view.hosts.forEach((_host, place) => {
      if (!shownHosts.has(place)) covered += outline(place);
    });
    for (const drawing of this.drawings ?? []) {
      const [cover] = layers(drawing);
      cover.replaceChildren(...(covered ? [path('dim', covered)] : []));
      for (const flight of drawing.querySelectorAll('.flight')) {
        flight.style.display = shownMoves.has(Number(flight.dataset.move)) ? '' : 'none';
      }
    }
    for (const row of this.root.querySelectorAll('tr[data-move]')) {
      row.hidden = !shownMoves.has(Number(row.dataset.move));
    }
    for (const row of this.root.querySelectorAll('tr[data-host]')) {
      row.hidden = !shownHosts.has(Number(row.dataset.host));
    }
  }

  follow(event) {
    this.pointer = event;
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      const { target, clientX, clientY } = this.pointer;
      const row = target.closest?.('tr[data-move], tr[data-host]');
      if (row?.dataset.move) this.light(null, Number(row.dataset.move));
      else if (row?.dataset.host) this.light(Number(row.dataset.host), null);
      else this.light(this.find(target, clientX, clientY), null);
      this.showTip(clientX, clientY);
    });
  }

  /** Return the place of the square at a point, null: none is there. */
  find(target, x, y) {
    const drawing = target.closest?.('svg.squares');
    if (!drawing) return null;
    const box = drawing.getBoundingClientRect();
    const unit = box.width / drawing.viewBox.baseVal.width;
    const column = Math.floor((x - box.left) / unit / STEP);
    const row = Math.floor((y - box.top) / unit / STEP);
    const place = row * ROW + column;
    return column >= 0 && column < ROW && row >= 0 && place < this.view.hosts.length ? place : null;
  }

  click(event) {
    const place = this.find(event.target, event.clientX, event.clientY);
    if (place !== null) this.choose(this.view.hosts[place].name);
  }

  step(event) {
    if (!event.target.querySelector?.(':scope > svg.squares')) return;
    const last = this.view.hosts.length - 1;
    const ways = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -ROW, ArrowDown: ROW };
    if (event.key === 'Escape') this.light(null, null);
    else if (event.key === 'Enter' && this.host !== null) this.choose(this.view.hosts[this.host].name);
    else if (event.key in ways && last >= 0) {
      const next = this.host === null ? 0 : this.host + ways[event.key];
      if (next >= 0 && next <= last) {
        this.light(next, null);
        this.announce.textContent = this.describe(next).join(' ');
      }
    } else return;
    event.preventDefault();
  }

  /** Light up a host with its moves, or a move with its hosts; null: neither. */
  light(host, move) {
    if (host === this.host && move === this.move) return;
    this.host = host;
    this.move = move;
    const moves = host === null ? this.view.moves.filter((m) => m.number === move)
      : this.listMoves(host);
    const partners = new Set(moves.flatMap((m) => [m.from_host, m.to_host])
      .map((name) => this.places.get(name)).filter((place) => place !== undefined));
    const marks = host === null ? [] : [path('cursor', outline(host))];
    partners.delete(host);
    if (partners.size) marks.push(path('cursor partner', [...partners].map(outline).join('')));
    for (const drawing of this.drawings ?? []) {
      layers(drawing)[1].replaceChildren(...marks.map((mark) => mark.cloneNode()));
    }
    const lit = [...moves.flatMap((m) => this.moveElements.get(m.number) ?? []),
      ...[host, ...partners].flatMap((place) => this.hostRows.get(place) ?? [])];
    const kept = new Set(lit);
    for (const element of this.lit) if (!kept.has(element)) element.classList.remove('lit');
    for (const element of lit) element.classList.add('lit');
    this.lit = lit;
    if (host === null) this.tip.hidden = true;
  }

  /** Return the moves that a host gives or takes. */
  listMoves(place) {
    return this.movesByHost.get(this.view.hosts[place].name) ?? [];
  }

  showTip(x, y) {
    this.tip.hidden = this.host === null;
    if (this.host === null) return;
    const host = this.view.hosts[this.host];
    if (host !== this.described) {
      this.described = host;
      this.tip.replaceChildren(...this.describe(this.host).map((line) => make('p', {}, line)));
      this.tipBox = this.tip.getBoundingClientRect();
    }
    const box = this.tipBox;
    const left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4));
    const top = y + 18 + box.height > innerHeight ? y - 12 - box.height : y + 18;
    this.tip.style.transform = `translate(${left}px, ${Math.max(4, top)}px)`;
  }

  /** Return lines about a host. */
  describe(place) {
    const host = this.view.hosts[place];
    const scores = this.view.policies.map((policy, n) => `${policy} ${formatScore(host.scores_now[n])}`
      + ` now, ${formatScore(host.scores_planned[n])} planned`);
    const moves = this.listMoves(place);
    return [`${host.name}: ${host.instance_count} instances${host.notes.length
      ? `, ${host.notes.join(', ')}` : ''}.`, `${scores.join('; ')}.`,
    ...moves.slice(0, 5).map((m) => `${m.instance_name || m.instance_id}: ${m.from_host} to `
      + `${m.to_host}, ${m.phase}, ${m.state}.`),
    ...(moves.length > 5 ? [`And ${moves.length - 5} more moves.`] : [])];
  }
}

function collect(lists, key, value) {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

function layers(drawing) {
  return [...drawing.children].slice(-2);
}

function outline(place) {
  return `M${(place % ROW) * STEP} ${Math.floor(place / ROW) * STEP}h${SIDE}v${SIDE}h-${SIDE}z`;
}

function path(className, d) {
  const element = document.createElementNS(SVG, 'path');
  element.setAttribute('class', className);
  element.setAttribute('d', d);
  return element;
}
