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

// The live page: sign in, show the views of the service, and follow its events.

import { ApiError, forgetToken, hasToken, keepToken, send, signIn, takeFarewell } from './client.js';
import { Drains } from './drains.js';
import { Filters } from './filters.js';
import { HeatMap } from './heat.js';
import { count, make, openDialog, say, swap } from './parts.js';

/** Seconds of a request for events; milliseconds after an event until the views are asked for: the
 * service renders a view once a second. */
const WAIT = 25, DEBOUNCE = 1100;
/** Milliseconds between two refreshes at most; between two questions where none can wait. */
const REFRESH = 60_000, POLL = 8_000;
/** Milliseconds before a request that failed is sent again, at first and at most. */
const RETRY = 1_000, SLOWEST = 30_000;

const find = (id) => document.getElementById(id);
const state = { rules: new Set(), scopes: [], scope: null, stop: null, timer: null, due: Infinity,
  refreshing: null, stale: 0, release: null, links: '', plan: 0 };
const map = new HeatMap(find('scope'), find('tip'), find('announce'), (host) => {
  find('check-form').elements.host.value = host;
  find('announce').textContent = `${host} is chosen for a drain check.`;
});
const filters = new Filters(find('filters'), find('matches'), find('found'), map);
const drains = new Drains(find, (rule) => state.rules.has(`kronos:drain:${rule}`), (answer) => {
  announce(answer.approval_problem ?? (answer.approvals_missing
    ? tellMissing(answer.approvals_missing) : `Nova has changed host ${answer.host}. `
      + 'The list of drains shows the change when an engine has read the cloud again.'));
  refresh();
});

/** Tell a reader, also one who does not see the page, the effect of an order. */
function announce(text) {
  find('announce').textContent = text;
  say(find('effect'), text);
}

function tellMissing(number) {
  return `${count(number, 'more approval')} by other people ${number === 1 ? 'is' : 'are'} needed.`;
}

/** Forget the token, and load the page anew, so that nothing of this reader stays; say why. */
function signOut(text = '') {
  state.stop?.abort();
  forgetToken(text);
  location.reload();
}

function showSignIn() {
  find('sign-in').hidden = false;
  say(find('notice'), takeFarewell());
  find('password-form').elements.user_name.focus();
}

/** Begin with the token that is kept: show the views, then follow the events. */
async function begin() {
  find('sign-in').hidden = true;
  state.stop = new AbortController();
  const rights = await askForRights(state.stop.signal);
  if (rights === null) return;
  state.rules = new Set(rights.rules);
  say(find('notice'), '');
  find('who').firstElementChild.textContent = `${rights.user_name} in ${rights.project_name}`;
  for (const id of ['content', 'who']) find(id).hidden = false;
  await Promise.all([refresh(), follow(state.stop.signal)]);
}

/** Return what the token may do; null: it is refused. A service that is away keeps the token. */
async function askForRights(signal) {
  for (let delay = RETRY; ; delay = Math.min(2 * delay, SLOWEST)) {
    try {
      return await send('GET', 'rights', { signal });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) signOut('The token is not valid, or no longer.');
      else if (error.status === 403) signOut(error.message);
      if ([401, 403].includes(error.status)) return null;
      find('state').textContent = `Not live: ${error.message}`;
      await sleep(delay, signal);
    }
  }
}

/** Refresh the views after each event, until the signal; a failed request is sent again. */
async function follow(signal) {
  let marker = null, delay = RETRY;
  while (!signal.aborted) {
    try {
      if (marker === null) {
        marker = (await send('GET', 'events', { signal })).marker;
        renew();  // the views that have come may be older than the marker
        find('state').textContent = 'Live';
      }
      const answer = await send('GET', 'events', { signal,
        query: { since: marker, wait_seconds: document.hidden ? 0 : WAIT } });
      marker = answer.marker;
      if (answer.events.length) renew();
      if (!answer.waited || document.hidden) await sleep(POLL, signal);
      if (delay !== RETRY) schedule(0);
      delay = RETRY;
      find('state').textContent = 'Live';
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) { signOut('The token is no longer valid.'); return; }
      if (error.status === 403) {
        find('state').textContent = 'Once a minute: the token may not follow events';
        return;
      }
      find('state').textContent = `Not live: ${error.message}`;
      if (!(error instanceof ApiError)) console.error(error);
      if (error.status === 404) marker = null;
      await sleep(delay, signal);
      delay = Math.min(2 * delay, SLOWEST);
    }
  }
}

function sleep(milliseconds, signal) {
  return new Promise((wake) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      document.removeEventListener('visibilitychange', end);
      wake();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener('abort', end);
    document.addEventListener('visibilitychange', end);
  });
}

/** Refresh when the service keeps no view from before now; an earlier refresh does not replace this one. */
function renew() {
  state.stale = performance.now() + DEBOUNCE;
  schedule(DEBOUNCE);
}

/** Refresh after a time, or earlier where that is scheduled already. */
function schedule(milliseconds) {
  const due = performance.now() + milliseconds;
  if (state.due <= due) return;
  unschedule();
  state.due = due;
  state.timer = setTimeout(() => { unschedule(); refresh(); }, milliseconds);
}

function unschedule() {
  clearTimeout(state.timer);
  state.due = Infinity;
}

