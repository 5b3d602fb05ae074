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

// Drains: the hosts that are emptied, with a forecast, and the check of a host.

import { ApiError, send } from './client.js';
import { count, formatSeconds, formatTime, make, openDialog, replaceChildren } from './parts.js';

/** Drains whose forecast is asked for without a click, and the milliseconds for which it holds. */
const FORECAST = 3, FRESH = 600_000;
/** Milliseconds between two questions for the list, at least. */
const LIST = 5_000;
const HEAD = ['Host', 'Scope', 'Instances left', 'State', 'Forecast'];

export class Drains {
  /**
   * `find` returns an element by its id, `may` whether the reader may start or stop drains; `changed`
   * gets the answer to an order.
   */
  constructor(find, may, changed) {
    this.box = find('drains');
    this.certificate = find('certificate');
    this.find = find;
    this.may = may;
    this.changed = changed;
    this.drains = [];
    this.forecasts = new Map();
    this.busy = false;
    this.asked = 0;
    this.shown = null;
    this.listedAt = 0;
    this.timer = null;
  }

  /** Ask for the list, unless it has come lately: the service calculates it for each page. */
  async refresh(signal) {
    clearTimeout(this.timer);
    const left = this.listedAt + LIST - Date.now();
    if (left > 0) {
      this.timer = setTimeout(() => this.refresh(signal).catch(() => {}), left);
      return;
    }
    this.listedAt = Date.now();
    this.drains = (await send('GET', 'drains', { signal })).drains;
    this.render();
    if (!this.busy) {
      this.busy = true;
      this.foresee().finally(() => { this.busy = false; });
    }
  }

  /** Ask for the forecasts that are missing or old, one after the other. */
  async foresee() {
    const wanted = this.drains.filter((drain) => drain.instance_count && drain.held === null);
    for (const { host } of wanted.slice(0, FORECAST)) {
      const known = this.forecasts.get(host);
      if (known && Date.now() - known.at < FRESH) continue;
      try {
        this.forecasts.set(host, { at: Date.now(), text: stamp(foretell(await ask(host))) });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        this.forecasts.set(host, { at: Date.now(), text: error.message });
      }
      this.render();
    }
  }

  /** Show the list, unless it is there already: an element that is pressed must not be replaced. */
  render() {
    const shown = JSON.stringify([this.drains, [...this.forecasts], this.may('stop')]);
    if (shown === this.shown) return;
    this.shown = shown;
    if (!this.drains.length) {
      this.box.replaceChildren(make('p', {}, 'No host is disabled or emptied.'));
      return;
    }
    const rows = this.drains.map((drain) => {
      const state = drain.held !== null ? `held: ${drain.held}. ${drain.remedy ?? ''}`
        : drain.instance_count ? 'engines empty it' : 'empty';
      const stop = make('button', { type: 'button' }, 'Stop…');
      stop.addEventListener('click', () => this.openStop(drain.host));
      const due = drain.deadline === null ? ''
        : `${drain.late ? 'late: its deadline was' : 'its deadline is'} ${formatTime(drain.deadline)}`;
      const why = drain.disabled_reason === null ? '' : `disabled: ${drain.disabled_reason}`;
      return make('tr', {}, make('th', { scope: 'row', class: 'host' }, make('bdi', {}, drain.host)),
        cell(1, make('bdi', {}, drain.scope)), cell(2, String(drain.instance_count)),
        cell(3, make('bdi', {}, state), due ? make('br') : null,
          due ? make('span', drain.late ? { class: 'bad' } : {}, due) : null, why ? make('br') : null,
          why ? make('bdi', { class: 'small' }, why) : null,
          why && this.may('stop') ? make('br') : null, why && this.may('stop') ? stop : null),
        cell(4, this.forecasts.get(drain.host)?.text ?? (drain.instance_count ? 'not asked for' : '-')));
    });
    replaceChildren(this.box, [make('div', { class: 'wide', tabindex: '0', role: 'group',
      'aria-label': 'Drains, table' }, make('table', { class: 'cards' },
      make('thead', {}, make('tr', {}, ...HEAD.map((text) => make('th', { scope: 'col' }, text)))),
      make('tbody', {}, ...rows)))]);
  }

