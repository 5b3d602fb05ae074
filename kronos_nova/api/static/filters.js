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

// Filters of hosts and moves. A text is looked for as it is: it is no pattern.

import { count, formatScore, make } from './parts.js';

/** Hosts that are listed by name, at most. */
const LISTED = 20;

export class Filters {
  constructor(form, matches, found, map) {
    this.form = form;
    this.matches = matches;
    this.found = found;
    this.map = map;
    this.view = { hosts: [], moves: [], policies: [] };
    for (const kind of ['input', 'change']) form.addEventListener(kind, () => this.apply());
    form.addEventListener('reset', () => setTimeout(() => this.apply()));
    form.addEventListener('submit', (event) => event.preventDefault());
  }

  attach(view) {
    this.view = view;
    for (const name of ['phase', 'state']) {
      const select = this.form.elements[name];
      const known = [...new Set(view.moves.map((move) => move[name]))].sort();
      const chosen = select.value;
      if (chosen && !known.includes(chosen)) known.push(chosen);
      select.replaceChildren(make('option', { value: '' }, 'all'),
        ...known.map((value) => make('option', { value }, value)));
      select.value = chosen;
    }
    this.apply();
  }

  apply() {
    const { host, phase, state, memory } = this.form.elements;
    const text = host.value.trim().toLowerCase();
    const least = (Number(memory.value) || 0) * 1024;
    const fits = (name) => name.toLowerCase().includes(text);
    const hosts = new Set();
    this.view.hosts.forEach((known, place) => { if (fits(known.name)) hosts.add(place); });
    const moves = new Set(this.view.moves.filter((move) => (fits(move.from_host) || fits(move.to_host))
      && (!phase.value || move.phase === phase.value) && (!state.value || move.state === state.value)
      && move.memory_mib >= least).map((move) => move.number));
    this.map.filter(hosts, moves);
    const filtered = text || phase.value || state.value || least;
    this.matches.textContent = filtered ? `${count(hosts.size, 'host')} and `
      + `${count(moves.size, 'move')} match.` : '';
    this.list(text ? [...hosts] : []);
  }

  list(places) {
    this.found.hidden = !places.length;
    this.found.replaceChildren(make('ul', {}, ...places.slice(0, LISTED).map((place) => {
      const host = this.view.hosts[place];
      const scores = this.view.policies.map((policy, n) => `${policy} `
        + `${formatScore(host.scores_now[n])} now, ${formatScore(host.scores_planned[n])} planned`);
      return make('li', {}, make('bdi', {}, host.name), `: ${scores.join('; ')}`);
    }), places.length > LISTED ? make('li', {}, `and ${places.length - LISTED} more`) : null));
  }
}