/**
 * Ask for all views; each that fails leaves its part as it was, and says why. While they come, another
 * refresh is due after them: they may be older than what it is asked for.
 */
function refresh() {
  if (state.refreshing !== null) state.stale = performance.now() + DEBOUNCE;
  state.refreshing ??= (async () => {
    const begun = performance.now();
    const problems = new Set();
    for (const show of [showOverview, showScope, () => drains.refresh(state.stop.signal)]) {
      try {
        await show();
      } catch (error) {
        if (state.stop.signal.aborted) return;
        if (!(error instanceof ApiError)) console.error(error);
        if (error.status === 401) { signOut('The token is no longer valid.'); return; }
        problems.add(error.message);
      }
    }
    say(find('notice'), [...problems].join(' '));
    state.refreshing = null;
    schedule(begun < state.stale ? Math.max(0, state.stale - performance.now()) : REFRESH);
  })();
  return state.refreshing;
}

async function showOverview() {
  const view = await send('GET', 'views/overview', { signal: state.stop.signal });
  if (state.release !== view.release && state.release !== null) {
    location.reload();  // the service has been upgraded: scripts and views of two releases do not mix
    return;
  }
  state.release = view.release;
  find('as-of').textContent = `as of ${view.read_at.slice(11, 19)} UTC`;
  state.scopes = view.scopes;
  const box = find('overview');
  swap(box, view.html);
  swap(find('failures'), view.failures_html);
  const waiting = box.querySelectorAll('[data-approve-plan]');
  for (const button of waiting) button.hidden = !state.rules.has('kronos:plan:approve');
  document.title = waiting.length ? `(${waiting.length}) Kronos` : 'Kronos';
  if (!view.scopes.includes(state.scope)) state.scope = readHash() ?? view.worst_scope;
  const links = view.scopes.map((scope) => make('li', {}, make('a', {
    href: `#scope=${encodeURIComponent(scope)}`,
    ...(scope === state.scope ? { 'aria-current': 'page' } : {}) }, make('bdi', {}, scope))));
  find('scopes-nav').hidden = view.scopes.length < 2;
  const shown = JSON.stringify([view.scopes, state.scope]);
  if (state.links !== shown) find('scopes-nav').querySelector('ul').replaceChildren(...links);
  state.links = shown;
}

async function showScope() {
  const { scope } = state;
  find('scope-section').hidden = scope === null;
  if (scope === null) return;
  const view = await send('GET', 'views/scope', { query: { scope }, signal: state.stop.signal });
  if (scope !== state.scope) return;
  const changed = swap(find('scope'), view.html);
  if (changed) map.attach(view);
  filters.attach(view);
  const names = find('hosts');
  if (names.childElementCount !== view.hosts.length || changed) {
    names.replaceChildren(...view.hosts.map((host) => make('option', { value: host.name })));
  }
}

function readHash() {
  const scope = new URLSearchParams(location.hash.slice(1)).get('scope');
  return state.scopes.includes(scope) ? scope : null;
}

function chooseScope(scope) {
  state.scope = scope;
  if (state.refreshing === null) refresh();
  else state.refreshing.then(refresh);
}

async function showPlan(planId) {
  const box = find('plan-view');
  const asked = ++state.plan;
  try {
    const { html } = await send('GET', 'views/plan', { query: { plan_id: planId } });
    if (asked !== state.plan) return;
    swap(box.lastElementChild, html);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    say(find('notice'), error.message);
    return;
  }
  box.hidden = false;
  box.scrollIntoView();
  find('plan-name')?.focus();
}

function openApproval(planId, moves, shutdowns) {
  openDialog(find('approve'), `${count(moves, 'move')} of plan ${planId} may begin then.`
    + (shutdowns ? ` ${shutdowns}` : ''), 'approve',
    ({ reason }) => send('POST', `plans/${planId}/approve`, {
      body: reason.value.trim() ? { reason: reason.value.trim() } : {} }),
    (answer) => {
      announce(answer.approvals_missing ? tellMissing(answer.approvals_missing)
        : `${count(answer.tasks.length, 'task')} may begin.`);
      refresh();
    });
}

find('password-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const form = event.target;
  try {
    keepToken(await signIn(Object.fromEntries(new FormData(form))));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    say(find('notice'), error.message);
    return;
  } finally {
    form.elements.password.value = '';
  }
  begin();
});
find('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  keepToken(event.target.elements.token.value.trim());
  event.target.reset();
  begin();
});
find('sign-out').addEventListener('click', () => signOut());
find('check-form').addEventListener('submit', (event) => {
  event.preventDefault();
  drains.check(event.target.elements.host.value.trim());
});
find('overview').addEventListener('click', (event) => {
  const button = event.target.closest('button');
  const { showPlan: plan, approvePlan, moves, showScope: place } = button?.dataset ?? {};
  if (plan) showPlan(plan);
  else if (approvePlan) {
    openApproval(approvePlan, Number(moves), button.closest('li').querySelector('.shutdowns')?.textContent);
  } else if (place) {
    location.hash = `scope=${encodeURIComponent(state.scopes[place])}`;
    find('scope-section').scrollIntoView();
  }
});
find('close-plan').addEventListener('click', () => { find('plan-view').hidden = true; });
addEventListener('hashchange', () => { const scope = readHash(); if (scope) chooseScope(scope); });
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !find('content').hidden) schedule(0);
});

if (hasToken()) begin();
else showSignIn();