  /** Show whether a host can be emptied, and how. */
  async check(host) {
    this.certificate.hidden = false;
    this.certificate.replaceChildren(make('p', {}, 'The service plans the drain of ',
      make('bdi', {}, host), ' …'));
    const asked = ++this.asked;
    let answer;
    try {
      answer = await ask(host);
      if (asked !== this.asked) return;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (asked !== this.asked) return;
      this.certificate.replaceChildren(make('p', { class: 'bad' }, error.message));
      return;
    }
    const lines = [
      ...answer.obstacles.map((text) => make('li', {}, `Engines: ${text}`)),
      ...answer.moves.map((move) => make('li', {}, make('code', {}, move.instance_id), ' moves to ',
        make('bdi', {}, move.to_host), ` in wave ${move.wave}`,
        move.method === 'offline' ? ', offline' : '')),
      ...answer.blocked.map((stays) => make('li', {}, make('code', {}, stays.instance_id),
        stays.leaves_later ? ' leaves later: ' : ' stays: ', make('bdi', {}, stays.reason))),
      ...answer.risks.map((risk) => make('li', {}, make('code', {}, risk.instance_id),
        ` may not converge: ${Math.round(100 * risk.probability)} %`)),
      ...answer.shutdowns.map((verdict) => make('li', {}, make('code', {}, verdict.instance_id),
        ' is ', make('bdi', {}, verdict.text))),
      ...Object.entries(answer.missing).map(([name, amount]) => make('li', {},
        `Other hosts lack ${amount} of ${name}`))];
    const start = make('button', { type: 'button', class: 'main' }, 'Start drain…');
    start.addEventListener('click', () => this.openStart(answer));
    const close = make('button', { type: 'button' }, 'Close');
    close.addEventListener('click', () => { this.certificate.hidden = true; });
    this.certificate.replaceChildren(
      make('h3', {}, 'Drain of ', make('bdi', {}, host), answer.can_be_emptied ? ' is possible'
        : ' is not possible'),
      make('p', {}, `${count(answer.instance_count, 'instance')} on the host. ${foretell(answer)}. `
        + `An engine read the cloud ${formatTime(answer.read_at)}.`),
      make('ul', {}, ...lines),
      make('div', { class: 'row' }, this.may('start') && answer.can_be_emptied ? start : null, close));
  }

  openStart(answer) {
    openDialog(this.find('drain'), `Nova disables host ${answer.host}; `
      + `${count(answer.instance_count, 'instance')} must leave the host. ${foretell(answer)}.`
      + (answer.shutdown_summary === null ? '' : ` ${answer.shutdown_summary}`), 'start',
    ({ reason, approve }) => send('POST', 'drains', {
      body: { host: answer.host, reason: reason.value, approve: approve.checked } }),
    (started) => {
      this.certificate.hidden = true;
      this.changed(started);
    });
  }

  openStop(host) {
    openDialog(this.find('stop-drain'), `Nova enables host ${host}. Tasks of the drain that have not `
      + 'begun are cancelled.', 'stop', () => send('DELETE', 'drains', { query: { host } }), this.changed);
  }
}

/** Return a forecast with the time at which it was made. */
function stamp(text) {
  return `${text} (at ${new Date().toISOString().slice(11, 16)} UTC)`;
}

function cell(column, ...children) {
  return make('td', { 'data-label': HEAD[column] }, ...children);
}

function ask(host) {
  return send('GET', 'drains/check', { query: { host } });
}

function foretell(answer) {
  const stays = answer.blocked.filter((instance) => !instance.leaves_later).length;
  const time = answer.expected_seconds === null ? 'Time not known: no migration was measured'
    : `About ${formatSeconds(answer.expected_seconds)}, by ${count(answer.measured_migration_count,
      'measured migration')}`;
  return stays ? `${count(stays, 'instance')} would stay. ${time}` : time;
}
